"""Every parameter group has its learning rate in what a run tells, and one is set without a word about the others."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from app.project.project import Project
from app.runs import store, tensorboard
from app.runs.recorder import Recorder
from app.training.checkpoints import checkpoint
from app.training.config import Choice, ParameterGroup, Schedule
from app.training.control import Control
from app.training.events import Event, Failed, GroupRates, RateSet, StepDone, to_json
from app.training.history import History
from app.training.job import Job
from app.training.loop import train
from app.training.run_requests import SetRate
from app.util.frozen import FrozenMap
from app.views.training.charts import export
from tests.support.training_jobs import CONV_NET, job

SGD = Choice("SGD", FrozenMap(lr=0.01))
FIRST = ParameterGroup(
    "conv1", FrozenMap(lr=0.0003)
)  # the first parameters of the net are not of the main group


def a_job(**settings: Any) -> Job:
    return job(
        CONV_NET,
        **{
            "epochs": 1,
            "batch_size": 256,
            "optimizer": SGD,
            "groups": (FIRST,),
            **settings,
        },
    )


def told(
    a_job: Job, orders: dict[int, list[SetRate]] | None = None, **more: Any
) -> tuple[list[Event], History]:
    """Run it, and have these said after these steps."""
    control, events, history = Control(), [], History()
    for event in train(a_job, control, **more):
        events.append(event)
        history.add(event)
        if isinstance(event, StepDone):
            for order in (orders or {}).get(event.step, []):
                control.call(order)
    assert not isinstance(events[-1], Failed), events[-1]
    return events, history


def test_the_rate_is_that_of_the_main_group_and_each_other_group_has_a_column() -> None:
    events, history = told(a_job(no_decay=True))
    assert {event.rate for event in events if isinstance(event, StepDone)} == {0.01}
    (rates,) = [event for event in events if isinstance(event, GroupRates)]
    assert rates == GroupRates(1, ("", "conv1"), (0.01, 0.0003))
    rows = [
        row
        for row in csv.DictReader(io.StringIO(history.to_csv()))
        if row["event"] == "step"
    ]
    assert {(row["rate"], row["rate_conv1"]) for row in rows} == {
        ("0.01", "0.0003")
    } and len(rows) == 6
    curves = csv.DictReader(io.StringIO(export.to_csv(history)))
    assert {(row["rate"], row["rate_conv1"]) for row in curves} == {("0.01", "0.0003")}
    assert history.newest_rates() == {"": 0.01, "conv1": 0.0003}
    assert all("rate" not in (to_json(event) or "") for event in events), (
        "the lines are those of the script"
    )


def test_a_run_without_groups_tells_one_rate() -> None:
    events, history = told(a_job(groups=(), no_decay=True))
    assert not any(
        isinstance(event, GroupRates) for event in events
    ) and history.newest_rates() == {"": 0.01}
    assert "rate_" not in history.to_csv()


def test_where_every_layer_is_in_a_group_the_largest_is_the_main_one() -> None:
    others = (
        ParameterGroup("norm1", FrozenMap()),
        ParameterGroup("conv2", FrozenMap(lr=0.2)),
        ParameterGroup("linear1", FrozenMap(lr=0.1)),
    )
    groups = (FIRST, *others)
    events, history = told(a_job(groups=groups), {2: [SetRate(0.05)]})
    assert list(history.newest_rates().items()) == [
        ("linear1", 0.05),
        ("conv1", 0.0003),
        ("norm1", 0.01),
        ("conv2", 0.2),
    ]
    rows = [
        row
        for row in csv.DictReader(io.StringIO(history.to_csv()))
        if row["event"] == "step"
    ]
    assert (
        rows[-1]["rate"] == rows[-1]["rate_linear1"] == "0.05"
        and rows[-1]["rate_conv2"] == "0.2"
    )
    assert [event for event in events if isinstance(event, RateSet)] == [
        RateSet(2, 0.05)
    ]


def test_setting_one_rate_leaves_the_others_and_what_it_does_is_in_the_optimizer(
    tmp_path: Path,
) -> None:
    orders = {2: [SetRate(0.0006, "conv1")], 4: [SetRate(0.5)]}
    events, history = told(a_job(no_decay=True), orders, folder=tmp_path)
    assert [event for event in events if isinstance(event, RateSet)] == [
        RateSet(2, 0.0006, "conv1"),
        RateSet(4, 0.5),
    ]
    assert history.steps["rate"].tolist() == [0.01] * 4 + [0.5] * 2
    assert history.rates_of("conv1").tolist() == [0.0003] * 2 + [0.0006] * 4
    groups = checkpoint.load(tmp_path / checkpoint.LAST)["optimizer"]["param_groups"]
    assert sorted(group["lr"] for group in groups) == [
        0.0006,
        0.0006,
        0.5,
        0.5,
    ]  # each with and without decay
    assert '"group": "conv1"' in str(to_json(RateSet(2, 0.0006, "conv1")))
    assert "group" not in str(to_json(RateSet(4, 0.5)))


def test_the_schedule_of_the_group_that_was_set_goes_on_in_proportion_and_no_other() -> (
    None
):
    cosine = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=6)), "step")
    _, plain = told(a_job(schedule=cosine))
    rate = float(plain.rates_of("conv1")[3])
    _, other = told(a_job(schedule=cosine), {3: [SetRate(10 * rate, "conv1")]})
    assert other.steps["rate"].tolist() == plain.steps["rate"].tolist()
    wanted = [
        value * (10 if number >= 3 else 1)
        for number, value in enumerate(plain.rates_of("conv1").tolist())
    ]
    assert other.rates_of("conv1").tolist() == pytest.approx(wanted)


def test_a_group_that_there_is_not_is_refused_by_its_name() -> None:
    control = Control()
    run = train(a_job(), control)
    for event in run:
        if isinstance(event, StepDone) and event.step == 1:
            with pytest.raises(
                ValueError,
                match="no parameter group “conv9”; it has the main group, conv1",
            ):
                control.call(SetRate(0.1, "conv9")).result(60)


def test_a_run_goes_on_with_the_rates_that_were_set_and_the_kept_one_tells_them(
    tmp_path: Path,
) -> None:
    whole = a_job(
        epochs=2,
        save_every=3,
        schedule=Schedule(Choice("StepLR", FrozenMap(step_size=5)), "step"),
    )
    orders = {2: [SetRate(0.002, "conv1"), SetRate(0.02)]}
    events, history = told(whole, orders, folder=tmp_path / "whole")
    project = Project("rates", data=whole.data, training=whole.training)
    kept = store.begin(tmp_path / "runs", project)
    recorder = Recorder(kept, project, whole.source.text)
    assert recorder.begin() == ""
    for event in events:
        recorder.take(event)
    recorder.close()
    there = store.history_of(kept)
    assert (
        there.rates_of("conv1").tolist() == history.rates_of("conv1").tolist()
        and there.to_csv() == history.to_csv()
    )
    half = a_job(epochs=1, save_every=3, schedule=whole.training.schedule)
    told(half, orders, folder=tmp_path / "half")
    rest, _ = told(whole, resume=tmp_path / "half" / checkpoint.LAST)
    losses = [
        (event.step, event.loss, event.rate)
        for event in rest
        if isinstance(event, StepDone)
    ]
    assert (
        losses
        == [
            (event.step, event.loss, event.rate)
            for event in events
            if isinstance(event, StepDone)
        ][6:]
    )
    there.extend(rest)
    assert there.rates_of("conv1").tolist() == history.rates_of("conv1").tolist()
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(
        str(tensorboard.export(recorder.kept, whole, tmp_path / "events"))
    )
    found.Reload()
    values = {
        tag: [scalar.value for scalar in found.Scalars(tag)]
        for tag in ("rate/learning rate", "rate/conv1")
    }
    assert values["rate/conv1"] == pytest.approx(history.rates_of("conv1").tolist())
    assert values["rate/learning rate"] == pytest.approx(history.steps["rate"].tolist())
