"""Inspect a file of tensors: which are inputs and which are labels, and how labels are numbered as classes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import Struct

from app.data.own_files.file_survey import FileSurvey, check_class_count, fits
from app.data.spec import CLASSES, VALUES, DataError
from app.util import tensor_files
from app.util.frozen import FrozenMap

IGNORED = -100  # the label that torch's losses ignore


def survey_tensors(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Detect which tensors of a file are inputs and labels. Raises DataError, OSError, ValueError."""
    if path.suffix == ".npy":
        if not options["labels_file"]:
            raise DataError(
                f"{path.name} holds the inputs; choose the .npy file with the labels (labels_file)."
            )
        return _labelled(path, ("",), (options["labels_file"],), options["task"])
    names = _tensor_names(path)
    selected = {}
    for role, usual in (
        ("inputs", ("x", "inputs", "data", "images", "features", "x_train")),
        ("labels", ("y", "labels", "targets", "target", "y_train")),
    ):
        choice = options[role]
        several = (
            [choice]
            if choice in names
            else [name.strip() for name in choice.split(",") if name.strip()]
        )
        for name in several:
            if name not in names:
                raise DataError(
                    f"{path.name} has no “{name}”. It has: {', '.join(names[:20])}."
                )
        index = int(role == "labels")
        guess = next(
            (name for word in usual for name in names if name.lower() == word), ""
        )
        selected[role] = tuple(dict.fromkeys(several)) or (
            guess or (names[index] if len(names) == 2 else ""),
        )
    if not all(selected["inputs"] + selected["labels"]) or set(
        selected["inputs"]
    ) & set(selected["labels"]):
        raise DataError(
            f"Choose which of {', '.join(names[:20])} in {path.name} are inputs and which are labels: its options "
            "inputs and labels, each a name, or several with commas."
        )
    return _labelled(path, selected["inputs"], selected["labels"], options["task"])


def _labelled(
    path: Path, inputs: tuple[str, ...], labels: tuple[str, ...], task: str = "auto"
) -> FileSurvey:
    """Return how labels are read: texts, and class ids with gaps, are numbered in ascending order."""
    _check_size(path, (*inputs, *labels))
    tokens = _label_values(path, inputs[0]).shape if len(inputs) == 1 else ()
    forms = {
        name: _form(name or path.name, _label_values(path, name), task, tokens)
        for name in labels
    }
    arguments: dict[str, Any] = {
        "inputs": inputs if len(inputs) > 1 else inputs[0],
        "labels": labels,
    }
    if classes := {name: form.classes for name, form in forms.items() if form.classes}:
        arguments["classes"] = FrozenMap(classes)
    if kinds := {name: form.kind for name, form in forms.items() if form.kind}:
        arguments["kinds"] = FrozenMap(kinds)
    return FileSurvey(
        arguments, notes=tuple(form.note for form in forms.values() if form.note)
    )


class LabelForm(Struct, frozen=True):
    """How the labels of a target are read: `kind` as of `read_tensors`, and the values of its classes."""

    kind: str = ""
    classes: tuple[Any, ...] = ()
    note: str = ""


def _form(name: str, values: Any, task: str, tokens: tuple[int, ...]) -> LabelForm:
    """Choose how labels (N, ...) are read; `tokens` is the shape of the inputs. Raises DataError."""
    title, kind = Path(name).name, values.dtype.kind
    if kind not in "biufSU" or not values.ndim:
        return LabelForm()  # refused by the reader
    if kind not in "SU" and task == VALUES:
        return LabelForm("values")
    single = values.size == len(values)
    if single and (
        kind in "SUbiu"
        or (task == CLASSES and bool((values == np.floor(values)).all()))
    ):
        return _numbered(name, values)
    if kind in "SU" or values.ndim != 2 or values.shape == tokens:
        below = kind == "i" and not single and bool((values == -1).any())
        return (
            LabelForm(note=f"{title}: -1 is read as -100, which torch's losses ignore.")
            if below
            else LabelForm()
        )
    binary = bool(((values == 0) | (values == 1)).all())
    sums = values.sum(1, dtype=np.float64)
    count = values.shape[1]
    if binary and bool((sums == 1).all()):
        return LabelForm(
            "one_hot",
            tuple(range(count)),
            f"{title} is one-hot, and is read as {count:,} classes.",
        )
    if binary and kind != "f" and values.shape[1:] != tokens[-1:]:
        return LabelForm(
            "values",
            note=f"{title} has several labels of 0 and 1 a sample, which are read as values.",
        )
    if (
        kind == "f"
        and bool((values >= 0).all())
        and bool(np.isclose(sums, 1, atol=1e-3).all())
    ):
        return LabelForm(
            note=f"{title}: each row adds up to 1; it is read as probabilities of {count:,} classes."
        )
    return LabelForm()


def _numbered(name: str, values: Any) -> LabelForm:
    """Return the classes of one label per sample; those that are 0, 1, 2, ... already need no numbering."""
    title, text = Path(name).name, values.dtype.kind in "SU"
    class_values = np.unique(values.astype(str) if text else values)
    left_out = 0
    if values.dtype.kind == "b":
        class_values = np.array([False, True])
    elif not text:
        left_out = int((values == IGNORED).sum())
        class_values = class_values[class_values != IGNORED]
    check_class_count(f"“{name}”", len(class_values), len(values))
    notes = []
    if left_out:
        notes.append(
            f"{title}: {left_out:,} of label {IGNORED}, which torch's losses ignore, are left out."
        )
    if not len(class_values) or not (
        text
        or values.dtype.kind in "bf"
        or class_values[0] != 0
        or class_values[-1] != len(class_values) - 1
    ):
        return LabelForm(note=" ".join(notes))
    first = ", ".join(map(str, class_values[:4].tolist())) + ", …" * (
        len(class_values) > 4
    )
    kind = (
        "texts"
        if text
        else "booleans"
        if values.dtype.kind == "b"
        else "class ids with gaps"
    )
    if not text and class_values[0] < 0:
        kind = "class ids below 0"
    last = len(class_values) - 1
    notes.insert(
        0, f"{title}: {kind} ({first}) are numbered 0 to {last:,} in ascending order."
    )
    return LabelForm("", tuple(class_values.tolist()), " ".join(notes))


def _check_size(path: Path, names: tuple[str, ...]) -> None:
    """Reject arrays of a .npz file that do not fit into memory. Raises DataError."""
    if path.suffix != ".npz":
        return
    with zipfile.ZipFile(path) as archive:
        size = sum(
            member.file_size
            for member in archive.infolist()
            if member.filename.removesuffix(".npy") in names
        )
    if not fits(size):
        raise DataError(
            f"{path.name} holds {size / 1e9:,.1f} GB, more than half of the memory of this machine."
        )


def _label_values(path: Path, name: str) -> Any:
    """Return a tensor of a file as an array; an empty object array if it is none that labels can be."""
    if path.suffix == ".pt":
        tensors = tensor_files.load(path)
        value = tensors[name] if isinstance(tensors, dict) else tensors[int(name)]
        return (
            np.empty(0, object)
            if value.is_complex()
            else value.float().numpy()
            if value.is_floating_point()
            else value.numpy()
        )
    if path.suffix == ".npy":
        return np.load(Path(name or path), allow_pickle=False)
    with np.load(path, allow_pickle=False) as arrays:
        return (
            np.atleast_1d(arrays[name])
            if isinstance(arrays[name], np.ndarray)
            else np.empty(0, object)
        )


def _tensor_names(path: Path) -> list[str]:
    if path.suffix == ".pt":
        try:
            tensors = tensor_files.load(path)
        except tensor_files.UnreadableTensorsError as error:
            raise DataError(f"Not a tensor file: {error}") from error
        items = (
            tensors.items()
            if isinstance(tensors, dict)
            else enumerate(tensors)
            if isinstance(tensors, list | tuple)
            else ()
        )
        return [str(name) for name, value in items if isinstance(value, torch.Tensor)]
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return list(arrays.files)
    except (zipfile.BadZipFile, EOFError, AttributeError, ValueError) as error:
        raise DataError(
            f"{path.name} is not an .npz file of arrays: {error}."
        ) from error
