"""torch's CPU generator is one per process, so whoever draws from it beside a run must not be noticed by the run.

The training loop holds `GENERATOR` during a step; an inspection borrows the generator between two steps and puts it
back as it was. That keeps the losses of a run watched in the window bit for bit those of the plain script.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

GENERATOR = threading.RLock()


@contextmanager
def borrowed(seed: int | None = None) -> Iterator[None]:
    """Hold the generators of all devices, seeded with `seed` if given, and restore their states afterwards."""
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with GENERATOR, torch.random.fork_rng(devices=devices):
        if seed is not None:
            torch.manual_seed(seed)
        yield
