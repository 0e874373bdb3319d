"""References to weights of a stored run: its best weights, a checkpoint, or a step.

A run is named as `net.tape@RUN` or, with what `train --out` left, `OUT@RUN`, by number or name, or by its folder; `OUT`
alone is its only run.
`net.tape@RUN/WHAT` and `FOLDER@WHAT` name a checkpoint of it, such as `best` or `last`, or a step.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from app.runs import record, store
from app.runs.checkpoint_files import checkpoints
from app.runs.record import RunError
from app.runs.store import Kept

PROJECT = ".tape"
RUNS = "runs"  # in the folder of `train --out`


class NamedRun(Struct, frozen=True):
    """A stored run, and what of it: the stem of a checkpoint, a step as decimal digits, or "" for its best weights."""

    kept: Kept
    which: str = ""

    @property
    def step(self) -> int | None:
        """Return the step that is named, if one is."""
        digits = self.which.replace(",", "")
        return int(digits) if digits.isdecimal() else None

    @property
    def name(self) -> str:
        """Return it as text."""
        return self.kept.record.title + (
            f" at step {self.step:,}" if self.step is not None else ""
        )

    def checkpoint(self) -> Path:
        """Return the named checkpoint; without a name the best, the last, or the newest one. Raises RunError."""
        title, paths = (
            self.kept.record.title,
            {
                checkpoint.path.stem: checkpoint.path
                for checkpoint in checkpoints(self.kept)
            },
        )
        if not paths:
            raise RunError(
                f"{title} has no checkpoints; train with --save-every N, or name a step of it"
            )
        if self.which and self.which not in paths:
            raise RunError(
                f"{title} has no checkpoint {self.which}; there are {', '.join(paths)}, and its steps"
            )
        return next(
            (paths[name] for name in (self.which, "best", "last") if name in paths),
            next(iter(paths.values())),
        )


def _only(folder: Path, runs: list[Kept]) -> Kept:
    """Return the only run of what `train --out` left. Raises RunError if there are several, or none."""
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise RunError(f"{folder / RUNS} holds no run")
    numbers = ", ".join(
        f"{folder}@{stored_run.record.name or stored_run.record.number}"
        for stored_run in runs
    )
    raise RunError(f"{folder} holds {len(runs)} runs; name one: {numbers}")


def named_run(path: Path, name: str) -> NamedRun | None:
    """Return the run that a path and what follows its `@` name; None if they name no run. Raises RunError."""
    if path.suffix == PROJECT and name and not Path(name).is_file():
        run, _, which = name.partition("/")
        return NamedRun(store.find(store.runs_beside(path), run), which)
    if path.is_dir() and (path / store.PROJECT).is_file():
        return NamedRun(Kept(path, record.read(path)), name)
    if not name and (path / RUNS).is_dir():
        return NamedRun(_only(path, store.listed(path / RUNS)))
    if name and not Path(name).is_file() and (path / RUNS).is_dir():
        run, _, which = name.partition("/")
        return NamedRun(store.find(path / RUNS, run), which)
    inside = path.parent.parent
    if (
        not name
        and path.parent.name == store.CHECKPOINTS
        and (inside / store.PROJECT).is_file()
    ):
        return NamedRun(Kept(inside, record.read(inside)), path.stem)
    return None
