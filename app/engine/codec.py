"""The values of a run as plain data for a pipe, and back. A closed list of classes; nothing that comes is run."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import numpy as np

from app.builder import literals
from app.data import config as data_config
from app.source import generated, layer_files
from app.telemetry import gpu_figures, histogram, layer_bytes
from app.training import config as training_config
from app.training import events, job, run_requests
from app.training.monitoring import looks, memory_report, watch_points
from app.util.frozen import FrozenMap

_PLAIN = (bool, int, float, str, bytes, type(None))
_NUMBERS = "fiub"  # the kinds of numpy's dtypes that travel


def _classes(*modules: ModuleType) -> dict[str, type]:
    """The dataclasses that these modules define, by name."""
    own = ((name, value) for module in modules for name, value in vars(module).items())
    names = {module.__name__ for module in modules}
    return {name: value for name, value in own if isinstance(value, type) and is_dataclass(value)
            and value.__module__ in names}  # fmt: skip


CLASSES = _classes(
    layer_files, generated, data_config, training_config, events, job, run_requests, watch_points, histogram,
    looks, memory_report, gpu_figures, layer_bytes
)  # fmt: skip


def encode(value: Any) -> Any:
    """Plain data that msgpack takes: every container and every value of a class of ours is a dict with one key.

    Raises BadLiteral for a value that has no place in a run.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (tuple, list):
        return {kind.__name__: [encode(each) for each in value]}
    if kind is frozenset:
        return {"frozenset": [encode(each) for each in value]}
    if kind is FrozenMap or kind is dict:
        return {"map": [[encode(key), encode(each)] for key, each in value.items()]}
    if kind is np.ndarray and value.dtype.kind in _NUMBERS:
        return {"array": [value.dtype.str, list(value.shape), value.tobytes()]}
    if CLASSES.get(kind.__name__) is kind:
        return {kind.__name__: [encode(getattr(value, field.name)) for field in fields(value)]}
    return {"literal": literals.encode(value)}


def decode(raw: Any) -> Any:
    """The value of plain data; mappings come back frozen. Raises ValueError for what `encode` does not give."""
    if not isinstance(raw, dict):
        return raw
    ((kind, inner),) = raw.items()
    if kind in ("tuple", "list", "frozenset"):
        return {"tuple": tuple, "list": list, "frozenset": frozenset}[kind](map(decode, inner))
    if kind == "map":
        return FrozenMap({decode(key): decode(each) for key, each in inner})
    if kind == "array":
        dtype, shape, data = np.dtype(inner[0]), inner[1], inner[2]
        if dtype.kind not in _NUMBERS:
            raise ValueError(f"{inner[0]!r} is no array of numbers")
        return np.frombuffer(data, dtype).reshape(shape).copy()
    if kind == "literal":
        return literals.decode(inner)
    if kind not in CLASSES:
        raise ValueError(f"{kind!r} is no class of a run")
    return CLASSES[kind](*map(decode, inner))
