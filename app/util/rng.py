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

from tapedeck import devices

GENERATOR = threading.RLock()


class Generators:
    """The states of the random generators of torch, its devices, NumPy and Python, as they are now."""

    def __init__(self) -> None:
        self._torch, self._devices = torch.get_rng_state(), devices.rng_states()
        self._numpy, self._python = np.random.get_state(), random.getstate()

    def restore(self) -> None:
        """Put the states back."""
        self.restore_torch()
        np.random.set_state(self._numpy)
        random.setstate(self._python)

    def restore_torch(self) -> None:
        """Put the states of torch and its devices back."""
        torch.set_rng_state(self._torch)
        devices.set_rng_states(self._devices)


@contextmanager
def borrowed(seed: int | Generators | None = None) -> Iterator[None]:
    """Hold the generators of all devices, seeded with `seed` or in its states if given, and restore their states
    afterwards; of such states also those of NumPy and Python.
    """
    with GENERATOR:
        now = Generators()
        try:
            if isinstance(seed, Generators):
                seed.restore()
            elif seed is not None:
                # `torch.manual_seed` also leaves a seed for an accelerator that this process begins to use later.
                torch.default_generator.manual_seed(seed)
                devices.seed(seed)
            yield
        finally:
            if isinstance(seed, Generators):
                now.restore()
            else:
                now.restore_torch()
