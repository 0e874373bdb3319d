"""Process-wide torch flags of a run, restored when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from app.training.config import TrainingConfig


@contextmanager
def switched(config: TrainingConfig) -> Iterator[None]:
    """Apply deterministic algorithms, cuDNN autotuning and anomaly mode for the duration of a run."""
    if not (config.deterministic or config.anomaly or config.cudnn_benchmark):
        yield
        return
    algorithms, benchmark = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
    )
    anomaly = torch.is_anomaly_enabled()
    try:
        if config.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        elif config.cudnn_benchmark:
            torch.backends.cudnn.benchmark = True
        torch.autograd.set_detect_anomaly(anomaly or config.anomaly)
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms)
        torch.backends.cudnn.benchmark = benchmark
        torch.autograd.set_detect_anomaly(anomaly)


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Limit the CPU threads per operation on this thread temporarily; None keeps the number."""
    before = torch.get_num_threads()
    set_cpu_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def set_cpu_threads(count: int) -> None:
    """Set the CPU threads per operation, for this thread only.

    torch.set_num_threads also changes the default of new threads; a short-lived thread restores that.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    if count != before:
        again = threading.Thread(
            target=torch.set_num_threads, args=(before,), name="torch's default"
        )
        again.start()
        again.join()
