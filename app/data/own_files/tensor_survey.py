"""Inspect a file of tensors: which are inputs and which are labels, and how labels are numbered as classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.data.own_files.file_survey import FileSurvey, check_class_count, fits
from app.data.spec import DataError
from app.util import tensor_files
from app.util.frozen import FrozenMap


def survey_tensors(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Detect which tensors of a file are inputs and labels. Raises DataError, OSError, ValueError."""
    if path.suffix == ".npy":
        if not options["labels_file"]:
            raise DataError(f"{path.name} holds the inputs; choose the .npy file with the labels (labels_file).")
        return _labelled(path, ("",), (options["labels_file"],))
    names = _tensor_names(path)
    found = {}
    for role, usual in (("inputs", ("x", "inputs", "data", "images", "features", "x_train")),
                        ("labels", ("y", "labels", "targets", "target", "y_train"))):  # fmt: skip
        wanted = options[role]
        several = [wanted] if wanted in names else [name.strip() for name in wanted.split(",") if name.strip()]
        for name in several:
            if name not in names:
                raise DataError(f"{path.name} has no “{name}”. It has: {', '.join(names[:20])}.")
        place = int(role == "labels")
        guess = next((name for word in usual for name in names if name.lower() == word), "")
        found[role] = tuple(dict.fromkeys(several)) or (guess or (names[place] if len(names) == 2 else ""),)
    if not all(found["inputs"] + found["labels"]) or set(found["inputs"]) & set(found["labels"]):
        raise DataError(
            f"Choose which of {', '.join(names[:20])} in {path.name} are inputs and which are labels: its options "
            "inputs and labels, each a name, or several with commas."
        )
    return _labelled(path, found["inputs"], found["labels"])


def _labelled(path: Path, inputs: tuple[str, ...], labels: tuple[str, ...]) -> FileSurvey:
    """Renumber text labels, and class ids with gaps, in ascending order."""
    import numpy as np

    classes, notes = {}, []
    _check_size(path, (*inputs, *labels))
    for name in labels:
        values = _label_values(path, name)
        text = values.dtype.kind in "SU"
        if not (text or values.dtype.kind in "iu") or values.size != len(values):
            continue
        known = np.unique(values.astype(str) if text else values[values >= 0])
        check_class_count(f"“{name or path.name}”", len(known), len(values))
        if len(known) and (text or known[-1] != len(known) - 1):
            classes[name] = tuple(known.tolist())
            first = ", ".join(map(str, classes[name][:4])) + ", …" * (len(known) > 4)
            what = "texts" if text else "class ids with gaps"
            last = len(known) - 1
            notes.append(f"{Path(name).name}: {what} ({first}) are numbered 0 to {last:,} in ascending order.")
    given = inputs if len(inputs) > 1 else inputs[0]
    arguments = {"inputs": given, "labels": labels, **({"classes": FrozenMap(classes)} if classes else {})}
    return FileSurvey(arguments, notes=tuple(notes))


def _check_size(path: Path, names: tuple[str, ...]) -> None:
    """Reject arrays of a .npz file that do not fit into memory. Raises DataError."""
    import zipfile

    if path.suffix != ".npz":
        return
    with zipfile.ZipFile(path) as archive:
        size = sum(one.file_size for one in archive.infolist() if one.filename.removesuffix(".npy") in names)
    if not fits(size):
        raise DataError(f"{path.name} holds {size / 1e9:,.1f} GB, more than half of the memory of this machine.")


def _label_values(path: Path, name: str) -> Any:
    """Return the labels of a file as an array; an empty object array if they are no labels."""
    import numpy as np

    if path.suffix == ".pt":
        held = tensor_files.load(path)
        value = held[name] if isinstance(held, dict) else held[int(name)]
        return np.empty(0, object) if value.is_floating_point() or value.is_complex() else value.numpy()
    if path.suffix == ".npy":
        return np.load(name, allow_pickle=False)
    with np.load(path, allow_pickle=False) as arrays:
        return np.atleast_1d(arrays[name]) if isinstance(arrays[name], np.ndarray) else np.empty(0, object)


def _tensor_names(path: Path) -> list[str]:
    if path.suffix == ".pt":
        import torch

        try:
            held = tensor_files.load(path)
        except tensor_files.UnreadableTensorsError as error:
            raise DataError(f"Not a tensor file: {error}") from error
        items = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list | tuple) else ()
        return [str(name) for name, value in items if isinstance(value, torch.Tensor)]
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return list(arrays.files)
    except (zipfile.BadZipFile, EOFError, AttributeError, ValueError) as error:
        raise DataError(f"{path.name} is not an .npz file of arrays: {error}.") from error
