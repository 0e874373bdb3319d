"""Estimate the disk space of the checkpoints that are kept so that steps can be recomputed."""

from __future__ import annotations

import math

from app.training.config import TrainingConfig
from app.util.formatting import bytes_text, duration

HALF = 0.5  # of the seconds asked for are for the capture, and for a machine that does more then than during the run
# Tensors of the size of a parameter that an optimizer keeps for it.
_KEPT = {
    "SGD": 0,
    "Adagrad": 1,
    "RMSprop": 1,
    "Rprop": 2,
    "LBFGS": 20,
    "Adafactor": 0,
    "Muon": 1,
}


def estimated_bytes(training: TrainingConfig, parameters: int) -> int:
    """Estimate the bytes of one checkpoint: float32 weights, optimizer state and EMA weights."""
    optimizer = training.optimizer
    state_tensors = _KEPT.get(optimizer.name, 2)
    if optimizer.name in ("SGD", "RMSprop") and optimizer.params.get("momentum"):
        state_tensors += 1
    return (
        4
        * parameters
        * (1 + state_tensors + (training.ema is not None) + (training.accumulate > 1))
    )


def estimate_text(
    training: TrainingConfig, parameters: int, run: str = "", seconds: float = 0.0
) -> str:
    """Return the estimate as text, also for as long as a `run` took; "" where no checkpoint is kept for revisiting.

    >>> estimate_text(TrainingConfig(revisit_seconds=30.0), 85_066, "Run 3", 600)
    'Estimated: 997 KiB a checkpoint, one every 15 s of the run or sooner, so 3.89 MiB a minute; 38.9 MiB for as long \
as Run 3 (10:00).'
    """
    every = HALF * training.revisit_seconds
    if not every:
        return ""
    size = estimated_bytes(training, parameters)
    text = f"Estimated: {bytes_text(size)} a checkpoint, one every {every:g} s of the run or sooner, so "
    text += f"{bytes_text(round(size * 60 / every))} a minute"
    if run and seconds >= every:
        text += f"; {bytes_text(size * math.floor(seconds / every))} for as long as {run} ({duration(seconds)})"
    return f"{text}."
