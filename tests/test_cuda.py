"""What only a GPU can show: the run on it, its memory figures, and weights that come back to the CPU."""

from __future__ import annotations

import math

import pytest
import torch

from app.training.control import Control
from app.training.events import (
    EpochDone,
    Failed,
    GradientNorms,
    MemorySample,
    Started,
    StepDone,
)
from app.training.loop import train
from app.training.setup.devices import devices, resolve
from tests.support.training_jobs import job

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device here"
)


def run(epochs: int = 3) -> tuple[list[object], Control]:
    control = Control()
    return list(train(job(epochs=epochs, device="cuda:0"), control)), control


def test_auto_takes_the_gpu() -> None:
    assert resolve("auto").id == "cuda:0"
    assert devices()[0].memory and devices()[0].memory > 2**30


def test_a_run_on_the_gpu_learns_and_tells_its_memory() -> None:
    events, control = run()
    assert not [event for event in events if isinstance(event, Failed)]
    (started,) = (event for event in events if isinstance(event, Started))
    assert started.device == "cuda:0"
    losses = [event.loss for event in events if isinstance(event, StepDone)]
    assert (
        len(losses) == started.epochs * started.steps_per_epoch
        and losses[-1] < losses[0]
    )
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [
        1,
        2,
        3,
    ]
    samples = [event for event in events if isinstance(event, MemorySample)]
    assert samples and all(sample.scope == "device" for sample in samples)
    assert all(
        0 < sample.allocated <= min(sample.peak, sample.reserved) for sample in samples
    )
    norms = [event for event in events if isinstance(event, GradientNorms)]
    assert norms and all(math.isfinite(norm) for norm in norms[-1].norms)
    assert control.result is not None and control.result.state_dict is not None
    assert {value.device.type for value in control.result.state_dict.values()} == {
        "cpu"
    }


def test_losses_are_fetched_in_batches_and_none_is_missed() -> None:
    """Steps are numbered without a gap although their losses stay on the device for a while."""
    events, _ = run(epochs=2)
    steps = [event.step for event in events if isinstance(event, StepDone)]
    assert steps == list(range(1, len(steps) + 1))


def test_measuring_is_clocked_on_the_gpu_and_layers_are_looked_at() -> None:
    from app.training.events import GainFigures, Histograms, LayerFigures, Looking

    events, _ = run()
    looks = [event for event in events if isinstance(event, LayerFigures)]
    assert looks and all(math.isfinite(ratio) for ratio in looks[-1].ratios)
    assert {event.kind for event in events if isinstance(event, Histograms)} == {
        "weights",
        "gradients",
        "activations",
    }
    gains = [event for event in events if isinstance(event, GainFigures)]
    assert (
        gains and gains[-1].reached > 0 and all(norm > 0 for norm in gains[-1].arriving)
    )
    last = [event for event in events if isinstance(event, Looking)][-1]
    assert 0 < last.spent < last.seconds


def test_the_gpu_tells_its_allocator_and_the_cache_can_be_emptied() -> None:
    from app.telemetry import gpu

    kept = torch.zeros(2**22, device="cuda:0")
    del kept
    before = gpu.allocator("cuda:0")
    assert (
        before.reserved > 0
        and before.peak >= before.allocated
        and 0 <= before.fragmentation <= 1
    )
    assert gpu.empty_cache("cuda:0") > 0
    told = gpu.read("cuda:0")
    assert told.reason or told.name
