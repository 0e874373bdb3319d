"""Measure the peak memory of a training step: its bytes by kind, and the layer whose operation makes it.

Kinds and owner are counted at torch's operations, forward and backward. The total is the allocator's own peak, also on
the CPU, where convolutions have a workspace; of a device that tells none it is counted as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace
from torch.multiprocessing.reductions import StorageWeakRef

from app.autograd.diagnostics.checkpointing import Peak
from app.data.fields import Fields
from app.features.fit.compute.cpu_allocator import AllocatorPeak
from app.features.fit.values import PeakBytes, StepPeak
from app.telemetry import memory
from app.telemetry.gradients import GradientSampler
from app.telemetry.layer_stats import Look
from app.telemetry.throttle import Meter
from app.training.monitoring.running_layer import FORWARD, RunningLayer
from app.training.monitoring.watcher import LOOKS
from app.util import module_tree
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.source.generated import Source
    from app.training.stepper import Stepper

POINTS = 400  # of a curve

Storage = tuple[StorageWeakRef, int]  # with its bytes


class _Timeline(RunningLayer, Peak):
    """Follows the bytes of a device in a step operation by operation, which it observes, and keeps what is alive at the
    peak."""

    def __init__(
        self, before: list[Tensor], model: nn.Module, look: Look, device: str
    ) -> None:
        RunningLayer.__init__(self, model)
        Peak.__init__(self, before)
        self._kind = torch.device(device).type
        self._look = look
        self.bytes_after: list[int] = []
        self._at_peak: list[Storage] = []
        self._saved: list[Storage] = []  # what was alive when a forward pass was done
        self.peak_phase, self.owner = FORWARD, ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the operations, and the layers as they are called."""
        # The mode sees the operations of this thread alone.
        with self.following(), torch.autograd.set_multithreading_enabled(False), self:
            yield

    def forward_done(self, loss: Tensor) -> None:
        """Note what is alive between forward and backward: what autograd saved, and the outputs."""
        super().forward_done(loss)
        looked_at = set(_storages(self._look.tensors()))
        self._saved += [
            storage for key, storage in self._alive.items() if key not in looked_at
        ]
        self._look.forward_done(loss)

    def measure(self) -> None:
        """Note that the optimizer's step begins."""
        self._look.gradients()
        super().measure()

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        before = self.bytes
        result = super().visit(func, args, kwargs, frame)
        self._sweep()
        self.bytes_after.append(self._now)
        if self.bytes > before:
            self._at_peak = list(self._alive.values())
            self.peak_phase, self.owner = self.phase, self.layer()
        return result

    def _add(self, tensor: Tensor) -> None:
        if tensor.device.type == self._kind:
            super()._add(tensor)

    def kinds(self, model: nn.Module, static: PeakBytes, peak: int) -> PeakBytes:
        """Return the bytes at the peak by kind, with parameters and optimizer's state as they are before the step."""
        gradients = {
            parameter.grad.untyped_storage()._cdata
            for parameter in module_tree.parameters(model)
            if parameter.grad is not None
        }
        saved = set(map(id, self._saved))
        by_kind = {"gradients": 0, "saved": 0}
        for storage in self._at_peak:
            reference, size = storage
            if reference.cdata in gradients and not reference.expired():
                by_kind["gradients"] += size
            elif id(storage) in saved:
                by_kind["saved"] += size
        named = static.parameters + static.optimizer + sum(by_kind.values())
        return replace(static, **by_kind, temporary=max(peak - named, 0))


def step_peak(
    stepper: Stepper, batches: list[tuple[Any, Any]], device: str, source: Source
) -> StepPeak:
    """Measure one update of the weights from `batches`; the optimizer has its state already.

    What a run holds beside it counts too: the batch before, what is kept of a step whose layers it measures, and the
    states of the generators; its data do not on the CPU. Raises what the net raises.
    """
    sampler = GradientSampler(stepper.model)
    look = Look(stepper.model, source, sampler, Meter(device, *LOOKS), hooks=True)
    try:
        return _step_peak(stepper, batches, device, look)
    finally:
        look.drop()


def _step_peak(
    stepper: Stepper, batches: list[tuple[Any, Any]], device: str, look: Look
) -> StepPeak:
    on_cpu = device == "cpu"
    modules = [stepper.model, stepper.loss]
    if stepper.average is not None:
        modules.append(stepper.average)
    parameters = [
        tensor
        for module in modules
        for tensor in (*module_tree.parameters(module), *module_tree.buffers(module))
    ]
    state = [
        value
        for values in stepper.optimizer.state.values()
        for value in values.values()
        if isinstance(value, torch.Tensor)
    ]
    batch = [
        tensor for pair in batches for fields in pair for tensor in tensors_of(fields)
    ]
    beside = [
        tensor.detach().clone()
        for fields in batches[0]
        for tensor in tensors_of(fields)
    ]
    if on_cpu:  # before the order of an epoch was drawn, and before the step
        beside += [torch.get_rng_state(), torch.get_rng_state()]
    stepper.optimizer.zero_grad(set_to_none=True)
    look.begin()
    tensors_before = [*parameters, *state, *batch, *beside, *look.tensors()]
    timeline = _Timeline(tensors_before, stepper.model, look, device)
    devices.synchronize(device)
    devices.forget_peak(device)
    allocator = AllocatorPeak()
    with allocator.measuring() if on_cpu else nullcontext(), timeline.watching():
        for number, (inputs, labels) in enumerate(batches):
            timeline.phase = FORWARD
            last = number == len(batches) - 1
            stepper.take(inputs, labels, last, timeline)
        look.end()
    devices.synchronize(device)
    base = storage_bytes(tensors_before)
    allocated = base + allocator.bytes if on_cpu else memory.read(device).peak
    peak = base + timeline.bytes if allocated is None else allocated
    static = PeakBytes(
        parameters=storage_bytes(parameters), optimizer=storage_bytes(state)
    )
    stride = max(len(timeline.bytes_after) // POINTS, 1)
    return StepPeak(
        peak,
        timeline.kinds(stepper.model, static, peak),
        timeline.owner,
        timeline.peak_phase,
        tuple(base + size for size in timeline.bytes_after[::stride]),
        "operations" if allocated is None else "device",
    )


def tensors_of(fields: Tensor | Fields) -> list[Tensor]:
    """Return the tensors of a batch's inputs or labels."""
    return list(fields.parts.values()) if isinstance(fields, Fields) else [fields]


def storage_bytes(tensors: list[Tensor]) -> int:
    """Return the bytes of the storages of tensors, shared ones once."""
    return sum(_storages(tensors).values())


def _storages(tensors: list[Tensor]) -> dict[int, int]:
    """Return the bytes of storages by their keys."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage._cdata: storage.nbytes() for storage in storages}
