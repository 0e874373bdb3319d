"""A model that is there already is read in a process of its own, and a thread waits for it: the background's worker has
the drawing to check. The next such process is started ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication, QObject, QTimer

from app.builder.catalog.custom import read_text
from app.engine.import_process import Child, Question, check_file
from app.engine.tasks.import_model import ImportFailed, ModelInput, ModelSource
from app.project.project import Project
from app.project.weights import files
from app.source import layer_files
from app.source.layer_files import digest
from app.views.ui.work import Cancelled, Tell


@dataclass(frozen=True)
class Wanted:
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


def read_model(wanted: Wanted, tell: Tell, cancelled: Cancelled, child: Child | None = None) -> tuple[Project, Child]:
    """The project of what is wanted, and the process that read it: `child`, if one is there already. That has ended
    unless it is `comparing` still. `tell` hears what is going on. Raises ImportFailed and what writing raises."""
    source = wanted.source
    if source.file:
        check_file(source, wanted.inputs)
        tell(f"Running {Path(source.file).name} in a process of its own")
        text = read_text(Path(source.file))
        if digest(text) != wanted.sha256 or not layer_files.allowed(wanted.sha256):
            raise ImportFailed(f"{Path(source.file).name} was edited meanwhile and was not run; import it again")
    if child is not None and not child.alive:  # ended by somebody else, or for want of torchvision
        child.close()
        child = None
    child = child or Child()
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
    rest: Callable[[Tell, Cancelled], Project] | None = None
    let_go: Callable[[], None] = lambda: None


def import_model(
    wanted: Wanted, lay_out: Callable[[Project], Project], child: Child | None, tell: Tell, cancelled: Cancelled
) -> Drawn:
    """Read a model, in `child` if there is one, and lay it out. Raises what `read_model` raises."""
    project, reader = read_model(wanted, tell, cancelled, child)
    if cancelled():
        reader.close()
        return Drawn(project)
    tell("Laying it out")
    laid = lay_out(project)
    return Drawn(laid, partial(_rest, reader, lay_out, laid), reader.close) if reader.comparing else Drawn(laid)


def _rest(
    reader: Child, lay_out: Callable[[Project], Project], early: Project, tell: Tell, cancelled: Cancelled
) -> Project:
    """What the process gives in the end: laid out, if it is another drawing."""
    try:
        project = reader.rest(files.store(), cancelled, tell)
    finally:
        reader.close()
    drawings = {one.origin.drawing if one.origin else "" for one in (project, early)}
    return lay_out(project) if len(drawings) > 1 and not cancelled() else project


REST = 1500  # ms after an import until the next process is started: what was imported is drawn first
IDLE = 10 * 60_000  # ms after which a process that nobody needed is let go


class Spare(QObject):
    """Keeps a process ready that reads the next model: its start takes seconds, most of them for torch."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._kept = kept = list[Child]()
        self._rest = QTimer(self, singleShot=True, interval=REST, timeout=self._start)
        self._idle = QTimer(self, singleShot=True, interval=IDLE, timeout=self.close)
        parent.destroyed.connect(lambda: _let_go(kept))
        application = QCoreApplication.instance()
        if application is not None:
            application.aboutToQuit.connect(self.close)

    @property
    def waiting(self) -> Child | None:
        """The process that is there."""
        return self._kept[0] if self._kept else None

    def take(self, listing: bool = False) -> Child:
        """A process for one model; one that lists torchvision's models is always a new one."""
        self._rest.stop()
        self._idle.stop()
        if self._kept and not listing and self._kept[0].alive:
            return self._kept.pop()
        _let_go(self._kept)
        return Child(listing, ahead=True)

    def keep(self, child: Child | None) -> None:
        """Put one back that was not needed; None if it was, and another is started for the next time."""
        _let_go(self._kept)
        if child is None:
            self._rest.start()
        else:
            self._kept.append(child)
            self._idle.start()

    def _start(self) -> None:
        self.keep(Child(ahead=True))

    def close(self) -> None:
        """End what is kept, and start none."""
        self._rest.stop()
        self._idle.stop()
        _let_go(self._kept)


def _let_go(kept: list[Child]) -> None:
    while kept:
        kept.pop().close()
