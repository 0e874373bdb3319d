"""The number of CPU threads that a run chooses at its start, and what it says of other programs."""

from collections.abc import Iterator

import pytest
import torch
from msgspec.structs import replace

from app.export.train_script import training_script
from app.training.events import Noticed, Started
from app.training.loop import train
from app.training.monitoring import watcher
from app.training.setup import thread_count
from app.util import processors
from tests.support.training_jobs import CONV_NET, job, losses


@pytest.fixture
def six_are_free(monkeypatch) -> None:
    monkeypatch.setattr(processors, "requested", lambda: 0)
    monkeypatch.setattr(processors, "free_threads", lambda load, wait=False: 6)


def steps_take(monkeypatch, seconds: dict[int, float]) -> list[int]:
    """Have a step take so many seconds in so many threads; the list gets the numbers that are tried."""
    tried: list[int] = []

    def timed(step: object) -> Iterator[float]:
        step()  # type: ignore[operator]
        tried.append(torch.get_num_threads())
        yield seconds[tried[-1]]

    monkeypatch.setattr(thread_count, "_timed", timed)
    return tried


@pytest.mark.parametrize(
    ("seconds", "tried", "chosen"),
    [
        ({1: 1.0, 2: 0.6, 4: 0.4, 6: 0.3}, [1, 2, 4, 6], 6),
        ({1: 1.0, 2: 0.6, 4: 0.58}, [1, 2, 4], 2),
        ({1: 1.0, 2: 3.0}, [1, 2], 1),
    ],
)
def test_more_threads_are_taken_while_a_step_is_faster(
    seconds, tried, chosen, six_are_free, monkeypatch
) -> None:
    seen = steps_take(monkeypatch, seconds)
    assert thread_count.choose_threads(job(CONV_NET)) == chosen and seen == tried


def test_a_run_that_measures_has_the_losses_of_one_that_is_given_the_number(
    six_are_free, monkeypatch
) -> None:
    steps_take(monkeypatch, {1: 1.0, 2: 0.5, 4: 0.5})
    wanted = job(CONV_NET, epochs=1)
    events = list(train(wanted))
    assert isinstance(events[0], Started) and events[0].threads == 2
    assert losses(events) == losses(
        list(train(replace(wanted, training=replace(wanted.training, threads=2))))
    )


def test_a_net_that_cannot_be_measured_takes_what_is_free(
    six_are_free, monkeypatch
) -> None:
    monkeypatch.setattr(thread_count, "_fastest", lambda job, most: 1 / 0)
    assert thread_count.choose_threads(job(CONV_NET)) == 6


def test_the_script_of_a_run_has_its_number() -> None:
    assert "    torch.set_num_threads(5)\n" in training_script(
        job(CONV_NET).ran_with(5)
    )
    assert "    torch.set_num_threads(3)\n" in training_script(
        job(CONV_NET, threads=3).ran_with(5)
    )


def test_a_run_that_other_programs_slow_down_says_so_once(monkeypatch) -> None:
    shares = iter([0.5, 0.5, 0.05, 0.3])
    monkeypatch.setattr(processors.Delay, "share", lambda _: next(shares, 0.0))
    monkeypatch.setattr(watcher, "DELAY_EVERY", 0.0)
    monkeypatch.setattr(watcher, "FLUSH_EVERY", 0.0)
    said = [
        event.message
        for event in train(job(CONV_NET, epochs=1))
        if isinstance(event, Noticed)
    ]
    assert (
        len(said) == 2
        and "Other programs slow this run down: 50 %" in said[0]
        and "30 %" in said[1]
    )
