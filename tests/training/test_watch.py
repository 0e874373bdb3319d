"""Watch points: a run stands where it was asked to, says why, and can be looked into and gone on with."""

import math

import pytest

from app.training.config import Choice
from app.training.control import Control
from app.training.events import Caught, Finished, Paused, Resumed, StepDone
from app.training.loop import train
from app.training.monitoring.watch_points import (
    WatchPoints,
    dead_above,
    gradients_above,
    memory_above,
)
from tests.support.training_jobs import (
    BAD_NET,
    CONV_NET,
    SMALL_NET,
    job,
    losses,
    net,
    run,
)


def watched(a_job, points, at_caught):
    """Run with watch points; `at_caught(event, control)` is called while the run stands."""
    control, events, caught = Control(), [], None
    control.pause_at(points)
    for event in train(a_job, control):
        events.append(event)
        if isinstance(event, Caught):
            caught = event
        elif isinstance(event, Paused):
            at_caught(caught, control)
            control.resume()
    return events


def test_a_loss_that_is_not_finite_pauses_the_run_and_nothing_is_learnt_from_the_batch():
    seen = []

    def look(caught, control):
        inputs, labels = control.call(lambda live: live.caught).result()
        weights = control.weights()
        seen.append(
            (
                caught,
                inputs.shape,
                labels.shape,
                all(w.isfinite().all() for w in weights.values()),
            )
        )
        if len(seen) == 2:
            control.pause_at(WatchPoints())  # from here on a run fails as it did

    events = watched(job(BAD_NET, batch_size=8), WatchPoints(not_finite=True), look)
    first = seen[0]
    assert (
        first[0].what == "loss"
        and first[0].node == "f2"
        and "x.sum" in first[0].message
    )
    assert first[1:] == ((8, 1, 8, 8), (8,), True)
    assert sum(isinstance(event, Resumed) for event in events) == 2
    assert events[-1].kind == "not finite"


def test_lbfgs_has_no_step_to_leave_out_and_stops_as_it_does():
    control = Control()
    control.pause_at(WatchPoints(not_finite=True))
    events = list(train(job(BAD_NET, optimizer=Choice("LBFGS")), control))
    assert events[-1].kind == "not finite" and not [
        e for e in events if isinstance(e, Caught)
    ]


def test_a_gradient_above_its_bound_names_layer_and_step_once_and_the_numbers_stay():
    seen = []
    events = watched(
        job(),
        WatchPoints(gradient_norm=1e-4),
        lambda caught, control: seen.append(caught),
    )
    caught = [event for event in events if isinstance(event, Caught)]
    assert [c.layer for c in caught] == ["linear1", "linear2"] and {
        c.step for c in caught
    } == {1}
    assert (
        caught[0].node == "linear1"
        and caught[0].value > 1e-4
        and "linear1" in caught[0].message
    )
    assert len(seen) == 1 and losses(events) == losses(run(job()))


def test_a_dead_layer_pauses_the_run():
    source = net(
        [
            "self.linear1 = nn.Linear(64, 16)",
            "self.act1 = nn.ReLU()",
            "self.linear2 = nn.Linear(16, 10)",
        ],
        ["x = self.act1(self.linear1(x.flatten(1)) - 99.0)", "return self.linear2(x)"],
    )
    seen = []
    watched(
        job(source, max_steps=3),
        WatchPoints(dead=0.9),
        lambda caught, control: seen.append(caught),
    )
    (caught,) = seen
    assert (caught.what, caught.layer, caught.value, caught.step) == (
        "dead",
        "act1",
        1.0,
        1,
    )
    assert caught.node == "linear1"  # the line that calls it, which is written for both


def test_memory_above_its_line_pauses_the_run():
    seen = []
    watched(
        job(max_steps=3),
        WatchPoints(memory=1024),
        lambda caught, control: seen.append(caught),
    )
    assert (
        seen[0].what == "memory" and seen[0].value > 1024 and "MiB" in seen[0].message
    )


def test_an_exploding_run_stands_before_its_loss_is_nan():
    wild = job(CONV_NET, optimizer=Choice("SGD", {"lr": 50.0}), max_steps=30)
    control = Control()
    control.pause_at(WatchPoints(gradient_norm=1e3, not_finite=True))
    for event in train(wild, control):
        if isinstance(event, Caught):
            control.stop()
            break
    assert event.what in ("gradient", "loss") and event.step <= 30


@pytest.mark.parametrize(
    ("points", "word"),
    [
        (WatchPoints(gradient_norm=0.0), "norm"),
        (WatchPoints(gradient_norm=math.nan), "norm"),
        (WatchPoints(dead=1.5), "dead"),
        (WatchPoints(memory=0), "memory"),
    ],
)
def test_numbers_that_cannot_be_watched_are_named(points, word):
    assert word in points.problem() and WatchPoints(True, 1.0, 0.9, 1).problem() == ""


def test_nothing_is_found_where_nothing_is_watched():
    off = WatchPoints()
    assert (
        not gradients_above(off, {"a": math.inf})
        and not dead_above(off, {"a": 1.0})
        and not memory_above(off, 9)
    )
    on = WatchPoints(gradient_norm=1.0)
    assert [
        f.layer for f in gradients_above(on, {"a": math.inf, "b": math.nan, "c": 0.5})
    ] == ["a"]


def test_a_run_without_watch_points_never_stands():
    events = run(job(SMALL_NET, epochs=1))
    assert not [e for e in events if isinstance(e, Caught | Paused)] and isinstance(
        events[-1], Finished
    )
    assert any(isinstance(e, StepDone) for e in events)
