"""The checkpoints of a stored run, listed from its folder without reading them."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from app.runs.record import RunError
from app.runs.store import Kept

_TO_REVISIT = re.compile(r"revisit-\d+\.pt")
_OF_STAGE = re.compile(r"stage-(\d+)-(start|end|best)\.pt")


class GoingOn(Struct, frozen=True):
    """The run was resumed after `step`, with `epochs` complete, in a stage of it, from 1."""

    step: int
    epochs: int
    stage: int = 1


class Checkpoint(Struct, frozen=True):
    """A checkpoint of a stored run; `step` is None if the record does not have it."""

    path: Path
    step: int | None

    @property
    def label(self) -> str:
        """Return its description."""
        description = {"last.pt": "the end", "best.pt": "the best validation loss"}.get(
            self.path.name, ""
        )
        if match := _OF_STAGE.fullmatch(self.path.name):
            moment = {
                "start": "the start",
                "end": "the end",
                "best": "the best validation loss",
            }[match[2]]
            description = f"{moment} of stage {int(match[1])}"
        step = f"step {self.step:,}" if self.step is not None else ""
        return (
            ", ".join(piece for piece in (description, step) if piece) or self.path.name
        )


def checkpoints(stored_run: Kept) -> list[Checkpoint]:
    """List the checkpoints of a run, newest first, without reading them."""
    entries = []
    for path in stored_run.checkpoints.glob("*.pt"):
        by_step = path.stem.removeprefix("step-").removeprefix("revisit-")
        step = (
            int(by_step)
            if by_step.isdecimal()
            else stored_run.record.saved.get(path.name)
        )
        entries.append(Checkpoint(path, step))
    return sorted(
        entries,
        key=lambda checkpoint: (
            checkpoint.step if checkpoint.step is not None else -1,
            checkpoint.path.name,
        ),
        reverse=True,
    )


def kept_to_revisit(folder: Path) -> list[Path]:
    """List the checkpoints in a folder that are kept for revisiting; none without the folder."""
    return sorted(
        file for file in folder.glob("revisit-*.pt") if _TO_REVISIT.fullmatch(file.name)
    )


class DiskUse(Struct, frozen=True):
    """What a run's folder of checkpoints holds: whether any, and how many for revisiting, with their bytes."""

    any: bool
    to_revisit: int
    bytes: int


def measured(folder: Path) -> DiskUse:
    """Measure a folder of checkpoints, without reading them."""
    sizes = [file.stat().st_size for file in kept_to_revisit(folder)]
    return DiskUse(any(folder.glob("*.pt")), len(sizes), sum(sizes))


def delete_kept(stored_run: Kept) -> None:
    """Delete the checkpoints of a run that are kept for revisiting. Raises RunError for a running one, and OSError."""
    if stored_run.goes_on:
        raise RunError(f"{stored_run.record.title} is running. Stop it first.")
    for file in kept_to_revisit(stored_run.checkpoints):
        file.unlink(missing_ok=True)
