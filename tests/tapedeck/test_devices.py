"""What an accelerator tells is found by whatever name its backend has for it, and what it does not tell is None."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tapedeck import devices
from tapedeck.devices import Memory

MODULES: dict[str, tuple[dict[str, Callable[..., Any]], Memory, int | None]] = {
    "as torch.cuda": (
        {
            "memory_allocated": lambda: 5,
            "memory_reserved": lambda: 9,
            "max_memory_allocated": lambda: 7,
            "get_device_properties": lambda _device: SimpleNamespace(total_memory=99),
        },
        Memory(5, 9, 7),
        99,
    ),
    "as torch.mps": (
        {
            "current_allocated_memory": lambda: 5,
            "driver_allocated_memory": lambda: 9,
            "recommended_max_memory": lambda: 99,
        },
        Memory(5, 9),
        99,
    ),
    "one that tells nothing": ({}, Memory(), None),
}


@pytest.mark.skipif(
    torch.accelerator.is_available(), reason="a stand-in is asked in place of one"
)
@pytest.mark.parametrize("name", MODULES)
def test_the_figures_of_a_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    functions, memory, total = MODULES[name]
    module = SimpleNamespace(**functions)
    monkeypatch.setattr(torch, "get_device_module", lambda _device: module)
    monkeypatch.setattr(torch.accelerator, "memory_stats", lambda _device: {})
    assert devices.memory("xpu:0") == memory
    assert devices.total_memory("xpu:0") == total


@pytest.mark.skipif(
    torch.accelerator.is_available(), reason="is there without an accelerator alone"
)
def test_without_an_accelerator_nothing_is_named_or_kept() -> None:
    assert devices.names() == [] and devices.accelerator_in_use() == ""
    assert devices.rng_states() == {} and devices.event("cpu") is None
    devices.set_rng_states({"cuda": [torch.ones(1)], "mps": torch.ones(9)})
    devices.seed(1)
    devices.synchronize("cpu")
