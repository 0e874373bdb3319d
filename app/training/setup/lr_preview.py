"""Preview of the learning rate over a run, computed by torch's schedulers, and default schedules."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from app.training.choices import PLATEAU
from app.training.config import Choice, Schedule, TrainingConfig
from app.training.registry import make_optimizer, make_schedule, optimizer_params
from app.training.setup.schedule_length import ONCE_A_STEP, RatePreview, Span
from app.util.frozen import FrozenMap

MOST = 20_000  # schedule steps that are computed


def first_schedule(name: str, optimizer: Choice, length: Span) -> tuple[Schedule, str]:
    """Return a schedule of that name with values that suit the run, and an explanation of them."""
    if name == PLATEAU:
        return Schedule(Choice(name)), ""
    per = "step" if name in ONCE_A_STEP and length.steps else "epoch"
    moves = max(length.moves(per) or 1, 1)
    unit = "steps" if per == "step" else "epochs"
    rate = _rate(optimizer)
    run = f"the {moves:,} {unit} of the run"
    params: dict[str, Any] = {}
    note = ""
    if name == "StepLR":
        params = {"step_size": max(moves // 3, 1)}
        note = f"step_size was set to 1/3 of {run}."
    elif name == "MultiStepLR":
        params = {
            "milestones": tuple(sorted({max(moves // 2, 1), max(3 * moves // 4, 1)}))
        }
        note = f"milestones were set to 1/2 and 3/4 of {run}."
    elif name == "ExponentialLR":
        params = {"gamma": float(f"{0.01 ** (1 / moves):.4g}") if moves > 1 else 0.1}
        note = f"gamma was set so that the rate falls to about 1/100 over {run}."
    elif name == "CosineAnnealingLR":
        params, note = {"T_max": moves}, f"T_max was set to {run}."
    elif name == "CosineAnnealingWarmRestarts":
        params, note = {"T_0": max(moves // 3, 1)}, f"T_0 was set to 1/3 of {run}."
    elif name == "PolynomialLR":
        params, note = {"total_iters": moves}, f"total_iters was set to {run}."
    elif name == "OneCycleLR":
        params = {"max_lr": rate, "total_steps": moves}
        note = f"max_lr was set to the optimizer's rate and total_steps to {run}."
    elif name == "CyclicLR":
        params = {
            "base_lr": float(f"{rate / 10:.4g}"),
            "max_lr": rate,
            "step_size_up": max(moves // 8, 1),
        }
        note = f"max_lr was set to the optimizer's rate, base_lr to a tenth of it, step_size_up to an eighth of {run}."
    if name in ONCE_A_STEP and not {"momentum", "betas"} & {
        param.name for param in optimizer_params(optimizer.name)
    }:
        params["cycle_momentum"] = False
    return Schedule(Choice(name, FrozenMap(params)), per), note


def _rate(optimizer: Choice) -> float:
    rate = optimizer.params.get("lr")
    if rate is None:
        rate = next(
            (
                param.default
                for param in optimizer_params(optimizer.name)
                if param.name == "lr"
            ),
            None,
        )
    return float(rate or 0.001)


def preview(config: TrainingConfig, length: Span) -> RatePreview:
    """Simulate the learning rate over a run with torch. Raises ChoiceError with torch's error message."""
    schedule = config.schedule
    if schedule is None:
        return RatePreview(words="The learning rate is constant.")
    if schedule.choice.name == PLATEAU:
        return RatePreview(
            words="It depends on the validation loss, so the rate cannot be previewed."
        )
    moves = length.moves(schedule.per)
    if moves is None:
        return RatePreview(
            words="The number of steps is known once the data have been read."
        )
    parameter = torch.zeros(1, 1, requires_grad=True)
    optimizer = make_optimizer(config.optimizer, [parameter])
    moving = make_schedule(schedule, optimizer)
    rates = [float(optimizer.param_groups[0]["lr"])]
    note = f"The first {MOST:,} of {moves:,} steps." if moves > MOST else ""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that no step was taken before the schedule moved
        for move in range(1, min(moves, MOST)):
            try:
                moving.step()
            except ValueError as error:
                return RatePreview(
                    tuple(rates),
                    schedule.per,
                    f"PyTorch stops after {move:,} of {moves:,}: {error}",
                )
            rates.append(float(optimizer.param_groups[0]["lr"]))
    return RatePreview(tuple(rates), schedule.per, note)
