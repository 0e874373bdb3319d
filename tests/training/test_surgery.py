"""The net of a run is edited between two steps: what stays is the same object, and everything repeats bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from app.training.checkpoints import checkpoint
from app.training.control import Control
from app.training.events import Cut, Event, Failed, Finished, StepDone
from app.training.job import Job, Stage
from app.training.loop import train
from app.training.run_requests import Operate
from app.training.surgery.values import Outcome, Surgery, SurgeryError
from tests.support.training_jobs import CONV_NET, SETTINGS, SMALL_NET, job, losses, net

DEEPER = net(
    [
        "self.linear1 = nn.Linear(64, 16)",
        "self.linear3 = nn.Linear(16, 16)",
        "self.drop1 = nn.Dropout(0.3)",
        "self.linear2 = nn.Linear(16, 10)",
    ],
    [
        "x = F.relu(self.linear1(x.flatten(1)))",
        "x = self.drop1(self.linear3(x))",
        "return self.linear2(x)",
    ],
)
STAYS = tuple((name, name) for name in ("linear1", "drop1", "linear2"))
NAMES = [name for name in SETTINGS if name != "LBFGS"]


def deeper(a_job: Job) -> Surgery:
    return Surgery(
        DEEPER,
        STAYS,
        a_job.training.groups,
        a_job.training.recompute,
        description="A layer more.",
    )


def asked(
    a_job: Job,
    step: int,
    surgery: Surgery,
    look: Callable[[Any], Any] = lambda _live: None,
    **given: Any,
) -> tuple[list[Event], Outcome, tuple[Any, Any]]:
    """A run that is paused after a step and operated on; what is seen before and after it."""
    control, events, seen = Control(), [], []
    for event in train(a_job, control, **given):
        events.append(event)
        if isinstance(event, StepDone) and event.step == step:
            seen.append(control.call(look))
            done = control.call(Operate(surgery))
        elif isinstance(event, Cut):
            seen.append(control.call(look))
    return events, done.result(0), tuple(one.result(0) for one in seen)


def moments(live: Any) -> dict[str, Any]:
    """The parameters as objects, and copies of the optimizer's state of each."""
    state = live.optimizer.state
    return {
        name: (
            one,
            {
                key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in state[one].items()
            }
            if one in state
            else None,
        )
        for name, one in live.model.named_parameters()
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_with_what_stays_and_is_repeated_from_every_checkpoint(
    name: str, tmp_path: Path
) -> None:
    settings = {"epochs": 2, "batch_size": 256, **SETTINGS[name]}
    a_job = job(SMALL_NET, **settings)
    step = 4
    events, outcome, (before, after) = asked(
        a_job, step, deeper(a_job), moments, folder=tmp_path
    )
    assert isinstance(events[-1], Finished), events[-1]
    (cut,) = (event for event in events if isinstance(event, Cut))
    assert (cut.step, cut.stage, cut.description) == (
        step,
        2,
        "A layer more.",
    ) and cut.outcome == outcome
    assert cut.layers == ("linear1", "linear3", "linear2")
    for key, (parameter, state) in before.items():
        there, now = after[key]
        assert there is parameter, "the very object"
        assert (state is None) == (now is None)
        assert all(
            torch.equal(torch.as_tensor(state[one]), torch.as_tensor(now[one]))
            for one in state or ()
        )
    assert after["linear3.weight"][1] is None or not after["linear3.weight"][1]
    planned = replace(a_job, stages=(Stage(step, deeper(a_job)),))
    whole = losses(events)
    assert losses(list(train(planned))) == whole, (
        "planned or asked for, it is the same run"
    )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert {"last.pt", "stage-01-end.pt", "stage-02-start.pt"} <= set(names)
    for path in (
        tmp_path / "stage-01-end.pt",
        tmp_path / "stage-02-start.pt",
        tmp_path / "best.pt",
    ):
        rest = list(train(planned, resume=path))
        assert losses(rest) == whole[checkpoint.step_of(path)[0] :], path.name
    assert checkpoint.newest(tmp_path) is not None
    (failed,) = train(a_job, resume=tmp_path / "stage-02-start.pt")
    assert isinstance(failed, Failed) and "stage 2" in failed.message


def test_a_surgery_that_fails_leaves_the_run_as_it_was() -> None:
    a_job = job(CONV_NET, epochs=1, batch_size=256, ema=0.9)
    plain = losses(list(train(a_job)))
    stays = tuple(
        (name, name) for name in ("conv1", "norm1", "conv2", "drop1", "linear1")
    )
    narrow = replace(
        CONV_NET, text=CONV_NET.text.replace("nn.Linear(512, 10)", "nn.Linear(512, 9)")
    )
    broken = replace(
        CONV_NET, text=CONV_NET.text.replace("nn.Linear(512, 10)", "nn.Linear(100, 10)")
    )
    raising = replace(
        CONV_NET,
        text=CONV_NET.text.replace("x = self.drop1(x)", "raise KeyError('no')"),
    )
    with pytest.raises(SurgeryError, match="nothing to change"):
        asked(a_job, 2, Surgery(CONV_NET, stays))
    for source, words in ((narrow, "10"), (broken, "512"), (raising, "no")):
        for learning in (
            source,
            replace(
                source,
                text=source.text.replace(
                    "padding=1)", "padding=1).requires_grad_(False)", 1
                ),
            ),
        ):
            with pytest.raises(SurgeryError, match=words):
                asked(a_job, 2, Surgery(learning, stays))
    control, events, answers = Control(), [], []
    for event in train(a_job, control):
        events.append(event)
        if isinstance(event, StepDone) and event.step in (2, 3):
            answers.append(control.call(Operate(Surgery(broken, stays))))
    assert losses(events) == plain, "not a number of the run has changed"
    assert all(isinstance(answer.exception(0), SurgeryError) for answer in answers)
    late = control.call(Operate(Surgery(CONV_NET, stays)))
    assert "ended" in str(late.exception(0))


def test_layers_are_frozen_and_learn_again_with_their_moments() -> None:
    a_job = job(CONV_NET, epochs=2, batch_size=256)
    stays = tuple(
        (name, name) for name in ("conv1", "norm1", "conv2", "drop1", "linear1")
    )
    text = CONV_NET.text.replace(
        "nn.Conv2d(1, 16, 3, padding=1)",
        "nn.Conv2d(1, 16, 3, padding=1).requires_grad_(False)",
    )
    ice = replace(CONV_NET, text=text)
    a_job = replace(
        a_job,
        stages=(Stage(3, Surgery(ice, stays)), Stage(9, Surgery(CONV_NET, stays))),
    )
    control, seen = Control(), {}
    for event in train(a_job, control):
        if isinstance(event, StepDone) and event.step in (3, 9, 10):
            seen[event.step] = control.call(
                lambda live: (
                    live.model.conv1.weight.detach().clone(),
                    live.optimizer.state[live.model.conv1.weight]["exp_avg"].clone(),
                )
            ).result(0)
    assert all(map(torch.equal, seen[3], seen[9])), "frozen, and its moments stay"
    assert not any(map(torch.equal, seen[9], seen[10]))
