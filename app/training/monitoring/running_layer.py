"""Which layer of a model runs at each moment of a training step, forward and backward."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch

from app.util import module_tree

if TYPE_CHECKING:
    from torch import Tensor, nn

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class RunningLayer:
    """The observer of a step that knows its `phase` and the path of the layer that runs, `outside` where none does.

    A node of the backward pass belongs to the layer that was running when forward made it.
    """

    def __init__(self, model: nn.Module, outside: str = "") -> None:
        self._model = model
        self.phase = FORWARD
        self._running = [outside]
        # Layers by the numbers that autograd gives the nodes made from then on.
        self._starts: list[int] = [0]
        self._layers: list[str] = [outside]

    @contextmanager
    def following(self) -> Iterator[None]:
        """Hook the calls and returns of all layers."""
        with ExitStack() as stack:
            for path, module in module_tree.named_modules(self._model):
                if not path:
                    continue
                for handle in (
                    module_tree.before_call(
                        module, lambda _module, _inputs, path=path: self._enter(path)
                    ),
                    module_tree.on_call(
                        module, lambda *_: self._leave(), always_call=True
                    ),
                ):
                    stack.callback(handle.remove)
            yield

    def _enter(self, path: str) -> None:
        self._running.append(path)
        self.begin(path)

    def _leave(self) -> None:
        self._running.pop()
        self.begin(self._running[-1])

    def begin(self, layer: str) -> None:
        """Note that a layer runs from now on."""
        self._starts.append(torch._C._autograd._get_sequence_nr())
        self._layers.append(layer)

    def layer_of(self, number: int) -> str:
        """Return the layer that made the node with a sequence number."""
        return self._layers[bisect_right(self._starts, number) - 1]

    def layer(self) -> str:
        """Return the layer that runs, in backward that of the node that runs."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self._running[-1]
        return self.layer_of(node._sequence_nr())

    def forward_done(self, loss: Tensor) -> None:
        """Note that backward begins."""
        self.phase = BACKWARD

    def hash_gradients(self) -> None:
        """Note that backward is done."""
        self.phase = OPTIMIZER

    def measure(self) -> None:
        """Note that the optimizer's step begins."""
        self.phase = OPTIMIZER
