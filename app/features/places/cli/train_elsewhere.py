"""`tapedeck train P --at PLACE`: the exported script runs there, and what it leaves is fetched."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from app.cli import console
from app.features.places import values
from app.features.places.cli.elsewhere import Terminal, title_of
from app.features.places.compute import SAVES_EVERY, script_files
from app.features.places.results import fetch
from app.features.places.values import CHECKPOINTS, SCRIPT, Place, PlaceError
from app.training.job import Job
from tapedeck import frames

OUT = "out"
# Options of a run that is kept here.
HERE = (
    "resume",
    "surgery",
    "leave_out",
    "revisit_seconds",
    "processes",
    "own_process",
)


def train(options: argparse.Namespace, job: Job) -> int:
    """Run the script of a job at a place; return its exit status. Raises PlaceError."""
    for name in HERE:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise console.CommandError(f"--at PLACE does not support {option}")
    place = values.named(options.at)
    if place.slurm and not job.training.save_every:
        job = replace(job, training=replace(job.training, save_every=SAVES_EVERY))
    request = {
        "title": title_of(options.project.stem),
        "cwd": "",
        "module": False,
        "script": SCRIPT,
        "arguments": ["--out", OUT, *_options(options), *_resuming(place, job)],
        "files": script_files(job),
    }
    terminal = Terminal(place, request, False, options.json)
    status = terminal.run()
    if terminal.ended:
        options.out.mkdir(parents=True, exist_ok=True)
        fetched = fetch(place, terminal.folder, partial(_target, out=options.out))
        if not options.json:
            names = sorted(name.removeprefix(f"{OUT}/") for name in fetched)
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
