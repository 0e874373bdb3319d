"""A run at the place that was chosen for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.engine.distributed import LineControl
from app.engine.distributed import train as train_on_several
from app.engine.placement import RunPlacement
from app.engine.run_process import ChildControl
from app.engine.run_process import train as train_in_child
from app.engine.watched.follow import WatchedRunControl, follow
from app.training.control import Control
from app.training.events import Event
from app.training.job import Job


def control_for(placement: RunPlacement) -> Control:
    """Return the control for a run on an execution target."""
    if placement.watched is not None:
        return WatchedRunControl()
    return ChildControl() if placement.processes == 1 else LineControl()


def train(
    job: Job,
    control: Control,
    place: RunPlacement,
    *,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
) -> Iterator[Event]:
    """`app.training.loop.train` wherever it is to be; `control` is of `control_for(place)`."""
    if isinstance(control, WatchedRunControl):
        assert place.watched is not None
        return follow(place.watched, control)
    if isinstance(control, LineControl):
        return train_on_several(
            job, control, place=place, threads=threads, folder=folder, resume=resume
        )
    assert isinstance(control, ChildControl)
    return train_in_child(
        job, control, threads=threads, folder=folder, resume=resume, place=place
    )
