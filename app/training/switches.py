"""Switches of torch that a run turns and that are the whole process's: turned back when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.training.config import TrainingConfig


@contextmanager
def switched(config: TrainingConfig) -> Iterator[None]:
    """Deterministic algorithms and anomaly mode while a run goes on, as it asks for them."""
    import torch

    if not config.deterministic and not config.anomaly:
        yield
        return
    algorithms, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    anomaly = torch.is_anomaly_enabled()
    try:
        if config.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        torch.autograd.set_detect_anomaly(anomaly or config.anomaly)
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms)
        torch.backends.cudnn.benchmark = benchmark
        torch.autograd.set_detect_anomaly(anomaly)
