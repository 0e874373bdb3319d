"""Runs of the project at places: each is a target of the next run, and has a process here that copies its frames."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject

from app.engine.placement import RunPlacement
from app.features.places import values
from app.features.places.values import (
    FindRunGoingOn,
    Place,
    PreparedScript,
    PrepareScript,
    RunAtPlace,
    RunGoingOn,
)
from app.runs import store
from app.runs.checkpoint_files import GoingOn
from app.runs.recorder import Recorder
from app.runs.store import Kept
from app.training.history import History
from app.training.job import Job
from app.util.language import tr
from app.util.resources import PROGRAM, python_path
from app.views.run.targets import RunTarget
from app.views.ui.background import WorkerFailure
from app.views.workspace import Workspace
from tapedeck import frames

KEY = "place-script"
UNPREPARED = "The script of this run cannot be written"


class PlaceRuns(QObject):
    """Offers the places as targets of runs. `mirror` is the process of the newest run at one."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self.mirror: subprocess.Popen[bytes] | None = None
        self._offered: set[Path] = set()  # runs whose watching was offered
        workspace.session.runEnded.connect(self._close)
        workspace.runs_keeper.listed.connect(self.offer_left)

    def offer(self) -> None:
        """Offer the places that there are now. Raises PlaceError for a file of them that cannot be read."""
        places = values.places().values()
        self._workspace.run_control.targets.offer(map(self._target, places))

    def _target(self, place: Place) -> RunTarget:
        return RunTarget(f"at {place.name}", place.name, partial(self._begin, place))

    def _begin(
        self,
        place: Place,
        job: Job,
        recorder: Recorder | None,
        checkpoint: Path | None,
    ) -> RunPlacement:
        """Have a place run a job, from a checkpoint if there is one; return how it is watched."""
        name = self._workspace.document.title
        folder = frames.new_folder(f"{name}-{place.name}")
        run = RunAtPlace(
            place.name,
            frames.folder_title(name) + secrets.token_hex(4),
            {},
            str(folder),
            str(recorder.checkpoints) if recorder is not None else "",
        )
        self._workspace.engine.ask(
            KEY,
            PrepareScript(job, checkpoint),
            on_answer=partial(self._prepared, run),
            on_error=partial(self._refuse, folder),
        )
        return RunPlacement(watched=folder / frames.FRAMES, owned=True)

    def _prepared(self, run: RunAtPlace, script: PreparedScript) -> None:
        self._start(msgspec.structs.replace(run, **msgspec.structs.asdict(script)))

    # -- runs that go on ----------------------------------------------------------------------------------------------

    def offer_left(self, stored_runs: list[Kept]) -> None:
        """Offer to watch the newest of the project's runs that goes on at a place, once."""
        if self._workspace.session.active:
            return
        stored_run = _left(stored_runs)
        run = values.left_in(stored_run.folder) if stored_run is not None else None
        if stored_run is None or run is None or stored_run.folder in self._offered:
            return
        self._offered.add(stored_run.folder)
        self._workspace.notifier.show(
            "info",
            tr(
                "{run} goes on at {place}",
                run=stored_run.record.title,
                place=run.place,
            ),
            tr("It was left there, and all that it has told since can be seen."),
            tr("Watch it"),
            partial(self.take_up, stored_run),
        )

    def take_up_newest(self) -> None:
        """Watch the newest of the project's runs that goes on at a place."""
        stored_run = _left(store.listed(self._workspace.runs_keeper.folder))
        if stored_run is None:
            self._workspace.notifier.refuse(
                tr("No run of this project goes on at a place"),
                tr("Those that ended while they were watched are under Runs."),
            )
        else:
            self.take_up(stored_run)

    def take_up(self, stored_run: Kept) -> None:
        """Watch a run again that goes on at a place."""
        root = str(self._workspace.settings.data_folder)
        self._workspace.engine.ask(
            KEY,
            FindRunGoingOn(stored_run.folder, root),
            on_answer=partial(self._read, stored_run),
            on_error=self._not_found,
        )

    def _read(self, stored_run: Kept, going_on: RunGoingOn) -> None:
        """Read the steps before those that the run has taken at the place."""
        self._workspace.background.ask(
            KEY,
            store.history_of,
            stored_run,
            on_answer=partial(self._watch, stored_run, going_on),
            on_error=self._not_found,
        )

    def _watch(self, stored_run: Kept, going_on: RunGoingOn, history: History) -> None:
        """Watch a run again, from the first step on that it has taken at the place."""
        left = values.left_in(stored_run.folder)
        if left is None or self._workspace.session.active:
            return
        continued = stored_run.record.continued
        if continued[-1:] == (left.step,):  # which the recorder notes again
            continued = continued[:-1]
        recorder = Recorder(
            Kept(
                stored_run.folder,
                msgspec.structs.replace(stored_run.record, continued=continued),
            ),
            going_on.project,
            going_on.job.source.text,
            lambda: GoingOn(left.step, left.epochs),
            self._workspace.runs_keeper.watch(going_on.job),
        )
        folder = frames.new_folder(f"{going_on.project.name}-{left.place}")
        self._start(
            msgspec.structs.replace(
                left, folder=str(folder), results=str(stored_run.checkpoints)
            )
        )
        placement = RunPlacement(watched=folder / frames.FRAMES, owned=True)
        self._workspace.run_control.watch_own(
            going_on.job, going_on.project, recorder, placement, history
        )

    def _not_found(self, failure: WorkerFailure) -> None:
        self._workspace.notifier.refuse(
            tr("The run cannot be watched again"), failure.message
        )

    # -- the process that copies --------------------------------------------------------------------------------------

    def _start(self, run: RunAtPlace) -> None:
        """Start the process that starts the script there, or finds it."""
        self._close()
        self.mirror = subprocess.Popen(
            [sys.executable, "-m", f"{PROGRAM}.features.places.run_mirror"],
            env={**os.environ, "PYTHONPATH": python_path()},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.mirror.stdin is not None
        try:
            self.mirror.stdin.write(msgspec.json.encode(run) + b"\n")
            self.mirror.stdin.flush()
        except OSError as error:
            _fail(Path(run.folder), f"{UNPREPARED}: {error}")

    def _refuse(self, folder: Path, failure: WorkerFailure) -> None:
        _fail(folder, f"{UNPREPARED}: {failure.message}")

    def _close(self, _run: object = None) -> None:
        """End the process of a run that has ended, or is watched no longer; what runs there goes on."""
        mirror, self.mirror = self.mirror, None
        if mirror is None:
            return
        assert mirror.stdin is not None
        try:
            mirror.stdin.close()
        except OSError:
            pass  # it has ended
        mirror.wait()


def _left(stored_runs: list[Kept]) -> Kept | None:
    """Return the newest run that goes on at a place and is watched by nobody."""
    return next(
        (
            stored_run
            for stored_run in stored_runs
            if not stored_run.goes_on and values.left_in(stored_run.folder) is not None
        ),
        None,
    )


def _fail(folder: Path, reason: str) -> None:
    """End a run that was not started."""
    frame = frames.Failed("data", reason, "", None, 0, 0)
    with (folder / frames.FRAMES).open("ab") as file:
        file.write(frames.line_of(frame).encode() + b"\n")
