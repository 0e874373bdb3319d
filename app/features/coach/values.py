"""What the coach knows of a run, what it has the engine examine, and what it says."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.builder.diagnostics.problems import Cure, Problem
from app.engine.protocol import Request
from app.engine.requests.capture import WeightsChoice
from app.project.project import Project
from app.source.generated import Source
from app.training.job import Job

# Kinds of remarks whose cause also makes gradients vanish or explode.
LOSES_GRADIENT = frozenset({"diverging", "dead", "scale", "misfit"})


class RunSetup(Struct, frozen=True):
    """A run before its first step: its project, and what the checks before it had to say.

    `loss_problem` is a loss that does not fit the last layer, `scale_problem` a target far from the outputs of a new
    net, whose standard deviation is `target_spread`. `class_counts` are the samples of each class.
    """

    project: Project
    source: Source
    task: str
    class_counts: tuple[int, ...] = ()
    loss_problem: Problem | None = None
    scale_problem: Problem | None = None
    target_spread: float | None = None


class SamplePair(Struct, frozen=True):
    """A validation sample and a training sample of the same values, by their numbers in these parts from 0, and by
    their rows in the data, None where its authors split it."""

    validation: int
    training: int
    rows: tuple[int, int] | None = None


class Examination(Struct, frozen=True):
    """What was counted on the data and measured with the trained net.

    `repeated` of the `compared` validation samples are in the training part too, and `expected_repeats` of them would
    be by chance; `pairs` are the first ones. `support` and `predicted` count the validation samples by class, as they
    are labelled and as the net calls them; empty for values, or if it took too long. `neighbours` is how well the
    nearest training sample predicts a validation sample, 0 for no better than chance and 1 for always; None where it
    was not measured. `batch_losses` are the first and the last loss of a new net that was trained on one batch alone.
    `constant_loss` is the loss of the best constant answer to values.
    """

    compared: int = 0
    repeated: int = 0
    expected_repeats: float = 0.0
    pairs: tuple[SamplePair, ...] = ()
    support: tuple[int, ...] = ()
    predicted: tuple[int, ...] = ()
    neighbours: float | None = None
    batch_losses: tuple[float, float] | None = None
    constant_loss: float | None = None


class ExamineRun(Request[Examination], frozen=True):
    """Count and measure; with `one_batch` a new net is trained on one batch, too. Raises what an evaluation does."""

    lane: ClassVar[str] = "coach"
    job: Job
    weights: WeightsChoice
    one_batch: bool


class Evidence(Struct, frozen=True):
    """A curve that a remark rests on: named lines over one x, with marks at some x."""

    title: str
    x_name: str
    x: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float, ...]], ...]
    marks: tuple[float, ...] = ()


class Remark(Struct, frozen=True):
    """The one thing that is said of a run. `numbers` are what it rests on, by name.

    Its button applies `cure`, or finds a rate. What is shown is the layer, the node of the drawing, the page, the step
    or the samples that are named.
    """

    kind: str
    sentence: str
    numbers: tuple[tuple[str, str], ...]
    evidence: Evidence | None = None
    cure: Cure | None = None
    finds_rate: bool = False
    layer: str = ""
    node: str = ""
    page: str = ""
    step: int | None = None
    pairs: tuple[SamplePair, ...] = ()

    @property
    def gradient_cause(self) -> str:
        """The cause of a vanishing gradient that the remark names, "" if it is about something else."""
        return self.sentence.split(": ")[0] if self.kind in LOSES_GRADIENT else ""
