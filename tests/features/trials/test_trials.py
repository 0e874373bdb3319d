"""Before a run: the range test and the dry run. Neither leaves a trace."""

from __future__ import annotations

import math
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from app.data.config import DataConfig
from app.data.loaders import load
from app.features.trials.compute.trials import dry_run, rate_test
from app.features.trials.values import DryRun
from app.training.events import Failed
from app.training.job import JobError
from tests.support.training_jobs import SETTINGS, job, losses, net, run
from tests.training.test_several import HEADS, OF_HEADS, TWO_LOSSES, TWO_OUTPUTS, table
from tests.training.test_several_inputs import example


def states() -> tuple[object, ...]:
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_the_range_test_finds_a_rate_and_leaves_no_trace(name: str) -> None:
    before = states()
    told: list[int] = []
    found = rate_test(
        job(**SETTINGS[name]), 1e-5, 1.0, 40, lambda done, total: told.append(done)
    )
    assert states() == before
    assert len(found.rates) == len(found.losses) == len(found.smoothed) == told[-1]
    assert found.rates[0] == 1e-5 and (
        found.ended or math.isclose(found.rates[-1], 1.0)
    )
    assert found.suggested is None or found.suggested in found.rates


def test_a_range_test_beside_a_run_changes_none_of_its_numbers() -> None:
    alone = losses(run(job(epochs=2)))
    beside: list[float] = []
    thread = threading.Thread(target=lambda: beside.extend(losses(run(job(epochs=2)))))
    thread.start()
    rate_test(job(batch_size=32), batches=30)
    thread.join()
    assert beside == alone


def test_a_range_test_can_be_stopped_and_refuses_what_is_no_range() -> None:
    found = rate_test(job(), batches=1000, cancelled=lambda: True)
    assert found.rates == () and found.ended == "stopped" and found.suggested is None
    with pytest.raises(JobError, match="increasing"):
        rate_test(job(), 1.0, 0.1)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_dry_run_measures_and_leaves_no_trace(name: str) -> None:
    before = states()
    tried = dry_run(job(**SETTINGS[name]))
    assert isinstance(tried, DryRun) and states() == before
    assert len(tried.losses) == len(tried.seconds) == 2 and all(
        map(math.isfinite, tried.losses)
    )
    assert (
        min(*tried.seconds, tried.validation_seconds) > 0 and tried.scope == "process"
    )


def test_a_dry_run_needs_no_download() -> None:
    net28 = net(
        ["self.linear1 = nn.Linear(784, 10)"],
        ["return self.linear1(x.flatten(1))"],
        (1, 28, 28),
    )
    tried = dry_run(job(net28, data=DataConfig("torchvision.MNIST")))
    assert isinstance(tried, DryRun) and tried.input_shape == (1, 28, 28)


def test_what_does_not_go_together_comes_back_as_a_run_would_tell_it() -> None:
    failed = dry_run(
        job(
            net(
                ["self.linear1 = nn.Linear(63, 10)"],
                ["return self.linear1(x.flatten(1))"],
            )
        )
    )
    assert (
        isinstance(failed, Failed)
        and failed.kind == "shape"
        and failed.node == "linear1"
    )


def test_a_dry_run_has_all_inputs_and_targets(tmp_path: Path) -> None:
    for a_job in (
        example("Siamese net on digits", 120),
        job(HEADS, data=table(tmp_path), epochs=1, losses=OF_HEADS),
        job(TWO_OUTPUTS, losses=TWO_LOSSES),
    ):
        load(a_job.data)  # as the form does: files are described then
        tried = dry_run(a_job)
        assert isinstance(tried, DryRun), tried
