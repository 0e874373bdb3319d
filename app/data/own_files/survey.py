"""Inspect the user's files: columns, classes and shapes, and hence the reader arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.data.own_files import dataset_class, own_dataset
from app.data.own_files.file_survey import CLASSES_LIMIT, VOCABULARY_LIMIT, FileSurvey
from app.data.own_files.picture_survey import survey_pictures
from app.data.own_files.table_survey import survey_csv
from app.data.own_files.tensor_survey import survey_tensors
from app.data.spec import BINARY, CLASSES, PROBABILITIES, TOKENS, VALUES, DataError

if TYPE_CHECKING:
    from torch import Tensor


def check_class_ids(subject: str, labels: Tensor) -> None:
    """Raise DataError for class ids of a Dataset, (N,) int64, that cannot index the network's outputs. Those that
    fill samples up are -100."""
    by_place = labels.ndim > 1
    labels = labels[labels != -100] if by_place else labels
    if not len(labels):
        raise DataError(f"{subject} have no labels.")
    low, most = int(labels.min()), int(labels.max()) + 1
    if low < 0:
        raise DataError(
            f"The labels of {subject} go down to {low}; class ids count from 0."
        )
    if by_place:
        if most > VOCABULARY_LIMIT:
            raise DataError(
                f"The labels of {subject} go up to {most - 1:,}; at most {VOCABULARY_LIMIT:,} are supported."
            )
        return
    different = len(labels.unique())
    if most > CLASSES_LIMIT or most > max(1000, 10 * different):
        raise DataError(
            f"The labels of {subject} go up to {most - 1:,}, but only {different:,} of these class ids occur. Make the "
            f"dataset return ids from 0 to {different - 1:,}."
        )


def task_of(inputs: Tensor, labels: Tensor) -> str:
    """Infer the task of labels: integers in one column are classes, one per input token are tokens, others values."""
    if labels.is_floating_point():
        return VALUES
    return CLASSES if labels.ndim == 1 else TOKENS


def form_of(labels: Tensor) -> str:
    """Return what the numbers of a target (N, ...) are: PROBABILITIES, one-hot rows too, BINARY, or "" for others."""
    if (
        not labels.is_floating_point()
        or not labels.numel()
        or bool(labels.isnan().any())
    ):
        return ""
    binary = bool(((labels == 0) | (labels == 1)).all())
    rows = labels.ndim == 2 and labels.shape[1] > 1 and bool((labels >= 0).all())
    if rows and bool(((labels.sum(1) - 1).abs() < 1e-3).all()):
        return PROBABILITIES
    return BINARY if binary else ""


def survey_text(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Return the character vocabulary of a text. Raises OSError."""
    text = path.read_bytes().decode("utf-8", errors="ignore")
    characters = "".join(sorted(set(text)))
    return FileSurvey(
        {"characters": characters, "context": options["context"]},
        TOKENS,
        tuple(characters),
    )


def survey_dataset(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Select the Dataset class of a trusted file. Raises DataError."""
    name = own_dataset.class_name(path, options["dataset"])
    arguments = {
        "name": name,
        "workers": options["workers"],
        "timeout": options["timeout"],
    }
    in_order = own_dataset.is_iterable(path, name)
    notes = (_WITHOUT_WORKERS,) if in_order and options["workers"] else ()
    if options["keep"] == "memory":
        return FileSurvey(arguments, notes=notes)
    note = "Its samples are not held in memory: each is loaded when its batch needs it."
    if in_order:
        note += " They keep their own order: the first are for training, the last for validation, without shuffling."
    elif options["workers"]:
        note += _WORKERS_ONCE
    return FileSurvey(
        {**arguments, "pin": options["pin_memory"], "in_order": in_order},
        notes=(note, *notes),
    )


_WITHOUT_WORKERS = (
    "workers is ignored: each of them would return all samples of an iterable dataset."
)
_WORKERS_ONCE = (
    " workers read them once before the run. During the run they are loaded one after another in its own thread: "
    "random draws follow the order of the batches, so that a run can be repeated and resumed bit for bit."
)


SURVEYS: dict[str, Callable[..., FileSurvey]] = {
    "file.csv": survey_csv,
    "file.tensors": survey_tensors,
    "file.pictures": survey_pictures,
    "file.text": survey_text,
    dataset_class.KEY: survey_dataset,
}
