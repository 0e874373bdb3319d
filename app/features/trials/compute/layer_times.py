"""How long each layer takes in a training step, forward and backward, and what its operations allow on the device.

The time between two boundaries is that of the layer which runs: where a layer is called, where it returns, and where
backward comes to an operation of another layer. So the rows add up to the step; what lies between layers (the loss,
operations of no layer) and the optimizer have rows of their own. What measuring costs is known from steps without it,
which alternate with those that are measured, and is taken off each boundary evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from app.features.trials.values import LayerTime, LayerTimes
from app.util import module_tree
from app.util.torch_calls import KernelCalls
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.stepper import Stepper

BETWEEN = "between layers"
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
WARM_UP, LEAST, MOST = 3, 7, 60  # steps
SECONDS = 2.0  # of measuring
SIDE, COPIED, TRIES = 1024, 1 << 26, 5  # of a square matrix, and bytes

Row = tuple[str, str]  # a layer and a phase


def layer_times(
    stepper: Stepper,
    inputs: Any,
    labels: Any,
    device: str,
    cancelled: Callable[[], bool] = lambda: False,
) -> LayerTimes:
    """Measure steps on one batch. The optimizer has its state already. Raises what the net raises."""
    flops, bandwidth = roofline(device)
    possible = _Possible(stepper, flops, bandwidth)
    possible.run(partial(stepper.take, inputs, labels, True, possible))

    def plain() -> float:
        devices.synchronize(device)
        began = perf_counter()
        stepper.take(inputs, labels, True)
        devices.synchronize(device)
        return perf_counter() - began

    for _ in range(WARM_UP):
        plain()
    steps: list[float] = []
    measured: list[_Timer] = []
    began = perf_counter()
    while len(steps) < LEAST or (
        len(steps) < MOST and perf_counter() - began < SECONDS and not cancelled()
    ):
        steps.append(plain())
        timer = _Timer(stepper, device)
        timer.run(partial(stepper.take, inputs, labels, True, timer))
        measured.append(timer)
    return _rows(steps, measured, possible, flops, bandwidth)


def _rows(
    steps: list[float],
    measured: list[_Timer],
    possible: _Possible,
    flops: float,
    bandwidth: float,
) -> LayerTimes:
    """Return the means of the middle half of the steps, without what measuring costs."""
    step = _middle(steps)
    half = _middle_half(measured, lambda timer: sum(timer.seconds.values()))
    total = sum(sum(timer.seconds.values()) for timer in half) / len(half)
    boundaries = sum(sum(timer.boundaries.values()) for timer in half) / len(half)
    cost = max(total - step, 0.0) / boundaries
    rows = {row for timer in half for row in timer.seconds}

    seconds: defaultdict[Row, float] = defaultdict(float)
    for row in rows:
        spent = sum(timer.seconds[row] for timer in half) / len(half)
        met = sum(timer.boundaries[row] for timer in half) / len(half)
        seconds[row] = max(spent - cost * met, 0.0)
    # A row has no less than no time: what could not be taken off there is taken off all in proportion.
    share = min(step / sum(seconds.values()), 1.0)

    layers = [
        path for path in possible.paths if {(path, FORWARD), (path, BACKWARD)} & rows
    ]
    return LayerTimes(
        step,
        total,
        flops,
        bandwidth,
        tuple(
            LayerTime(
                name,
                share * seconds[name, FORWARD],
                share * seconds[name, BACKWARD],
                possible.seconds[name, FORWARD],
                possible.seconds[name, BACKWARD],
            )
            for name in (*layers, BETWEEN)
        ),
        share * seconds[OPTIMIZER, OPTIMIZER],
    )


def _middle_half(values: list[Any], key: Callable[[Any], float]) -> list[Any]:
    quarter = len(values) // 4
    return sorted(values, key=key)[quarter : len(values) - quarter]


def _middle(values: list[float]) -> float:
    half = _middle_half(values, lambda value: value)
    return sum(half) / len(half)


@cache
def roofline(device: str) -> tuple[float, float]:
    """Measure FLOP and bytes per second of a device once: the best of some float32 matrix products and copies."""
    square = torch.rand(SIDE, SIDE, device=device)
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def best(run: Callable[[], Any]) -> float:
        times = []
        for _ in range(TRIES):
            devices.synchronize(device)
            began = perf_counter()
            run()
            devices.synchronize(device)
            times.append(perf_counter() - began)
        return min(times)

    with torch.no_grad():
        product = best(lambda: square @ square)
        copy = best(lambda: target.copy_(source))
    return 2 * SIDE**3 / product, 2 * COPIED / copy


class _Layers:
    """Follows which layer runs, forward and backward. A subclass is told of each change; it is the step's observer."""

    def __init__(self, stepper: Stepper) -> None:
        self._model = stepper.model
        self.phase = FORWARD
        self.paths = [
            path for path, _ in module_tree.named_modules(self._model) if path
        ]
        self._running = [BETWEEN]
        # Layers by the numbers that autograd gives the nodes made from then on.
        self._starts: list[int] = [0]
        self._layers: list[str] = [BETWEEN]

    @contextmanager
    def following(self) -> Iterator[None]:
        """Be told of calls and returns of layers."""
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
        self._begin(path)

    def _leave(self) -> None:
        self._running.pop()
        self._begin(self._running[-1])

    def _begin(self, layer: str) -> None:
        self._starts.append(torch._C._autograd._get_sequence_nr())
        self._layers.append(layer)

    def layer_of(self, number: int) -> str:
        """Return the layer that made the node with a sequence number."""
        return self._layers[bisect_right(self._starts, number) - 1]

    def forward_done(self, loss: Tensor) -> None:
        self.phase = BACKWARD

    def hash_gradients(self) -> None:
        """Note the end of backward."""
        self.phase = OPTIMIZER

    def measure(self) -> None:
        """Note that the optimizer's step begins."""
        self.phase = OPTIMIZER


class _Timer(_Layers):
    """`seconds` and `boundaries` by layer and phase, of one step."""

    def __init__(self, stepper: Stepper, device: str) -> None:
        super().__init__(stepper)
        self._device = device
        self._row: Row = BETWEEN, FORWARD
        self._began = 0.0
        self.seconds: defaultdict[Row, float] = defaultdict(float)
        self.boundaries: Counter[Row] = Counter()

    def run(self, step: Callable[[], Any]) -> None:
        """Run a step and take the time."""
        with self.following():
            self._began = self._now()
            step()
            self._switch(self._row)

    def _now(self) -> float:
        devices.synchronize(self._device)
        return perf_counter()

    def _switch(self, row: Row) -> None:
        now = self._now()
        self.seconds[self._row] += now - self._began
        self.boundaries[self._row] += 1
        self._row, self._began = row, now

    def _begin(self, layer: str) -> None:
        super()._begin(layer)
        self._switch((layer, self.phase))

    def forward_done(self, loss: Tensor) -> None:
        """Hook the first operation of each layer in the order of backward, while the clock stands."""
        self._switch((BETWEEN, BACKWARD))
        super().forward_done(loss)
        before = BETWEEN
        for node in _in_order(loss):
            layer = self.layer_of(node._sequence_nr())
            if layer != before:
                row = layer, BACKWARD
                node.register_prehook(lambda _gradients, row=row: self._switch(row))
                before = layer
        self._began = self._now()

    def hash_gradients(self) -> None:
        super().hash_gradients()
        self._switch((OPTIMIZER, OPTIMIZER))


def _in_order(loss: Tensor) -> list[Any]:
    """Return the nodes below a loss as backward comes to them, without those that put a gradient into a parameter."""
    met, waiting = set(), [loss.grad_fn]
    nodes = []
    while waiting:
        node = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if not hasattr(node, "variable"):
            nodes.append(node)
        waiting += [below for below, _ in node.next_functions]
    return sorted(nodes, key=lambda node: -node._sequence_nr())


class _Possible(_Layers, KernelCalls):
    """`seconds` that the operations of each layer need at least, by the FLOP and the bytes of each operation."""

    def __init__(self, stepper: Stepper, flops: float, bandwidth: float) -> None:
        _Layers.__init__(self, stepper)
        KernelCalls.__init__(self)
        self._flops, self._bandwidth = flops, bandwidth
        self.seconds: defaultdict[Row, float] = defaultdict(float)

    def run(self, step: Callable[[], Any]) -> None:
        """Run a step and count its operations."""
        # The mode sees the operations of this thread alone.
        with self.following(), torch.autograd.set_multithreading_enabled(False), self:
            step()

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        result = func(*args, **kwargs)
        if func.is_view:
            return result
        tensors = [
            leaf
            for leaf in tree_leaves((args, kwargs, result))
            if isinstance(leaf, torch.Tensor)
        ]
        size = sum({id(tensor): tensor.nbytes for tensor in tensors}.values())
        formula = flop_registry.get(func.overloadpacket)
        flop = formula(*args, **kwargs, out_val=result) if formula else 0
        seconds = max(flop / self._flops, size / self._bandwidth)
        self.seconds[self._current()] += seconds
        return result

    def _current(self) -> Row:
        if self.phase == OPTIMIZER:
            return OPTIMIZER, OPTIMIZER
        node = torch._C._current_autograd_node()
        if node is None:
            return self._running[-1], self.phase
        return self.layer_of(node._sequence_nr()), self.phase
