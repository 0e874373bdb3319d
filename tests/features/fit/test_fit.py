"""`tapedeck fit`: what a step takes at its peak, and the settings with which it fits."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from app.cli import run
from app.features.fit.compute.plans import FitCancelledError, fit
from app.features.fit.fit_command import memory
from app.features.fit.values import Fit
from app.source.generated import Source
from app.training.config import Choice
from app.training.events import Failed, Finished
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.slow.fitted_steps import on_cpu
from tests.support.training_jobs import job, net

DIGITS = str(resource_path("examples") / "digits.tape")
KIB = 1024
# 64 * 256 numbers of four bytes are 64 KiB for each tanh, and a batch of 64.
TALL = net(
    ["self.linear1 = nn.Linear(64, 256)", "self.linear2 = nn.Linear(256, 10)"],
    [
        "x = self.linear1(x.flatten(1))",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "return self.linear2(x)",
    ],
)
NORM = net(
    [
        "self.linear1 = nn.Linear(64, 256)",
        "self.norm1 = nn.BatchNorm1d(256)",
        "self.linear2 = nn.Linear(256, 10)",
    ],
    [
        "x = self.norm1(self.linear1(x.flatten(1)))",
        "return self.linear2(torch.tanh(torch.tanh(x)))",
    ],
)
CONV = net(
    [
        "self.conv1 = nn.Conv2d(1, 32, 3, padding=1)",
        "self.conv2 = nn.Conv2d(32, 32, 3, padding=1)",
        "self.linear1 = nn.Linear(2048, 10)",
    ],
    [
        "x = torch.relu(self.conv1(x))",
        "x = torch.relu(self.conv2(x))",
        "return self.linear1(x.flatten(1))",
    ],
)
SGD = Choice("SGD", FrozenMap(lr=0.1, momentum=0.9, foreach=False))


def fitted(source, limit: int, **settings) -> Fit:
    result = fit(job(source, optimizer=SGD, device="cpu", **settings), limit)
    assert isinstance(result, Fit), result
    return result


def test_the_bytes_at_the_peak_are_those_of_the_tensors() -> None:
    result = fitted(TALL, 1 << 30, batch_size=64)
    weights = 4 * (64 * 256 + 256 + 256 * 10 + 10)
    assert result.by.parameters == result.by.optimizer == weights
    # Forward keeps three activations of tanh, and what the loss saves.
    assert 3 * 64 * KIB <= result.by.saved <= 3 * 64 * KIB + 8 * KIB
    by = result.by
    assert result.plans[0].fits and result.plans[1].exact
    kinds = (by.parameters, by.gradients, by.optimizer, by.saved, by.temporary)
    assert result.peak == sum(kinds) and result.fits and result.scope == "device"
    assert result.phase == "backward" and result.owner == ""  # tanh is in no layer
    assert max(result.curve) <= result.peak and len(result.curve) > 20


def test_a_step_takes_less_in_parts_and_its_gradients_stay() -> None:
    plain = fitted(TALL, 1 << 30, batch_size=64)
    limit = plain.peak - 100 * KIB
    result = fitted(TALL, limit, batch_size=64)
    fastest, exact, smallest = result.plans
    assert not result.fits and fastest.fits and exact.fits and exact.exact
    assert {"batch_size=32", "accumulate=2"} <= set(exact.changes)
    assert exact.difference < 1e-12, "sums in another order, in float64"
    assert smallest.peak <= exact.peak <= limit
    # The step of the changed settings takes what the plan says.
    again = fit(replace(job(TALL), training=exact.training), limit)
    assert again.peak == exact.peak and again.fits


@pytest.mark.parametrize("source", [TALL, CONV])
def test_a_run_with_a_plan_takes_what_the_plan_says(source: Source) -> None:
    """Beside torch's own allocator, with the layers measured at every update; convolutions have a workspace."""
    plain = fitted(source, 1 << 30, batch_size=256)
    for plan in fitted(source, plain.peak * 3 // 4, batch_size=256).plans:
        steps = 2 * plan.training.accumulate
        training = replace(plan.training, max_steps=steps, metrics=())
        events, peak = on_cpu(replace(job(source), training=training))
        assert isinstance(events[-1], Finished)
        assert plan.fits and peak <= plan.peak
        assert peak == pytest.approx(plan.peak, rel=0.05)


def test_a_batch_of_a_norm_is_not_split_by_an_exact_plan() -> None:
    plain = fitted(NORM, 1 << 30, batch_size=64)
    _, exact, smallest = fitted(NORM, plain.peak - 32 * KIB, batch_size=64).plans
    assert exact.exact and not any("accumulate" in text for text in exact.changes)
    assert not smallest.exact and smallest.difference > 1e-3
    assert smallest.training.batch_size < 64


def test_a_net_with_a_dtype_of_its_own_is_compared_in_that() -> None:
    fixed = net(
        ["self.linear1 = nn.Linear(64, 256)"],
        [
            "x = torch.tanh(torch.tanh(self.linear1(x.flatten(1))))",
            "return F.linear(x, torch.ones(10, 256, dtype=torch.float32) / 256)",
        ],
    )
    plain = fitted(fixed, 1 << 30, batch_size=64)
    _, exact, smallest = fitted(fixed, plain.peak - 32 * KIB, batch_size=64).plans
    assert exact.exact and smallest.fits and smallest.difference < 1e-2


def test_what_cannot_run_is_the_failure_of_a_run_and_leaves_no_trace() -> None:
    before = torch.get_rng_state()
    wrong = net(["self.linear1 = nn.Linear(7, 10)"], ["return self.linear1(x)"])
    assert isinstance(fit(job(wrong, device="cpu"), 1 << 20), Failed)
    fitted(TALL, 1 << 20, batch_size=8)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_nobody_waits_for_ends_before_its_next_measurement() -> None:
    measured: list[int] = []
    with pytest.raises(FitCancelledError):
        fit(
            job(TALL, device="cpu"),
            1,
            measured.append,
            cancelled=lambda: len(measured) > 2,
        )
    assert len(measured) == 3


def test_the_command_prints_plans_that_set_takes(
    capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    assert run(["fit", DIGITS, "--memory", "3MiB", "--device", "cpu", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["memory"] == 3 << 20 and not record["fits"]
    assert sum(record["by"].values()) == record["peak"] > 3 << 20
    assert [plan["name"] for plan in record["plans"]] == [
        "fastest",
        "exact",
        "smallest",
    ]
    exact = record["plans"][1]
    assert exact["fits"] and exact["exact"] and exact["step_seconds"] > 0
    changed = [part for change in exact["changes"] for part in ("--set", change)]
    limit = str(record["memory"])
    arguments = ["fit", DIGITS, "--memory", limit, "--device", "cpu", "--json"]
    assert run([*arguments, *changed]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["fits"] and again["peak"] == exact["peak"]


def test_nothing_fits_into_less_than_the_parameters(
    capsys: pytest.CaptureFixture,
) -> None:
    assert run(["fit", DIGITS, "--memory", "100KiB", "--device", "cpu"]) == 1
    text = capsys.readouterr().out
    assert "does not fit as it is" in text and "smallest: " in text


MODELS = """
import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(50, 32), nn.LSTM(32, 64, batch_first=True)
        self.last = nn.Linear(64, 50)

    def forward(self, ids):
        return self.last(self.cells(self.words(ids))[0])
"""


@pytest.mark.parametrize(
    ("name", "input_text"), [("Tied", "8x16"), ("Words", "4x10:int64:0..49")]
)
def test_a_model_without_data_is_measured_on_those_that_fit_it(
    capsys: pytest.CaptureFixture, tmp_path: Path, name: str, input_text: str
) -> None:
    (tmp_path / "nets.py").write_text(MODELS)
    source = f"{tmp_path / 'nets.py'}:{name}"
    arguments = ["fit", source, "--input", input_text, "--trust", "--device", "cpu"]
    assert run([*arguments, "--memory", "1GiB", "--json"]) == 0
    printed = capsys.readouterr()
    assert "synthetic data" in printed.err and "--on" in printed.err
    record = json.loads(printed.out)
    held = 4 * (16 * 16 + 2 * 16 + 3 * 17)  # a shared weight is held once
    held = held if name == "Tied" else record["by"]["parameters"]
    assert record["fits"] and record["by"]["parameters"] == held > 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 << 30),
        ("512m", 512 << 20),
        ("1.5 k", 1536),
        ("1e9", 10**9),
        ("4096", 4096),
        ("2TB", 2 << 40),
    ],
)
def test_a_limit_is_written_as_people_write_memory(text: str, size: int) -> None:
    assert memory(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "8 apples", "nan", "1e99", "1..2"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no amount of memory"):
        memory(text)
