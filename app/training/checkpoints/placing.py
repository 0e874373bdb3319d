"""Place checkpoints so that any step of a run can be re-lived within a number of seconds, and say what they take."""

from __future__ import annotations

from pathlib import Path

from app.training.config import TrainingConfig

HALF = 0.5  # of the seconds asked for are for the start of a process, the capture, and a machine that does more
LEAST = 0.25  # of them are between two checkpoints at least, however long reading the data takes
# Tensors of the size of a parameter that an optimizer keeps for it.
_KEPT = {"SGD": 0, "Adagrad": 1, "RMSprop": 1, "Rprop": 2, "LBFGS": 20, "Adafactor": 0, "Muon": 1}


class Placing:
    """Decides when the next checkpoint is due: whoever re-lives a step starts, reads the data and a checkpoint, runs as
    long as the run did, and captures, so that steps get half of the seconds less those of reading.
    """

    def __init__(self, within: float, set_up: float, now: float) -> None:
        self.every = max(HALF * within - set_up, LEAST * within)
        self._next = now + self.every

    def due(self, seconds: float) -> bool:
        """Return whether a checkpoint is due at a second of the run."""
        return seconds >= self._next

    def placed(self, seconds: float) -> None:
        """Note that one was taken at a second of the run."""
        self._next = seconds + self.every


def estimated_bytes(training: TrainingConfig, parameters: int) -> int:
    """Estimate the size of one checkpoint: float32 weights, what the optimizer keeps, and a running mean."""
    optimizer = training.optimizer
    kept = _KEPT.get(optimizer.name, 2)
    if optimizer.name in ("SGD", "RMSprop") and optimizer.params.get("momentum"):
        kept += 1
    return 4 * parameters * (1 + kept + (training.ema is not None) + (training.accumulate > 1))


def measured_bytes(folder: Path) -> tuple[int, int]:
    """Return how many checkpoints a run keeps for revisiting, and the bytes that they take."""
    from app.training.checkpoints.checkpoint import to_revisit

    sizes = [file.stat().st_size for file in to_revisit(folder)] if folder.is_dir() else []
    return len(sizes), sum(sizes)
