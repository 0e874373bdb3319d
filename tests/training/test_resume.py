"""A run that was stopped and goes on is the run that was never stopped, bit for bit."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.data.config import DataConfig
from app.training.checkpoints import checkpoint
from app.training.config import Choice, ParameterGroup, Schedule
from app.training.control import Control
from app.training.events import EpochDone, Event, Failed, Finished, Saved, StepDone
from app.training.job import Job
from app.training.loop import train
from app.training.setup import batch_order
from app.util.frozen import FrozenMap
from app.util.rng import GENERATOR
from tests.support.training_jobs import (
    BAD_NET,
    CONV_NET,
    SETTINGS,
    SMALL_NET,
    adam,
    job,
    losses,
    run,
)


def stopped_after(a_job: Job, step: int, folder: Path) -> list[Event]:
    """The events of a run that a person stops after a step."""
    control, events = Control(), []
    for event in train(a_job, control, folder=folder):
        events.append(event)
        if isinstance(event, StepDone) and event.step == step:
            control.stop()
    return events


def epochs(events: list[Event]) -> list[tuple[Any, ...]]:
    return [
        (e.epoch, e.train_loss, e.train_accuracy, e.val_loss, e.val_accuracy)
        for e in events
        if isinstance(e, EpochDone)
    ]


def weights(a_job: Job, **given: Any) -> tuple[list[Event], dict[str, Any]]:
    control = Control()
    events = list(train(a_job, control, **given))
    assert isinstance(events[-1], Finished), events[-1]
    assert control.result is not None and control.result.state_dict is not None
    return events, control.result.state_dict


@pytest.mark.parametrize("name", SETTINGS)
def test_a_resumed_run_is_the_one_that_was_never_stopped(
    name: str, tmp_path: Path
) -> None:
    import torch

    a_job = job(SMALL_NET, **SETTINGS[name])
    whole, wanted = weights(a_job)
    step = len(losses(whole)) // 2 + 1
    first = stopped_after(a_job, step, tmp_path)
    # Whatever is drawn in between is none of its business.
    torch.rand(3)
    random.random()
    rest, found = weights(a_job, resume=checkpoint.newest(tmp_path))
    assert losses(first) + losses(rest) == losses(whole)
    assert epochs(first) + epochs(rest) == epochs(whole)
    assert wanted.keys() == found.keys() and all(
        torch.equal(wanted[key], found[key]) for key in wanted
    )
    assert rest[0].resumed_at == len(losses(first))


def test_dropout_batch_norm_and_the_order_of_the_samples_go_on_too(
    tmp_path: Path,
) -> None:
    a_job = job(CONV_NET, epochs=2, batch_size=128, save_every=4)
    whole = run(a_job)
    stopped_after(a_job, 14, tmp_path)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["best.pt", "last.pt", "step-00000008.pt", "step-00000012.pt"], (
        "the older ones were let go"
    )
    for name, step in (
        ("step-00000008.pt", 8),
        ("step-00000012.pt", 12),
        ("best.pt", 12),
        ("last.pt", 14),
    ):
        rest = list(train(a_job, resume=tmp_path / name))
        assert losses(rest) == losses(whole)[step:], name


def test_a_stop_between_two_epochs_leaves_the_order_of_the_next_to_be_drawn(
    tmp_path: Path, monkeypatch
) -> None:
    a_job, control, drawn = job(epochs=3), Control(), []
    whole = run(a_job)

    def ordered(*given: Any) -> Any:
        """Stop while the order of the second epoch is drawn."""
        drawn.append(given)
        if len(drawn) == 2:
            control.stop()
        return batch_order.ordered(*given)

    with monkeypatch.context() as patched:
        patched.setattr("app.training.loop.ordered", ordered)
        first = list(train(a_job, control, folder=tmp_path))
    rest = list(train(a_job, resume=tmp_path / checkpoint.LAST))
    assert len(epochs(first)) == 1 and losses(first) + losses(rest) == losses(whole)
    assert epochs(first) + epochs(rest) == epochs(whole)


def test_a_run_can_go_on_for_more_epochs(tmp_path: Path) -> None:
    weights(job(epochs=2), folder=tmp_path)
    longer = list(train(job(epochs=3), resume=tmp_path / checkpoint.LAST))
    assert losses(longer) == losses(run(job(epochs=3)))[-len(losses(longer)) :]
    assert [event.epoch for event in longer if isinstance(event, EpochDone)] == [3]


def test_a_run_that_came_to_a_limit_goes_on_as_if_there_had_been_none(
    tmp_path: Path,
) -> None:
    """The limit comes in the middle of an epoch: the rest of its batches follow, and the schedule has not moved."""
    schedule = Schedule(Choice("StepLR", FrozenMap(step_size=1, gamma=0.5)), "epoch")
    whole = job(epochs=3, schedule=schedule)
    plain, batches = run(whole), 23
    limited = replace(whole, training=replace(whole.training, max_steps=batches + 7))
    first = list(train(limited, folder=tmp_path))
    assert len(losses(first)) == batches + 7 and "limit" in first[-1].note
    again = list(train(limited, resume=tmp_path / checkpoint.LAST))
    assert (
        losses(again) == []
        and again[-1].note == first[-1].note
        and again[-1].steps == batches + 7
    )
    rest = list(train(whole, resume=tmp_path / checkpoint.LAST))
    assert losses(first) + losses(rest) == losses(plain)
    assert epochs(rest) == epochs(plain)[1:]


def test_a_run_takes_its_threads_and_leaves_those_of_the_others(tmp_path: Path) -> None:
    """torch gives every thread that is new to it the number that it was told last, on whichever thread that was."""
    import torch

    def told(ask: Any) -> int:
        found: list[int] = []
        asking = threading.Thread(target=lambda: found.append(ask()))
        asking.start()
        asking.join()
        return found[0]

    def trained() -> int:
        torch.get_num_threads()
        run = train(job(max_steps=1, threads=usual + 2))
        next(run)
        inside.append((torch.get_num_threads(), told(torch.get_num_threads)))
        list(run)
        return torch.get_num_threads()

    usual, inside = told(torch.get_num_threads), []
    assert told(trained) == usual == told(torch.get_num_threads)
    assert inside == [(usual + 2, usual)]


def test_a_checkpoint_of_another_net_or_another_optimizer_says_so(
    tmp_path: Path,
) -> None:
    weights(job(epochs=1), folder=tmp_path)
    last = tmp_path / checkpoint.LAST
    other = list(train(job(CONV_NET, epochs=1), resume=last))[-1]
    assert isinstance(other, Failed) and "another net" in other.message
    other = list(
        train(
            job(
                epochs=1, groups=(ParameterGroup("linear1"), ParameterGroup("linear2"))
            ),
            resume=last,
        )
    )[-1]
    assert isinstance(other, Failed) and "other settings" in other.message


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    weights(job(epochs=1, save_every=5), folder=tmp_path)
    (tmp_path / checkpoint.LAST).write_bytes(
        (tmp_path / checkpoint.LAST).read_bytes()[:5000]
    )
    newest = checkpoint.newest(tmp_path)
    assert newest is not None and newest.name == "best.pt"
    damaged = list(train(job(epochs=1), resume=tmp_path / checkpoint.LAST))[-1]
    assert isinstance(damaged, Failed) and "damaged" in damaged.message
    assert checkpoint.newest(tmp_path / "nowhere") is None


def test_a_checkpoint_that_cannot_be_written_is_told_and_the_run_goes_on(
    tmp_path: Path, monkeypatch
) -> None:
    import torch

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError(
            "[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0"
        )

    plain = losses(run(job(epochs=1)))
    monkeypatch.setattr(torch, "save", full)
    events = list(train(job(epochs=1, save_every=10), folder=tmp_path / "checkpoints"))
    told = [event for event in events if isinstance(event, Saved)]
    assert told and all("could not be written" in event.problem for event in told)
    assert losses(events) == plain and isinstance(events[-1], Finished)
    assert list((tmp_path / "checkpoints").iterdir()) == [], "no half file is left"


def test_early_stopping_and_limits_end_a_run_with_their_reason() -> None:
    assert run(job(max_steps=7))[-1].note == "the limit of 7 steps was reached"
    assert run(job(max_minutes=1e-9))[-1].steps == 1
    early = run(job(epochs=50, patience=2, optimizer=Choice("SGD", FrozenMap(lr=0.0))))[
        -1
    ]
    assert (early.epoch, early.note) == (
        3,
        "the validation loss has not improved for 2 epochs",
    )


def test_one_batch_is_learnt_by_heart() -> None:
    events = run(
        job(
            CONV_NET, epochs=20, one_batch=True, batch_size=32, optimizer=adam(lr=0.005)
        )
    )
    assert all(event.samples == 32 for event in events if isinstance(event, StepDone))
    assert losses(events)[-1] < 0.05 < losses(events)[0]


def test_the_last_batch_is_dropped_and_the_order_kept_where_that_is_asked_for() -> None:
    a_job = job(
        data=DataConfig(drop_last=True, shuffle=False), epochs=1, batch_size=100
    )
    assert {event.samples for event in run(a_job) if isinstance(event, StepDone)} == {
        100
    }
    assert (
        losses(run(a_job))[0]
        == losses(run(job(data=DataConfig(shuffle=False), epochs=1, batch_size=100)))[0]
    )


def test_a_batch_that_is_not_finite_is_left_out_if_that_is_asked_for() -> None:
    from app.training.events import Skipped

    events = run(job(BAD_NET, epochs=1, batch_size=8, not_finite="skip"))
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert (
        skipped
        and isinstance(events[-1], Finished)
        and events[-1].steps == len(skipped) + len(losses(events))
    )
    assert "first non-finite values" in skipped[0].message


def test_the_learning_rate_can_be_changed_while_it_runs() -> None:
    from app.training.events import RateSet

    control, events = Control(), []
    for event in train(
        job(
            epochs=1,
            schedule=Schedule(Choice("StepLR", FrozenMap(step_size=20)), "step"),
        ),
        control,
    ):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 5:
            control.call(lambda live: live.stepper.set_rate(0.1))
    rates = [event.rate for event in events if isinstance(event, StepDone)]
    assert (
        rates[:5] == [0.001] * 5
        and rates[5:20] == pytest.approx([0.1] * 15)
        and rates[20] == pytest.approx(0.01)
    )
    assert [event for event in events if isinstance(event, RateSet)] == [
        RateSet(5, pytest.approx(0.1))
    ]


def test_other_threads_or_another_torch_are_said_where_a_run_goes_on(
    tmp_path: Path, monkeypatch
) -> None:
    import torch

    weights(job(epochs=1, threads=1), folder=tmp_path)
    same, other = (
        next(iter(train(job(epochs=2, threads=t), resume=tmp_path / checkpoint.LAST)))
        for t in (1, 2)
    )
    assert (
        same.changed == ""
        and "with 2 threads instead of 1: its numbers may differ" in other.changed
    )
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    newer = next(
        iter(train(job(epochs=2, threads=1), resume=tmp_path / checkpoint.LAST))
    )
    assert "with PyTorch 9.9.9 instead of 2." in newer.changed


def test_nobody_has_the_generators_borrowed_while_they_are_put_back(
    tmp_path: Path, monkeypatch
) -> None:
    """Whoever had would put them back once more, as they were before, and the run would go on with other numbers."""
    free: list[bool] = []

    def borrow() -> None:
        free.append(GENERATOR.acquire(blocking=False))

    def watched(states: dict[str, Any]) -> None:
        restore(states)
        visitor = threading.Thread(target=borrow)
        visitor.start()
        visitor.join()

    restore = checkpoint.restore_generators
    stopped_after(job(SMALL_NET), 2, tmp_path)
    monkeypatch.setattr(checkpoint, "restore_generators", watched)
    weights(job(SMALL_NET), resume=checkpoint.newest(tmp_path))
    assert free == [False]
