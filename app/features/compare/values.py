"""Requests to compare two models, one model in two modes, or two files of weights, and what that finds."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct

from app.engine.protocol import MAIN, Request
from app.engine.requests.observe import Observe
from app.source.generated import Source
from app.sources.spec import SourceError
from app.training.config import StartWeights
from app.training.job import DEVICE
from app.util.errors import CodedError

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.named import NamedRun

PRECISIONS = ("float64", "float32", "bfloat16", "float16")
KINDS = (PRECISIONS, ("eval", "train"), ("eager", "compiled"))
KNOWN = tuple(name for kind in KINDS for name in kind)
Pass = Literal["forward", "backward"]


class Setting(Struct, frozen=True, array_like=True):
    """A setting that differs between two matched modules, as text; "" where one has none."""

    name: str
    a: str
    b: str

    @property
    def text(self) -> str:
        """
        >>> Setting("eps", "1e-05", "1e-06").text, Setting("bias", "8", "").text
        ('eps 1e-05 → 1e-06', 'bias 8 → none')
        """
        return f"{self.name} {self.a or 'none'} → {self.b or 'none'}"


class Changed(Struct, frozen=True, array_like=True):
    """Two matched modules whose settings differ."""

    a: str
    b: str
    settings: tuple[Setting, ...]


class Alone(Struct, frozen=True, array_like=True):
    """A module that only one of the models has; `kind` is its class."""

    path: str
    kind: str


class Moved(Struct, frozen=True, array_like=True):
    """Two matched modules of different paths; those in them moved along and are not listed."""

    a: str
    b: str
    kind: str


class Structure(Struct, frozen=True):
    """How the modules of two models match: `pairs` are the paths in A and in B, in the order of A."""

    pairs: tuple[tuple[str, str], ...] = ()
    added: tuple[Alone, ...] = ()
    removed: tuple[Alone, ...] = ()
    moved: tuple[Moved, ...] = ()
    changed: tuple[Changed, ...] = ()

    @property
    def same(self) -> bool:
        """Return whether every module of one matches one of the other with the same settings."""
        return not (self.added or self.removed or self.changed)


class Apart(Struct, frozen=True, array_like=True):
    """How far the tensors of a layer in B are from those in A, both models run on their own.

    `relative` is ‖b−a‖₂ / ‖a‖₂ and infinite where shapes differ or one has no gradient; `cosine` is that of the angle
    between them; `ulp` the largest distance of two elements in representable numbers between them.
    """

    relative: float = 0.0
    cosine: float = 1.0
    ulp: float = 0.0


class Added(Struct, frozen=True, array_like=True):
    """What a layer of B adds to the error when it gets exactly what that of A got: the relative error, the largest one
    that rounding explains, and what differs, as text."""

    error: float = 0.0
    bound: float = 0.0
    what: str = ""

    @property
    def exceeds(self) -> bool:
        """Return whether rounding does not explain it."""
        return not self.error <= self.bound


class Layer(Struct, frozen=True, array_like=True):
    """A call of two matched modules. `forward` compares its outputs, `backward` their gradients and those of its
    parameters; None where there are none."""

    a: str
    b: str
    kind: str
    call: int = 1
    file_a: str = ""
    line_a: int = 0
    file_b: str = ""
    line_b: int = 0
    forward: Apart | None = None
    added: Added | None = None
    backward: Apart | None = None
    backward_added: Added | None = None


class Distance(Struct, frozen=True, array_like=True):
    """How far the parameters of a matched module are apart: ‖b−a‖₂, the same relative to ‖a‖₂, and how many numbers
    differ of how many."""

    a: str
    b: str
    distance: float
    relative: float
    differing: int
    count: int


class First(Struct, frozen=True):
    """The first layer that adds more than rounding can explain: paths, lines, and why. `operation_a` and `operation_b`
    are the operations that differ in it, "" where none was found or the other one has none."""

    a: str
    b: str
    direction: Pass
    mode: str
    why: str
    file_a: str = ""
    line_a: int = 0
    file_b: str = ""
    line_b: int = 0
    operation_a: str = ""
    operation_b: str = ""


class Difference(Struct, frozen=True):
    """What comparing model A with model B found. `layers` are in the order of the calls in A, and empty where nothing
    was run; `mode` says in which mode they ran. `settings` are those of runs or environments, side by side."""

    name_a: str
    name_b: str
    first: First | None = None
    layers: tuple[Layer, ...] = ()
    structure: Structure = Structure()
    distances: tuple[Distance, ...] = ()
    settings: tuple[Setting, ...] = ()
    remarks: tuple[str, ...] = ()
    mode: str = ""
    ran: bool = True

    @property
    def differs(self) -> bool:
        """Return whether something differs beyond rounding; of what was not run, whether anything does."""
        if self.ran:
            return self.first is not None
        return not self.structure.same or any(
            not distance.distance == 0 for distance in self.distances
        )


def finite(value: float) -> float | None:
    """Return a number for JSON; None for infinity or NaN."""
    return value if math.isfinite(value) else None


class ModeError(CodedError, ValueError):
    """Modes that do not exist, or are not of one kind."""

    exit_code = 2


class Modes(Struct, frozen=True):
    """The modes of A and of B, both of one of `KINDS`, or both devices as torch names them."""

    a: str
    b: str


def parse_modes(a: str, b: str) -> Modes:
    """Return two modes by their names. Raises ModeError.

    >>> parse_modes("float32", "bfloat16")
    Modes(a='float32', b='bfloat16')
    """
    for name in (a, b):
        if name not in KNOWN and not DEVICE.fullmatch(name):
            raise ModeError(
                f"there is no mode {name}; there are {', '.join(KNOWN)} and devices, such as cpu"
            )
    devices = a not in KNOWN and b not in KNOWN
    if a == b or not (devices or any(a in kind and b in kind for kind in KINDS)):
        pairs = "; ".join(" or ".join(kind) for kind in KINDS)
        raise ModeError(
            f"{a} and {b} are not two modes of one kind: {pairs}; or two devices"
        )
    return Modes(a, b)


class DiffSide(Struct, frozen=True):
    """One of two things that are compared: `model` is the source of a model, or the text of a project's net, and None
    for weights alone. `weights` is a file of the program: a state_dict, or the checkpoint of a run; "" for those that
    the model is made with, of a project after `start`. `run` is the folder of a stored run that it is of, and `step`
    the step of it whose weights are meant, which are recomputed where no checkpoint has them."""

    name: str
    model: Observe | Source | None = None
    weights: str = ""
    start: StartWeights | None = None
    run: str = ""
    step: int | None = None

    @property
    def own_code(self) -> bool:
        """Return whether making it runs code that must be trusted, in a separate process."""
        if isinstance(self.model, Source):
            return self.model.own is not None
        return self.model is not None and self.model.runs_own_code

    @property
    def has_weights(self) -> bool:
        """Return whether it has other weights than those that the model is made with."""
        return bool(self.weights) or self.step is not None


class ReadSide(Request[DiffSide], frozen=True):
    """Read a project, the folder of a run, one of its checkpoints, or a file of weights, without running its net.

    `weights` is the run of a project by number or name, perhaps with a checkpoint or a step after a slash, or those of
    the folder of a run, or a file; of a run the best checkpoint is taken, else the last. A project of an opened model
    is returned as its source, which the caller has trusted before it is run. Raises SourceError.
    """

    lane: ClassVar[str] = MAIN
    path: str
    weights: str = ""


class Diff(Request[Difference], frozen=True):
    """Make both models with `seed`, run them on the same batch, and find where they differ. `trains` are the modes that
    are tried, False for eval. A side without weights gets the other's. With `modes`, B is A in another mode;
    with `python`, the path of an interpreter that has torch, B is A there.

    Steps of runs are recomputed with downloaded datasets in `data_root`. Raises SourceError, ComparisonError,
    WeightsError, RunError and RecomputeError; send it to a dedicated engine, which runs the code of the models.
    """

    lane: ClassVar[str] = MAIN
    a: DiffSide
    b: DiffSide
    modes: Modes | None = None
    trains: tuple[bool, ...] = (False, True)
    batch: int = 2
    seed: int = 0
    numbers: bool = True
    data_root: str | None = None
    python: str = ""


def side_of_project(
    project: Project,
    name: str,
    source: Callable[[], Source],
    weights: str = "",
    named: NamedRun | None = None,
) -> DiffSide:
    """Return the side that a project is, with the weights of a file or of a stored run of it. `source` returns the text
    of a drawn net; an opened model is returned as its source, which has its own inputs. Raises what `source` raises,
    and RunError for a run without checkpoints."""
    if named is not None and named.step is None:
        weights = str(named.checkpoint())
    if named is not None and named.step is not None:
        name = named.name
    elif weights:
        name = f"{name} with {Path(weights).name}"
    of = project.opened
    model = (
        source()
        if of is None
        else Observe(of.source, of.arguments, of.inputs, of.folder)
    )
    run, step = (
        (str(named.kept.folder.absolute()), named.step)
        if named is not None
        else ("", None)
    )
    return DiffSide(name, model, weights, project.training.start, run, step)


def interpreter(text: str) -> str:
    """Return the path of an interpreter; a symbolic link, as in an environment, stays one. Raises SourceError."""
    executable = shutil.which(text)
    if executable is None:
        raise SourceError(
            f"{text} is not an executable; pass a Python interpreter, such as /path/to/environment/bin/python"
        )
    return os.path.abspath(executable)
