"""Random generators shared with a run: torch has one CPU generator per process, so other users must restore it.

The training loop holds `GENERATOR` during a step; an inspection borrows the generator between two steps and restores
it. That keeps the losses of a run in the window bit for bit those of the plain script.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

GENERATOR = threading.RLock()


class Generators:
    """The states of the random generators of torch, its devices, NumPy and Python, as they are now."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = (
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        )
        self._mps = (
            torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
        )
        self._numpy, self._python = np.random.get_state(), random.getstate()

    def restore(self) -> None:
        """Put the states back."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._mps is not None:
            torch.mps.set_rng_state(self._mps)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


@contextmanager
def borrowed(seed: int | Generators | None = None) -> Iterator[None]:
    """Hold the generators of all devices, seeded with `seed` or in its states if given, and restore their states
    afterwards; of such states also those of NumPy and Python.
    """
    if isinstance(seed, Generators):
        with GENERATOR:
            now = Generators()
            seed.restore()
            try:
                yield
            finally:
                now.restore()
        return

    devices = (
        list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    )
    mps = torch.backends.mps.is_available()
    with GENERATOR, torch.random.fork_rng(devices=devices):
        mps_state = torch.mps.get_rng_state() if mps else None
        try:
            if seed is not None:
                _seed(seed, cuda=bool(devices), mps=mps)
            yield
        finally:
            if mps_state is not None:
                torch.mps.set_rng_state(mps_state)


def _seed(seed: int, cuda: bool, mps: bool) -> None:
    """Seed only the generators that `borrowed` restores; `torch.manual_seed` also leaves a seed for a later CUDA."""
    torch.default_generator.manual_seed(seed)
    if cuda:
        torch.cuda.manual_seed_all(seed)
    if mps:
        torch.mps.manual_seed(seed)
