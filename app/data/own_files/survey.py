"""Inspect the user's files: columns, classes and shapes, and hence the reader arguments."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.data.own_files import dataset_class, own_dataset
from app.data.spec import CLASSES, TOKENS, VALUES, DataError, TargetInfo
from app.util import tensor_files
from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from torch import Tensor

SEPARATORS = (",", ";", "\t", "|")
# A text column with more distinct values is a name or a remark, used only if chosen.
MOST_TEXTS = 50
# An integer column with at most this many distinct values is a class rather than a value.
MOST_CLASSES = 20
WIDEST = 100_000
# A net has one output per class, and each is counted; token ids are bounded by vocabulary sizes.
CLASSES_LIMIT = 100_000
VOCABULARY_LIMIT = 2**20


@dataclass(frozen=True)
class FileSurvey:
    """How to read a file: plain arguments of its reader, and their meaning."""

    arguments: Mapping[str, Any]
    task: str = CLASSES
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    all_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    targets: tuple[TargetInfo, ...] = ()


def survey_csv(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Inspect a table: columns, their types, and the classes of the target. Raises DataError, OSError."""
    names, cells = _columns(path, options)
    target = _column_index(options["target"], names) if options["target"] else len(names) - 1
    kinds = {place: _texts(names[place], cells[place], options) for place in range(len(names))}
    fields = _csv_fields(path, options["fields"], names)
    chosen = [_column_index(name, names) for name in options["inputs"]]
    chosen += [place for places in fields.values() for place in places if place not in chosen]
    notes = []
    targets = [target, *(_column_index(name, names) for name in options["more_targets"])]
    if len(set(targets)) < len(targets):
        raise DataError(f"A column of {path.name} is named twice as a target: {names[target]}. Remove one.")
    if not chosen:
        long = [p for p, texts in kinds.items() if p not in targets and texts is not None and len(texts) > MOST_TEXTS]
        chosen = [place for place in range(len(names)) if place not in targets and place not in long]
        notes += [f"{names[p]} is ignored: it has {len(kinds[p] or ()):,} different texts." for p in long]
    both = next((place for place in targets if place in chosen), None)
    if both is not None:
        raise DataError(f"{names[both]} is the target and an input of {path.name}. Remove one of the two.")
    if not chosen:
        raise DataError(f"{path.name} has no input column besides {names[target]}.")
    kinds_of = {
        place: _classes(
            names[place], cells[place], options["task"] if place == target else _target_task(names[place], options)
        )
        for place in targets
    }
    classes = kinds_of[target]
    if fields and (alone := [names[place] for place in chosen if not any(place in held for held in fields.values())]):
        raise DataError(f"inputs of {path.name} lists {', '.join(alone)}, which no field contains. Add it to a field.")
    columns = tuple(_named(names, kinds, chosen))
    if len(columns) > WIDEST:
        raise DataError(f"{path.name} makes {len(columns):,} values per row. Remove columns with many different texts.")
    arguments = {
        "separator": _separator(path, options),
        "header": options["header"],
        "columns": FrozenMap({place: kinds[place] for place in chosen}),
        "targets": FrozenMap({names[place]: (place, texts) for place, texts in kinds_of.items()}),
    }
    if fields:
        arguments["fields"] = FrozenMap({name: _value_places(kinds, chosen, held) for name, held in fields.items()})
    task = VALUES if classes is None else CLASSES
    told = tuple(
        TargetInfo(names[place], VALUES if texts is None else CLASSES, texts or (), (1,) if texts is None else ())
        for place, texts in kinds_of.items()
    )
    several = told if len(told) > 1 else ()
    return FileSurvey(arguments, task, classes or (), columns, tuple(names), tuple(notes), several)


def _csv_fields(path: Path, text: str, names: list[str]) -> dict[str, list[int]]:
    """Return the columns of each input, from “size: width, height; place: city”. Raises DataError."""
    found: dict[str, list[int]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, columns = (one.strip() for one in part.partition(":"))
        if not colon or not name.isidentifier() or name in found:
            raise DataError(
                f"fields: “{part}” is not an input of {path.name}. Write a unique name and its columns, as “size: "
                "width, height”, and separate several by semicolons."
            )
        found[name] = [_column_index(column.strip(), names) for column in columns.split(",")]
    if len(found) == 1:
        raise DataError(f"fields names one input of {path.name}. Name several, or none.")
    return found


def _value_places(
    kinds: Mapping[int, tuple[str, ...] | None], chosen: list[int], held: list[int]
) -> tuple[int, ...]:  # fmt: skip
    """Return the places of some columns' values among those of all chosen columns.

    >>> _value_places({0: None, 1: ("a", "b"), 2: None}, [0, 1, 2], [2, 1])
    (3, 1, 2)
    """
    starts, at = {}, 0
    for place in chosen:
        starts[place] = at
        at += len(kinds[place] or "1")
    return tuple(starts[place] + number for place in held for number in range(len(kinds[place] or "1")))


def _target_task(name: str, options: Mapping[str, Any]) -> str:
    """Return the task of an additional target."""
    return VALUES if name in options["numbers"] else CLASSES if name in options["categories"] else "auto"


def _named(names: list[str], kinds: Mapping[int, tuple[str, ...] | None], chosen: list[int]) -> list[str]:
    """Name each input value of a row: a column, or a column and one of its categories."""
    found: list[str] = []
    for place in chosen:
        texts = kinds[place]
        found += [names[place]] if texts is None else [f"{names[place]}={text}" for text in texts]
    return found


def _columns(path: Path, options: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return names and fields of each column; rows of another length are skipped here, and reported on reading."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        table = csv.reader(file, delimiter=_separator(path, options))
        try:
            rows = [row for row in table if row]
            lines = table.line_num
        except csv.Error as error:
            raise DataError(f"{path.name}, line {table.line_num}: {error}.") from error
    _check_quotes(path, options, rows, lines)
    if len(rows) < 1 + options["header"]:
        raise DataError(f"{path.name} has no rows.")
    width = len(rows[0])
    names = [name.strip() for name in rows.pop(0)] if options["header"] else [f"column {n + 1}" for n in range(width)]
    if width < 2:
        raise DataError(f"{path.name} has one column; a table needs an input and a target. Check the separator.")
    if len(set(names)) < width:
        double = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Two columns of {path.name} are called “{double}”. Give each a unique name.")
    whole = [row for row in rows if len(row) == width]
    return names, [[row[place].strip() for row in whole] for place in range(width)]


def _check_quotes(path: Path, options: Mapping[str, Any], rows: list[list[str]], lines: int) -> None:
    """Reject a table that ends inside a quotation, which would swallow rows. Raises DataError."""
    if not rows or not rows[-1] or "\n" not in rows[-1][-1]:
        return
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        try:
            for _ in csv.reader(file, delimiter=_separator(path, options), strict=True):
                pass
        except csv.Error as error:
            if "unexpected end" in str(error):
                first = lines - rows[-1][-1].count("\n") + rows[-1][-1].endswith("\n")
                raise DataError(f"{path.name}, line {first}: a quotation mark is opened and never closed.") from error


def _separator(path: Path, options: Mapping[str, Any]) -> str:
    """Return the chosen separator, or the most frequent one in the first line."""
    if options["separator"] != "auto":
        return {"tab": "\t"}.get(options["separator"], options["separator"])
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    return max(SEPARATORS, key=first.count)


def _column_index(name: str, names: list[str]) -> int:
    if name not in names:
        raise DataError(f"There is no column “{name}”. There are: {', '.join(names[:20])}.")
    return names.index(name)


def _texts(name: str, cells: list[str], options: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the texts of a column, None for a numeric one: nine in ten of its cells are numbers."""
    given = [cell for cell in cells if cell]
    numbers = sum(_is_number(cell) for cell in given)
    if name in options["numbers"] or (name not in options["categories"] and given and numbers >= 0.9 * len(given)):
        return None
    return tuple(sorted(set(given), key=_order))


def _classes(name: str, cells: list[str], task: str) -> tuple[str, ...] | None:
    """Return the classes of a target, None for regression. Raises DataError for too many."""
    given = [cell for cell in cells if cell]
    numbers = sum(_is_number(cell) for cell in given)
    kinds = set(given)
    if task == "auto":
        mostly = numbers >= 0.9 * len(given)
        whole = all(float(cell).is_integer() for cell in kinds if _is_number(cell) and math.isfinite(float(cell)))
        task = VALUES if mostly and not (whole and len(kinds) <= MOST_CLASSES) else CLASSES
    if task == VALUES:
        return None
    check_class_count(f"“{name}”", len(kinds), len(given))
    return tuple(sorted(kinds, key=_order))


def check_class_count(what: str, count: int, samples: int) -> None:
    """Raise DataError for more classes than supported."""
    if count > CLASSES_LIMIT:
        raise DataError(
            f"{what} has {count:,} different classes in {samples:,} samples; at most {CLASSES_LIMIT:,} are supported. "
            "Choose another target, or read its numbers as values to predict (as floats)."
        )


def check_class_ids(what: str, labels: Tensor) -> None:
    """Raise DataError for class ids of a Dataset, (N,) int64, that cannot index the network's outputs. Those that
    fill samples up are -100."""
    by_place = labels.ndim > 1
    labels = labels[labels != -100] if by_place else labels
    if not len(labels):
        raise DataError(f"{what} have no labels.")
    low, most = int(labels.min()), int(labels.max()) + 1
    if low < 0:
        raise DataError(f"The labels of {what} go down to {low}; class ids count from 0.")
    if by_place:
        if most > VOCABULARY_LIMIT:
            raise DataError(f"The labels of {what} go up to {most - 1:,}; at most {VOCABULARY_LIMIT:,} are supported.")
        return
    different = len(labels.unique())
    if most > CLASSES_LIMIT or most > max(1000, 10 * different):
        raise DataError(
            f"The labels of {what} go up to {most - 1:,}, but only {different:,} of these class ids occur. Make the "
            f"dataset return ids from 0 to {different - 1:,}."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _order(text: str) -> tuple[bool, float, str]:
    """Sort key: numbers by value, then texts alphabetically."""
    number = float(text) if _is_number(text) else math.nan
    return (True, 0.0, text) if math.isnan(number) else (False, number, text)


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


def task_of(inputs: Tensor, labels: Tensor) -> str:
    """Infer the task of labels: integers in one column are classes, one per input token are tokens, others values."""
    if labels.is_floating_point():
        return VALUES
    return CLASSES if labels.ndim == 1 else TOKENS


def survey_pictures(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Inspect an image folder: its subfolders are the classes. Raises DataError, OSError."""
    classes = tuple(sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")))
    if not classes:
        raise DataError(f"{path} has no folders. Put the images of each class into a folder named after it.")
    if len(options["size"]) != 2:
        raise DataError(f"size is {options['size']!r}; it must be a height and a width.")
    count = sum(file.is_file() for name in classes for file in (path / name).rglob("*"))
    one = (3 if options["colour"] else 1) * options["size"][0] * options["size"][1]
    if not fits(5 * one):  # as bytes and as float32
        raise DataError(
            f"One image of {path.name} needs {5 * one / 1000000000.0:,.1f} GB at this size, more than half of the "
            "memory of this machine. Reduce size."
        )
    size = count * one
    arguments: dict[str, Any] = {"classes": classes, "size": options["size"], "colour": options["colour"]}
    notes: tuple[str, ...] = ()
    if options["keep"] == "disk" or (options["keep"] == "auto" and not fits(size)):
        arguments |= {"workers": options["workers"], "timeout": options["timeout"], "pin": options["pin_memory"]}
        notes = ("They stay on disk, and each is read when its batch needs it.",)
    elif not fits(size):
        raise DataError(
            f"The images of {path.name} need {size / 1000000000.0:,.1f} GB at this size, more than half of the memory "
            "of this machine. Leave them on disk (keep), or reduce size."
        )
    return FileSurvey(arguments, CLASSES, classes, notes=notes)


def fits(size: int) -> bool:
    """Return whether a number of bytes fits into half of this machine's memory."""
    try:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on Windows
        return True
    return size <= room / 2


def survey_text(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Return the character vocabulary of a text. Raises OSError."""
    text = path.read_bytes().decode("utf-8", errors="ignore")
    characters = "".join(sorted(set(text)))
    return FileSurvey({"characters": characters, "context": options["context"]}, TOKENS, tuple(characters))


def survey_dataset(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Select the Dataset class of a trusted file. Raises DataError."""
    name = own_dataset.class_name(path, options["dataset"])
    arguments = {"name": name, "workers": options["workers"], "timeout": options["timeout"]}
    in_order = own_dataset.is_iterable(path, name)
    notes = (_WITHOUT_WORKERS,) if in_order and options["workers"] else ()
    if options["keep"] == "memory":
        return FileSurvey(arguments, notes=notes)
    note = "Its samples are not held in memory: each is loaded when its batch needs it."
    if in_order:
        note += " They keep their own order: the first are for training, the last for validation, without shuffling."
    elif options["workers"]:
        note += _WORKERS_ONCE
    return FileSurvey({**arguments, "pin": options["pin_memory"], "in_order": in_order}, notes=(note, *notes))


_WITHOUT_WORKERS = "workers is ignored: each of them would return all samples of an iterable dataset."
_WORKERS_ONCE = (
    " workers read them once before the run. During the run they are loaded one after another in its own thread: "
    "random draws follow the order of the batches, so that a run can be repeated and resumed bit for bit."
)


SURVEYS: dict[str, Callable[[Path, Mapping[str, Any]], FileSurvey]] = {
    "file.csv": survey_csv,
    "file.tensors": survey_tensors,
    "file.pictures": survey_pictures,
    "file.text": survey_text,
    dataset_class.KEY: survey_dataset,
}
