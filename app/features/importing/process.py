"""The separate engine that builds and imports a model: a user's own file runs only there, and the window is not
blocked."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from app.engine import child_process, pool
from app.engine.observe_process import shadows_packages
from app.engine.own_engine import LimitedQuestion, OwnEngine, RequestStoppedError
from app.engine.protocol import EngineDiedError
from app.features.importing.values import (
    EarlyDrawing,
    ImportModel,
    ImportRequestError,
    ImportTimeoutError,
    KnownModel,
    ListModels,
    ModelImportError,
)
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.project.weights import files
from app.source import layer_files
from app.sources.finding import files_of
from app.util.leftovers import TemporaryFolder

Tell = Callable[[str], object]
Cancelled = Callable[[], bool]

PATIENCE = 120.0  # seconds for a file of the user
CHECKED = 300.0  # seconds more, from when the drawing is compared with the model
_STACK = re.compile(
    r'^  File "(.+)", line (\d+) in (\S+)', re.M
)  # of faulthandler, the innermost first
_quiet_stderr = partial(child_process.StderrReader, passes=lambda _line: False)


class ImportProcess:
    """A process that reads one model; `file` is that of the model, if it is user code. Raises OSError."""

    def __init__(self, file: str = "") -> None:
        self._folder = TemporaryFolder()
        self._path = Path(self._folder.name)
        self._model, self._patience, self._checked = "", PATIENCE, False
        self._moved: dict[
            str, str
        ] = {}  # files of the project that are already in its folder
        self._question: LimitedQuestion[Project] | None = None
        self.comparing = False  # the last drawing that was returned is not compared with its model yet
        fresh = bool(file) and shadows_packages(Path(file).parent)
        self._engine = OwnEngine(
            partial(pool.start, "engine", cwd=child_process.ROOT, fresh=fresh),
            _quiet_stderr,
        )

    @property
    def pid(self) -> int:
        pid: int = self._engine.child.pid
        return pid

    def read(
        self,
        request: ImportModel,
        folder: Path,
        patience: float = PATIENCE,
        cancelled: Cancelled = lambda: False,
        tell: Tell = lambda _words: None,
    ) -> Project:
        """Return the project of a model, within `patience` seconds; its files are put into `folder`, `tell` is called
        with progress messages. If it is `comparing` afterwards, `rest` returns the answer. Raises ModelImportError,
        OSError."""
        source = request.source
        if request.runs_file:
            source = replace(source, where=str(Path(source.where).resolve()))
        full_request = replace(request, source=source, folder=str(self._path))
        self._model, self._patience = request.model, patience
        self._question = LimitedQuestion(self._engine, full_request, patience)
        return self.rest(folder, cancelled, tell)

    def rest(
        self,
        folder: Path,
        cancelled: Cancelled = lambda: False,
        tell: Tell = lambda _words: None,
    ) -> Project:
        """Return the preliminary drawing if it arrives before the answer, else the answer: after `read` has returned
        such a drawing, the project after the comparison with its model. Raises ModelImportError, OSError."""
        question = self._question
        assert question is not None
        question.cancelled = cancelled
        self.comparing = False
        try:
            for message in question.messages():
                if isinstance(message, EarlyDrawing):
                    self.comparing = True
                    return self._project(message.project, folder, cancelled)
                if message is None:
                    continue
                if message.checking and not self._checked:
                    self._checked = True
                    question.limit(CHECKED)
                tell(message.words)
            return self._project(question.answer(), folder, cancelled)
        except RequestStoppedError as stop:
            raise self._stopped(stop) from None
        except EngineDiedError as error:
            text = f"{self._model} ended the process that it ran in{self._exit_description()}"
            raise ModelImportError(text, "process_died") from error

    def _stopped(self, stop: RequestStoppedError) -> ModelImportError:
        if stop.reason == "cancelled":
            return ModelImportError("cancelled", "cancelled")
        if self._checked:
            text = (
                f"comparing the drawing with the model took more than {CHECKED:.0f} s"
            )
            return ModelImportError(f"{self._model}: {text}", "comparison_timeout")
        return ImportTimeoutError(
            f"{self._model} did not finish within {self._patience:.0f} s and was stopped"
        )

    def _project(self, project: Project, folder: Path, cancelled: Cancelled) -> Project:
        return (
            project
            if cancelled()
            else _move_files(project, self._path, folder, self._moved)
        )

    def _exit_description(self) -> str:
        """Describe the exit status and last line of stderr of a process that reported no error."""
        code = self._engine.child.wait()
        if code < 0 and os.name == "posix":
            return f" by {signal.Signals(-code).name}{self._crash_location()}"
        last_line = self._last_stderr_line()
        return (
            f" with status {code}: {last_line}" if last_line else f" with status {code}"
        )

    def _crash_location(self) -> str:
        """Return the line of the model's own code at which a process crashed, from the stack on its stderr."""
        root, torch = str(Path(__file__).resolve().parents[2]), f"{os.sep}torch{os.sep}"
        stack = (
            self._engine.stderr.text()
            .rpartition("Current thread")[2]
            .partition("\nThread ")[0]
        )
        lines = _STACK.findall(stack)
        location = next(
            (
                line
                for line in lines
                if not line[0].startswith((root, "<")) and torch not in line[0]
            ),
            None,
        )
        return (
            f" in {location[2]}, line {location[1]} of {Path(location[0]).name}"
            if location
            else ""
        )

    def _last_stderr_line(self) -> str:
        lines = self._engine.stderr.text().strip().splitlines()
        return next((line for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """Kill the process and its children."""
        self._engine.kill()
        self._engine.close()
        self._folder.cleanup()


def _move_files(
    project: Project, left: Path, folder: Path, moved: dict[str, str]
) -> Project:
    """Move a project's files from the process's folder to another one; `moved` lists those already there. Raises
    OSError."""

    def there(path: str, sha256: str) -> str:
        if path not in moved:
            moved[path] = files.adopt(path, sha256, folder)
        return moved[path]

    project = custom_layers.adopted(project, left, folder)
    start, origin = project.training.start, project.origin
    if start is not None:
        project = project_file.with_start(
            project, replace(start, path=there(start.path, start.sha256))
        )
    if origin is not None:
        weights, reference = (
            file and replace(file, path=there(file.path, file.sha256))
            for file in (origin.weights, origin.reference)
        )
        project = replace(
            project, origin=replace(origin, weights=weights, reference=reference)
        )
    return project


def import_file(
    request: ImportModel,
    folder: Path,
    patience: float = PATIENCE,
    cancelled: Cancelled = lambda: False,
    tell: Tell = lambda _words: None,
) -> Project:
    """Return the project of a model in a user's own file, which runs in a child process of at most `patience` seconds.

    The caller has obtained the user's consent. Raises ModelImportError, OSError.
    """
    check_file(request)
    process = ImportProcess(request.source.where if request.runs_file else "")
    try:
        return process.read(request, folder, patience, cancelled, tell)
    finally:
        process.close()


def listed_models() -> tuple[KnownModel, ...]:
    """List torchvision's models in a separate engine. Raises ModelImportError without torchvision, EngineDiedError,
    OSError."""
    engine = OwnEngine(
        partial(pool.start, "engine", cwd=child_process.ROOT), _quiet_stderr
    )
    try:
        return engine.ask(ListModels()).result()
    finally:
        engine.close()


def check_file(request: ImportModel) -> None:
    """Raise ImportRequestError for a missing file."""
    if request.runs_file and not Path(request.source.where).is_file():
        raise ImportRequestError(f"there is no file {request.source.where}")


# --- What the window imports


def read_model(
    import_request: ImportModel, tell: Tell, cancelled: Cancelled
) -> tuple[Project, ImportProcess]:
    """Return the imported project and the process that read it, which has ended unless it is still `comparing`.
    `tell` receives progress. Raises ModelImportError and errors of writing the weights."""
    source = import_request.source
    if import_request.runs_file:
        check_file(import_request)
        tell(f"Running {Path(source.where).name} in a separate process")
    model_files = files_of(source.as_run, import_request.where)
    if model_files is not None and not (
        model_files.is_version(import_request.sha256)
        and layer_files.allowed(model_files.key)
    ):
        again = "open" if import_request.opened else "import"
        raise ModelImportError(
            f"{model_files.entry.name} was edited in the meantime and was not run; {again} it again",
            "edited",
        )
    process = ImportProcess(model_files.entry.path if model_files is not None else "")
    try:
        request = replace(import_request, early=True)
        return process.read(
            request, files.store(), cancelled=cancelled, tell=tell
        ), process
    finally:
        if not process.comparing:
            process.close()


class ImportedModel(Struct, frozen=True):
    """An imported, laid out project. `rest` waits for the end of the comparison with the model while that still runs;
    `stop_comparison` ends the process that runs it."""

    project: Project
    rest: Callable[[Tell, Cancelled], Project] | None = None
    stop_comparison: Callable[[], None] = lambda: None


def import_model(
    import_request: ImportModel,
    lay_out: Callable[[Project], Project],
    tell: Tell,
    cancelled: Cancelled,
) -> ImportedModel:
    """Read a model and lay it out. Raises what `read_model` raises."""
    project, reader = read_model(import_request, tell, cancelled)
    if cancelled():
        reader.close()
        return ImportedModel(project)
    tell("Laying out the network")
    laid = lay_out(project)
    rest = partial(_rest, reader, lay_out, laid)
    return (
        ImportedModel(laid, rest, reader.close)
        if reader.comparing
        else ImportedModel(laid)
    )


def _rest(
    reader: ImportProcess,
    lay_out: Callable[[Project], Project],
    early: Project,
    tell: Tell,
    cancelled: Cancelled,
) -> Project:
    """Return the final project of the process, laid out again if its drawing differs from the early one."""
    try:
        project = reader.rest(files.store(), cancelled, tell)
    finally:
        reader.close()
    drawings = {
        compared.origin.drawing if compared.origin else ""
        for compared in (project, early)
    }
    return lay_out(project) if len(drawings) > 1 and not cancelled() else project
