"""Compare the settings of runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.project.project import Project
from app.project.run_records import data_record, training_record
from app.runs import store
from app.runs.record import RunError
from app.runs.store import Kept
from app.util.formatting import counted

NOTHING, DEFAULT = "–", "the default"
# Rows other than fields of data and training, before and after those.
NET, WHERE = ("net", "parameters"), ("device", "torch", "threads", "python", "platform")
START = "start weights"


class Setting(Struct, frozen=True):
    """One row: the value of each run, in their order."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def settings(runs: Sequence[Kept]) -> tuple[Setting, ...]:
    """Return all settings that any of the runs has; a default that a file does not state is a dash."""
    settings_by_run = [_settings_of(stored_run) for stored_run in runs]
    letters = _letters([values.pop("net") for values in settings_by_run])
    settings_by_run = [
        {"net": letter, **values}
        for letter, values in zip(letters, settings_by_run, strict=True)
    ]
    names = dict.fromkeys(name for values in settings_by_run for name in values)
    ordered = [*NET, *(name for name in names if name not in (*NET, *WHERE)), *WHERE]
    return tuple(
        Setting(name, tuple(values.get(name, NOTHING) for values in settings_by_run))
        for name in ordered
    )


def differences(before: Project, now: Project) -> dict[str, tuple[str, str]]:
    """Return the settings of data and training that differ between two projects, with both values, by dotted name.

    Start weights are left out: they are those of the beginning.
    """
    old, new = (_data_and_training(project) for project in (before, now))
    names = dict.fromkeys((*old, *new))
    pairs = {name: (old.get(name, DEFAULT), new.get(name, DEFAULT)) for name in names}
    return {
        name.removeprefix("training."): pair
        for name, pair in pairs.items()
        if pair[0] != pair[1]
    }


def _data_and_training(project: Project) -> dict[str, str]:
    training = training_record(project.training)
    training.pop("start", None)
    return _flat("data", data_record(project.data)) | _flat("training", training)


def _settings_of(stored_run: Kept) -> dict[str, str]:
    flat_settings: dict[str, str] = {}
    try:
        project = store.project_of(stored_run)
        start = training_record(project.training).get("start")
        flat_settings |= _data_and_training(project)
        if start is not None:
            flat_settings[START] = _start_text(start)
        flat_settings["net"] = (stored_run.folder / store.SOURCE).read_text(
            encoding="utf-8"
        )
    except (RunError, OSError) as error:
        flat_settings["net"] = f"cannot be read: {error}"
    begun, where = stored_run.record.beginning, stored_run.record.environment
    if begun is not None:
        flat_settings["parameters"] = f"{begun.parameters:,}"
    if where is not None:
        flat_settings |= {name: str(getattr(where, name)) for name in WHERE}
    return flat_settings


def _start_text(start: Mapping[str, Any]) -> str:
    """Describe start weights by name and hash, without the path: each run copies the file to another one."""
    keys = start.get("keys")
    return ", ".join(
        [
            start.get("name") or "a file",
            *([counted(len(keys), "tensor")] if keys else []),
            start["sha256"][:8],
        ]
    )


def _flat(prefix: str, value: Any) -> dict[str, str]:
    """Flatten nested settings: `training.optimizer.lr`."""
    if isinstance(value, Mapping):
        flattened: dict[str, str] = {}
        for name, child in value.items():
            flattened |= _flat(
                prefix if name == "params" else f"{prefix}.{name}", child
            )
        return flattened
    if (
        isinstance(value, list)
        and value
        and isinstance(value[0], Mapping)
        and "output" in value[0]
    ):
        loss_settings: dict[str, str] = {}
        for row in value:  # the losses of outputs
            fields = {name: entry for name, entry in row.items() if name != "output"}
            loss_settings |= _flat(f"{prefix}.{row['output']}", fields)
        return loss_settings
    if isinstance(value, list):
        return {prefix: ", ".join(str(entry) for entry in value)}
    return {prefix: str(value)}


def _letters(texts: Sequence[str]) -> list[str]:
    """Label source texts A, B, C ..., equal ones alike."""
    unique_texts = list(dict.fromkeys(texts))
    return [f"net {chr(ord('A') + unique_texts.index(text) % 26)}" for text in texts]
