"""The plane is what the net itself says of each point, and looking at it changes nothing of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from app.data.config import DataConfig
from app.data.loaders import load
from app.features.playground.pictures import class_shares, unit_images
from app.features.playground.task import mapped
from app.features.playground.values import (
    COARSE,
    LOGIT,
    PROBABILITY,
    SCORES,
    VALUE,
    MapPlane,
    PlaneAsked,
)
from app.training.control import Control
from app.training.events import StepDone
from app.training.loop import train
from app.util.frozen import FrozenMap
from app.views.ui import theme
from tests.support.training_jobs import job, losses, net

MOONS = DataConfig(source="made.moons")
SIZE = 12
PLANE_NET = net(
    ["self.a = nn.Linear(2, 8)", "self.b = nn.Linear(8, 2)"],
    ["return self.b(torch.tanh(self.a(x)))"],
    (2,),
)
NETS = {
    "scores": (nn.Linear(2, 2), "CrossEntropyLoss", SCORES),
    "three classes": (nn.Linear(2, 3), "CrossEntropyLoss", SCORES),
    "logit": (nn.Linear(2, 1), "BCEWithLogitsLoss", LOGIT),
    "probability": (
        nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()),
        "BCELoss",
        PROBABILITY,
    ),
    "normalised": (
        nn.Sequential(
            nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)
        ),
        "CrossEntropyLoss",
        SCORES,
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_the_plane_is_the_nets_own_output(name: str) -> None:
    model, loss, kind = NETS[name]
    data = load(MOONS)
    plane = mapped(model, data, "cpu", loss, PlaneAsked(SIZE, "0"), 7)
    (left, low), (right, high) = plane.low, plane.high
    across = torch.linspace(left, right, SIZE)
    up = torch.linspace(low, high, SIZE)
    grid = torch.stack([across.repeat(SIZE), up.repeat_interleave(SIZE)], dim=1)
    with torch.no_grad():
        expected = model.eval()(grid).reshape(SIZE, SIZE, -1)
    assert plane.kind == kind and plane.step == 7
    assert np.array_equal(plane.outputs, expected.numpy())
    inside = (plane.points >= [left, low]) & (plane.points <= [right, high])
    assert len(plane.points) == data.info.train_count and inside.all()
    shares = class_shares(plane)
    assert np.allclose(shares.sum(-1), 1) and (shares >= 0).all()


def test_the_units_of_a_layer_are_its_outputs() -> None:
    model = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))
    asked = PlaneAsked(SIZE, "0")
    plane = mapped(model, load(MOONS), "cpu", "CrossEntropyLoss", asked, 0)
    assert plane.units.shape == (SIZE // COARSE, SIZE // COARSE, 5)
    weight, bias = model[0].weight.detach(), model[0].bias.detach()
    corner = torch.tensor(plane.low)
    assert np.allclose(plane.units[0, 0], weight @ corner + bias, atol=1e-5)
    now = theme.current()
    assert len(unit_images(plane.units, now.series, now.plot)) == 5


def test_values_to_predict_are_between_the_least_and_the_largest(tmp_path) -> None:
    table = tmp_path / "houses.csv"
    rows = [f"{10 * a},{b},{3 * a + b}" for a in range(8) for b in range(8)]
    table.write_text("area,rooms,price\n" + "\n".join(rows))
    config = DataConfig(
        source="file.csv", path=str(table), options=FrozenMap(target="price")
    )
    data = load(config)
    plane = mapped(nn.Linear(2, 1), data, "cpu", "MSELoss", PlaneAsked(SIZE), 0)
    assert plane.kind == VALUE and plane.units is None
    shares = class_shares(plane)
    assert shares.min() >= 0 and shares.max() <= 1
    assert plane.shown_high[0] > 60  # in the units of the file


def test_other_data_have_no_plane() -> None:
    data = load(DataConfig())
    with pytest.raises(ValueError, match="two numbers"):
        mapped(nn.Flatten(), data, "cpu", "CrossEntropyLoss", PlaneAsked(SIZE), 0)


def test_a_run_that_is_looked_at_has_the_losses_of_one_that_is_not() -> None:
    a_job = job(PLANE_NET, epochs=2, data=MOONS)
    plain = losses(list(train(a_job)))
    control, seen, events = Control(), [], []
    for event in train(a_job, control):
        events.append(event)
        if isinstance(event, StepDone):
            seen.append(control.call(MapPlane(PlaneAsked(SIZE, "a", inside=True))))
    assert losses(events) == plain and len(plain) > 10
    steps = [future.result().step for future in seen[:-1]]
    assert steps == sorted(steps) and steps[-1] >= len(plain) - 2
