"""The battery of an accelerator: what a person does with a device, on the one that torch finds in this process.

Without one nothing of it is collected, but for the test that has a process of its own run it on `sim`. `make gpu` runs
it on a real one and writes `docs/measured/gpu.md`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
import torch

from tapedeck import devices

collect_ignore_glob = [] if torch.accelerator.is_available() else ["test_on_*.py"]


@pytest.fixture(scope="session")
def device() -> str:
    if not torch.accelerator.is_available():
        pytest.skip("torch finds no accelerator here")
    return devices.names()[0]


@pytest.fixture
def exact(device: str) -> bool:
    """Whether the device computes and draws what the CPU does, bit by bit."""
    return device.startswith("sim") and os.environ.get("SIM_RANDOM") != "own"


@pytest.fixture
def same(exact: bool) -> Callable[[object, object], bool]:
    """Whether numbers of the device are those of the CPU: bit by bit on the simulated one, else nearly."""

    def compare(found: object, wanted: object) -> bool:
        if exact:
            return found == wanted
        return found == pytest.approx(wanted, rel=2e-3, abs=1e-5)

    return compare


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Notes a figure for `docs/measured/gpu.md`."""

    def note(name: str, value: object) -> None:
        if path := os.environ.get("DEVICE_FIGURES"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps([name, value]) + "\n")

    return note
