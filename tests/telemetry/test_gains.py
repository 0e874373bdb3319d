"""Gains over the steps of a run: those of the tape's ladder, step by step, and the layer where the gradient is lost."""

import math

import pytest

from app.telemetry.gain_probe import GainProbe
from app.telemetry.gradient_gains import path_of
from app.telemetry.throttle import Meter
from app.training.events import GainFigures
from app.training.history import History
from app.training.monitoring import watcher
from app.training.monitoring.gradient_health import lost_over
from tests.support.training_jobs import CONV_NET, job, net, run

DEEP = 12


@pytest.fixture
def every_step(monkeypatch):
    for name in ("LOOKS", "NORMS", "MEMORY"):
        monkeypatch.setattr(watcher, name, (0.0, math.inf))


def deep(act, scale=""):
    """A deep narrow net whose layers are followed by `act`."""
    init = ["self.first = nn.Linear(64, 16)"]
    forward = ["x = self.first(x.flatten(1))"]
    for number in range(1, DEEP + 1):
        init += [
            f"self.linear{number} = nn.Linear(16, 16)",
            f"self.act{number} = nn.{act}()",
        ]
        forward += [f"x = self.act{number}(self.linear{number}(x){scale})"]
    return net(
        [*init, "self.head = nn.Linear(16, 10)"], [*forward, "return self.head(x)"]
    )


def trained(source, **settings):
    history = History()
    history.extend(run(job(source, **settings)))
    return history


def by_hand():
    """A net with a skip, a layer that is called again and again, and what it computes itself."""
    import torch
    from torch import nn

    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Linear(16, 4), nn.Linear(4, 16)

        def forward(self, x):
            return torch.relu(x + self.up(torch.sigmoid(self.down(x))))

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.branch = nn.Linear(8, 16), Branch()
            self.cell, self.head = nn.GRUCell(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            x = self.branch(self.first(x))
            state = torch.zeros_like(x)
            for _ in range(3):
                state = self.cell(x, state)
            return self.head(state * 2)

    torch.manual_seed(0)
    return Whole(), torch.randn(4, 8), torch.tensor([0, 1, 2, 0])


def test_the_figures_are_those_of_the_ladder_of_a_tape():
    from torch.nn import functional as F

    from app.autograd.batch import TrainingBatch
    from app.autograd.diagnostics.gradient_gain import ladder
    from app.autograd.diagnostics.results import by_module
    from app.autograd.playback.recording import record

    model, inputs, target = by_hand()
    probe = GainProbe(model, Meter("cpu", 0.0, 1.0))
    probe.begin()
    loss = F.cross_entropy(model(inputs), target)
    probe.forward_done(loss)
    loss.backward()
    gains = probe.fetch()
    with TrainingBatch(model, (inputs,), F.cross_entropy, target).hold() as graph:
        with record(graph.ends) as recorder:
            graph.ends[0].backward()
        rungs = ladder(by_module(graph.tape), recorder.finish()).rungs[::-1]
    assert [path_of(layer) for layer in gains.layers] == [
        rung.key.removeprefix("layer:").split("#")[0].split("/")[0] for rung in rungs
    ]
    assert {"branch", "branch/2", "cell", "cell#3", "Net", "head"} <= set(gains.layers)
    assert gains.arriving == pytest.approx([rung.arriving for rung in rungs], rel=1e-6)
    left = [math.nan if rung.leaving is None else rung.leaving for rung in rungs]
    assert gains.leaving == pytest.approx(left, rel=1e-6, nan_ok=True)
    assert probe.fetch() is None  # nothing is left of it


def test_nothing_is_left_on_the_modules_and_nothing_is_kept_of_the_graph():
    import gc
    import weakref

    from torch.nn import functional as F

    model, inputs, target = by_hand()
    probe = GainProbe(model, Meter("cpu", 0.0, 1.0))
    probe.begin()
    output = model(inputs)
    loss, kept = F.cross_entropy(output, target), weakref.ref(output)
    probe.forward_done(loss)
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )
    loss.backward()
    del loss, output
    gc.collect()
    assert kept() is None and probe.fetch() is not None


def test_a_deep_sigmoid_net_vanishes_at_every_step_and_the_layer_is_named(every_step):
    history = trained(deep("Sigmoid"), max_steps=6)
    reach = history.seen.tables["reach"]
    (found,) = lost_over(reach)
    assert len(reach) >= 2 and list(reach.steps) == sorted(reach.steps)
    assert (found.kind, found.first, found.last, found.times) == (
        "vanishes",
        1,
        reach.steps[-1],
        len(reach),
    )
    left = dict(zip(reach.layers, reach.columns.matrix()[:, -1], strict=True))
    assert left[found.layer] < 1e-3
    behind = reach.layers[reach.layers.index(found.layer) + 1 :]
    assert behind and all(left[layer] >= 1e-3 for layer in behind)
    assert found.text.startswith(
        f"Vanishes first at {found.layer}: at step {found.last} its gradient norm is "
    )
    assert found.text.endswith(
        f"found at every measured step, from step 1 to {found.last}."
    )


def test_a_badly_scaled_net_explodes_and_a_healthy_one_says_nothing(every_step):
    (found,) = [
        one
        for one in lost_over(
            trained(deep("Identity", " * 6"), max_steps=3).seen.tables["reach"]
        )
        if one.kind == "explodes"
    ]
    assert found.first == 1 and found.layer.startswith(("linear", "act", "Net"))
    healthy = trained(CONV_NET, max_steps=3).seen
    assert lost_over(healthy.tables["reach"]) == () and len(healthy.tables["gain"])
    gains = healthy.tables["gain"].columns["conv2"]
    assert all(0 < gain < math.inf for gain in gains)


def test_a_gradient_that_is_not_finite_is_told_apart_from_none():
    history = History()
    history.add(
        GainFigures(1, 2.0, ("a", "b", "c"), (1.0, 1.0, 2.0), (math.nan, math.inf, 1.0))
    )
    history.add(
        GainFigures(2, 2.0, ("a", "b", "c"), (1.0, 1.0, 2.0), (math.nan, 1.0, 1.0))
    )
    (found,) = lost_over(history.seen.tables["reach"])
    assert (found.kind, found.layer, found.times) == ("non_finite", "b", 1)
    assert found.text.endswith("found at 1 of 2 measured steps; not at the newest.")


@pytest.mark.parametrize(
    "settings", [{"amp": "bfloat16"}, {"accumulate": 2}, {"recompute": ("conv2",)}]
)
def test_gains_come_with_other_ways_of_training_as_well(every_step, settings):
    gain = trained(CONV_NET, max_steps=4, **settings).seen.tables["gain"]
    assert len(gain) and {"conv1", "norm1", "conv2", "linear1"} <= set(gain.layers)
    assert math.isfinite(gain.columns["conv2"][-1])
