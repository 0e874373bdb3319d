"""A script that a queue ends and starts again: where it goes on, and what its end leaves.

In a job that Tapedeck has submitted the environment of a script names a folder, `TAPEDECK_CHECKPOINTS`, and the newest
checkpoint in it, `TAPEDECK_CHECKPOINT`, "" at the first start: the latest of the files `step-00000120.pt`. It is looked
for at each start, since a path that is settled at submission would have every start begin at the same place.

When the queue ends the job, by SIGUSR1 some time before, or by SIGTERM, a script without handlers of its own is saved
after its next step, as by the command "save", and ended; the queue then starts it again. It goes on by these lines:

    if path := os.environ.get("TAPEDECK_CHECKPOINT"):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["models"]["model"])            # by the names of its variables
        optimizer.load_state_dict(state["optimizers"]["optimizer"])
        first = state["step"]                                      # optimizer steps so far

The order of its data and its random numbers are its own to go on with. One that handles the signals, or saves every so
many steps, writes such files itself, and ends with status 75 to be started again. One that reads
no checkpoint begins anew, and is not started a third time.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tapedeck.frames import RESUMED

FOLDER, NEWEST = "TAPEDECK_CHECKPOINTS", "TAPEDECK_CHECKPOINT"
HELD = "TAPEDECK_HELD"  # set where the first step is to be followed by a pause
_NAMES = ("SIGTERM", "SIGUSR1")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_TAIL = 1 << 14  # bytes


def before() -> tuple[int, float]:
    """Return the steps and the seconds of a run before this script goes on with it."""
    steps, _, seconds = os.environ.get(RESUMED, "0 0").partition(" ")
    return int(steps), float(seconds)


class Resuming:
    """What a queue has to do with this process, whose `frames` may be there from an earlier start.

    `asked` becomes True when it is to save, and to end.
    """

    def __init__(self, frames: Path) -> None:
        self.asked = False
        self._frames = frames
        self._newest = os.environ.get(NEWEST, "")
        self._was_read = False
        if self._newest:
            sys.addaudithook(self._hear)

    def begin(self) -> tuple[int, float, str]:
        """Heed the signals from the first step on, if the script handles none; before it they end it as they do.

        Returns the steps and seconds before this start, and what to say of it.
        """
        name = Path(self._newest).name
        step = re.fullmatch(r"step-(\d{1,15})\.pt", name)
        if self._newest and (step is None or not self._was_read):
            return 0, 0.0, f"The script has not read {name}: it begins anew."
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, self._ask)
        return (int(step[1]), self._seconds_so_far(), "") if step else (0, 0.0, "")

    def path(self, step: int) -> Path:
        """Return the file of a checkpoint after a step."""
        return Path(os.environ[FOLDER], f"step-{step:08d}.pt")

    def leave(self) -> None:
        """Let the signals end this process."""
        for number in _SIGNALS:
            if signal.getsignal(number) == self._ask:
                signal.signal(number, signal.SIG_DFL)

    def _ask(self, _number: int, _frame: Any) -> None:
        self.asked = True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Notice that the script opens its checkpoint."""
        if event == "open" and not self._was_read:
            path = arguments[0]
            if isinstance(path, str | os.PathLike):
                self._was_read = os.path.abspath(path) == self._newest

    def _seconds_so_far(self) -> float:
        """Return the time of the last step that was told before this start, or of the run that it goes on with."""
        try:
            with self._frames.open("rb") as file:
                file.seek(max(0, self._frames.stat().st_size - _TAIL))
                times = re.findall(rb'"step": \d+, .*?"seconds": ([\d.]+)', file.read())
        except OSError:
            times = []
        return max(map(float, times), default=before()[1])
