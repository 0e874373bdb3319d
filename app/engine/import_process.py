"""The process in which a model is made and read: a person's own file runs there alone, and the window stays free.

What comes back is a project file, which is data. A `Child` answers one question and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from app.engine import child_process, pool
from app.engine.requests.import_model import CHECKING, ImportFailed, Late, ModelInput, ModelSource, WrongWords
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.project.weights import files
from app.util.leftovers import TemporaryFolder

PATIENCE = 120.0  # seconds for a person's own file
CHECKED = 300.0  # seconds more, from when the drawing is held against the model
BESIDE = 5  # how much a comparison gives way to the window that shows its drawing
LOOK = 0.02  # seconds between two looks at whether it has ended, or should
_STACK = re.compile(r'^  File "(.+)", line (\d+) in (\S+)', re.M)  # of faulthandler, the innermost first
LEFT, DRAWN, MODELS, PROGRESS, WHY = "imported.tape", "drawn.tape", "models.json", "progress", "why"


@dataclass(frozen=True)
class Known:
    """One of torchvision's models: its name, what it is for, and what it usually takes."""

    name: str
    kind: str
    input: ModelInput


@dataclass(frozen=True)
class Question:
    """What is to be read. Without `keep_weights` the project gets the buffers of the model alone; with `take_inits` its
    layers are initialised as those of the model. `early` asks for the drawing before it is compared with the model."""

    source: ModelSource
    arguments: Mapping[str, Any]
    inputs: tuple[ModelInput, ...] = ()
    pretrained: bool = False
    keep_weights: bool = True
    take_inits: bool = False
    early: bool = False

    def written(self) -> str:
        source = self.source
        file = str(Path(source.file).resolve()) if source.file else ""
        return json.dumps({
            "source": [file, source.name, source.call], "arguments": dict(self.arguments),
            "inputs": [[list(one.shape), one.dtype] for one in self.inputs], "pretrained": self.pretrained,
            "keep_weights": self.keep_weights, "take_inits": self.take_inits, "early": self.early,
        })  # fmt: skip

    @classmethod
    def read(cls, text: str) -> Question:
        raw = json.loads(text)
        inputs = tuple(ModelInput(tuple(shape), dtype) for shape, dtype in raw["inputs"])
        source, chosen = ModelSource(*raw["source"]), (raw["keep_weights"], raw["take_inits"], raw["early"])
        return cls(source, raw["arguments"], inputs, raw["pretrained"], *chosen)


class Child:
    """A process that reads one model; with `listing` it says first which models torchvision has. `file` is
    that of the model, if it is a person's own. Raises OSError."""

    def __init__(self, listing: bool = False, file: str = "") -> None:
        self._folder = TemporaryFolder()
        self._path = Path(self._folder.name)
        self._asked, self._end, self._checked = "", 0.0, False
        self._moved: dict[str, str] = {}  # files of the project that were handed over already
        self.comparing = False  # whether what was read last is a drawing that is not compared with its model yet
        words = [str(self._path), *["models"] * listing]
        fresh = bool(file) and shadows_packages(Path(file).parent)
        self._process = pool.start("import", cwd=child_process.ROOT, arguments=words, fresh=fresh)
        assert self._process.stderr is not None
        self._told = child_process.Told(self._process.stderr, lambda _line: False)

    def models(self) -> tuple[Known, ...]:
        """Which models torchvision has. Raises ImportError if there is none."""
        found = self._path / MODELS
        while not found.is_file():
            if self._process.poll() is not None:
                raise ImportError(self._last_words() or "the process that looks for it has ended")
            time.sleep(LOOK)
        return tuple(Known(name, kind, ModelInput(tuple(shape), dtype))
                     for name, kind, shape, dtype in json.loads(found.read_text("utf-8")))  # fmt: skip

    def read(
        self, question: Question, folder: Path, patience: float = PATIENCE,
        cancelled: Callable[[], bool] = lambda: False, tell: Callable[[str], None] = lambda _words: None,
    ) -> Project:  # fmt: skip
        """The project of a model, within `patience` seconds; its files are put into `folder`, `tell` hears what is
        going on. If it is `comparing` afterwards, `rest` has the answer. Raises ImportFailed, OSError."""
        reader, self._asked, self._end = self._process, str(question.source), time.monotonic() + patience
        assert reader.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its words say why
            reader.stdin.write(f"{question.written()}\n".encode())
            reader.stdin.flush()
        drawn = self._path / DRAWN
        self._wait(lambda: drawn.is_file(), patience, cancelled, tell)
        self.comparing = drawn.is_file() and not (self._path / LEFT).is_file()
        return self._project(drawn, folder, cancelled) if self.comparing else self.rest(folder, cancelled, tell)

    def rest(
        self, folder: Path, cancelled: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda _words: None,
    ) -> Project:  # fmt: skip
        """The project once it was compared with its model. Raises ImportFailed, OSError."""
        self._wait(lambda: False, PATIENCE, cancelled, tell)
        self.comparing = False
        left = self._path / LEFT
        if self._process.returncode or not left.is_file():
            raise ImportFailed(self._why() or f"{self._asked} ended the process that it ran in{self._how()}")
        return self._project(left, folder, cancelled)

    def _project(self, file: Path, folder: Path, cancelled: Callable[[], bool]) -> Project:
        project = project_file.read(file)
        return project if cancelled() else _adopted(project, self._path, folder, self._moved)

    def _wait(
        self, enough: Callable[[], bool], patience: float, cancelled: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        """Until it has ended, or there is `enough`."""
        while self._process.poll() is None and not enough():
            late = time.monotonic() > self._end
            if late or cancelled():
                if not late:
                    raise ImportFailed("cancelled")
                if self._checked:
                    words = f"comparing the drawing with the model took more than {CHECKED:.0f} s"
                    raise ImportFailed(f"{self._asked}: {words}")
                raise Late(f"{self._asked} had not come to its end after {patience:.0f} s and was stopped")
            with contextlib.suppress(OSError):
                words = (self._path / PROGRESS).read_text("utf-8")
                if words.startswith(CHECKING) and not self._checked:
                    self._checked, self._end = True, time.monotonic() + CHECKED
                tell(words)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK)

    def _why(self) -> str:
        """What it found wrong, in its own words."""
        why = self._path / WHY
        return why.read_text("utf-8") if why.is_file() else ""

    def _how(self) -> str:
        """With which status a process ended that found nothing wrong, and what was on its stderr last."""
        code = self._process.wait()
        if code < 0 and os.name == "posix":
            return f" by {signal.Signals(-code).name}{self._where()}"
        words = self._last_words()
        return f" with status {code}: {words}" if words else f" with status {code}"

    def _where(self) -> str:
        """The line of the model's own code at which a process ended, as its stderr has it."""
        root, torch = str(Path(__file__).resolve().parents[1]), f"{os.sep}torch{os.sep}"
        lines = _STACK.findall(self._told.text())
        found = next((one for one in lines if not one[0].startswith((root, "<")) and torch not in one[0]), None)
        return f" in {found[2]}, line {found[1]} of {Path(found[0]).name}" if found else ""

    def _last_words(self) -> str:
        lines = self._told.text().strip().splitlines()
        return next((line for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """End it, whatever it does, and what it has started."""
        self._process.kill()
        self._process.wait()
        if os.name == "posix":
            child_process.end_group(self._process.pid)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # it wants to write what nobody reads any more
                    stream.close()
        self._told.text()
        self._folder.cleanup()


def _adopted(project: Project, left: Path, folder: Path, moved: dict[str, str]) -> Project:
    """The project with its files in another folder than that of the process that ends; `moved` says which are there
    already. Raises OSError."""

    def there(path: str, sha256: str) -> str:
        if path not in moved:
            moved[path] = files.adopt(path, sha256, folder)
        return moved[path]

    project = custom_layers.adopted(project, left, folder)
    start, origin = project.training.start, project.origin
    if start is not None:
        project = project_file.with_start(project, replace(start, path=there(start.path, start.sha256)))
    if origin is not None:
        weights, reference = (file and replace(file, path=there(file.path, file.sha256))
                              for file in (origin.weights, origin.reference))  # fmt: skip
        project = replace(project, origin=replace(origin, weights=weights, reference=reference))
    return project


def import_file(
    question: Question, folder: Path, patience: float = PATIENCE, cancelled: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _words: None,
) -> Project:  # fmt: skip
    """The project of a model in a person's own file, which runs in a child process of at most `patience` seconds.

    The caller has asked whether it may run. Raises ImportFailed, OSError.
    """
    check_file(question.source, question.inputs)
    child = Child(file=question.source.file)
    try:
        return child.read(question, folder, patience, cancelled, tell)
    finally:
        child.close()


def shadows_packages(folder: Path) -> bool:
    """Whether a module in a folder bears the name of an installed package, which it takes the place of in Python: a
    process that has that package already would not import it."""
    try:
        names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    except OSError:
        return False
    return any(PathFinder.find_spec(name) is not None for name in names if name.isidentifier())


def listed_models() -> tuple[Known, ...]:
    """Which models torchvision has, as a child process finds them. Raises ImportError if there is none, OSError."""
    child = Child(listing=True)
    try:
        return child.models()
    finally:
        child.close()


def check_file(source: ModelSource, inputs: tuple[ModelInput, ...]) -> None:
    """Raise ImportFailed for a file that is not there, or where nobody says what its model takes."""
    if not inputs:
        raise WrongWords(f"say what {source} takes, for instance --input 1x3x32x32")
    if not Path(source.file).is_file():
        raise WrongWords(f"there is no file {source.file}")
