"""What is asked of an engine before a run, and what it answers: a dry run, a learning rate range test."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.training.events import Failed
from app.training.job import Job

LOWEST, HIGHEST, BATCHES = 1e-6, 1.0, 100


class LayerTime(Struct, frozen=True):
    """The seconds of a layer in a step, without those of layers in it, and what its operations need by the
    roofline: by the FLOP or the bytes of each, whichever takes longer on the device. Tensors in a cache need less."""

    layer: str
    forward: float
    backward: float
    forward_possible: float
    backward_possible: float


class LayerTimes(Struct, frozen=True):
    """The times of all layers of a step on a device, `layers`, whose last row is what lies between them.

    They add up with `optimizer_seconds` to `step_seconds`, which is measured without hooks, but for rows shorter than
    what measuring costs; `measured_seconds` is the same step with hooks, whose cost is taken off evenly. The roofline
    is what the device reached here, measured once: `flop_per_second` in a float32 matrix product, `bytes_per_second`
    in a copy.
    """

    device: str
    step_seconds: float
    measured_seconds: float
    flop_per_second: float
    bytes_per_second: float
    layers: tuple[LayerTime, ...]
    optimizer_seconds: float


class DryRun(Struct, frozen=True):
    """Measurements of a dry run. Seconds are of the first step, which creates the optimizer's state and warms up, and
    the second.

    `memory` is in bytes: with `scope` "device" torch's peak allocation, with "process" the peak growth of the process;
    None if unknown. `times` are those of the layers, if asked for.
    """

    device: str
    note: str
    batch_size: int
    input_shape: tuple[int, ...]
    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    validation_seconds: float
    memory: int | None
    scope: str
    times: LayerTimes | None = None


class RateTest(Struct, frozen=True):
    """`losses` are the batch losses at each of `rates`, `smoothed` their moving average.

    `suggested` is the rate at which the smoothed loss falls most steeply, None if it does not fall. `ended` explains an
    early end.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggested: float | None
    ended: str = ""


class TryOnSyntheticData(Request[DryRun | Failed], frozen=True):
    """Run two steps and a validation batch on synthetic data; `fact` describes the job's files."""

    lane: ClassVar[str] = "trials"
    job: Job
    fact: Fact | None


class TimeLayers(Request[LayerTimes | Failed], frozen=True):
    """Measure how long each layer takes in a step on synthetic data; `fact` describes the job's files."""

    lane: ClassVar[str] = "trials"
    job: Job
    fact: Fact | None


class RangeTest(Request[RateTest], frozen=True):
    """Run a learning rate range test, see `compute.rate_test`. Progress is the number of batches."""

    lane: ClassVar[str] = "trials"
    job: Job
    lowest: float
    highest: float
    batches: int
