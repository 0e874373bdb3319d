"""The hands on a run, from other threads."""

import threading

import pytest

from app.training.control import Control, NoWeightsError, RunEndedError
from app.training.events import Finished, Paused, Resumed, StepDone
from app.training.loop import train
from tests.support.training_jobs import job, losses, run


class Runner(threading.Thread):
    """A run on a thread of its own, whose pauses can be waited for."""

    def __init__(self, a_job, control):
        super().__init__()
        self.job, self.control, self.events = a_job, control, []
        self.stands = threading.Semaphore(0)

    def run(self):
        for event in train(self.job, self.control):
            self.events.append(event)
            if isinstance(event, Paused):
                self.stands.release()

    def wait_until_it_stands(self):
        assert self.stands.acquire(timeout=300)


@pytest.fixture
def standing():
    control = Control()
    control.pause()
    runner = Runner(job(epochs=1), control)
    runner.start()
    runner.wait_until_it_stands()
    yield runner
    control.stop()
    runner.join(300)
    assert not runner.is_alive()


def test_one_step_at_a_time_and_weights_in_between(standing):
    import torch

    before = standing.control.weights(timeout=300)
    standing.control.step()
    standing.wait_until_it_stands()
    after = standing.control.weights(timeout=300)
    assert not torch.equal(before["linear1.weight"], after["linear1.weight"])
    # What was handed out is a copy: the run does not change it.
    standing.control.step()
    standing.wait_until_it_stands()
    assert not torch.equal(
        after["linear1.weight"], standing.control.weights(30)["linear1.weight"]
    )
    assert [event.step for event in standing.events if isinstance(event, StepDone)] == [
        1,
        2,
    ]


def test_resume_from_another_thread_gives_the_same_numbers(standing):
    standing.control.resume()
    standing.join(300)
    assert losses(standing.events) == losses(run(job(epochs=1)))
    assert any(isinstance(event, Resumed) for event in standing.events)
    assert isinstance(standing.events[-1], Finished)


def test_stop_wakes_a_run_that_stands(standing):
    standing.control.stop()
    standing.join(300)
    assert standing.events[-1].reason == "stopped" and standing.control.result.step == 0


def test_an_exception_in_a_visit_goes_to_who_asked(standing):
    def broken(live):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        standing.control.call(broken).result(30)
    assert standing.control.call(lambda live: live.step).result(30) == 0


def test_pauses_are_left_out_of_the_clock(standing, monkeypatch):
    from app.training import loop

    clock = loop.perf_counter
    # An hour goes by while it stands.
    monkeypatch.setattr(loop, "perf_counter", lambda: clock() + 3600)
    standing.control.step()
    standing.wait_until_it_stands()
    assert (
        next(event for event in standing.events if isinstance(event, StepDone)).seconds
        < 1800
    )


def test_after_the_end_visits_are_refused_and_weights_stay():
    control = Control()
    list(train(job(epochs=1), control))
    with pytest.raises(RunEndedError):
        control.call(lambda live: None).result(1)
    assert control.weights() is control.result.state_dict


def test_a_visit_that_waits_for_a_run_that_fails_is_answered():
    control = Control()
    future = control.call(lambda live: None)
    list(train(job(epochs=0), control))
    with pytest.raises(RunEndedError):
        future.result(1)
    with pytest.raises(NoWeightsError):
        control.weights()
