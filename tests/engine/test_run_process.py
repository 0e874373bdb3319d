"""The process of a run, from outside: begun late, asked for all that can be asked of a run, and not wanted any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine import child_process, pool, run_process
from app.engine.codec import decode, encode
from app.engine.programs import run as run_main
from app.training.control import Control
from app.training.events import Caught, Failed, Paused, Started, StepDone
from app.training.loop import train
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import LookInside, ShowCaught, TellMemory, WriteSnapshot
from tests.engine.test_child import alive, wait_for
from tests.support.training_jobs import SMALL_NET, job

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


def test_a_step_that_was_asked_for_before_the_run_is_one_step_however_late_it_is_sent(monkeypatch):
    """The process has everything loaded: it could be through the run by the time it hears of it."""
    connect = run_process.ChildControl.connect

    started: list[pool.Child] = []
    start = pool.start

    def kept(*given: Any) -> pool.Child:
        started.append(start(*given))
        return started[-1]

    def at_rest() -> bool:
        pid = started[0].pid
        before = child_process.work_of(pid)
        time.sleep(0.3)  # it waits, or has come to its end
        return not alive(pid) or child_process.work_of(pid) == before

    def late(control: run_process.ChildControl, pipe: object) -> None:
        wait_for(at_rest)
        connect(control, pipe)

    monkeypatch.setattr(run_process.ChildControl, "connect", late)
    monkeypatch.setattr(pool, "start", kept)
    control = run_process.ChildControl()
    control.step()
    steps = 0
    for event in run_process.train(job(), control):
        steps += isinstance(event, StepDone)
        if isinstance(event, Paused):
            assert (event.step, steps) == (1, 1)
            control.stop()
    assert control.result.step == 1


def test_one_that_cannot_be_started_says_why(monkeypatch):
    def refused(*_given: object, **_named: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(pool, "start", refused)
    (failed,) = run_process.train(job())
    assert isinstance(failed, Failed) and "cannot be started: no more processes" in failed.message


def test_one_that_nobody_wants_any_more_goes_in_good_order():
    child = pool.start("run")
    child.stdin.close()
    assert child.stderr.read() == b"" and child.wait(120) == 0


def looked_at(control: Control, run: Iterator[object], folder: Path) -> tuple[Any, Any, Any]:
    """The inside of a layer, the batch and the memory of a run that a watch point holds at its first step."""
    control.watch = WatchPoints(gradient_norm=1e-9)
    found: list[Any] = []
    caught = False
    for event in run:
        caught = caught or isinstance(event, Caught)
        if isinstance(event, Paused):
            orders = (LookInside("linear1", 5), ShowCaught(), TellMemory())
            found += (control.call(order).result(120) for order in orders)
            for wrong in (LookInside("linear9", 0), WriteSnapshot(str(folder / "not there" / "cuda.pickle"))):
                assert control.call(wrong).exception(120) is not None
            control.stop()
    assert caught
    inside, batch, memory = found
    return inside, batch, memory


def test_what_is_looked_at_in_a_run_comes_through_the_pipe_as_it_is(tmp_path):
    a_job, ours, theirs = job(SMALL_NET, epochs=100), Control(), run_process.ChildControl()
    inside, batch, memory = looked_at(ours, train(a_job, ours), tmp_path)
    its_inside, its_batch, its_memory = looked_at(theirs, run_process.train(a_job, theirs), tmp_path)
    np.testing.assert_array_equal(inside.picture, its_inside.picture)
    np.testing.assert_array_equal(inside.channels.pictures, its_inside.channels.pictures)
    assert its_inside.filters.pictures.dtype == np.float32 and its_inside.filters.count == 16
    assert (inside.label, inside.weights, inside.count) == (its_inside.label, its_inside.weights, its_inside.count)
    np.testing.assert_array_equal(batch.inputs, its_batch.inputs)
    np.testing.assert_array_equal(batch.labels, its_batch.labels)
    assert its_batch.outputs.shape == (64, 10) and its_batch.classes == batch.classes
    assert its_memory.step == memory.step and its_memory.step.total.whole > 0
    assert its_memory.resident != memory.resident, "it is that of the run's process"


def test_an_answer_that_cannot_be_sent_is_not_waited_for():
    said: list[tuple[object, ...]] = []
    pipe: Any = type("Said", (), {"send": lambda _self, *words: said.append(words)})()
    control = Control()
    for event in train(job(max_steps=1), control):
        if isinstance(event, Started):
            asked = control.call(lambda live: live)
    run_main._answer(pipe, 7, asked)
    assert said[0][:3] == ("answer", 7, None) and "cannot be stored" in said[0][3]


def test_arrays_go_through_the_pipe_and_nothing_but_numbers_comes_out_of_it():
    strided = np.arange(6.0, dtype=np.float32).reshape(2, 3)[:, ::2]
    for array in (strided, np.array([[True]]), np.zeros((0, 4), np.uint8)):
        back = decode(encode(array))
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype and back.shape == array.shape and back.flags.writeable
    with pytest.raises(ValueError, match="no array of numbers"):
        decode({"array": ["|O", [1], b"12345678"]})
    with pytest.raises(ValueError, match="cannot be stored"):
        encode(np.array([object()]))
