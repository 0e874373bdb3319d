"""A model that is there already is read in a thread of its own: the background's worker has the drawing to check."""

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

from app import layer_files, model_import
from app.background import Failure
from app.builder.custom import read_text
from app.layer_files import digest
from app.model_import import ImportFailed, ModelInput, ModelSource
from app.project import Project

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Known:
    """One of torchvision's models: its name, what it is for, and what it usually takes."""

    name: str
    kind: str
    input: ModelInput


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


def known_models() -> tuple[Known, ...]:
    """What this torchvision has. Raises ImportError if there is none."""
    from app.torchvision_import import import_torchvision

    models = import_torchvision("models")
    found = []
    for name in models.list_models():
        rooms = models.get_model_builder(name).__module__.split(".")[2:-1]
        kind = rooms[0].replace("_", " ") if rooms else "classification"
        found.append(Known(name, kind, model_import.usual_input(name)))
    return tuple(found)


def sizes_of(one: ModelInput) -> str:
    """An input as it is typed.

    >>> sizes_of(ModelInput((1, 16), "int64"))
    '1x16:int64'
    """
    sizes = "x".join(map(str, one.shape))
    return sizes if one.dtype == "float32" else f"{sizes}:{one.dtype}"


def read_model(wanted: Wanted, tell: Tell, cancelled: Callable[[], bool]) -> Project:
    """The project of what is wanted; `tell` hears what is going on. Raises ImportFailed and what writing raises."""
    source = wanted.source
    if source.file:
        tell(f"Running {Path(source.file).name} in a process of its own")
        text = read_text(Path(source.file))
        if digest(text) != wanted.sha256 or not layer_files.allowed(wanted.sha256):
            raise ImportFailed(f"{Path(source.file).name} was edited meanwhile and was not run; import it again")
        with tempfile.TemporaryDirectory(prefix="tapedeck-") as folder:
            weights = Path(folder) / "its.safetensors" if wanted.keep_weights else None
            project = model_import.import_file(source, wanted.arguments, wanted.inputs, weights, cancelled=cancelled)
            if weights is None or cancelled():
                return project
            return _with_weights(project, lambda path: shutil.copyfile(weights, path), str(wanted.source), tell)
    tell(f"Making {source.name}")
    made = model_import.make_torchvision
    model = made(source.name, wanted.arguments, wanted.pretrained, blank=not wanted.keep_weights)
    inputs = wanted.inputs or (model_import.usual_input(source.name),)
    tell(f"Following {source.name} from its input to its output")
    project = model_import.project_of(model, inputs, source.name, cancelled)
    if not wanted.keep_weights or cancelled():
        return project
    from app.export.weights import save_safetensors

    return _with_weights(project, lambda path: save_safetensors(model.state_dict(), path), source.name, tell)


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
    """Reads one model. `ended(answer)` brings its project, or a Failure."""

    ended = Signal(object)

    def __init__(self, wanted: Wanted, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._wanted = wanted
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
            answer = read_model(self._wanted, self._tell, self._cancelled.is_set)
        except Exception as error:  # whatever it is, the person who asked is told
            answer = Failure(error, traceback.format_exc())
        self.ended.emit(answer)
