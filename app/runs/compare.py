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
    told = [_settings_of(kept) for kept in runs]
    letters = _letters([values.pop("net") for values in told])
    told = [
        {"net": letter, **values} for letter, values in zip(letters, told, strict=True)
    ]
    names = dict.fromkeys(name for values in told for name in values)
    ordered = [*NET, *(name for name in names if name not in (*NET, *WHERE)), *WHERE]
    return tuple(
        Setting(name, tuple(values.get(name, NOTHING) for values in told))
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


def _settings_of(kept: Kept) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        project = store.project_of(kept)
        start = training_record(project.training).get("start")
        found |= _data_and_training(project)
        if start is not None:
            found[START] = _start_text(start)
        found["net"] = (kept.folder / store.SOURCE).read_text(encoding="utf-8")
    except (RunError, OSError) as error:
        found["net"] = f"cannot be read: {error}"
    begun, where = kept.record.beginning, kept.record.environment
    if begun is not None:
        found["parameters"] = f"{begun.parameters:,}"
    if where is not None:
        found |= {name: str(getattr(where, name)) for name in WHERE}
    return found


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
        found: dict[str, str] = {}
        for name, part in value.items():
            found |= _flat(prefix if name == "params" else f"{prefix}.{name}", part)
        return found
    if (
        isinstance(value, list)
        and value
        and isinstance(value[0], Mapping)
        and "output" in value[0]
    ):
        told: dict[str, str] = {}
        for row in value:  # the losses of outputs
            given = {name: part for name, part in row.items() if name != "output"}
            told |= _flat(f"{prefix}.{row['output']}", given)
        return told
    if isinstance(value, list):
        return {prefix: ", ".join(str(part) for part in value)}
    return {prefix: str(value)}


def _letters(texts: Sequence[str]) -> list[str]:
    """Label source texts A, B, C ..., equal ones alike."""
    known = list(dict.fromkeys(texts))
    return [f"net {chr(ord('A') + known.index(text) % 26)}" for text in texts]
