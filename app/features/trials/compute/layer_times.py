"""How long each layer takes in a training step, forward and backward, and what its operations allow on the device.

The time between two boundaries is that of the layer which runs: where a layer is called, where it returns, and where
backward comes to an operation of another layer. So the rows add up to the measured step; what lies between layers (the
loss, operations of no layer) and the optimizer have rows of their own. What measuring costs is known from steps without
it, which alternate with those that are measured, and is taken off each boundary evenly. A row shorter than that is 0,
and the rows are longer than the step by what it lacks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache, partial
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from app.features.trials.values import LayerTime, LayerTimes
from app.training.monitoring.running_layer import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    RunningLayer,
)
from app.util import module_tree
from app.util.torch_calls import KernelCalls
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.training.stepper import Stepper

BETWEEN = "between layers"
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
    return _rows(stepper.model, device, steps, measured, possible, flops, bandwidth)


def _rows(
    model: nn.Module,
    device: str,
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
        count = sum(timer.boundaries[row] for timer in half) / len(half)
        seconds[row] = max(spent - cost * count, 0.0)
    layers = [
        path
        for path, _ in module_tree.named_modules(model)
        if path and {(path, FORWARD), (path, BACKWARD)} & rows
    ]
    return LayerTimes(
        device,
        step,
        total,
        flops,
        bandwidth,
        tuple(
            LayerTime(
                name,
                seconds[name, FORWARD],
                seconds[name, BACKWARD],
                possible.seconds[name, FORWARD],
                possible.seconds[name, BACKWARD],
            )
            for name in (*layers, BETWEEN)
        ),
        seconds[OPTIMIZER, OPTIMIZER],
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


class _Timer(RunningLayer):
    """`seconds` and `boundaries` by layer and phase, of one step."""

    def __init__(self, stepper: Stepper, device: str) -> None:
        super().__init__(stepper.model, BETWEEN)
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

    def begin(self, layer: str) -> None:
        super().begin(layer)
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


class _Possible(RunningLayer, KernelCalls):
    """`seconds` that the operations of each layer need at least, by the FLOP and the bytes of each operation."""

    def __init__(self, stepper: Stepper, flops: float, bandwidth: float) -> None:
        RunningLayer.__init__(self, stepper.model, BETWEEN)
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
        return self.layer(), self.phase
