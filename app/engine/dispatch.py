"""A run at the place that was chosen for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.engine.placement import RunPlacement
from app.engine.remote_control import RemoteControl
from app.engine.run_process import train as train_in_child
from app.engine.watched.follow import WatchedRunControl, follow
from app.training.control import Control
from app.training.events import Event
from app.training.job import Job


def control_for(placement: RunPlacement) -> Control:
    """Return the control for a run on an execution target."""
    if placement.watched is not None:
        return WatchedRunControl(placement.owned)
    return RemoteControl(placement.processes)


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
    assert isinstance(control, RemoteControl)
    return train_in_child(
        job, control, threads=threads, folder=folder, resume=resume, place=place
    )
