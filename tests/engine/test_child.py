"""A run in a process of its own: the numbers of the thread, hands that reach it, and words for every way it may end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.cli.train import run_results
from app.engine import pool, run_process
from app.engine.placement import RunPlacement
from app.engine.remote_control import RemoteControl, RemoteRunError
from app.engine.values import Codec
from app.source.generated import Source
from app.telemetry.histogram import Histogram
from app.training.checkpoints import checkpoint
from app.training.config import Choice
from app.training.control import Control
from app.training.events import (
    EpochDone,
    Failed,
    Finished,
    GradientNorms,
    Histograms,
    MemorySample,
    Paused,
    RateSet,
    Resumed,
    Saved,
    Started,
    StepDone,
)
from app.training.loop import train
from app.training.run_requests import SetRate
from app.util.frozen import FrozenMap
from tests.support.forked_popen import with_forks
from tests.support.forked_python import start_forked
from tests.support.training_jobs import SETTINGS, SMALL_NET, job, losses, net

ROOT = Path(__file__).resolve().parents[2]


def alive(pid: int) -> bool:
    """Whether a process is there; one that has ended and was not waited for is not."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


def wait_for(holds, seconds=300.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def broken_net(line: str, at: int = 12) -> Source:
    """A net that does something at its n-th forward; the line is of node f2."""
    return net(
        ["self.linear1 = nn.Linear(64, 10)"],
        [
            "self.calls = getattr(self, 'calls', 0) + 1",
            f"x = x if self.calls != {at} else {line}",
            "return self.linear1(x.flatten(1))",
        ],
    )


SMALL = broken_net("x", at=0)


def test_events_arrive_bit_for_bit_and_are_not_remembered():
    nan = float("nan")
    events = [
        Started("cpu", None, 1, 2, 3, 4, 5, ("a", "b"), 6, 7),
        StepDone(1, 1, 0.1, 64, 1 / 3, 1e-3),
        StepDone(1, 2, nan, 64, 2 / 3),
        GradientNorms(2, ("a", "b"), (0.1 + 0.2, nan)),
        Histograms(2, "weights", (Histogram("a", -1.0, 5e-324, (1, 2)),)),
        MemorySample(2, 0.1, "process", None, None, None, 1 << 40),
        EpochDone(1, 2, 0.5, None, None, None, 1.0),
        Finished("done", 1, 2, 1.5, "it was enough"),
    ]
    here, there = Codec(0), Codec(1)
    for count in range(1, 6):
        back = here.decode(
            *msgspec.msgpack.decode(
                msgspec.msgpack.encode(there.encode(events * count**3))
            )
        )
        assert list(map(repr, back)) == list(map(repr, events * count**3))
        assert here._table.weight == there._table.weight == 0


def test_a_job_arrives_whole():
    a_job = job(
        SMALL_NET,
        **SETTINGS["a running mean, mixup, groups"],
        loss=Choice(
            "CrossEntropyLoss", FrozenMap(weight=(1.0, float("inf")), reduction="mean")
        ),
    )
    assert Codec(1).decode(*Codec(0).encode(a_job)) == a_job


def test_a_run_of_its_own_is_the_run_of_the_thread_and_goes_on_from_its_checkpoint(
    tmp_path,
):
    import torch

    a_job = job(
        SMALL_NET,
        seed=3,
        epochs=2,
        save_every=20,
        **SETTINGS["AdamW, cosine after a warmup"],
    )
    control, theirs = Control(), RemoteControl()
    whole = list(train(a_job, control))
    threads = torch.get_num_threads()
    events = list(run_process.train(a_job, theirs, threads=threads, folder=tmp_path))
    assert losses(events) == losses(whole)
    shown = [event for event in events if not isinstance(event, Saved)]
    assert [type(e) for e in shown if isinstance(e, EpochDone)] == [EpochDone] * 2
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    for name, value in control.weights().items():
        assert torch.equal(value, theirs.weights()[name])
    resumed = list(
        run_process.train(
            a_job, threads=threads, resume=tmp_path / checkpoint.step_file(40)
        )
    )
    assert losses(resumed) == losses(whole)[40:]


def test_hands_reach_it(tmp_path):
    """Pause, weights, one step, another rate, resume, stop; what is watched must not change the numbers."""
    control = RemoteControl()
    control.step()  # said before there is anybody to hear it
    seen = []
    for event in run_process.train(job(SMALL_NET, epochs=10_000), control):
        seen.append(event)
        if isinstance(event, Paused) and event.step == 1:
            before = control.weights(timeout=300)
            control.step()
        elif isinstance(event, Paused) and event.step == 2:
            after = control.weights(timeout=300)
            with pytest.raises(RemoteRunError):
                control.call(lambda live: live.step).result()
            assert control.call(SetRate(0.25)).result(60) == 0.001
            control.resume()
        elif isinstance(event, StepDone) and event.step >= 4 and not control.stopping:
            control.stop()
    kinds = [
        type(event) for event in seen if isinstance(event, Paused | Resumed | RateSet)
    ]
    assert kinds in (
        [Paused, Paused, RateSet, Resumed],
        [Paused, Paused, Resumed, RateSet],
    )
    rates = [event.rate for event in seen if isinstance(event, StepDone)]
    assert rates[:2] == [0.001, 0.001] and rates[-1] == 0.25
    assert any(not before[name].equal(after[name]) for name in before)
    assert seen[-1].reason == "stopped" and control.result.step == seen[-1].steps
    plain = list(train(job(SMALL_NET, epochs=10_000, max_steps=2)))
    assert losses(seen)[:2] == losses(plain)


ENDINGS = {
    "abort": (
        "__import__('os').abort()",
        "aborted in native code (SIGABRT) in step 12",
    ),
    "kill": ("__import__('os').kill(__import__('os').getpid(), 9)", "SIGKILL"),
    "hang": (
        "__import__('pathlib').Path('HERE').touch() or __import__('time').sleep(600)",
        "has done nothing for",
    ),
}


@pytest.mark.skipif(
    sys.platform != "linux", reason="signals and /proc are those of Linux"
)
@pytest.mark.parametrize("name", ENDINGS)
def test_however_it_dies_the_last_event_says_so_and_what_is_kept(
    name, tmp_path, monkeypatch
):
    line, words = ENDINGS[name]
    there, hours, clock = tmp_path / "there", [], time.monotonic

    def monotonic() -> float:
        """Once it hangs, and not before, every look at the clock is an hour after the last."""
        if there.exists():
            hours.append(3600.0)
        return clock() + sum(hours)

    monkeypatch.setattr(run_process, "monotonic", monotonic)
    a_job = job(broken_net(line.replace("HERE", str(there))), save_every=5)
    events = list(run_process.train(a_job, folder=tmp_path))
    failed = events[-1]
    assert isinstance(failed, Failed) and failed.kind == "process"
    assert (
        words in failed.message and "in step 12" in failed.message and failed.step == 11
    )
    assert (
        losses(events)
        == losses(list(train(job(SMALL, max_steps=11))))[: len(losses(events))]
    )
    assert (
        checkpoint.newest(tmp_path) is not None
        and str(checkpoint.newest(tmp_path)) in failed.cure
    )
    if name != "kill":
        assert failed.node == "f2" and "Fatal Python error" in failed.traceback


@pytest.mark.skipif(sys.platform != "linux", reason="signals are those of Linux")
def test_a_best_checkpoint_that_was_written_just_before_it_died_is_found(tmp_path):
    """It dies once the file is there, in the step after whose end that would have been told."""
    written = f"__import__('pathlib').Path({str(tmp_path / 'best.pt')!r}).exists"
    dying = broken_net(f"any(iter({written}, True)) or __import__('os').abort()", at=45)
    events = list(run_process.train(job(dying, epochs=3), folder=tmp_path))
    failed = events[-1]
    assert isinstance(failed, Failed) and "aborted" in failed.message
    assert (
        failed.cure
        == f"The newest checkpoint is {tmp_path / 'best.pt'}: the run can be resumed from it."
    )


def test_a_step_that_does_not_end_is_ended_some_time_after_stop(tmp_path):
    control, there = RemoteControl(), tmp_path / "there"
    line = f"__import__('pathlib').Path({str(there)!r}).touch() or sum(0 for _ in iter(int, 1))"
    run = run_process.train(job(broken_net(line, at=2)), control, grace=0.5)
    events = []
    for event in run:
        events.append(event)
        if isinstance(event, StepDone):
            wait_for(there.exists)
            control.stop()
    assert "had not stopped" in events[-1].message and "save_every" in events[-1].cure
    assert events[-1].node == "f2", events[-1].traceback
    assert control.result.ending == "failed" and control.result.state_dict is None


def test_a_generator_that_is_let_go_leaves_nothing_behind(monkeypatch):
    started, given = [], []
    start = pool.start

    def kept(*asked: Any) -> pool.Child:
        given.append(asked)
        started.append(start(*asked))
        return started[-1]

    monkeypatch.setattr(pool, "start", kept)
    run = run_process.train(
        job(epochs=10_000), place=RunPlacement(1, launch_blocking=True)
    )
    assert isinstance(next(run), Started)
    assert given == [("engine", {"CUDA_LAUNCH_BLOCKING": "1"})]
    run.close()
    assert started[0].poll() is not None


_PARENT = """
import sys
from tests.support.training_jobs import job
from app.engine import run_process as child, pool
from app.training.events import StepDone
pool.prepare()
start = pool.start
pool.start = lambda *given: started.append(start(*given)) or started[-1]
started = []
for event in child.train(job(epochs=100_000)):
    if isinstance(event, StepDone):
        print(started[0].pid, flush=True)
        sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_it_does_not_outlive_a_window_that_is_killed(tmp_path):
    parent = start_forked(with_forks(tmp_path, _PARENT), cwd=ROOT)
    pid = int(parent.stdout.readline())
    assert alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))


def test_the_command_trains_in_a_process_of_its_own_and_prints_the_same_lines(
    tmp_path, capsys, monkeypatch
):
    from app import cli

    monkeypatch.setattr(
        "app.cli.train.run_results.leave", lambda *given: run_results.Results(given[-1])
    )
    project = str(ROOT / "resources" / "examples" / "digits.tape")
    told = []
    for name, more in (("here", []), ("own", ["--own-process"])):
        assert (
            cli.run(
                [
                    "train",
                    project,
                    "--out",
                    str(tmp_path / name),
                    "--epochs",
                    "1",
                    "--json",
                    *more,
                ]
            )
            == 0
        )
        told.append(capsys.readouterr().out.splitlines())
    assert told[0] == told[1] and len(told[0]) > 20
