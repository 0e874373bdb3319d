"""A model that is there already is read in a process of its own, and a thread waits for it: the background's worker has
the drawing to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from app.builder.catalog.custom import read_text
from app.engine.import_process import Child, Question, check_file
from app.engine.requests.import_model import ImportFailed, ModelInput, ModelSource
from app.project.project import Project
from app.project.weights import files
from app.source import layer_files
from app.source.layer_files import digest
from app.views.ui.task import Cancelled, Report


@dataclass(frozen=True)
class ImportRequest:
    """What is to be imported. Without `keep_weights` the project keeps the buffers of its model alone; `sha256` is of
    the text that a person saw, where the model is in a file of theirs."""

    source: ModelSource
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[ModelInput, ...] = ()
    pretrained: bool = False
    keep_weights: bool = True
    sha256: str = ""


def sizes_of(one: ModelInput) -> str:
    """An input as it is typed.

    >>> sizes_of(ModelInput((1, 16), "int64"))
    '1x16:int64'
    """
    sizes = "x".join(map(str, one.shape))
    return sizes if one.dtype == "float32" else f"{sizes}:{one.dtype}"


def read_model(wanted: ImportRequest, tell: Report, cancelled: Cancelled) -> tuple[Project, Child]:
    """The project of what is wanted, and the process that read it, which has ended unless it is `comparing` still.
    `tell` hears what is going on. Raises ImportFailed and what writing raises."""
    source = wanted.source
    if source.file:
        check_file(source, wanted.inputs)
        tell(f"Running {Path(source.file).name} in a process of its own")
        text = read_text(Path(source.file))
        if digest(text) != wanted.sha256 or not layer_files.allowed(wanted.sha256):
            raise ImportFailed(f"{Path(source.file).name} was edited in the meantime and was not run; import it again")
    child = Child(file=source.file)
    try:
        chosen = (wanted.pretrained, wanted.keep_weights)
        question = Question(source, wanted.arguments, wanted.inputs, *chosen, early=True)
        return child.read(question, files.store(), cancelled=cancelled, tell=tell), child
    finally:
        if not child.comparing:
            child.close()


@dataclass(frozen=True)
class Drawn:
    """A project that was imported and laid out. `rest` waits for the end of its comparison with the model, where that
    goes on; `let_go` ends the process in which it does."""

    project: Project
    rest: Callable[[Report, Cancelled], Project] | None = None
    let_go: Callable[[], None] = lambda: None


def import_model(
    wanted: ImportRequest, lay_out: Callable[[Project], Project], tell: Report, cancelled: Cancelled
) -> Drawn:
    """Read a model and lay it out. Raises what `read_model` raises."""
    project, reader = read_model(wanted, tell, cancelled)
    if cancelled():
        reader.close()
        return Drawn(project)
    tell("Laying out the network")
    laid = lay_out(project)
    return Drawn(laid, partial(_rest, reader, lay_out, laid), reader.close) if reader.comparing else Drawn(laid)


def _rest(
    reader: Child, lay_out: Callable[[Project], Project], early: Project, tell: Report, cancelled: Cancelled
) -> Project:
    """What the process gives in the end: laid out, if it is another drawing."""
    try:
        project = reader.rest(files.store(), cancelled, tell)
    finally:
        reader.close()
    drawings = {one.origin.drawing if one.origin else "" for one in (project, early)}
    return lay_out(project) if len(drawings) > 1 and not cancelled() else project
