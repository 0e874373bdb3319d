"""The program of a process that reads one model: a question on stdin, a project file left in a folder."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from app.engine.import_process import BESIDE, DRAWN, LEFT, MODELS, PROGRESS, WHY, Known, Question
from app.engine.requests.import_model import ImportFailed
from app.engine.tasks import import_model
from app.project import file as project_file
from app.project.project import Project

if TYPE_CHECKING:
    from app.builder.importer.lowering.opaque import OwnClasses


def known_models() -> tuple[Known, ...]:
    """What this torchvision has. Raises ImportError if there is none."""
    from app.util.torchvision_import import import_torchvision

    models = import_torchvision("models")
    found = []
    for name in import_model.known_names(models):
        rooms = models.get_model_builder(name.partition(".")[0]).__module__.split(".")[2:-1]
        kind = rooms[0].replace("_", " ") if rooms else "classification"
        found.append(Known(name, kind, import_model.usual_input(name)))
    return tuple(found)


def _own_classes(path: Path, folder: Path | None = None) -> OwnClasses:
    """The classes of a file that has run in this process, which may be nodes of the drawing; with a `folder` for files
    of theirs also those of installed packages."""
    from app.builder.catalog.custom import read_file
    from app.builder.importer.lowering.opaque import OwnClasses
    from app.source import layer_files

    read = read_file(path)
    if read.file is not None:
        layer_files.allow(read.file.sha256, tried=True)
    return OwnClasses(read_file(path), vars(sys.modules[path.stem]), folder)


def answer(
    question: Question, folder: Path, tell: Callable[[str], None] = lambda _words: None,
    drawn: Callable[[Project], None] | None = None,
) -> Project:  # fmt: skip
    """The project of what is asked for, its files in `folder`; `drawn` gets the drawing of a large model early. A
    person's own file runs here: only a child process asks for one. Raises ImportFailed, OSError, WeightsError."""
    from app.engine.tasks.import_pipeline import Wish, imported
    from app.engine.tasks.parity.initial import noting

    source, inputs, own = question.source, question.inputs, None
    tell(f"Making {source.name}")
    with noting() as notes:
        if source.file:
            model = import_model.make_from_file(source, question.arguments)
            own = _own_classes(Path(source.file), folder)
            words = str(replace(source, file=Path(source.file).name))
        else:
            model = import_model.make_torchvision(source.name, question.arguments, question.pretrained)
            inputs = inputs or (import_model.usual_input(source.name),)
            words = str(source)
        import_model.complete(model, inputs)
    wish = Wish(source.name, words, inputs, question.keep_weights, question.take_inits)
    inits = dict if question.pretrained else partial(notes.of, model)
    return imported(model, wish, folder, inits, own, tell, drawn)


def _put(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.replace(path)


def _hand_over(project: Project, folder: Path) -> None:
    """Leave a drawing that is not compared with its model yet."""
    project_file.write(project, folder / "new.tape")
    (folder / "new.tape").replace(folder / DRAWN)
    if sys.platform != "win32":
        os.nice(BESIDE)


def _end_with_parent(asked: TextIO) -> None:
    """Where the kernel does not see to it: nothing more is written to stdin, so it has an end when nobody reads us."""
    asked.read()
    os._exit(1)


def main() -> None:
    """Read a question from stdin, leave a project file in the folder that is the first argument."""
    folder, listing = Path(sys.argv[1]), "models" in sys.argv[2:]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody wants to read what is printed
    faulthandler.enable()  # its words say where a process ended that torch has ended
    if listing:
        rows = [[one.name, one.kind, one.input.shape, one.input.dtype] for one in known_models()]
        _put(folder / MODELS, json.dumps(rows))
    from app.builder.importer import building  # noqa: F401  # torch is there when the question comes
    from app.engine.tasks.parity.resources import threads_that_pay

    gc.freeze()  # and is not looked through for garbage while a model is read
    text = sys.stdin.readline()
    if not text:
        return
    asked, sys.stdin = sys.stdin, open(os.devnull)  # a file that asks for something hears nothing
    threading.Thread(target=_end_with_parent, args=(asked,), daemon=True).start()
    try:
        question = Question.read(text)
        drawn = (lambda early: _hand_over(early, folder)) if question.early else None
        with threads_that_pay():
            project = answer(question, folder, lambda words: _put(folder / PROGRESS, words), drawn)
        project_file.write(project, folder / LEFT)
    except ImportFailed as error:
        _put(folder / WHY, f"{error}".replace("\n", " "))
        sys.exit(1)
    except Exception as error:  # the parent tells it; the traceback is for who started it
        _put(folder / WHY, f"it cannot be imported: {type(error).__name__}: {error}".replace("\n", " "))
        raise
