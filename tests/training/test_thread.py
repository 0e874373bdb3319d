"""The thread of a run, which has a process of its own: the window polls, and every state change arrives once."""

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject, QThread

from app.engine.requests.runs import FindResumable
from app.engine.tasks.runs import find_resumable, job_of
from app.runs import store
from app.runs.recorder import Recorder
from app.training.events import (
    Cut,
    Failed,
    Finished,
    Paused,
    Resumed,
    Started,
    StepDone,
)
from app.training.loop import train
from app.training.run_requests import SetRate
from app.training_thread import TrainingThread
from tests.support import edited_nets
from tests.support.training_jobs import job, losses, net, run


class Listener(QObject):
    def __init__(self):
        super().__init__()
        self.events, self.threads = [], set()

    def hear(self, event):
        self.events.append(event)
        self.threads.add(QThread.currentThread())

    def kinds(self):
        return [type(event) for event in self.events]


@pytest.fixture
def begin(qtbot):
    """Start a run; it is stopped when the test ends."""
    threads = []

    def start(a_job, paused=False):
        thread, listener = TrainingThread(a_job), Listener()
        thread.state_changed.connect(listener.hear)
        threads.append(thread)
        if paused:
            thread.pause()
        thread.start()
        return thread, listener

    yield start
    assert all(thread.stop_and_wait() for thread in threads)


def test_a_run_of_the_window_has_the_numbers_of_one_without(qtbot, begin):
    thread, listener = begin(job())
    drained = []
    qtbot.waitUntil(lambda: Finished in listener.kinds())
    drained += thread.drain()
    assert losses(drained) == losses(run(job()))
    assert listener.kinds() == [Started, Finished]
    assert listener.threads == {QThread.currentThread()}
    assert thread.drain() == [] and thread.weights() is thread.result.state_dict


def test_pause_step_look_and_resume(qtbot, begin):
    thread, listener = begin(job(epochs=1), paused=True)
    qtbot.waitUntil(lambda: listener.kinds() == [Started, Paused])
    thread.step()
    qtbot.waitUntil(lambda: listener.kinds() == [Started, Paused, Paused])
    assert thread.run_between_steps(SetRate(0.25)).result(30) == 0.001
    assert "is in a separate process" in str(
        thread.run_between_steps(lambda live: live.step).exception(30)
    )
    assert sum(isinstance(event, StepDone) for event in thread.drain()) == 1
    thread.resume()
    qtbot.waitUntil(lambda: Finished in listener.kinds())
    assert listener.kinds() == [Started, Paused, Paused, Resumed, Finished]


def test_a_paused_run_goes_on_with_an_edited_net_and_is_kept(qtbot, tmp_path):
    """The surgery and its outcome cross two processes; the stored run has every stage, and is resumed in the last."""
    project = edited_nets.example("MLP on digits", epochs=2, batch_size=256)
    edited = edited_nets.inserted(project, "nn.Linear", "drop1", out_features=128)
    broken = edited_nets.changed(project, "fc3", out_features=9)
    recorder = Recorder(
        store.begin(tmp_path, project), project, job_of(project, None).source.text
    )
    thread, listener = (
        TrainingThread(job_of(project, None), recorder=recorder),
        Listener(),
    )
    thread.state_changed.connect(listener.hear)
    thread.pause()
    thread.start()
    try:
        qtbot.waitUntil(lambda: Paused in listener.kinds())
        thread.step()
        qtbot.waitUntil(lambda: listener.kinds().count(Paused) == 2)
        refused = thread.operate(edited_nets.surgery(project, broken), broken)
        assert "9" in str(refused.exception(60)) and "as it was" in str(
            refused.exception(60)
        )
        outcome = thread.operate(edited_nets.surgery(project, edited), edited).result(
            60
        )
        assert outcome.difference == 0 and "identity" in {
            fate.what for fate in outcome.fates
        }
        thread.resume()
        qtbot.waitUntil(lambda: Finished in listener.kinds())
    finally:
        assert thread.stop_and_wait()
    events = thread.drain()
    (cut,) = (event for event in events if isinstance(event, Cut))
    assert (cut.step, cut.stage, thread.job.last.source.text) == (
        1,
        2,
        job_of(edited, None).source.text,
    )
    assert losses(run(thread.job)) == losses(events)
    kept = recorder.kept
    assert recorder.problem == "" and [one.step for one in kept.record.cuts] == [1]
    longer = replace(project, training=replace(project.training, epochs=3))
    found = find_resumable(FindResumable(kept.folder, longer, ""), None)
    assert (found.stage, len(found.projects), found.project.training.epochs) == (
        2,
        2,
        3,
    )
    rest = list(train(found.job, resume=found.checkpoint))
    assert isinstance(rest[-1], Finished) and len(losses(rest)) == 6


def test_closing_while_a_run_goes_on_ends_it(qtbot, begin):
    thread, listener = begin(job(epochs=10_000))
    qtbot.waitUntil(lambda: len(thread.drain()) > 10)
    assert thread.stop_and_wait()
    qtbot.waitUntil(lambda: Finished in listener.kinds())
    assert listener.events[-1].reason == "stopped" and thread.result.state_dict
    assert thread.stop_and_wait()


def test_a_failure_arrives_as_an_event(qtbot, begin):
    source = net(
        ["self.linear1 = nn.Linear(3, 10)"], ["return self.linear1(x.flatten(1))"]
    )
    thread, listener = begin(job(source))
    qtbot.waitUntil(lambda: Failed in listener.kinds())
    assert listener.events[-1].node == "linear1"
    assert thread.wait(30_000)


def test_a_run_that_was_never_started_can_be_stopped(qtbot):
    assert TrainingThread(job()).stop_and_wait()
