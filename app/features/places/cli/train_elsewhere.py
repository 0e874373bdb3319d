"""`tapedeck train P --at PLACE`: the exported script runs there, and what it leaves is fetched."""

from __future__ import annotations

import argparse
import base64
import queue
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from app.cli import console
from app.export.layers import write_model
from app.export.script.script import training_script, write_start
from app.features.places import values
from app.features.places.cli.elsewhere import Terminal, title_of
from app.features.places.line import ANSWERS, Line, parsed
from app.features.places.values import Place, PlaceError
from app.training.job import Job
from app.util import atomic
from app.util.leftovers import TemporaryFolder
from tapedeck import frames

SCRIPT, OUT = "train.py", "out"
CHECKPOINTS = "checkpoints"  # as `tapedeck.slurm` has it
# Options of a run that is kept here.
HERE = (
    "resume",
    "surgery",
    "leave_out",
    "revisit_seconds",
    "processes",
    "own_process",
)
TRIES = 5
SAVES_EVERY = 1000  # steps, of a run in a queue that says nothing of it


def train(options: argparse.Namespace, job: Job) -> int:
    """Run the script of a job at a place; return its exit status. Raises PlaceError."""
    for name in HERE:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise console.CommandError(f"--at PLACE does not support {option}")
    place = values.named(options.at)
    if place.slurm and not job.training.save_every:
        job = replace(job, training=replace(job.training, save_every=SAVES_EVERY))
    with TemporaryFolder() as name:
        script = Path(name, SCRIPT)
        script.write_text(training_script(job, None, SCRIPT), "utf-8")
        write_start(job, script)
        write_model(job.source, script.with_name("model.py"), [script])
        files = {file.name: file.read_bytes() for file in Path(name).iterdir()}
    request = {
        "title": title_of(options.project.stem),
        "cwd": "",
        "module": False,
        "script": SCRIPT,
        "arguments": ["--out", OUT, *_options(options), *_resuming(place, job)],
        "files": {
            name: base64.b64encode(data).decode() for name, data in files.items()
        },
    }
    terminal = Terminal(place, request, False, options.json)
    status = terminal.run()
    if terminal.ended:
        options.out.mkdir(parents=True, exist_ok=True)
        names = _fetch(place, terminal.folder, options.out)
        if not options.json:
            print(console.printable(f"{options.out}: {', '.join(names)}"))
    return status


def _options(options: argparse.Namespace) -> list[str]:
    """Return the arguments of the script; all else is in it."""
    data_and_device = [
        argument
        for name in ("data", "device")
        if (value := getattr(options, name)) is not None
        for argument in (f"--{name}", str(value))
    ]
    return [*data_and_device, *["--json"] * options.json]


def _resuming(place: Place, job: Job) -> list[str]:
    """Return the arguments by which each start of a job in a queue goes on from the newest checkpoint."""
    if not place.slurm or job.stages:
        return []
    return ["--checkpoints", CHECKPOINTS, "--resume", CHECKPOINTS]


def _fetch(place: Place, folder: str, out: Path) -> list[str]:
    """Bring what the run has left there; return the names. Raises PlaceError, OSError."""
    done: list[str] = []
    for left in reversed(range(TRIES)):
        try:
            with closing(Line(place)) as line:
                sizes = line.ask("list", folder=folder)["files"]
                for number, (name, size) in enumerate(sizes.items(), 1):
                    target = _target(name, out)
                    if target is None or name in done:
                        continue
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path = f"{folder}/{name}"
                    atomic.write(target, partial(_copy, line, number, path, int(size)))
                    done.append(name)
            return sorted(name.removeprefix(f"{OUT}/") for name in done)
        except PlaceError as error:
            if error.final or not left:
                raise
    return done


def _target(name: str, out: Path) -> Path | None:
    """Return where a file from there goes: below the folder here, whatever its name says; None for what stays there."""
    parts = PurePosixPath(name).parts
    if parts[:1] == (OUT,):
        parts = parts[1:]
    elif name != frames.FRAMES and not name.endswith((".py", ".pt")):
        return None
    if not parts or ".." in parts or PurePosixPath(*parts).is_absolute():
        raise PlaceError(f"{name!r} there is no name for a file here")
    return out.joinpath(*parts)


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
