"""A compiled step is captured with what can be known of it, and the script computes what it would alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tapedeck
from app.autograd.gradient_norms import measure
from app.engine.requests.playback import RecordRequest
from tests.tapedeck.test_capture import Window, opened  # noqa: F401
from tests.tapedeck.test_watching import at_every_step, told  # noqa: F401

STEPS = 5


def learn(
    backend: str, gradients: list[dict[str, torch.Tensor]], compile_late: bool = False
) -> list[str]:
    """Train a compiled model; keep the gradients of each step."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    compiled = net if compile_late else torch.compile(net, backend=backend)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    losses = []
    for step in range(STEPS):
        if compile_late and step == 1:
            compiled = torch.compile(net, backend=backend)
        loss = compiled(torch.randn(7, 5)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        gradients.append(
            {name: each.grad.clone() for name, each in net.named_parameters()}
        )
        losses.append(loss.item().hex())
        optimizer.step()
    return losses


@pytest.mark.parametrize(
    ("backend", "late"), [("eager", False), ("aot_eager", False), ("aot_eager", True)]
)
def test_a_compiled_step_is_captured(
    backend, late, tmp_path, opened: Callable[[dict[str, Any]], Window]
):
    tmp_path.chmod(0o700)
    alone = learn(backend, [], late)
    torch._dynamo.reset()
    watch = tapedeck.watch(folder=tmp_path, quiet=True)
    window = opened(watch.folder)
    gradients: list[dict[str, torch.Tensor]] = []
    losses: list[str] = []
    capture = window.link.send("capture")

    def run() -> None:
        losses.extend(learn(backend, gradients, late))
        watch.stop()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    steps = []
    while True:
        try:
            engine, held, step = window.hold(capture)
        except Exception as error:
            assert "ended before it called backward again" in str(error)
            break
        passed = engine.ask(RecordRequest(held)).result(60)
        assert passed.stopped == "", (passed.stopped, step.notes)
        records = passed.steps.records
        arrived = {
            name: record.arriving
            for record in records
            for name in step.tape.nodes[record.node].parameters
        }
        steps.append((held.step, step, arrived))
        capture = window.link.send("capture")
        engine.close()
    thread.join(300)
    torch._dynamo.reset()
    assert losses == alone and len(steps) == STEPS - 1
    for number, step, arrived in steps:
        assert arrived.keys() == gradients[number - 1].keys(), (number, step.tape.nodes)
        for name, gradient in gradients[number - 1].items():
            assert arrived[name] == tuple(measure([gradient])), (
                number,
                name,
                sorted(arrived),
            )
        one_node = any(
            node.name == "CompiledFunctionBackward" for node in step.tape.nodes
        )
        assert one_node == (backend != "eager")
        assert (
            any("compiled parts are one node each" in note for note in step.notes)
            == one_node
        )
        assert not any(
            node.layer for node in step.tape.nodes if not node.is_leaf
        )  # a hook would compile it anew
