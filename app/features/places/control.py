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
from app.features.places.values import Place, PrepareScript, RunAtPlace
from app.runs.recorder import Recorder
from app.training.job import Job
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
        workspace.session.runEnded.connect(self._close)

    def offer(self) -> None:
        """Offer the places that there are now, but for queues, which `tapedeck train --at` submits to.

        Raises PlaceError for a file of them that cannot be read.
        """
        places = (place for place in values.places().values() if not place.slurm)
        self._workspace.run_control.targets.offer(map(self._target, places))

    def _target(self, place: Place) -> RunTarget:
        return RunTarget(f"at {place.name}", place.name, partial(self._begin, place))

    def _begin(self, place: Place, job: Job, recorder: Recorder | None) -> RunPlacement:
        """Have a place run a job; return how it is watched."""
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
            PrepareScript(job),
            on_answer=partial(self._start, run),
            on_error=partial(self._refuse, folder),
        )
        return RunPlacement(watched=folder / frames.FRAMES, owned=True)

    def _start(self, run: RunAtPlace, files: dict[str, str]) -> None:
        """Start the process that starts the script there."""
        self._close()
        self.mirror = subprocess.Popen(
            [sys.executable, "-m", f"{PROGRAM}.features.places.run_mirror"],
            env={**os.environ, "PYTHONPATH": python_path()},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.mirror.stdin is not None
        line = msgspec.json.encode(msgspec.structs.replace(run, files=files))
        try:
            self.mirror.stdin.write(line + b"\n")
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


def _fail(folder: Path, reason: str) -> None:
    """End a run that was not started."""
    frame = frames.Failed("data", reason, "", None, 0, 0)
    with (folder / frames.FRAMES).open("ab") as file:
        file.write(frames.line_of(frame).encode() + b"\n")
