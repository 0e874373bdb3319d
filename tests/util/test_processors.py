"""Processors that are left to the window and to other programs."""

import os
import subprocess
import sys

import pytest

from app.util import processors


@pytest.fixture
def of_eight(monkeypatch):
    """A machine with eight processors, for which nobody has set a number of threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(processors, "_limited", False)
    monkeypatch.setattr(processors, "available", lambda: 8)


class Busy(processors.Load):
    def __init__(self, count: float) -> None:
        self.count = count

    def of_others(self, wait: bool = False) -> float:
        return self.count


@pytest.mark.parametrize(
    ("busy", "threads"), [(0.0, 7), (0.6, 7), (1.2, 7), (2.7, 5), (7.9, 1), (12.0, 1)]
)
def test_one_processor_is_left_free_and_those_that_others_use(
    busy, threads, of_eight
) -> None:
    assert processors.free_threads(Busy(busy)) == threads


def test_a_number_that_the_user_sets_for_all_programs_is_taken(
    of_eight, monkeypatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert processors.free_threads(Busy(6)) == processors.usual_threads() == 3


def test_a_limit_of_ours_is_not_handed_to_processes_that_choose_for_themselves(
    of_eight, monkeypatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    processors.limit_this_process()
    assert (
        os.environ["OMP_NUM_THREADS"] == "7"
        and os.environ["OMP_WAIT_POLICY"] == "passive"
    )
    inherited = processors.environment_of_children()
    assert (
        "OMP_NUM_THREADS" not in inherited and inherited["OMP_WAIT_POLICY"] == "passive"
    )


def test_how_threads_wait_is_left_to_a_user_who_says_so(monkeypatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert processors.environment_of_children()["OMP_WAIT_POLICY"] == "active"


@pytest.mark.skipif(sys.platform != "linux", reason="the load is read from /proc")
def test_the_load_is_that_of_other_processes_and_not_of_this_one() -> None:
    only, before = {min(os.sched_getaffinity(0))}, os.sched_getaffinity(0)
    os.sched_setaffinity(
        0, only
    )  # so that one other process keeps busy all that there is
    burning = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    try:
        assert burning.stdout is not None and burning.stdout.readline()
        load = processors.Load()
        beside = load.of_others(wait=True)
        assert beside > 0.3 and load.of_others() == beside  # asked again at once
    finally:
        burning.kill()
        burning.communicate()
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts how long threads wait"
)
def test_the_time_that_a_thread_waits_for_a_processor_is_counted() -> None:
    only, before = {min(os.sched_getaffinity(0))}, os.sched_getaffinity(0)
    delay = processors.Delay()
    os.sched_setaffinity(0, only)
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)
    ]
    try:
        waited = 0.0
        while (
            waited < 0.3
        ):  # until they run: then this thread gets a third of the processor
            sum(range(3_000_000))
            waited = delay.share()
        assert waited <= 1.0
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, before)


def test_without_the_files_of_linux_nothing_is_measured(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(processors, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(processors, "_TASKS", tmp_path / "task")
    assert (
        processors.Load().of_others(wait=True) == 0.0
        and processors.Delay().share() == 0.0
    )
