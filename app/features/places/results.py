"""Fetch files that a run has left at a place."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from app.features.places.line import ANSWERS, Line, parsed
from app.features.places.values import Place, PlaceError
from app.util import atomic

TRIES = 5


def fetch(
    place: Place, folder: str, target: Callable[[str], Path | None]
) -> dict[str, Path]:
    """Copy the files of a folder there to the `target` of each, None for one that stays; return what came by its name.

    Goes on after a line that was cut. Raises PlaceError, OSError.
    """
    fetched: dict[str, Path] = {}
    for left in reversed(range(TRIES)):
        try:
            with closing(Line(place)) as line:
                sizes = line.ask("list", folder=folder)["files"]
                for number, (name, size) in enumerate(sizes.items(), 1):
                    path = target(name)
                    if path is None or name in fetched:
                        continue
                    path.parent.mkdir(parents=True, exist_ok=True)
                    there = f"{folder}/{name}"
                    atomic.write(path, partial(_copy, line, number, there, int(size)))
                    fetched[name] = path
            return fetched
        except PlaceError as error:
            if error.final or not left:
                raise
    return fetched


def _copy(line: Line, channel: int, path: str, size: int, temporary: Path) -> None:
    """Copy a file of a size that is known. Raises PlaceError."""
    line.request("follow", channel=channel, path=path, offset=0)
    with temporary.open("wb") as file:
        while size > 0:
            line.keep_alive()
            try:
                message = line.arrived.get(timeout=ANSWERS)
            except queue.Empty:
                raise PlaceError(f"{path} does not come", final=False) from None
            if message is None:
                raise line.reason()
            if message[0] == 0 and "error" in (answer := parsed(message[1])):
                raise PlaceError(f"{path}: {answer['error']}")
            if message[0] == channel:
                file.write(message[1][:size])
                size -= len(message[1])
    line.send(channel, b"")
