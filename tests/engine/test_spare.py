"""The process that waits for a run: it is taken by the next one, answers all that is asked of a run, and goes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine import child_process, run_main, run_process, warm_spare
from app.engine.codec import decode, encode
from app.engine.placement import Place
from app.training.control import Control
from app.training.events import Caught, Failed, Finished, Paused, Started, StepDone
from app.training.loop import train
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import LookInside, ShowCaught, TellMemory, WriteSnapshot
from tests.engine.test_child import alive, wait_for
from tests.support.training_jobs import SMALL_NET, job, losses

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@pytest.fixture(autouse=True)
def nobody_waits() -> Iterator[None]:
    warm_spare.dismiss()
    yield
    warm_spare.dismiss()


def waiting() -> int:
    """The id of the process that waits."""
    assert warm_spare._waiting is not None
    return warm_spare._waiting.child.pid


def test_the_next_run_takes_the_process_that_waits_and_its_numbers_are_the_same():
    import torch

    a_job = job(SMALL_NET, seed=3)
    warm_spare.prepare()
    pid = waiting()
    warm_spare.prepare()
    assert waiting() == pid, "one is enough"
    run = run_process.train(a_job, threads=torch.get_num_threads())
    events = [next(run)]
    assert isinstance(events[0], Started) and warm_spare._waiting is None and alive(pid)
    events += run
    assert isinstance(events[-1], Finished) and losses(events) == losses(list(train(a_job)))
    wait_for(lambda: not alive(pid))


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_one_that_was_killed_while_it_waited_is_not_taken():
    warm_spare.prepare()
    pid = waiting()
    os.kill(pid, signal.SIGKILL)
    warm_spare._waiting.child.wait()
    warm_spare.prepare()
    assert waiting() != pid, "another one waits when it is time"
    os.kill(waiting(), signal.SIGKILL)
    warm_spare._waiting.child.wait()
    assert isinstance(list(run_process.train(job()))[-1], Finished), "and a run starts its own until then"


def test_a_step_that_was_asked_for_before_the_run_is_one_step_however_late_it_is_sent(monkeypatch):
    """The process waits with everything loaded: it could be through the run by the time it hears of it."""
    connect = run_process.ChildControl.connect

    def at_rest() -> bool:
        before = child_process.work_of(pid)
        time.sleep(0.3)  # it waits, or has come to its end
        return not alive(pid) or child_process.work_of(pid) == before and before > 0.5

    def late(control: run_process.ChildControl, pipe: object) -> None:
        wait_for(at_rest)
        connect(control, pipe)

    warm_spare.prepare()
    pid = waiting()
    wait_for(at_rest)
    monkeypatch.setattr(run_process.ChildControl, "connect", late)
    control = run_process.ChildControl()
    control.step()
    steps = 0
    for event in run_process.train(job(), control):
        steps += isinstance(event, StepDone)
        if isinstance(event, Paused):
            assert (event.step, steps) == (1, 1)
            control.stop()
    assert control.result.step == 1


def test_a_run_that_waits_for_cuda_leaves_it_alone():
    warm_spare.prepare()
    pid = waiting()
    run = run_process.train(job(), place=Place(1, launch_blocking=True))  # which has to be known before CUDA is loaded
    assert isinstance(next(run), Started) and waiting() == pid
    run.close()


def test_it_goes_when_it_is_dismissed_and_when_nobody_is_left_to_want_it():
    warm_spare.prepare()
    pid = waiting()
    warm_spare.dismiss()
    assert not alive(pid) and warm_spare.take() is None
    begun = warm_spare.begin()
    begun.child.stdin.close()
    assert begun.child.wait(120) == 0 and begun.told.text() == ""
    begun.child.stdout.close()


def test_one_that_cannot_be_started_is_no_fault_until_a_run_wants_one(monkeypatch):
    def refused(*_given: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(child_process, "start", refused)
    warm_spare.prepare()
    assert warm_spare.take() is None
    (failed,) = run_process.train(job())
    assert isinstance(failed, Failed) and "cannot be started: no more processes" in failed.message


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
    assert said[0][:3] == ("answer", 7, None) and "cannot be kept" in said[0][3]


def test_arrays_go_through_the_pipe_and_nothing_but_numbers_comes_out_of_it():
    strided = np.arange(6.0, dtype=np.float32).reshape(2, 3)[:, ::2]
    for array in (strided, np.array([[True]]), np.zeros((0, 4), np.uint8)):
        back = decode(encode(array))
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype and back.shape == array.shape and back.flags.writeable
    with pytest.raises(ValueError, match="no array of numbers"):
        decode({"array": ["|O", [1], b"12345678"]})
    with pytest.raises(ValueError, match="cannot be kept"):
        encode(np.array([object()]))
