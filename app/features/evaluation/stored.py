"""Evaluations in the folder of a run: the newest on each part of its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.data.config import DataConfig
from app.project import file as project_file
from app.project import file_lock
from app.runs.store import LOCK, PROJECT
from app.training.evaluation.result import PARTS, Evaluation
from app.training.metrics import SCORES
from app.util import atomic

MOST_BYTES = 1 << 28  # of a file


def write(folder: Path, evaluation: Evaluation, data: DataConfig) -> None:
    """Store what an ended run is worth on `data`, if it was trained on them, in the place of the same part before.

    Raises OSError, ProjectFileError.
    """
    if file_lock.is_held(folder / LOCK):  # it will have other weights
        return
    encoded = msgspec.msgpack.encode(evaluation, enc_hook=_as_parts)
    same_data = project_file.read(folder / PROJECT).data == data
    if same_data and len(encoded) <= MOST_BYTES:
        atomic.write_bytes(_file(folder, evaluation.part), encoded)


def read(folder: Path) -> dict[str, Evaluation]:
    """Return the evaluations of a run by part, without those that cannot be read."""
    evaluations = {}
    for part in PARTS:
        path = _file(folder, part)
        try:
            if path.stat().st_size <= MOST_BYTES:
                evaluation = msgspec.msgpack.decode(
                    path.read_bytes(), type=Evaluation, dec_hook=_array
                )
                if evaluation.part == part and _is_whole(evaluation):
                    evaluations[part] = evaluation
        except (OSError, ValueError, TypeError):
            continue
    return evaluations


def _file(folder: Path, part: str) -> Path:
    return folder / f"evaluation-{part}.msgpack"


def _as_parts(value: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    return value.dtype.str, value.shape, value.tobytes()


def _array(_kind: object, parts: Any) -> NDArray[Any]:
    """Return an array of numbers. Raises ValueError, TypeError."""
    name, shape, data = parts
    dtype = np.dtype(name)
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} is no type of numbers")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _is_whole(evaluation: Evaluation) -> bool:
    """Return whether the columns, the classes and the metrics are those that the page reads."""
    columns, confusion = evaluation.columns, evaluation.confusion
    expected = {"loss"} if confusion is None else {"loss", "true", "called", "right"}
    square = confusion is None or confusion.shape == 2 * (len(evaluation.classes),)
    return (
        square
        and expected <= set(columns)
        and all(len(column) == evaluation.count for column in columns.values())
        and all(name in SCORES for name, _ in evaluation.metrics)
    )
