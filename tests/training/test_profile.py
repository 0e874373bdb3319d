"""The profile of a step: told of a run under way that stays what it was, written as a trace, and shown."""

import json

import pytest

from app.engine.values import Codec
from app.training.control import Control
from app.training.events import Paused
from app.training.loop import train
from app.training.monitoring import answers
from app.training.run_requests import ProfileStep
from tests.support.training_jobs import CONV_NET, SMALL_NET, adam, job, losses, run


def profiled(a_job, trace=""):
    """The profile after the second batch of a run, and the losses of the whole of it."""
    control, events, asked = Control(), [], []
    control.step()
    control.step()
    for event in train(a_job, control):
        events.append(event)
        if isinstance(event, Paused):
            asked.append(control.call(ProfileStep(trace)))
            control.resume()
    return asked[0], losses(events)


@pytest.mark.parametrize("source", [CONV_NET, SMALL_NET], ids=["norm", "dropout"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_is_profiled_and_stays_what_it_was(source, accumulate, monkeypatch):
    monkeypatch.setattr(
        answers, "MOST", 1000
    )  # which are the largest is the machine's affair
    a_job = job(source, optimizer=adam(lr=0.001), accumulate=accumulate, max_steps=5)
    asked, told = profiled(a_job)
    assert told == losses(run(a_job))
    profile = asked.result()
    rows = {row.name: row for row in profile.rows}
    assert "aten::addmm" in rows and rows["aten::addmm"].calls >= source.text.count(
        "nn.Linear("
    )
    assert profile.batch == 64 and profile.device == "cpu" and profile.on_device is None
    times = [row.cpu for row in profile.rows]
    assert times == sorted(times, reverse=True) and not profile.left_out
    assert (
        sum(times) == pytest.approx(profile.cpu)
        and profile.cpu > 0
        and profile.milliseconds > 0
    )
    assert {row.on_device for row in profile.rows} == {None}


def test_a_profile_and_its_order_go_through_a_pipe(monkeypatch):
    monkeypatch.setattr(answers, "MOST", 5)
    asked, _ = profiled(job(max_steps=3))
    profile = asked.result()
    assert (
        len(profile.rows) == 5
        and profile.left_out > 0
        and sum(row.cpu for row in profile.rows) < profile.cpu
    )
    assert Codec(0).decode(*Codec(1).encode(profile)) == profile
    assert Codec(0).decode(*Codec(1).encode(ProfileStep("trace.json"))) == ProfileStep(
        "trace.json"
    )


def test_the_trace_is_a_file_of_events_or_the_order_fails(tmp_path):
    path = tmp_path / "trace.json"
    asked, told = profiled(job(max_steps=3), str(path))
    assert asked.result().rows and told == losses(run(job(max_steps=3)))
    assert any(
        event.get("name") == "aten::addmm"
        for event in json.loads(path.read_text())["traceEvents"]
    )
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]
    asked, told = profiled(job(max_steps=3), str(tmp_path / "nowhere" / "trace.json"))
    error = asked.exception()
    assert isinstance(error, FileNotFoundError) and str(error).endswith("trace.json'")
    assert told == losses(run(job(max_steps=3)))
