"""The process of a run, from outside: begun late, asked for all that can be asked of a run, and not wanted any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.engine import pool, run_process
from app.engine.own_engine import OwnEngine
from app.engine.remote_control import RemoteControl
from app.engine.requests.train import Answered
from app.engine.tasks import train as train_task
from app.engine.values import Codec
from app.training.control import Control
from app.training.events import (
    Caught,
    EpochDone,
    Failed,
    Finished,
    Paused,
    Started,
    StepDone,
)
from app.training.loop import train
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import (
    LookInside,
    SetRate,
    ShowCaught,
    TellMemory,
    WriteSnapshot,
)
from tests.engine.test_child import broken_net
from tests.support.training_jobs import SMALL_NET, job

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks into /proc"
)


def test_a_step_that_was_asked_for_before_the_run_is_one_step():
    """It goes with the question: the process could be through the run by the time it hears of it."""
    control = RemoteControl()
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
    assert (
        isinstance(failed, Failed)
        and "cannot be started: no more processes" in failed.message
    )


def test_one_that_nobody_wants_any_more_goes_in_good_order():
    child = pool.start("engine")
    child.stdin.close()
    assert child.stderr.read() == b"" and child.wait(300) == 0


def looked_at(
    control: Control, run: Iterator[object], folder: Path
) -> tuple[Any, Any, Any]:
    """The inside of a layer, the batch and the memory of a run that a watch point holds at its first step."""
    control.pause_at(WatchPoints(gradient_norm=1e-9))
    found: list[Any] = []
    caught = False
    for event in run:
        caught = caught or isinstance(event, Caught)
        if isinstance(event, Paused):
            orders = (LookInside("linear1", 5), ShowCaught(), TellMemory())
            found += (control.call(order).result(120) for order in orders)
            assert control.call(LookInside("linear9", 0)).exception(120) is not None
            nowhere = WriteSnapshot(str(folder / "not there" / "cpu.pickle"))
            assert control.call(nowhere).result(120) is False, "the CPU has none"
            control.stop()
    assert caught
    inside, batch, memory = found
    return inside, batch, memory


def test_what_is_looked_at_in_a_run_comes_through_the_pipe_as_it_is(tmp_path):
    a_job, ours, theirs = (
        job(SMALL_NET, epochs=100),
        Control(),
        RemoteControl(),
    )
    inside, batch, memory = looked_at(ours, train(a_job, ours), tmp_path)
    its_inside, its_batch, its_memory = looked_at(
        theirs, run_process.train(a_job, theirs), tmp_path
    )
    np.testing.assert_array_equal(inside.picture, its_inside.picture)
    np.testing.assert_array_equal(
        inside.channels.pictures, its_inside.channels.pictures
    )
    assert (
        its_inside.filters.pictures.dtype == np.float32
        and its_inside.filters.count == 16
    )
    assert (inside.label, inside.weights, inside.count) == (
        its_inside.label,
        its_inside.weights,
        its_inside.count,
    )
    np.testing.assert_array_equal(batch.inputs, its_batch.inputs)
    np.testing.assert_array_equal(batch.labels, its_batch.labels)
    assert its_batch.outputs.shape == (64, 10) and its_batch.classes == batch.classes
    assert its_memory.step == memory.step and its_memory.step.total.total > 0
    assert its_memory.resident != memory.resident, "it is that of the run's process"


def test_an_answer_that_cannot_be_sent_is_not_waited_for():
    said: list[Answered] = []
    codec, control = Codec(1), Control()
    context: Any = SimpleNamespace(
        progress=lambda answer: said.append(codec.encode(answer) and answer)
    )
    for event in train(job(max_steps=1), control):
        if isinstance(event, Started):
            asked = control.call(lambda live: live)
    train_task._answer(context, 7, asked)
    (answer,) = said
    assert (
        answer.number == 7
        and answer.value is None
        and "message class" in str(answer.error)
    )


def test_an_order_that_cannot_be_sent_is_refused_to_who_gives_it_and_the_run_goes_on():
    """The run is far longer than what is asked of it: one that had ended would take no order at all."""
    control = RemoteControl()
    steps = 0
    for event in run_process.train(job(epochs=100_000), control):
        if isinstance(event, Started):
            with pytest.raises(ValueError, match="cannot be sent"):
                control.call(SetRate(np.array([object()])))
        if isinstance(event, StepDone):
            steps += 1
            if steps == 5:
                control.stop()
    assert isinstance(event, Finished) and event.reason == "stopped" and steps >= 5


def test_a_layer_that_ends_the_process_is_said_with_its_exit_code():
    failed = list(
        run_process.train(job(broken_net("__import__('os')._exit(7)", at=3)))
    )[-1]
    assert (
        isinstance(failed, Failed)
        and failed.message == "The process of the run ended with exit code 7 in step 3."
    )


def test_a_run_whose_weights_cannot_be_kept_says_so(tmp_path, monkeypatch):
    """The folder goes in the last step, as that of a disk that is pulled out."""
    line = f"__import__('shutil').rmtree({str(tmp_path / 'scratch')!r})"
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(
        run_process, "TemporaryFolder", lambda: nullcontext(tmp_path / "scratch")
    )
    failed = list(
        run_process.train(job(broken_net(f"{line} or x", at=3), max_steps=3))
    )[-1]
    assert (
        isinstance(failed, Failed)
        and "failed in step 4: RuntimeError: Parent directory" in failed.message
    )


def test_neither_end_remembers_the_events_of_a_run(monkeypatch):
    """A run tells millions of them."""
    codecs = []
    monkeypatch.setattr(
        run_process,
        "OwnEngine",
        lambda *given: codecs.append(OwnEngine(*given)) or codecs[-1],
    )
    weights = set()
    events = run_process.train(job(SMALL_NET, epochs=8))
    for event in events:
        if isinstance(event, EpochDone):
            weights.add(codecs[0]._own.codec._table.weight)
    assert len(weights) == 1 and max(weights) < 50
