"""A file of lines that somebody else writes: whatever becomes of it, what it tells is told once."""

from __future__ import annotations

import json

import pytest

from app.engine.watched.follow import Tail, WatchedRunControl, follow
from app.engine.watched.reader import Reader
from app.training.events import (
    EpochDone,
    Failed,
    Finished,
    Started,
    StepDone,
    to_json,
)
from app.training.history import History
from app.views.run.session import measure_progress
from tests.support.training_jobs import CONV_NET, job, run

START = {
    "event": "started",
    "device": "cpu",
    "epochs": 2,
    "batch_size": 4,
    "seed": 0,
    "parameters": 5,
    "train_count": 10,
    "validation_count": 0,
}


def step(number: int, loss: float | None = 0.5) -> dict:
    return {
        "event": "step",
        "epoch": 1 + (number - 1) // 3,
        "step": number,
        "loss": loss,
    }


def line(fields: dict) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_a_tail_gives_whole_lines_of_whatever_file_is_there(tmp_path):
    path, other = tmp_path / "lines", tmp_path / "other"
    tail = Tail(path)
    assert tail.read() == []  # not there yet
    path.write_bytes(b"one\ntw")
    assert tail.read() == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.read() == [b"two", b"three"] and tail.read() == []
    path.write_bytes(b"a\n")  # begun anew, shorter
    assert tail.read() == [b"a"]
    other.write_bytes(b"b\nc and more\n")
    other.replace(path)  # another file under the name
    assert tail.read() == [b"b", b"c and more"]
    path.unlink()
    assert tail.read() == []
    tail.close()


def test_a_run_is_told_as_its_file_grows(tmp_path):
    """Half lines, words of the script between them, a second run in the same file."""
    path = tmp_path / "lines.jsonl"
    half = line(step(2))
    path.write_bytes(line(START) + b"a warning of torch\n" + line(step(1)) + half[:7])
    seen = []
    for event in follow(path, every=0.01):
        seen.append(event)
        if len(seen) == 2:
            done = {"event": "finished", "reason": "done", "epoch": 1, "steps": 3}
            with path.open("ab") as file:
                file.write(
                    half[7:]
                    + b"".join(map(line, (step(3, None), done, START, step(1))))
                )
        elif len(seen) == 6:
            path.write_bytes(b"")  # cut off, and begun anew
            with path.open("ab") as file:
                file.write(
                    line(START)
                    + line(
                        {
                            "event": "finished",
                            "reason": "stopped",
                            "epoch": 0,
                            "steps": 0,
                        }
                    )
                )
    kinds = [type(event) for event in seen]
    assert kinds == [
        Started,
        StepDone,
        StepDone,
        StepDone,
        Started,
        StepDone,
        Started,
        Finished,
    ]
    assert [event.samples for event in seen if isinstance(event, StepDone)] == [
        4,
        4,
        2,
        4,
    ]
    assert seen[-1].reason == "stopped"


def test_lines_without_times_tell_no_speed(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(
        line(START) + b"".join(line(step(number)) for number in range(1, 5))
    )
    control, history = WatchedRunControl(), History()
    for event in follow(path, control, every=0.01):
        history.add(event)
        if isinstance(event, StepDone) and event.step == 4:
            assert (
                history.samples_per_second() is None
                and measure_progress(history).eta is None
            )
            with path.open("ab") as file:
                file.write(line(step(5)))
        elif isinstance(event, StepDone) and event.step == 5:
            assert (
                history.samples_per_second() is None
                and measure_progress(history).eta is None
            )
            control.pause()  # out of reach, and without effect
            control.stop()
    assert (
        isinstance(event, Finished)
        and event.reason == "left"
        and "continues" in event.note
    )
    assert control.result.ending == "left" and control.result.state_dict is None


def test_a_run_that_fails_elsewhere_fails_here(tmp_path):
    path = tmp_path / "lines.jsonl"
    failed = {
        "event": "failed",
        "kind": "memory",
        "message": "m",
        "cure": "c",
        "node": None,
        "epoch": 1,
        "step": 2,
    }
    epoch = {
        "event": "epoch",
        "epoch": 1,
        "step": 3,
        "train_loss": 0.5,
        "train_accuracy": None,
        "val_loss": None,
        "val_accuracy": None,
        "val_f1": 0.25,
    }
    path.write_bytes(line(START) + line(epoch) + line(failed))
    events = list(follow(path, every=0.01))
    assert isinstance(events[1], EpochDone) and events[1].metrics == (("f1", 0.25),)
    assert isinstance(events[-1], Failed) and events[-1].message == "m"


def test_lines_become_the_events_that_they_were():
    told = run(job(CONV_NET, epochs=1, batch_size=500))
    reader = Reader(lambda: 0.0)
    back = [reader.event(line) for event in told if (line := to_json(event))]
    assert [to_json(event) for event in back] == [
        line for event in told if (line := to_json(event))
    ]
    steps = [(e.samples, e.step) for e in told if isinstance(e, StepDone)]
    assert [(e.samples, e.step) for e in back if isinstance(e, StepDone)] == steps
    assert reader.event(json.dumps({"event": "of tomorrow"})) is None
    for line in ("{", "[]", '{"event": "step"}', "hello"):
        with pytest.raises(ValueError, match="not a line of a run"):
            reader.event(line)
