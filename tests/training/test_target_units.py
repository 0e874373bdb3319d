"""A target that is standardised: trained in its own units, measured and predicted in those of the file."""

import json

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from app.data.config import DataConfig
from app.data.loaders import load
from app.training.config import Choice
from app.training.control import Control
from app.training.evaluation.evaluator import Evaluator
from app.training.events import EpochDone, to_json
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.export.test_script_begun import run_script  # noqa: F401  a fixture
from tests.support.training_jobs import job, net

NET = net(
    ["self.linear1 = nn.Linear(2, 8)", "self.linear2 = nn.Linear(8, 1)"],
    ["x = torch.tanh(self.linear1(x))", "return self.linear2(x)"],
    (2,),
)


@pytest.fixture
def prices(tmp_path):
    """Prices of houses by area and rooms, about 100,000 each."""
    rows = [(40 + 7 * (i % 17), 1 + i % 4) for i in range(300)]
    lines = [
        f"{area},{rooms},{2000 * area + 15000 * rooms + 300 * (i % 5)}"
        for i, (area, rooms) in enumerate(rows)
    ]
    path = tmp_path / "prices.csv"
    path.write_text("\n".join(["area,rooms,price", *lines]) + "\n")
    return path


def house_job(path, standardise=True, **training):
    options = FrozenMap(target="price", standardise_target=standardise)
    settings = {
        "optimizer": Choice("Adam", FrozenMap(lr=0.05)),
        "loss": Choice("MSELoss"),
        "batch_size": 32,
        "metrics": ("mae", "rmse", "r2"),
        "epochs": 12,
        **training,
    }
    return job(
        NET, data=DataConfig("file.csv", path=str(path), options=options), **settings
    )


def last_epoch(events):
    return [event for event in events if isinstance(event, EpochDone)][-1]


def test_prices_are_learnt_and_the_metrics_are_in_their_units(prices, run_script):
    a_job = house_job(prices)
    events = list(train(a_job))
    scores = dict(last_epoch(events).metrics)
    assert (
        scores["r2"] > 0.95
        and 1000 < scores["mae"] < 20_000
        and last_epoch(events).train_loss < 0.1
    )
    lines, ended = run_script(a_job, "--json")
    ours = [
        line
        for event in events
        if (line := to_json(event)) and json.loads(line)["event"] in ("step", "epoch")
    ]
    assert (
        ended is None
        and [line for line in lines if json.loads(line)["event"] in ("step", "epoch")]
        == ours
    )
    plain = dict(last_epoch(list(train(house_job(prices, standardise=False)))).metrics)
    assert plain["r2"] < 0 and plain["mae"] > 50_000, "what it mends"


def test_mean_and_deviation_are_those_of_the_training_part(prices):
    data = load(house_job(prices).data)
    ((mean,), (spread,)) = data.info.units[""]
    plain = load(house_job(prices, standardise=False).data)
    values = plain.train.labels.double()
    assert mean == float(values.mean()) and spread == float(values.std(correction=0))
    assert torch.allclose(
        data.train.labels.double(), (values - mean) / spread, atol=1e-6
    )
    assert not plain.info.units


def test_an_evaluation_is_in_the_units_of_the_file(prices):
    a_job, control = house_job(prices), Control()
    events = list(train(a_job, control))
    evaluator = Evaluator(a_job, control.result.state_dict)
    found = evaluator.evaluate()
    true, called = found.columns["true"], found.columns["called"]
    assert true.min() > 50_000 and np.abs(true - called).mean() == pytest.approx(
        dict(found.metrics)["mae"], rel=1e-4
    )
    assert dict(found.metrics)["mae"] == pytest.approx(
        dict(last_epoch(events).metrics)["mae"], rel=1e-4
    )


def test_a_target_far_from_1_is_named_with_the_cure(prices, tmp_path, capsys):
    from app.builder.diagnostics.problems import SetData
    from app.data.loaders import read_spec
    from app.preflight.setting_checks import target_scale
    from app.project.project import Project

    project = Project(data=house_job(prices, standardise=False).data)
    (problem,) = target_scale(project, read_spec(project.data))
    assert (
        problem.severity == "warning"
        and "price" in problem.message
        and "mean of" in problem.reason
    )
    ((edit,),) = [cure.edits for cure in problem.cures]
    assert (
        isinstance(edit, SetData)
        and edit.value["standardise_target"] is True
        and edit.value["target"] == "price"
    )
    cured = replace(project, data=replace(project.data, options=edit.value))
    assert not list(target_scale(cured, read_spec(cured.data)))


def test_large_gradients_of_a_large_loss_are_not_said_to_explode():
    from app.training.monitoring.gradient_verdict import verdict

    norms = np.full((2, 5), 1e5)
    assert verdict(("linear1", "linear2"), norms, 1.3e10) is None
    exploding = verdict(("linear1", "linear2"), norms, 2.3)
    assert exploding is not None and "explodes" in exploding.text
