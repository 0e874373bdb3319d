"""A close look at a step: its figures are those of plain torch, and the run does not notice."""

import math

import pytest

from app.telemetry.throttle import Meter
from app.training.events import (
    Finished,
    Histograms,
    LayerFigures,
    Looking,
    Skipped,
    StepDone,
)
from app.training.monitoring import watcher
from app.training.monitoring.watcher import Watcher
from tests.support.training_jobs import (
    BAD_NET,
    CONV_NET,
    SETTINGS,
    SMALL_NET,
    job,
    net,
    run,
)

ALWAYS = (0.0, math.inf)


@pytest.fixture
def every_step(monkeypatch):
    for name in ("LOOKS", "NORMS", "MEMORY"):
        monkeypatch.setattr(watcher, name, ALWAYS)


def told(a_job):
    """What the run learnt, as numbers."""
    return [(e.step, e.loss) for e in run(a_job) if isinstance(e, StepDone)]


@pytest.mark.parametrize("name", SETTINGS)
def test_losses_are_equal_bit_for_bit_with_everything_measured_at_every_step(
    name, monkeypatch
):
    source = SMALL_NET if name == "LBFGS" else CONV_NET
    a_job = job(source, max_steps=6, **SETTINGS[name])
    with monkeypatch.context() as off:
        off.setattr(Watcher, "begin", lambda self: None)
        off.setattr(Watcher, "measure", lambda self: None)
        plain = told(a_job)
    for rate in ("LOOKS", "NORMS", "MEMORY"):
        monkeypatch.setattr(watcher, rate, ALWAYS)
    events = run(a_job)
    assert [
        (e.step, e.loss) for e in events if isinstance(e, StepDone)
    ] == plain and len(plain) == 6
    assert sum(isinstance(e, LayerFigures) for e in events) >= 2


def test_weight_norms_and_update_ratios_are_those_of_plain_torch(every_step):
    import torch

    from app.data.config import DataConfig
    from app.data.loaders import load
    from app.source.compiled import make_module

    data = load(DataConfig())
    torch.manual_seed(0)
    model = make_module(SMALL_NET)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    chosen = torch.randperm(
        len(data.train), generator=torch.Generator().manual_seed(0)
    )[:64]
    inputs, labels = next(data.train.batches([chosen]))
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    before = torch.cat(
        [p.detach().flatten() for p in model.linear1.parameters()]
    ).clone()
    optimizer.step()
    change = (
        torch.cat([p.detach().flatten() for p in model.linear1.parameters()]) - before
    )
    look = next(e for e in run(job(max_steps=1)) if isinstance(e, LayerFigures))
    assert look.step == 1 and look.layers == ("linear1", "linear2")
    assert look.weights[0] == pytest.approx(before.norm().item(), rel=1e-5)
    assert look.ratios[0] == pytest.approx(
        (change.norm() / before.norm()).item(), rel=1e-3
    )


def test_a_unit_that_is_0_for_the_whole_batch_is_dead_in_a_layer_and_in_a_function(
    every_step,
):
    source = net(
        [
            "self.linear1 = nn.Linear(64, 16)",
            "self.act1 = nn.ReLU()",
            "self.linear2 = nn.Linear(16, 10)",
        ],
        [
            "x = self.linear1(x.flatten(1))",
            "x = self.act1(x)",
            "x = F.relu(x - 1000.0)",
            "return self.linear2(x)",
        ],
    )
    look = next(e for e in run(job(source, max_steps=1)) if isinstance(e, LayerFigures))
    dead = dict(zip(look.cutting, look.dead, strict=True))
    assert dead["act1"] < 1.0
    (name,) = set(dead) - {"act1"}
    assert name.startswith("relu, line ") and dead[name] == 1.0


def test_a_channel_is_the_unit_of_a_picture(every_step):
    source = net(
        [
            "self.conv1 = nn.Conv2d(1, 4, 3)",
            "self.act1 = nn.ReLU()",
            "self.linear1 = nn.Linear(144, 10)",
        ],
        [
            "x = self.conv1(x)",
            "x = self.act1(x - torch.tensor([0.0, 999.0, 0.0, 999.0]).view(1, 4, 1, 1))",
            "return self.linear1(x.flatten(1))",
        ],
    )
    look = next(e for e in run(job(source, max_steps=1)) if isinstance(e, LayerFigures))
    assert look.cutting == ("act1",) and look.dead == (0.5,)


def test_histograms_count_every_value_of_weights_gradients_and_activations(every_step):
    events = [e for e in run(job(CONV_NET, max_steps=1)) if isinstance(e, Histograms)]
    kinds = {e.kind: {h.layer: h for h in e.layers} for e in events}
    assert set(kinds) == {"weights", "gradients", "activations"}
    assert (
        sum(kinds["weights"]["linear1"].counts)
        == sum(kinds["gradients"]["linear1"].counts)
        == 5120
    )
    assert sum(kinds["activations"]["linear1"].counts) == 64 * 10
    assert kinds["weights"]["linear1"].low < 0 < kinds["weights"]["linear1"].high


def test_a_skipped_batch_takes_its_look_along_and_the_next_one_is_looked_at(every_step):
    events = run(job(BAD_NET, epochs=1, batch_size=4, max_steps=30, not_finite="skip"))
    skipped = {e.step for e in events if isinstance(e, Skipped)}
    looked = {e.step for e in events if isinstance(e, LayerFigures)}
    assert skipped and looked and not skipped & looked


def test_no_hook_and_no_mode_is_left_where_a_forward_fails(every_step):
    from torch.overrides import _get_current_function_mode

    source = net(
        ["self.linear1 = nn.Linear(64, 10)"], ["return self.linear1(x.flatten(1)) + x"]
    )
    assert run(job(source))[-1].kind == "shape"
    assert _get_current_function_mode() is None


def test_looking_states_its_cost_and_thins_itself():
    events = run(job(CONV_NET, epochs=1))
    last = [e for e in events if isinstance(e, Looking)][-1]
    assert last.spent > 0 and last.seconds > 0
    assert (
        last.steps == last.step
        and isinstance(events[-1], Finished)
        and 0 < events[-1].looking < 1
    )


def test_what_is_dear_is_measured_seldom(monkeypatch):
    now = 100.0
    monkeypatch.setattr("app.telemetry.throttle.perf_counter", lambda: now)
    meter = Meter("cpu", every=0.001, share=0.05)
    with meter:
        now += 0.02
    now += 7
    meter.schedule_next()
    assert meter.seconds == pytest.approx(0.02)
    assert meter.due - now == pytest.approx(0.4)  # 0.02 s is 5 % of 0.4 s


def test_every_epoch_of_a_short_run_has_a_look_whatever_the_load(monkeypatch):
    monkeypatch.setattr(
        watcher, "LOOKS", (math.inf, 0.004)
    )  # none after the first is due by its time
    events = run(job(epochs=4))
    epoch_of = {e.step: e.epoch for e in events if isinstance(e, StepDone)}
    assert [epoch_of[e.step] for e in events if isinstance(e, LayerFigures)] == [
        1,
        2,
        3,
        4,
    ]
    monkeypatch.setattr(watcher, "FIRST_EPOCHS", 2)
    monkeypatch.setattr(watcher, "SHARE_OF_LOOKS", 0.0)
    events = run(job(epochs=4))
    epoch_of = {e.step: e.epoch for e in events if isinstance(e, StepDone)}
    assert [epoch_of[e.step] for e in events if isinstance(e, LayerFigures)] == [
        1,
        2,
        4,
    ]  # the last one always


def test_the_figures_of_a_histogram_are_those_of_plain_torch():
    import torch

    from app.telemetry.histogram_of import histogram

    values = torch.tensor([[0.0, -3.0], [1.0, math.nan]])
    found = histogram("a", values)
    kept = torch.tensor([0.0, -3.0, 1.0])
    assert (found.mean, found.std) == pytest.approx(
        (kept.mean().item(), kept.std(correction=0).item())
    )
    assert found.norm == pytest.approx(kept.norm().item()) and found.largest == 3.0
    assert (found.zeros, found.not_finite, found.size, found.sampled) == (
        1,
        1,
        4,
        False,
    )
    sample = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    half = histogram("a", sample[::2], len(sample))
    assert half.sampled and half.norm == pytest.approx(sample.norm().item(), rel=0.02)
