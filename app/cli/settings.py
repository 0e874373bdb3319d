"""Data, loss and settings of a project from --on, --loss, --against and --set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from app.cli import arguments, console
from app.data.config import DataConfig
from app.data.loaders import read_spec
from app.data.own_files import dataset_class
from app.data.sources import BY_ENDING, SOURCES, DataError, check, config_of, spec_of
from app.preflight import opened_losses
from app.project import run_records
from app.project.sheet_records import ProjectFileError, encoded
from app.training.choices import OWN_LOSS, ChoiceError, loss_named
from app.training.config import INPUT, Choice, OutputLoss
from app.training.job import JobError
from app.training.setup.devices import devices, resolve
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from app.project.project import Project


def with_loss(project: Project, options: argparse.Namespace) -> Project:
    """Return the project with the rows of --loss and --against, of a model that is opened now else with the loss that
    fits its data. Raises CommandError."""
    if (
        options.loss is not None
        and project.training.loss.name == OWN_LOSS
        and project.opened is None
    ):
        raise console.CommandError(
            "--loss own: a drawn network computes no loss of its own; it needs a loss of torch"
        )
    if project.opened is None:
        if options.against is not None:
            raise console.CommandError(
                "--against is for a model, and this is a project: its outputs have their targets"
            )
        return project
    output = project.opened.interface.chief
    project = (
        opened_losses.with_own_losses(project) if options.loss == "own" else project
    )
    if options.against is not None and output is not None:
        target = INPUT if options.against in ("input", INPUT) else options.against
        row = OutputLoss(output.name, project.training.loss, 1.0, target)
        project = replace(project, training=project.training.changed(losses=(row,)))
    read_data(project)
    try:
        source = spec_of(project.data)
    except DataError:  # the checks report it
        return project
    if not source.is_read:
        return project
    if not str(options.project).endswith(".tape") or options.loss is not None:
        project = opened_losses.with_fitting_loss(
            project, source, chosen=sets_loss(options)
        )
    return opened_losses.with_target_passed(project, source)


def sets_loss(options: argparse.Namespace) -> bool:
    """Return whether the command names a loss or a target."""
    settings = arguments.value_of(options, "--set")
    named = any(
        not {"loss", "losses"}.isdisjoint(text.partition("=")[0].split(".")[:2])
        for text in settings
    )
    return named or options.loss is not None or options.against is not None


def with_settings(project: Project, options: argparse.Namespace) -> Project:
    """Return the project with the data of --on, the loss of --loss and the values of --set, such as parameters of that
    loss. Raises CommandError."""
    data, settings = (
        arguments.value_of(options, "--on"),
        arguments.value_of(options, "--set"),
    )
    if data is not None:
        project = replace(project, data=_data_of(data))
    project = _with_named_loss(project, arguments.value_of(options, "--loss"))
    if not settings:
        return project
    raw: dict[str, Any] = {
        "training": run_records.training_record(project.training),
        "data": run_records.data_record(project.data),
    }
    for text in settings:
        _put(raw, text)
    start = raw["training"].pop("start", None)  # its path is absolute here
    try:
        training = run_records.training_from(
            msgspec.convert(raw["training"], run_records.TrainingRecord)
        )
        data = run_records.data_from(
            msgspec.convert(raw["data"], run_records.DataRecord)
        )
    except (msgspec.ValidationError, ProjectFileError) as error:
        flags = " ".join(f"--set {text:.80}" for text in settings)
        raise console.CommandError(f"{flags}: {error}") from error
    training = replace(
        training, start=project.training.start if start is not None else None
    )
    training = (
        training.changed(losses=training.losses) if sets_loss(options) else training
    )
    return replace(project, training=training, data=data)


def _with_named_loss(project: Project, name: str | None) -> Project:
    """Return the project with the loss of --loss, with its parameters if it has this loss already, in place of those of
    its outputs. Raises CommandError."""
    if name is None:
        return project
    try:
        chosen = Choice(loss_named(name))
    except ChoiceError as error:
        raise console.CommandError(f"--loss {name}: {error}") from error
    training = project.training
    loss = training.loss if training.loss.name == chosen.name else chosen
    return replace(project, training=training.changed(loss=loss, losses=()))


def _put(raw: dict[str, Any], text: str) -> None:
    """Set the value at a dotted name; a plain name stands for a class without parameters."""
    name, equals, value = text.partition("=")
    way = name.split(".")
    if not equals or not all(way):
        raise console.CommandError(
            f"--set {text}: write NAME=VALUE, such as batch_size=32"
        )
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    if way[0] not in raw:
        way.insert(0, "training")
    if way[1:] in (["loss"], ["optimizer"], ["schedule"]) and isinstance(parsed, str):
        parsed = {"name": parsed, "params": {}}
    if isinstance(parsed, list) and ("options" in way or "params" in way):
        parsed = encoded({"": _frozen(parsed)})[""]
    at: Any = raw
    for step in way[:-1]:
        at = at.setdefault(step, {})
        if not isinstance(at, dict):
            raise console.CommandError(f"--set {text}: {step} has no parts")
    at[way[-1]] = parsed


def _frozen(value: Any) -> Any:
    """Convert a JSON list to the tuple of a setting."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _data_of(text: str) -> DataConfig:
    """Return the data settings for a name, a folder or a file. Raises CommandError."""
    file, colon, call = text.rpartition(".py:")
    if colon:
        text = f"{file}.py"
    path = Path(text)
    if colon and not path.is_file():
        raise console.CommandError(f"--on {text}: there is no file {text}")
    if path.is_dir() or path.is_file():
        if (data := config_of(path)) is None:
            raise console.CommandError(
                f"--on {text}: expected a folder of images, or a file ending in {', '.join(BY_ENDING)}"
            )
        options = {"dataset": str(dataset_class.parse_call(call))} if colon else {}
        return replace(data, options=FrozenMap(options))
    matches = [
        key
        for key, spec in SOURCES.items()
        if not spec.picks and text in (key, key.rpartition(".")[2])
    ]
    if not matches:
        names = ", ".join(key for key, spec in SOURCES.items() if not spec.picks)
        raise console.CommandError(
            f"--on {text}: unknown data; expected one of {names}, or a file or folder"
        )
    return DataConfig(matches[0])


def device(name: str) -> str:
    """Validate a device name. Raises CommandError if it is not available, rather than falling back to the CPU."""
    try:
        absent = resolve(name).note
    except JobError as error:
        raise console.CommandError(str(error)) from error
    if absent:
        raise console.CommandError(
            f"device {name} is not available here; available: {', '.join(available.id for available in devices())}"
        )
    return name


def read_data(project: Project) -> str:
    """Read the user's files, so that the data can be checked against the network; return why they cannot be read, ""
    if they can.
    """
    try:
        check(project.data)
        read_spec(project.data)
    except DataError as error:
        return str(error)
    return ""
