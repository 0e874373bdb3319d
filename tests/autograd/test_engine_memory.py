"""The bytes that the tape says are held, and the step at which each is let go of, are those of a real backward."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from app.autograd.batch import TrainingBatch
from app.autograd.playback.playback import Playback
from tests.support.playback_nets import NETS, batch, loss


class Born(TorchDispatchMode):
    """Weak references to the memory behind everything that an operation made, and its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                parts = (
                    (tensor,)
                    if tensor.layout is torch.strided
                    else (tensor._indices(), tensor._values())
                )
                for storage in (part.untyped_storage() for part in parts):
                    self.blocks[storage._cdata] = (
                        StorageWeakRef(storage),
                        storage.nbytes(),
                    )
        return out


def deep() -> nn.Module:
    return nn.Sequential(
        *[part for _ in range(4) for part in (nn.Linear(8, 8), nn.Tanh())],
        nn.Linear(8, 3),
    )


@pytest.mark.parametrize(
    "name",
    ["deep", "residual", "recurrent", "shared", "custom", "checkpoint", "complex"],
)
def test_each_step_lets_go_of_what_the_tape_says(name: str) -> None:
    """At every step of a real backward: what is alive, to the byte, and the curve that a played pass gives."""
    torch.manual_seed(0)
    x, y = batch()
    model = deep() if name == "deep" else NETS[name]()
    born = Born()
    with TrainingBatch(model, x, loss, y).hold(around=born) as graph:
        tape = graph.tape
        playback = Playback(graph)
        playback.run()
        curve = list(playback.curve)
        assert curve == [tape.held_bytes, *(record.held for record in playback.records)]
        released = [record.released for record in playback.records]
        playback._flow.clear()  # gradients of ours can be tensors that torch saved
        playback.leaf_gradients.clear()
        if hasattr(model, "kept"):
            del model.kept
        known = {
            t.untyped_storage()._cdata
            for t in (*model.parameters(), *model.buffers(), x, y, graph.ends[0])
        }
        alive = []

        def look(*_: Any) -> None:
            alive.append(
                sum(
                    n
                    for key, (ref, n) in born.blocks.items()
                    if key not in known and not ref.expired()
                )
            )

        gc.collect()
        for node in graph.nodes:
            node.register_prehook(look)
        graph.ends[0].backward()
        look()
    assert alive == curve and curve[0] > 0 == curve[-1]
    assert [
        before - after for before, after in zip(alive, alive[1:], strict=False)
    ] == released
