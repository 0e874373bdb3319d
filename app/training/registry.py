"""Registry of losses, optimizers and schedulers, with parameters introspected from their signatures.

The lists are closed: a name is looked up here and never on torch itself. Parameters, defaults and descriptions come
from torch (`inspect.signature` and the docstring); values are validated by torch too, by constructing the object once
on a single number.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace
from torch import nn, optim
from torch.optim import lr_scheduler

from app.training.choices import (
    CLASS_IDS,
    CLOSURE,
    EXPERT,
    LOSSES,
    NO_WARMUP,
    OPTIMIZERS,
    OWN_LOSS,
    PLATEAU,
    SCHEDULERS,
    WARMUP_FROM,
    ChoiceError,
    ChoiceParam,
)
from app.training.config import MOST_COUNT, Choice, Schedule
from app.training.script_recipes import OwnLoss
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from torch.optim import Optimizer

# Deprecated by torch (size_average, reduce), for CUDA graphs and differentiating through the optimizer, set by the loop
# (optimizer, last_epoch), and functions.
_LEFT_OUT = {
    "self",
    "params",
    "size_average",
    "reduce",
    "capturable",
    "differentiable",
    "optimizer",
    "last_epoch",
    "scale_fn",
}
_OVERFLOW = "without overflow"  # what torch says of a number that a float32 cannot hold
_TENSORS = {"weight", "pos_weight"}
_NOT_OF_GROUPS = {"initial_accumulator_value", "ns_steps", "ns_coefficients"}
# Choices that an annotation does not list.
_CHOICES: dict[tuple[str, str], tuple[Any, ...]] = {
    ("Muon", "adjust_lr_fn"): ("original", "match_rms_adamw"),
    ("LBFGS", "line_search_fn"): ("strong_wolfe",),
    (PLATEAU, "mode"): ("min", "max"),
    (PLATEAU, "threshold_mode"): ("rel", "abs"),
    ("OneCycleLR", "anneal_strategy"): ("cos", "linear"),
    ("CyclicLR", "mode"): ("triangular", "triangular2", "exp_range"),
    ("CyclicLR", "scale_mode"): ("cycle", "iterations"),
}


def loss_params(name: str) -> tuple[ChoiceParam, ...]:
    """Return the fields of a loss, of `OWN_LOSS` none. Imports torch. Raises ChoiceError for an unknown name."""
    if name == OWN_LOSS:
        return ()
    _known("loss", name, LOSSES)
    return _params(f"torch.nn.{name}")


def optimizer_params(name: str) -> tuple[ChoiceParam, ...]:
    """Return the fields of an optimizer of `OPTIMIZERS`. Imports torch. Raises ChoiceError for an unknown name. Raises
    ChoiceError for another name.
    """
    _known("optimizer", name, OPTIMIZERS)
    return _params(f"torch.optim.{name}")


def group_params(choice: Choice) -> tuple[ChoiceParam, ...]:
    """Return the options that a parameter group can override; their defaults are the optimizer's values.

    Raises ChoiceError for an optimizer that takes no groups.
    """
    if choice.name == CLOSURE:
        raise ChoiceError(
            f"{CLOSURE} does not support parameter groups: it updates all parameters along one line."
        )
    return tuple(
        replace(param, default=choice.params.get(param.name, param.default))
        for param in optimizer_params(choice.name)
        if param.kind in ("int", "float", "literal")
        and param.name not in _NOT_OF_GROUPS
    )


def scheduler_params(name: str) -> tuple[ChoiceParam, ...]:
    """Return the fields of a scheduler of `SCHEDULERS`. Imports torch. Raises ChoiceError for an unknown name. Raises
    ChoiceError for another name.
    """
    _known("schedule", name, SCHEDULERS)
    return _params(f"torch.optim.lr_scheduler.{name}")


def make_loss(choice: Choice) -> nn.Module:
    """Construct the loss. Raises ChoiceError with torch's error message."""
    if choice.name == OWN_LOSS:
        _checked(choice, ())
        return OwnLoss()
    fields = _checked(choice, loss_params(choice.name))
    values = {
        name: torch.tensor(value, dtype=torch.float32)
        if name in _TENSORS and value is not None
        else value
        for name, value in fields.items()
    }
    loss: nn.Module = _build(choice, lambda: _loss_class(choice.name)(**values))
    return loss


def make_optimizer(choice: Choice, parameters: Iterable[Any]) -> Optimizer:
    """Construct the optimizer over `parameters`. Raises ChoiceError with torch's error message."""
    values = _checked(choice, optimizer_params(choice.name))
    optimizer: Optimizer = _build(
        choice, lambda: _optimizer_class(choice.name)(parameters, **values)
    )
    return optimizer


def make_schedule(schedule: Schedule, optimizer: Optimizer) -> Any:
    """Construct the scheduler of an optimizer, after its warmup. Raises ChoiceError with torch's error message."""
    choice, warmup = schedule.choice, schedule.warmup
    values = _checked(choice, scheduler_params(choice.name))
    _check_warmup(schedule)
    scheduler = _build(
        choice, lambda: getattr(lr_scheduler, choice.name)(optimizer, **values)
    )
    if not warmup:
        return scheduler
    rise = lr_scheduler.LinearLR(
        optimizer, start_factor=WARMUP_FROM, total_iters=warmup
    )
    return lr_scheduler.SequentialLR(optimizer, [rise, scheduler], [warmup])


def _check_warmup(schedule: Schedule) -> None:
    if schedule.per not in ("step", "epoch"):
        raise ChoiceError(
            f"A schedule steps per step or per epoch, not per {schedule.per}."
        )
    if schedule.choice.name == PLATEAU and schedule.per != "epoch":
        raise ChoiceError(
            f"{PLATEAU} steps per epoch: it depends on the validation loss, which is measured once per epoch."
        )
    if not 0 <= schedule.warmup <= MOST_COUNT:
        raise ChoiceError(
            f"warmup is {schedule.warmup}; it must be from 0 to {MOST_COUNT}."
        )
    if schedule.warmup and schedule.choice.name in NO_WARMUP:
        raise ChoiceError(
            f"{schedule.choice.name} does not support warmup{NO_WARMUP[schedule.choice.name]}."
        )


def check_loss(choice: Choice) -> None:
    """Construct the loss and evaluate it once on zeros of two classes. Raises ChoiceError."""
    loss = make_loss(choice)
    if choice.name == OWN_LOSS:
        return
    classes = len(choice.params["weight"]) if choice.params.get("weight") else 2
    targets = (
        torch.zeros(1, dtype=torch.int64)
        if LOSSES[choice.name] == CLASS_IDS
        else torch.zeros(1, classes)
    )
    _build(choice, lambda: loss(torch.zeros(1, classes), targets))


def check_optimizer(choice: Choice) -> None:
    """Construct the optimizer over one number and take a step. Raises ChoiceError."""
    optimizer, closure = _tried(choice)
    _build(choice, lambda: optimizer.step(closure))


def check_group(choice: Choice, options: FrozenMap[str, Any]) -> None:
    """Construct the optimizer with the options of a parameter group. Raises ChoiceError."""
    fields = {param.name for param in group_params(choice)}
    for name in options:
        if name not in fields:
            raise ChoiceError(
                f"A group of {choice.name} has no {name}. It has: {', '.join(sorted(fields))}.",
                name,
            )
    check_optimizer(Choice(choice.name, FrozenMap({**choice.params, **options})))


def check_schedule(schedule: Schedule, optimizer: Choice) -> None:
    """Construct the scheduler and step it three times. Raises ChoiceError."""
    check_optimizer(optimizer)  # so that the schedule is to blame for what fails now
    trial_optimizer, closure = _tried(optimizer)
    moving = make_schedule(schedule, trial_optimizer)
    total_steps = schedule.choice.params.get("total_steps")
    for _ in range(min(3, total_steps) if isinstance(total_steps, int) else 3):
        _build(schedule.choice, lambda: trial_optimizer.step(closure))
        _build(
            schedule.choice,
            lambda: moving.step(*([0.0] if schedule.choice.name == PLATEAU else [])),
        )


def _tried(choice: Choice) -> tuple[Optimizer, Callable[[], Any] | None]:
    """Create the optimizer over a small matrix with a gradient, and the closure if it needs one."""
    parameter = torch.zeros(1, 1, requires_grad=True)
    gradient = torch.zeros(1, 1)
    parameter.grad = gradient.to_sparse() if choice.name == "SparseAdam" else gradient
    return make_optimizer(choice, [parameter]), (
        lambda: parameter.sum()
    ) if choice.name == CLOSURE else None


def missing_state(choice: Choice, optimizer: Optimizer) -> str:
    """Return what the state of an optimizer lacks that one of `choice` has after a step, such as "momentum_buffer"."""
    tried, closure = _tried(choice)
    tried.step(closure)
    needed = {
        name
        for state in tried.state.values()
        for name, value in state.items()
        if value is not None
    }
    missing = {
        name
        for state in optimizer.state.values()
        if state
        for name in needed - state.keys()
    }
    return ", ".join(sorted(missing))


def loss_call(choice: Choice) -> str:
    """Return the Python expression of the loss: `nn.CrossEntropyLoss(label_smoothing=0.1)`."""
    if choice.name == OWN_LOSS:
        return f"{OWN_LOSS}()"
    values = _checked(choice, loss_params(choice.name))
    texts: list[str] = []
    for name, value in values.items():
        tensor = name in _TENSORS and value is not None
        texts.append(
            f"{name}=torch.tensor({value!r}, dtype=torch.float32)"
            if tensor
            else f"{name}={value!r}"
        )
    return _call(f"nn.{choice.name}", texts)


def optimizer_call(choice: Choice, parameters: str = "model.parameters()") -> str:
    """Return the Python expression of the optimizer: `torch.optim.Adam(model.parameters(), lr=0.001)`."""
    values = _checked(choice, optimizer_params(choice.name))
    return _call(
        f"torch.optim.{choice.name}",
        [parameters, *(f"{k}={v!r}" for k, v in values.items())],
    )


def schedule_call(schedule: Schedule) -> str:
    """Return the Python expression of the scheduler of `optimizer`, and its warmup."""
    values = _checked(schedule.choice, scheduler_params(schedule.choice.name))
    _check_warmup(schedule)
    module = "torch.optim.lr_scheduler"
    main = _call(
        f"{module}.{schedule.choice.name}",
        ["optimizer", *(f"{k}={v!r}" for k, v in values.items())],
    )
    if not schedule.warmup:
        return main
    rise = f"{module}.LinearLR(optimizer, start_factor={WARMUP_FROM}, total_iters={schedule.warmup})"
    return (
        f"{module}.SequentialLR(\n        optimizer,\n        [\n            {rise},\n            {main},\n"
        f"        ],\n        [{schedule.warmup}],\n    )"
    )


def _call(name: str, arguments: list[str]) -> str:
    """Format a call on one line, or with one argument per line if it is long."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= 88:
        return line
    return "\n".join(
        [f"{name}(", *(f"        {argument}," for argument in arguments), "    )"]
    )


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise ChoiceError(
            f"There is no {kind} “{name}” here. Choose one of: {', '.join(names)}."
        )


def _loss_class(name: str) -> Callable[..., Any]:
    return {key: getattr(nn, key) for key in LOSSES}[name]


def _optimizer_class(name: str) -> Callable[..., Any]:
    return {key: getattr(optim, key) for key in OPTIMIZERS}[name]


def _class_of(name: str) -> Callable[..., Any]:
    if name in SCHEDULERS:
        return {key: getattr(lr_scheduler, key) for key in SCHEDULERS}[name]
    return _loss_class(name) if name in LOSSES else _optimizer_class(name)


def _build(choice: Choice, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, TypeError, RuntimeError, IndexError, ArithmeticError) as error:
        text = str(error)
        to_blame = next(
            (name for name in choice.params if re.search(rf"\b{name}\b", text)), None
        )
        numbers = {
            name: abs(value)
            for name, value in choice.params.items()
            if _is_number(value)
        }
        if _OVERFLOW in text and numbers:  # torch names no parameter
            to_blame = max(numbers, key=numbers.__getitem__)
            text = f"{to_blame}={choice.params[to_blame]!r} is too large for float32, whose largest number is 3.4e38."
        elif isinstance(error, ZeroDivisionError) and 0 in numbers.values():
            to_blame = next(name for name, value in numbers.items() if value == 0)
            text = f"{to_blame} cannot be 0, as torch divides by it."
        raise ChoiceError(f"{choice.name}: {text}", to_blame) from error


def _checked(choice: Choice, params: tuple[ChoiceParam, ...]) -> dict[str, Any]:
    """Validate the parameters of `choice`, so that their `repr` is Python."""
    fields = {param.name: param for param in params}
    for name, value in choice.params.items():
        if name not in fields:
            raise ChoiceError(
                f"{choice.name} has no parameter “{name}”. It has: {', '.join(fields)}.",
                name,
            )
        if not _fits(value, fields[name]):
            raise ChoiceError(
                f"{choice.name}: {name} cannot be {value!r}; {_expectation(fields[name])}.",
                name,
            )
    return dict(choice.params)


def _fits(value: Any, param: ChoiceParam) -> bool:
    if value is None:
        return param.optional
    if param.kind == "choice":
        return value in param.choices
    if param.kind == "bool":
        return isinstance(value, bool)
    if param.kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if param.kind == "float":
        return _is_number(value)
    if (
        not isinstance(value, tuple)
        or not value
        or (param.count and len(value) != param.count)
    ):
        return False
    # Adafactor's eps may hold a None, as its default does.
    holes = isinstance(param.default, tuple) and None in param.default
    return all(_is_number(item) or (holes and item is None) for item in value)


def _is_number(value: Any) -> bool:
    # False for nan and the infinities, whose repr is no Python, and for whole numbers that no float can hold.
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -1e308 < value < 1e308
    )


def _expectation(param: ChoiceParam) -> str:
    expectation = {
        "choice": "it must be one of " + ", ".join(map(repr, param.choices)),
        "bool": "it must be True or False",
        "int": "it must be an integer",
        "float": "it must be a number",
        "literal": f"it must be a tuple of {param.count or 'finite'} numbers",
    }[param.kind]
    return expectation + (" or None" if param.optional else "")


@cache
def _params(target: str) -> tuple[ChoiceParam, ...]:
    name = target.rpartition(".")[2]
    cls = _class_of(name)
    docs = argument_docs(inspect.getdoc(cls) or "")
    signature = inspect.signature(cls)
    return tuple(
        _param(name, field, parameter, docs.get(field, ""))
        for field, parameter in signature.parameters.items()
        if field not in _LEFT_OUT
    )


def _param(
    owner: str, name: str, parameter: inspect.Parameter, doc: str
) -> ChoiceParam:
    default, annotation = parameter.default, str(parameter.annotation)
    required = default is inspect.Parameter.empty
    default = None if required else default
    optional = not required and (default is None or "None" in annotation.split("[")[0])
    count = 0
    choices: tuple[Any, ...] = _CHOICES.get((owner, name), ())
    if name == "reduction":
        # "none" yields one loss per sample, and backward() needs a scalar.
        choices = (
            ("mean", "sum", "batchmean") if owner == "KLDivLoss" else ("mean", "sum")
        )
        kind, optional = "choice", False
    elif choices:
        kind = "choice"
    elif name in _TENSORS or name == "milestones":
        kind = "literal"
    elif isinstance(default, tuple):
        kind, count, optional = "literal", len(default), False
    elif isinstance(default, bool) or "bool" in annotation:
        kind = "bool"
    elif "float" in annotation or isinstance(default, float):
        kind = "float"
    else:
        kind = "int"
    return ChoiceParam(
        name,
        kind,
        default,
        required,
        choices,
        count=count,
        optional=optional,
        doc=doc,
        expert=name in EXPERT,
    )


def argument_docs(doc: str) -> dict[str, str]:
    """Return the descriptions in the `Args:` section of a torch docstring, by argument, each as one line of plain text.

    >>> argument_docs("Args:\\n    lr (float, optional): learning\\n        rate (default: 1e-3)\\n    d: clip\\n\\nX")
    {'lr': 'learning rate (default: 1e-3)', 'd': 'clip'}
    """
    descriptions: dict[str, str] = {}
    _, _, rest = doc.partition("Args:\n")
    margin = len(rest) - len(rest.lstrip(" "))
    current = None
    for line in rest.splitlines():
        if line.strip() and len(line) - len(line.lstrip()) < max(margin, 1):
            break
        match = re.match(rf" {{{margin}}}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)", line)
        if match:
            current = match[1]
            descriptions[current] = match[2]
        elif current and line.strip():
            descriptions[current] += f" {line.strip()}"
    return {name: _plain(text) for name, text in descriptions.items()}


def _plain(text: str) -> str:
    """Strip reStructuredText markup and math.

    >>> _plain(r"adds .. math:: \\text{x} * \\log(2\\pi)")
    'adds x * log(2π)'
    """
    text = re.sub(
        r"\\text\{(.*?)\}", r"\1", text.replace(".. math:: ", "").replace("\\pi", "π")
    )
    text = re.sub(r"\\(exp|log)\b", r"\1", text)
    text = re.sub(r":\w+:`(.*?)(?:\s*<.*?>)?`", r"\1", text)
    return re.sub(r"`+(.*?)(?:\s*<.*?>)?`+_?", r"\1", text).strip()
