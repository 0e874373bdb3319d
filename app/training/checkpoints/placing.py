"""Place checkpoints so that any step of a run can be recomputed within a number of seconds."""

from __future__ import annotations

from app.training.checkpoints.disk_estimate import HALF

LEAST = 0.1  # of them are between two checkpoints at least, however long reading the data takes
SHARE = 0.05  # of the run's time may go into saving; where that holds checkpoints up, steps are further away
WINDOW = 1.0  # seconds over which the pace of the steps is taken
LOADS = 2  # reads of a checkpoint, each verified: in the search for the nearest, and where the run resumes


class Placing:
    """Decides when the next checkpoint is due: recomputing a step starts, reads the data and a checkpoint, runs
    the steps, each hashed and with a copy of the state before it, and captures.

    `set_up` are the seconds until the first step, as measured. The steps since the last checkpoint count as long as
    they took, or as they would at the slowest pace that the run has had: they may meet the same machine again.
    """

    def __init__(self, within: float, set_up: float, now: float, step: int) -> None:
        self._within, self._set_up = within, set_up
        self._beside = (
            0.0  # seconds that a recomputed step takes longer than one of the run
        )
        self._written = self._cost = 0.0
        self._at, self._step = now, step  # of the last checkpoint
        self._window = now, step
        self._slowest = 0.0  # seconds a step

    def recomputed_steps_take(self, beside: float) -> None:
        """Note the seconds that hashing a step and copying the state before it take, as measured."""
        self._beside = beside

    def took(self, copying: float, writing: float) -> None:
        """Note the seconds that the newest checkpoint took the run, and those of writing it; reading one takes about as
        long as writing it, which is verified too."""
        self._cost, self._written = copying + writing, writing

    @property
    def seconds(self) -> float:
        """Return how many seconds of recomputed steps may lie between two checkpoints."""
        return max(
            HALF * self._within - self._set_up - LOADS * self._written,
            LEAST * self._within,
        )

    def due(self, seconds: float, step: int) -> bool:
        """Return whether a checkpoint is due after a step, at a second of the run."""
        since, pace_since = self._window
        if seconds - since >= WINDOW and step > pace_since:
            self._slowest = max(self._slowest, (seconds - since) / (step - pace_since))
            self._window = seconds, step
        steps = step - self._step
        recomputed = (
            max(seconds - self._at, steps * self._slowest) + steps * self._beside
        )
        return recomputed >= self.seconds and seconds - self._at >= self._cost / SHARE

    def placed(self, seconds: float, step: int) -> None:
        """Note that one was taken after a step, at a second of the run."""
        self._at, self._step = seconds, step
