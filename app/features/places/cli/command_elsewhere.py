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

OPTION = "--at"


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
    wanted = {_value(text) for text in there} - set(files)
    if terminal.ended and wanted:
        fetch(place, terminal.folder, partial(_target, wanted=wanted))
    return status


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


def _target(name: str, wanted: set[str]) -> Path | None:
    """Return where a file from there goes; None for one whose name was not given here."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return None
    is_wanted = any(str(each) in wanted for each in (path, *path.parents[:-1]))
    return Path(path) if is_wanted else None
