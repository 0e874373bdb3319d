"""How long each layer takes: every layer has a row, the rows are the step, and nothing stays in the net."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from app.cli import run
from app.features.trials.compute import layer_times as module
from app.features.trials.compute.layer_times import layer_times, roofline
from app.features.trials.values import LayerTimes
from app.training.objectives import info_of
from app.training.setup.isolated_step import (
    aside,
    stepper_of,
    synthetic_batch,
    synthetic_info,
)
from app.util import module_tree
from app.util.resources import path as resource_path
from tests.support.training_jobs import job

DIGITS = str(resource_path("examples", "digits.tape"))


def measured() -> tuple[LayerTimes, Any]:
    of = job()
    info = info_of(of, synthetic_info(of))
    with aside(0):
        stepper = stepper_of(of, info, "cpu")
        inputs, labels = synthetic_batch(of, info, "cpu")
        stepper.take(inputs, labels, True)
        return layer_times(stepper, inputs, labels, "cpu"), stepper.model


def test_the_rows_are_the_step_by_a_clock_that_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roofline("cpu")
    ticks = count()
    monkeypatch.setattr(module, "perf_counter", lambda: float(next(ticks)))
    times, _ = measured()
    rows = sum(row.forward + row.backward for row in times.layers)
    assert times.step_seconds == 1 < times.measured_seconds
    assert rows + times.optimizer_seconds == pytest.approx(times.step_seconds)


def test_every_layer_has_a_row_and_its_operations_a_least_time() -> None:
    times, model = measured()
    paths = [path for path, _ in module_tree.named_modules(model) if path]
    assert [row.layer for row in times.layers] == [*paths, module.BETWEEN]
    layers = dict(module_tree.named_modules(model))
    for row in times.layers[:-1]:
        weight = getattr(layers[row.layer], "weight", None)
        if weight is not None:
            assert row.forward_possible >= weight.nbytes / times.bytes_per_second
            assert row.backward_possible >= row.forward_possible
    assert not any(
        each._forward_hooks or each._forward_pre_hooks
        for each in module_tree.modules(model)
    )


def test_the_command_tells_the_times_in_json_and_as_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["try", DIGITS, "--json"]) == 0
    times = json.loads(capsys.readouterr().out)["times"]
    assert times["flop_per_second"] > 0 and times["bytes_per_second"] > 0
    names = [row["layer"] for row in times["layers"]]
    assert names[0] == "conv1" and names[-1] == "between layers"
    assert run(["try", DIGITS]) == 0
    shown = capsys.readouterr().out
    assert "time of layers in a step of" in shown and "GFLOP/s" in shown
    assert "fc2 " in shown and "optimizer " in shown
