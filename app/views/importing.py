"""A model that is there already is read in a process of its own, and a thread waits for it: the background's worker has
the drawing to check."""

from __future__ import annotations

import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication, QObject, QThread, Signal

from app import layer_files
from app.background import Failure
from app.builder.custom import read_text
from app.import_child import Child, Question, check_file
from app.layer_files import digest
from app.model_import import ImportFailed, ModelInput, ModelSource
from app.project import Project

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is to be imported. With `keep_weights` the project starts from its state_dict; `sha256` is of the text that
    a person saw, where the model is in a file of theirs."""

    source: ModelSource
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[ModelInput, ...] = ()
    pretrained: bool = False
    keep_weights: bool = False
    sha256: str = ""


def sizes_of(one: ModelInput) -> str:
    """An input as it is typed.

    >>> sizes_of(ModelInput((1, 16), "int64"))
    '1x16:int64'
    """
    sizes = "x".join(map(str, one.shape))
    return sizes if one.dtype == "float32" else f"{sizes}:{one.dtype}"


def read_model(wanted: Wanted, tell: Tell, cancelled: Callable[[], bool], child: Child | None = None) -> Project:
    """The project of what is wanted, read in a process of its own: `child`, if one is there already. `tell` hears what
    is going on. Raises ImportFailed and what writing raises."""
    source = wanted.source
    if source.file:
        check_file(source, wanted.inputs)
        tell(f"Running {Path(source.file).name} in a process of its own")
        text = read_text(Path(source.file))
        if digest(text) != wanted.sha256 or not layer_files.allowed(wanted.sha256):
            raise ImportFailed(f"{Path(source.file).name} was edited meanwhile and was not run; import it again")
    child = child or Child()
    try:
        with tempfile.TemporaryDirectory(prefix="tapedeck-") as folder:
            weights = Path(folder) / "its.safetensors" if wanted.keep_weights else None
            question = Question(source, wanted.arguments, wanted.inputs, wanted.pretrained, weights)
            project = child.read(question, cancelled=cancelled, tell=tell)
            if weights is None or cancelled():
                return project
            name = str(source) if source.file else source.name
            return _with_weights(project, lambda path: shutil.copyfile(weights, path), name, tell)
    finally:
        child.close()


def _with_weights(project: Project, write: Callable[[Path], object], name: str, tell: Tell) -> Project:
    """The project that starts from its model's weights; its notes say which of them the net has not."""
    from app import own_layers, start_weights
    from app.builder.analysis import analyse

    tell("Keeping its weights")
    analysis = analyse(project.graph, own_layers.ops_of(project))
    project, left = start_weights.brought(project, analysis.source if analysis.runnable else None, write, name)
    if not left:
        return project
    words = f"{len(left)} tensors of the model are not of the net and are not kept: {', '.join(left[:4])}."
    return replace(project, notes=f"{project.notes}\n{words}")


class Importer(QThread):
    """Reads one model, in `child` if there is one, and lays it out. `ended(answer)` brings the project or a Failure."""

    ended = Signal(object)

    def __init__(
        self, wanted: Wanted, lay_out: Callable[[Project], Project], child: Child | None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._wanted, self._lay_out, self._child = wanted, lay_out, child
        self._cancelled = threading.Event()
        self.progress = ""
        application = QCoreApplication.instance()
        if application is not None:  # a thread that goes on must not outlive the program
            application.aboutToQuit.connect(self._leave)

    def _leave(self) -> None:
        self.cancel()
        self.wait()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _tell(self, words: str) -> None:
        self.progress = words  # one assignment: the window looks at it whenever it likes

    def run(self) -> None:
        answer: Project | Failure
        try:
            answer = read_model(self._wanted, self._tell, self._cancelled.is_set, self._child)
            if not self.cancelled:
                self._tell("Laying it out")
                answer = self._lay_out(answer)
        except Exception as error:  # whatever it is, the person who asked is told
            answer = Failure(error, traceback.format_exc())
        self.ended.emit(answer)
