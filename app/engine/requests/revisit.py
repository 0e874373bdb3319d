"""Request: recompute a step of a stored run, verify it by its recorded hashes, and capture its graph."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.autograd.tape import Tape
from app.engine.protocol import Handle, Request
from app.training.monitoring.looks import BatchPeek, StepLayer


def digits(value: int) -> str:
    """Return a hash as 16 hexadecimal digits.

    >>> digits(-1), digits(255)
    ('ffffffffffffffff', '00000000000000ff')
    """
    return f"{value & (1 << 64) - 1:016x}"


class RevisitedLayer(Struct, frozen=True):
    """A layer at a step: the recorded hash of its gradients, the recomputed one, and their norm.

    Hashes are 16 hexadecimal digits; `recorded` is None where the run recorded none at this step, `norm` where no
    gradient reached the layer.
    """

    layer: str
    recorded: str | None
    recomputed: str
    norm: float | None

    @property
    def is_equal(self) -> bool:
        """Return whether the recomputed gradients may be the recorded ones."""
        return self.recorded in (None, self.recomputed)


class Parted(Struct, frozen=True):
    """Where a recomputed run is no longer the recorded one: the first step, and the first layer in backward order.

    `what` is "gradients", "generator", "position" or "loss". `operation` is the operation that is not deterministic,
    None if it was not found; then `layer` is that of the operation, `line` where it was called; `reason` is a sentence.
    """

    step: int
    what: str
    layer: str
    layers: tuple[str, ...]
    operation: str | None = None
    node: str | None = None
    line: str = ""
    reason: str = ""


class Revisited(Struct, frozen=True):
    """A step as it was recomputed; that where the run parted if `parted`, which `step` names then.

    `checkpoint` is the file it continued from, "" for the start of the run, and `started_at` its step. `verified` steps
    on the way had recorded hashes, all equal. `captured` is whether the gradients of the captured graph are those of
    the step bit for bit; None without a graph, and of a step that was not `trained`: its loss was not finite, so the
    run ended or skipped it. `held` is the object of the step in the engine: `tape`, `notes` and `hold()`, as of a
    watched script's; `LookIntoStep` and `ShowStepBatch` take it.
    """

    run: str
    step: int
    epoch: int
    batch: int
    checkpoint: str
    started_at: int
    verified: int
    loss: float
    recorded_loss: float | None
    generator: bool | None
    layers: tuple[RevisitedLayer, ...]
    parted: Parted | None
    tape: Tape | None
    captured: bool | None
    notes: tuple[str, ...] = ()
    held: Handle | None = None
    trained: bool = True


class Recomputing(Struct, frozen=True):
    """Progress: the number of recomputed steps."""

    done: int
    of: int


class FirstStep(Struct, frozen=True):
    """The first step at which a condition held, None if it never did, with its layer and value.

    `recorded` if what the run measured sufficed; else the run was recomputed, up to where it `parted`.
    """

    step: int | None
    layer: str
    value: float | None
    recorded: bool
    parted: Parted | None = None


class LookIntoStep(Request[StepLayer], frozen=True):
    """Return a module's values at a recomputed step, for a sample of its batch, from 0.

    Raises AttributeError for a module that the net has not.
    """

    lane: ClassVar[str] = "past step"
    held: Handle
    layer: str
    sample: int


class ShowStepBatch(Request[BatchPeek], frozen=True):
    """Return the batch of a recomputed step."""

    lane: ClassVar[str] = "past step"
    held: Handle


class FindFirst(Request[FirstStep], frozen=True):
    """Find the first step at which a condition such as `norm(fc1) > 10` held; its progress are `Recomputing`. Raises
    RunError, RecomputeError, JobError and ConditionError."""

    lane: ClassVar[str] = "revisit"
    run: Path
    condition: str
    data_root: str


class Revisit(Request[Revisited], frozen=True):
    """Recompute `step` of the run stored in a folder; its progress are `Recomputing`. Raises RunError, RecomputeError,
    JobError and CaptureError."""

    lane: ClassVar[str] = "revisit"
    run: Path
    step: int
    data_root: str
