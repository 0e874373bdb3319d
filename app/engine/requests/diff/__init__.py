"""Request: compare two models, one model in two modes, or two files of weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from app.compare.modes import Modes
from app.compare.results import Difference
from app.engine.protocol import MAIN, Request
from app.engine.requests.observe import Observe
from app.source.generated import Source
from app.sources.spec import SourceError
from app.training.config import StartWeights

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.named import NamedRun


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
    found = shutil.which(text)
    if found is None:
        raise SourceError(
            f"{text} is not an executable; pass a Python interpreter, such as /path/to/environment/bin/python"
        )
    return os.path.abspath(found)
