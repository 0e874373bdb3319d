"""Learning rates of a schedule: drawn before a run, fitted to its length, and set by hand while it goes on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.training.choices import OPTIMIZERS, SCHEDULERS, ChoiceError
from app.training.config import Choice, Schedule, TrainingConfig
from app.training.control import Control
from app.training.events import RateSet, StepDone
from app.training.loop import train
from app.training.registry import check_schedule
from app.training.run_requests import SetRate
from app.training.setup.initial_weights import initial_module
from app.training.setup.lr_preview import first_schedule, preview
from app.training.setup.schedule_length import Span, fitted, span
from app.training.stepper import Stepper
from app.training.task import Task
from app.util.frozen import FrozenMap
from tests.support.training_jobs import SMALL_NET, adam, job, run


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_drawn_rate_is_the_rate_of_the_run(name: str) -> None:
    config = TrainingConfig(
        epochs=3, device="cpu", optimizer=Choice("SGD", FrozenMap(lr=0.05))
    )
    schedule, _ = first_schedule(name, config.optimizer, span(config, 1438))
    config = replace(config, schedule=schedule)
    drawn = preview(config, span(config, 1438))
    if name == "ReduceLROnPlateau":
        assert drawn.rates == () and "validation loss" in drawn.words
        return
    steps = [
        event
        for event in run(replace(job(), training=config))
        if isinstance(event, StepDone)
    ]
    seen = (
        [event.rate for event in steps]
        if schedule.per == "step"
        else [event.rate for event in steps[::23]]
    )
    assert seen == list(drawn.rates)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_first_values_suit_every_optimizer(optimizer: str) -> None:
    for name in SCHEDULERS:
        schedule, _ = first_schedule(name, Choice(optimizer), Span(1, None))
        check_schedule(schedule, Choice(optimizer))
        assert schedule.per == "epoch"


def test_a_schedule_of_another_length_is_fitted_to_the_run() -> None:
    cosine = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=20)), "epoch", 5)
    assert fitted(cosine, Span(20, None)).choice.params["T_max"] == 15
    assert fitted(replace(cosine, warmup=0), Span(20, None)) is None
    assert fitted(replace(cosine, warmup=20), Span(20, None)) is None, (
        "the run is all warmup"
    )
    by_epochs = Schedule(
        Choice("OneCycleLR", FrozenMap(max_lr=0.1, epochs=2, steps_per_epoch=23)),
        "step",
    )
    assert fitted(by_epochs, Span(2, 46)) is None
    assert fitted(by_epochs, Span(3, 69)).choice.params == FrozenMap(
        max_lr=0.1, total_steps=69
    )


def test_a_plateau_moves_per_epoch_alone() -> None:
    with pytest.raises(ChoiceError, match="steps per epoch"):
        check_schedule(Schedule(Choice("ReduceLROnPlateau"), "step"), Choice("SGD"))


def test_a_rate_set_by_hand_applies_from_the_next_step_and_is_told() -> None:
    a_job, seen = job(epochs=1, optimizer=adam(lr=0.01)), []
    control = Control()
    for event in train(a_job, control):
        seen.append(event)
        if isinstance(event, StepDone) and event.step == 5:
            control.call(SetRate(0.001))
    rates = {event.step: event.rate for event in seen if isinstance(event, StepDone)}
    assert (
        rates[5] == 0.01 and rates[6] == pytest.approx(0.001) and rates[23] == rates[6]
    )
    assert [event for event in seen if isinstance(event, RateSet)] == [
        RateSet(5, rates[6])
    ]


def test_a_rate_of_nought_can_be_left_by_hand() -> None:
    schedule = Schedule(Choice("PolynomialLR", FrozenMap(total_iters=1)), "epoch")
    config = TrainingConfig(device="cpu", schedule=schedule)
    stepper = Stepper(
        initial_module(SMALL_NET), config, Task("CrossEntropyLoss", 10), "cpu"
    )
    stepper.optimizer.step()
    stepper.end_epoch(None)
    assert stepper.rate == 0.0
    stepper.set_rate(0.1)
    assert stepper.rate == 0.1


@pytest.mark.parametrize(
    "name", [name for name in SCHEDULERS if name != "ReduceLROnPlateau"]
)
def test_a_schedule_goes_on_in_proportion_to_a_rate_set_by_hand(name: str) -> None:
    sgd = Choice("SGD", FrozenMap(lr=0.05))
    schedule, _ = first_schedule(name, sgd, Span(12, 12))
    seen: dict[bool, list[float]] = {}
    for by_hand in (False, True):
        config = TrainingConfig(
            device="cpu", optimizer=sgd, schedule=replace(schedule, per="epoch")
        )
        stepper = Stepper(
            initial_module(SMALL_NET), config, Task("CrossEntropyLoss", 10), "cpu"
        )
        stepper.optimizer.step()
        rates = seen[by_hand] = []
        for move in range(11):
            if by_hand and move == 4:
                stepper.set_rate(2 * stepper.rate)
            rates.append(stepper.rate)
            stepper.end_epoch(None)
    wanted = [rate * (1 + (move >= 4)) for move, rate in enumerate(seen[False])]
    assert seen[True] == pytest.approx(wanted)
