"""A window's runs, without the window: each way in which one can go and end, and that the next one can begin."""

from __future__ import annotations

import pytest

from app.training.events import Failed
from app.training.loop import train
from app.views.run.session import RunSession, RunUnderWay
from tests.support.training_jobs import adam, job, losses, net

LONG = 100_000  # epochs that no test waits for

NO_FIT = net(
    ["self.linear1 = nn.Linear(63, 10)"], ["return self.linear1(x.flatten(1))"]
)


@pytest.fixture
def session(qtbot):
    made = RunSession()
    yield made
    assert made.close_and_wait()
    assert made.training_thread is None or made.training_thread.isFinished()


@pytest.fixture
def until(qtbot, session):
    """Wait for a state, or for so many steps of the newest run."""

    def wait(state: str | None = None, steps: int = 0):
        def reached():
            return (state is None or session.state == state) and len(
                session.history.steps
            ) >= steps

        qtbot.waitUntil(reached)

    return wait


def states_of(session):
    heard = []
    session.stateChanged.connect(heard.append)
    return heard


def test_a_run_tells_everything_and_ends(session, until):
    heard, finished = states_of(session), []
    session.finished.connect(finished.append)
    run = session.start(job())
    assert session.active and session.current is run
    until("done")
    assert heard == ["starting", "running", "done"]
    assert [event.reason for event in finished] == [
        "done"
    ] and run.finished is finished[0]
    assert run.history.steps["loss"].tolist() == losses(train(job()))
    assert len(run.history.epochs) == 3 and len(run.history.gradients) > 0
    progress = session.progress()
    assert (progress.epoch, progress.epochs, progress.batch, progress.batches) == (
        3,
        3,
        23,
        23,
    )
    assert progress.eta == 0.0 and progress.loss == run.history.steps["loss"][-1]


def test_a_second_run_in_the_same_window_begins_anew(session, until):
    first = session.start(job(epochs=1))
    until("done")
    second = session.start(job(epochs=2, seed=1))
    until("done")
    assert [run.number for run in session.runs] == [1, 2]
    assert len(first.history.steps) == 23 and len(second.history.steps) == 46
    assert first.history.steps["loss"][0] != second.history.steps["loss"][0]


def test_only_one_run_at_a_time(session, until):
    session.start(job(epochs=LONG))
    with pytest.raises(RunUnderWay):
        session.start(job())
    until("running", steps=1)
    session.stop()
    until("stopped")


def test_stopping_in_mid_epoch_keeps_the_weights_and_the_curves(session, until):
    heard = states_of(session)
    run = session.start(job(epochs=LONG))
    until("running", steps=5)
    session.stop()
    assert session.state == "stopping"
    until("stopped")
    assert heard == ["starting", "running", "stopping", "stopped"]
    assert (
        run.finished.steps
        == len(run.history.steps)
        == session.training_thread.result.step
    )
    assert session.training_thread.result.state_dict is not None
    session.start(job(epochs=1))
    until("done")


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (job(NO_FIT), "shape"),
        (job(optimizer=adam(lr=1e30), epochs=50), "not finite"),
        (job(epochs=0), "job"),
    ],
)
def test_a_failure_is_told_and_the_next_run_is_as_good_as_ever(
    session, until, broken, kind
):
    failures = []
    session.failed.connect(failures.append)
    run = session.start(broken)
    until("failed")
    assert [failure.kind for failure in failures] == [kind] and isinstance(
        run.failed, Failed
    )
    assert not session.active and session.training_thread.isFinished()
    session.start(job(epochs=1))
    until("done")


def test_pause_step_and_resume(session, until):
    heard = states_of(session)
    session.start(job(epochs=LONG))
    until("running", steps=1)
    session.pause()
    until("paused")
    standing = session.progress().step
    for more in (1, 2):
        session.step()
        until("paused", steps=standing + more)
        assert session.progress().step == standing + more
    session.resume()
    until("running", steps=standing + 10)
    assert heard == ["starting", "running", "paused", "running"]


def test_a_step_without_a_run_starts_one_that_stands(session, until):
    session.start(job(), step=True)
    until("paused", steps=1)
    assert session.progress().step == 1
    session.stop()
    until("stopped")


def test_closing_while_a_run_goes_on_leaves_no_thread(session, until):
    ended = []
    session.runEnded.connect(ended.append)
    session.start(job(epochs=LONG))
    until("running", steps=1)
    assert session.close_and_wait()
    assert session.training_thread.isFinished() and session.state == "stopped"
    assert ended == [session.current]
    assert session.close_and_wait()


def test_a_run_can_be_closed_before_it_has_set_up(session):
    session.start(job(epochs=LONG))
    assert session.close_and_wait()
    assert session.state == "stopped" and session.training_thread.isFinished()


def test_keys_without_a_run_do_nothing(session):
    session.pause()
    session.resume()
    session.step()
    session.stop()
    assert (
        session.state == "idle"
        and session.progress() is None
        and session.history is None
    )
