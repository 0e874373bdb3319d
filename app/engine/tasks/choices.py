"""Handlers of `app.engine.requests.choices`: losses, optimizers and schedules."""

from __future__ import annotations

from app.engine.requests.choices import (
    CheckGroup,
    CheckLoss,
    CheckOptimizer,
    CheckSchedule,
    FirstSchedule,
    GroupParams,
    Params,
    PreviewRate,
)
from app.engine.server import Context, handles
from app.training import registry
from app.training.choices import ChoiceParam
from app.training.config import Schedule
from app.training.setup import lr_preview
from app.training.setup.schedule_length import RatePreview


@handles(Params)
def params(request: Params, _context: Context) -> tuple[ChoiceParam, ...]:
    of = {
        "loss": registry.loss_params,
        "optimizer": registry.optimizer_params,
        "schedule": registry.scheduler_params,
    }
    return of[request.kind](request.name)


@handles(GroupParams)
def group_params(request: GroupParams, _context: Context) -> tuple[ChoiceParam, ...]:
    return registry.group_params(request.optimizer)


@handles(CheckLoss)
def check_loss(request: CheckLoss, _context: Context) -> None:
    registry.check_loss(request.choice)


@handles(CheckOptimizer)
def check_optimizer(request: CheckOptimizer, _context: Context) -> None:
    registry.check_optimizer(request.choice)


@handles(CheckGroup)
def check_group(request: CheckGroup, _context: Context) -> None:
    registry.check_group(request.optimizer, request.options)


@handles(CheckSchedule)
def check_schedule(request: CheckSchedule, _context: Context) -> None:
    registry.check_schedule(request.schedule, request.optimizer)


@handles(FirstSchedule)
def first_schedule(request: FirstSchedule, _context: Context) -> tuple[Schedule, str]:
    return lr_preview.first_schedule(request.name, request.optimizer, request.length)


@handles(PreviewRate)
def preview_rate(request: PreviewRate, _context: Context) -> RatePreview:
    return lr_preview.preview(request.training, request.length)
