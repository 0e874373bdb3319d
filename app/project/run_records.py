"""Strict records of data and training settings in a project file, and their conversion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct

from app.data.config import DataConfig, Transform
from app.project.sheet_records import ProjectFileError, Text, decoded, encoded
from app.training.config import (
    MOST_PARAMETER,
    MOST_WEIGHT,
    Amount,
    Choice,
    OutputLoss,
    ParameterGroup,
    Schedule,
    StartWeights,
    TrainingConfig,
)
from app.util.frozen import FrozenMap

Path = Annotated[str, Meta(max_length=4096)]


class ChoiceRecord(Struct, forbid_unknown_fields=True):
    """A class by name."""

    name: Text
    params: dict[str, Any] = {}


def _plain(kind: type, structured: Sequence[str]) -> Any:
    """Return a struct of the fields of another but these, as they are described there."""
    default, hints = kind(), get_type_hints(kind, include_extras=True)
    fields = [
        (name, hint, getattr(default, name))
        for name, hint in hints.items()
        if name not in structured
    ]
    return msgspec.defstruct(f"Plain{kind.__name__}", fields)


_PlainData: Any = _plain(
    DataConfig, ("source", "path", "options", "train_transforms", "eval_transforms")
)


class DataRecord(_PlainData, forbid_unknown_fields=True, kw_only=True):  # type: ignore[call-arg]
    """The fields of DataConfig: those that are plain as they are described there, others as they are written."""

    source: Text = "sklearn.digits"
    path: Path = ""
    options: dict[str, Any] = {}
    train_transforms: list[ChoiceRecord] = []
    eval_transforms: list[ChoiceRecord] = []


class StartRecord(Struct, forbid_unknown_fields=True):
    """Start weights, in a file in the project's folder."""

    file: Annotated[str, Meta(pattern=r"\.safetensors$", max_length=4096)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    keys: list[Text] = []
    name: Text = ""


class ScheduleRecord(Struct, forbid_unknown_fields=True):
    """A schedule of the learning rate."""

    name: Text
    params: dict[str, Any] = {}
    per: Literal["epoch", "step"] = "epoch"
    warmup: Amount = 0


class GroupRecord(Struct, forbid_unknown_fields=True):
    """A group of parameters."""

    path: Text
    options: dict[str, Any] = {}


class OutputLossRecord(Struct, forbid_unknown_fields=True):
    """The loss of an output."""

    output: Text
    name: Text
    params: dict[str, Any] = {}
    weight: Annotated[float, Meta(ge=0, le=MOST_WEIGHT)] = 1.0
    target: Text = ""


_STRUCTURED = """
    optimizer loss device start schedule groups recompute metrics losses inputs
""".split()
_PlainTraining: Any = _plain(TrainingConfig, _STRUCTURED)


class TrainingRecord(_PlainTraining, forbid_unknown_fields=True, kw_only=True):  # type: ignore[call-arg]
    """The fields of TrainingConfig: those that are plain as they are described there, others as they are written."""

    optimizer: ChoiceRecord
    loss: ChoiceRecord
    device: Text = "auto"
    start: StartRecord | None = None
    schedule: ScheduleRecord | None = None
    groups: list[GroupRecord] = []
    recompute: list[Text] = []
    metrics: list[Text] = []
    losses: list[OutputLossRecord] = []
    inputs: dict[Text, Text] = {}


# Fields that are always written; others only if they differ from the default.
_ALWAYS = {
    "source",
    "validation_fraction",
    "split_seed",
    "epochs",
    "batch_size",
    "seed",
    "device",
}


def data_record(config: DataConfig) -> dict[str, Any]:
    """Plain data of a DataConfig."""
    structured: dict[str, Any] = (
        {"options": encoded(config.options)} if config.options else {}
    )
    for name in ("train_transforms", "eval_transforms"):
        if transforms := getattr(config, name):
            structured[name] = [
                {"name": transform.name, "params": encoded(transform.params)}
                for transform in transforms
            ]
    return _fields(config, structured)


def data_from(record: DataRecord) -> DataConfig:
    """Convert a record to its value. Raises ProjectFileError for an invalid option."""
    values = {name: getattr(record, name) for name in DataConfig.__struct_fields__}
    values["options"] = _params(record.options, "$.data.options")
    for name in ("train_transforms", "eval_transforms"):
        values[name] = tuple(
            Transform(
                transform.name,
                _params(transform.params, f"$.data.{name}[{number}].params"),
            )
            for number, transform in enumerate(values[name])
        )
    return DataConfig(**values)


def training_record(config: TrainingConfig) -> dict[str, Any]:
    """Plain data of a TrainingConfig."""
    structured: dict[str, Any] = {
        "optimizer": _choice_record(config.optimizer),
        "loss": _choice_record(config.loss),
    }
    if config.start is not None:
        structured["start"] = _start_record(config.start)
    if config.schedule is not None:
        schedule = config.schedule
        structured["schedule"] = {
            **_choice_record(schedule.choice),
            "per": schedule.per,
            "warmup": schedule.warmup,
        }
    if config.groups:
        structured["groups"] = [
            {"path": group.path, "options": encoded(group.options)}
            for group in config.groups
        ]
    if config.losses:
        structured["losses"] = [
            {
                "output": row.output,
                **_choice_record(row.loss),
                "weight": row.weight,
                "target": row.target,
            }
            for row in config.losses
        ]
    if config.inputs:
        structured["inputs"] = dict(config.inputs)
    return _fields(config, structured)


def training_from(record: TrainingRecord) -> TrainingConfig:
    """Convert a record to its value. Raises ProjectFileError for an invalid parameter."""
    values = {name: getattr(record, name) for name in TrainingConfig.__struct_fields__}
    schedule = None
    if record.schedule is not None:
        choice = _choice(record.schedule, "$.training.schedule")
        schedule = Schedule(choice, record.schedule.per, record.schedule.warmup)
    values |= {
        "optimizer": _choice(record.optimizer, "$.training.optimizer"),
        "loss": _choice(record.loss, "$.training.loss"),
        "start": _start(record.start),
        "schedule": schedule,
        "groups": tuple(
            ParameterGroup(
                group.path,
                _params(group.options, f"$.training.groups[{number}].options"),
            )
            for number, group in enumerate(record.groups)
        ),
        "recompute": tuple(record.recompute),
        "metrics": tuple(record.metrics),
        "inputs": FrozenMap(record.inputs),
        "losses": tuple(
            OutputLoss(
                row.output,
                _choice(row, f"$.training.losses[{number}]"),
                row.weight,
                row.target,
            )
            for number, row in enumerate(record.losses)
        ),
    }
    return TrainingConfig(**values)


def _fields(config: Any, structured: dict[str, Any]) -> dict[str, Any]:
    """Serialize the fields of a config in order: `structured` has those that are not plain, defaults are left out."""
    record: dict[str, Any] = {}
    default = type(config)()
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if name in structured:
            record[name] = structured[name]
        elif name in _ALWAYS or value != getattr(default, name):
            record[name] = list(value) if isinstance(value, tuple) else value
    return record


def _choice_record(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, "params": encoded(choice.params)}


def _choice(
    record: ChoiceRecord | ScheduleRecord | OutputLossRecord, location: str
) -> Choice:
    return Choice(record.name, _params(record.params, f"{location}.params"))


def _params(raw: dict[str, Any], location: str) -> FrozenMap[str, Any]:
    """Decode parameters. Raises ProjectFileError, also for a number that is larger than any parameter may be."""
    params = decoded(raw, location)
    for name, value in params.items():
        if not _is_within_bounds(value):
            most = f"{MOST_PARAMETER:g}"
            raise ProjectFileError(
                f"Expected a number from -{most} to {most}, as float32 can hold it, and this one is larger - at "
                f"`{location}.{name}`"
            )
    return params


def _is_within_bounds(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_within_bounds, value))
    if isinstance(value, Mapping):
        return all(map(_is_within_bounds, value.values()))
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    return not abs(value) > MOST_PARAMETER or value in (
        math.inf,
        -math.inf,
    )  # an option may be infinite


def _start_record(start: StartWeights) -> dict[str, Any]:
    start_record: dict[str, Any] = {"file": start.path, "sha256": start.sha256}
    return (
        start_record
        | ({"keys": list(start.keys)} if start.keys else {})
        | ({"name": start.name} if start.name else {})
    )


def _start(record: StartRecord | None) -> StartWeights | None:
    return (
        StartWeights(record.file, record.sha256, tuple(record.keys), record.name)
        if record
        else None
    )
