"""`tapedeck COMMAND ... --at PLACE`: the same command runs there, and what it writes comes back.

Files of this machine that it names go there, those of a project beside it too; PLACE:path is a path there, below the
home folder if it is relative. Its files come back under the names that were given for them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from app.cli import console
from app.features.places import values
from app.features.places.cli.elsewhere import Terminal, title_of
from app.features.places.results import fetch
from app.project.library import SUFFIX
from app.runs.store import runs_beside

OPTION = "--at"
STORES_RUNS = "sweep"  # the command whose runs come beside the project


def run(place_name: str, arguments: Sequence[str]) -> int:
    """Run a command at a place; return its exit status. Raises PlaceError, OSError."""
    place = values.named(place_name)
    if place.slurm:
        raise console.CommandError(
            f"{place.name} is a queue, which takes `tapedeck train --at` and `tapedeck run --on`"
        )
    command, *rest = _without_place(arguments)
    files: dict[str, Path] = {}
    there = [_argument(text, place.name, files) for text in rest]
    runs = _new_runs(place.name, files) if command == STORES_RUNS else {}
    request = {
        "title": title_of(command),
        "cwd": "",
        "module": True,
        "watched": False,
        "script": "tapedeck",
        "arguments": [command, *there],
        "files": {
            name: base64.b64encode(path.read_bytes()).decode()
            for name, path in files.items()
        },
    }
    terminal = Terminal(place, request, window=False, quiet=True)
    status = terminal.run()
    wanted = {text: Path(text) for text in map(_value, there) if text not in files}
    if terminal.ended:
        fetch(place, terminal.folder, partial(_target, wanted=wanted | runs))
    return status


def _new_runs(place: str, files: dict[str, Path]) -> dict[str, Path]:
    """Return the folders of runs that come beside the projects among the files, by their names there."""
    projects = [path for path in files.values() if path.suffix == SUFFIX]
    folders = [runs_beside(path) for path in projects]
    for folder in folders:
        if folder.exists():
            raise console.CommandError(
                f"{folder} is there already, and runs of {place} have the same numbers; sweep a copy of the project"
            )
    return {folder.name: folder for folder in folders}


def _without_place(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the option that names the place.

    >>> _without_place(["runs", "--at", "box", "p", "--at=box"])
    ['runs', 'p']
    """
    rest: list[str] = []
    texts = iter(arguments)
    for text in texts:
        if text == OPTION:
            next(texts, None)
        elif not text.startswith(f"{OPTION}="):
            rest.append(text)
    return rest


def _value(text: str) -> str:
    """Return an argument, or the value of an option with its value."""
    return text.partition("=")[2] if text.startswith("--") else text


def _argument(text: str, place: str, files: dict[str, Path]) -> str:
    """Return an argument as it is there, and add the files here that it names."""
    value = _value(text)
    option = text.removesuffix(value)
    name, path = values.split(value)
    if name == place and path:
        return option + str(PurePosixPath("~", path))
    file, _, rest = value.partition(":")  # file.py:Class
    if not value or not Path(file).is_file():
        return text
    for each in _belonging(Path(file)):
        other = files.setdefault(each.name, each)
        if not other.samefile(each):
            raise console.CommandError(
                f"{other} and {each} have the same name; at a place both lie in one folder"
            )
    return option + Path(file).name + (f":{rest}" if rest else "")


def _belonging(file: Path) -> list[Path]:
    """Return a file and, of a project, those beside it whose names it has: weights, layers."""
    if file.suffix != SUFFIX:
        return [file]
    text = file.read_text("utf-8", "replace")
    beside = (path for path in file.parent.iterdir() if path.is_file())
    return [file, *(path for path in beside if f'{path.name}"' in text)]


def _target(name: str, wanted: dict[str, Path]) -> Path | None:
    """Return where a file from there goes; None for one that is in nothing that is wanted here."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return None
    for each in (path, *path.parents[:-1]):
        if (here := wanted.get(str(each))) is not None:
            return here / path.relative_to(each)
    return None
