"""Metadata of a data source, before and after reading it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.util.errors import CodedError
from app.util.frozen import FrozenMap

CLASSES, VALUES, TOKENS = "classes", "values", "tokens"
PROBABILITIES, BINARY = (
    "probabilities",
    "binary",
)  # what the values of a target are, if they are all of that kind


class DataError(CodedError):
    """Raised for unusable data; the message says which, why and how to fix it."""

    exit_code = 2


class ReadingCancelledError(DataError):
    """Raised if the user stopped the reading."""

    def __init__(self) -> None:
        super().__init__("Reading the data was stopped.")


class NotDownloadedError(DataError):
    """Raised if the files are not in the folder; nothing is downloaded without consent."""

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        super().__init__(
            f"{spec.label} is not in {folder}. It is a download of {spec.megabytes:.1f} MB from {spec.host}, and "
            "nothing is downloaded without asking."
        )


class Option(Struct, frozen=True):
    """One field of a source's own; the fields are those of the layer catalog's parameters.

    A "literal" is a tuple of numbers, of whole ones if the default has them; a "names" is a tuple of texts.
    """

    name: str
    kind: str
    default: Any
    required: bool = False
    choices: tuple[Any, ...] = ()
    auto: bool = False
    count: int = 0
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    rising: bool = False  # of two numbers the second is at least the first
    doc: str = ""

    def refusal(self, value: Any) -> str:
        """Validate a value; return the error message, "" if valid."""
        if self.kind in ("literal", "names"):
            return self._tuple_refusal(value)
        if self.kind == "choice":
            return (
                ""
                if value in self.choices
                else f"it must be one of {', '.join(map(repr, self.choices))}"
            )
        kinds: dict[str, type | tuple[type, ...]] = {
            "int": int,
            "float": (int, float),
            "bool": bool,
            "str": str,
        }
        bool_for_number = isinstance(value, bool) and self.kind != "bool"
        if bool_for_number or not isinstance(value, kinds[self.kind]):
            descriptions = {
                "int": "an integer",
                "float": "a number",
                "bool": "True or False",
                "str": "a text",
            }
            return f"it must be {descriptions[self.kind]}"
        return (
            self._bounds_refusal("it", (value,))
            if self.kind in ("int", "float")
            else ""
        )

    def _bounds_refusal(self, subject: str, numbers: tuple[Any, ...]) -> str:
        if self.minimum is not None and not min(numbers) >= self.minimum:
            return f"{subject} must be at least {self.minimum:g}"
        if self.maximum is not None and not max(numbers) <= self.maximum:
            return f"{subject} must be at most {self.maximum:g}"
        return ""

    def _tuple_refusal(self, value: Any) -> str:
        if self.kind == "names":
            good = isinstance(value, tuple) and all(
                isinstance(entry, str) for entry in value
            )
            return "" if good else "it must be a tuple of names"
        # A default of ints means sizes; other tuples accept any number.
        integral = all(type(number) is int for number in self.default)
        kinds = (int,) if integral else (int, float)
        if (
            not isinstance(value, tuple)
            or not value
            or not all(type(number) in kinds for number in value)
        ):
            return f"it must be a tuple of {'integers' if integral else 'numbers'}"
        if self.count and len(value) != self.count:
            return f"it must be a tuple of {self.count} numbers"
        if not all(
            math.isfinite(number) and (number > 0 or not integral) for number in value
        ):
            return (
                "its numbers must be above 0"
                if integral
                else "its numbers must be finite"
            )
        if self.rising and value[0] > value[1]:
            return "its first number must not be above the second"
        return self._bounds_refusal("its numbers", value)


class TargetInfo(Struct, frozen=True):
    """One of the targets of a sample: its task, see `app.training.task.Task`, and its shape without the batch.

    `form` is PROBABILITIES for values of which each row sums to 1, one-hot rows too, BINARY for other rows of 0 and 1.
    """

    name: str
    task: str
    classes: tuple[str, ...] = ()
    label_shape: tuple[int, ...] = ()
    form: str = ""

    @property
    def labels_per_sample(self) -> int:
        return math.prod(self.label_shape)


SHOWN_DIGITS = 6  # that float32 keeps of a column's mean or spread


class ColumnScale(Struct, frozen=True, eq=False):
    """Mean and standard deviation, (C,) each, by which the columns of an input were standardised.

    >>> import numpy
    >>> scale = ColumnScale(numpy.array([80.0, 0.5]), numpy.array([12.0, 0.5]))
    >>> scale.unscaled(scale.scaled(numpy.array([73.0, 0.0]))).tolist()
    [73.0, 0.0]
    """

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    def scaled(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return columns (..., C) standardised."""
        standardised: NDArray[np.float32] = ((values - self.mean) / self.spread).astype(
            np.float32
        )
        return standardised

    def unscaled(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return standardised columns (..., C) as they were, without the error of float32 in the last digits."""
        size = np.maximum(np.maximum(abs(self.mean), self.spread), 1e-300)
        unit = 10.0 ** (np.floor(np.log10(size)) - SHOWN_DIGITS + 1)
        restored = values.astype(np.float64) * self.spread + self.mean
        rounded: NDArray[np.float32] = (np.round(restored / unit) * unit + 0.0).astype(
            np.float32
        )  # -0 becomes 0
        return rounded


class FieldInfo(Struct, frozen=True):
    """One of the inputs of a sample: its shape without the batch and torch's name of its dtype.

    `symbols` are the texts of its integer codes; empty for numbers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    symbols: tuple[str, ...] = ()


class Category(Struct, frozen=True):
    """A column of texts, which is a value of 0 or 1 for each text; `first` is the position of the first of these."""

    name: str
    first: int
    texts: tuple[str, ...]

    def text_of(self, values: Sequence[float]) -> str:
        """Return the text that the values of a row stand for, "" if none of them is set.

        >>> Category("town", 1, ("Kiel", "Ulm")).text_of([80.0, 0.0, 1.0])
        'Ulm'
        """
        own = values[self.first : self.first + len(self.texts)]
        best = max(range(len(own)), key=own.__getitem__)
        return self.texts[best] if own[best] > 0.5 else ""


class SourceSpec(Struct, frozen=True):
    """Metadata of a source, before or after reading it.

    `shape` is one sample, without the batch. `per_class` counts the samples of each class that are split into training,
    validation and test; without classes it is their total. `own_split` means that its authors held out `held_out`
    samples for validation, so that `DataConfig.validation_fraction` is not used. `download_bytes` is 0 for data that
    need no download. `task` is "classes", "values" or "tokens", see `app.training.task.Task`; `label_shape` is the
    label of one sample. `picks` is "file" or "folder" for a source that reads the user's; until it is read its `shape`
    and `per_class` are empty. `columns` names the values of a table. Once a file is read, `bad` lists unreadable
    samples, `arguments` are those of its reader, and `all_columns` are the columns to choose from. `as_bytes` means
    that samples are stored as bytes and converted to [0, 1] per batch. `target_scales` are mean and standard
    deviation of the values to predict, by target. If a sample has several `targets`, task, classes and label are those
    of the first; if it has several `inputs`, shape and dtype are those of the first.
    """

    key: str
    label: str
    summary: str
    shape: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    per_class: tuple[int, ...] = ()
    dtype: str = "float32"
    own_split: bool = False
    held_out: int = 0
    download_bytes: int = 0
    host: str = ""
    task: str = CLASSES
    label_shape: tuple[int, ...] = ()
    picks: str = ""
    pattern: str = ""
    columns: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    notes: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    arguments: FrozenMap[str, Any] = FrozenMap()
    all_columns: tuple[str, ...] = ()
    as_bytes: bool = False
    targets: tuple[TargetInfo, ...] = ()
    inputs: tuple[FieldInfo, ...] = ()
    target_scales: FrozenMap[str, tuple[float, float]] = FrozenMap()
    label_form: str = ""

    @property
    def known_targets(self) -> tuple[TargetInfo, ...]:
        """All targets; the name of an only one is empty."""
        only = TargetInfo(
            "", self.task, self.classes, self.label_shape, self.label_form
        )
        return self.targets or (only,)

    @property
    def categories(self) -> tuple[Category, ...]:
        """The inputs of a table that are texts, each one a column of its file and several of `columns`."""
        read = self.arguments.get("columns", {})
        categories, position = list[Category](), 0
        for index, texts in read.items() if isinstance(read, Mapping) else ():
            if texts is not None:
                name = self.all_columns[index]
                categories.append(Category(name, position, tuple(texts)))
            position += 1 if texts is None else len(texts)
        return tuple(categories)

    @property
    def target_name(self) -> str:
        """The name of the first target in its file, "" without one."""
        named = [target.name for target in self.targets]
        return next(
            iter(
                [
                    *named,
                    *self.arguments.get("targets", ()),
                    *self.arguments.get("labels", ()),
                ]
            ),
            "",
        )

    @property
    def is_read(self) -> bool:
        """True once shape and counts are known."""
        return bool(self.per_class) or not self.picks

    @property
    def megabytes(self) -> float:
        return self.download_bytes / 1e6

    @property
    def count(self) -> int:
        """All samples."""
        return sum(self.per_class) + self.held_out


class DataInfo(Struct, frozen=True):
    """Metadata of loaded data: shapes without the batch, torch's name of the dtype, counts of samples.

    `class_counts` are the training samples (or tokens) of each class, empty for values. If a sample has several
    `targets`, task, classes and labels are those of one of them; `target_counts` has the counts of all. If it has
    several `inputs`, shape and dtype are those of the first. `units` are mean and standard deviation of each value of
    the targets that are standardised, by target.
    """

    source: str
    label: str
    input_shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    train_count: int
    validation_count: int
    task: str = CLASSES
    labels_per_sample: int = 1
    test_count: int = 0
    class_counts: tuple[int, ...] = ()
    label_shape: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    targets: tuple[TargetInfo, ...] = ()
    target_counts: FrozenMap[str, tuple[int, ...]] = FrozenMap()
    inputs: tuple[FieldInfo, ...] = ()
    stand_in: str = ""  # says what stands in for data that are not downloaded
    label_form: str = ""
    units: FrozenMap[str, tuple[tuple[float, ...], tuple[float, ...]]] = FrozenMap()

    @property
    def known_targets(self) -> tuple[TargetInfo, ...]:
        """All targets; the name of an only one is empty."""
        only = TargetInfo(
            "", self.task, self.classes, self.label_shape, self.label_form
        )
        return self.targets or (only,)


class BatchPreview(Struct, frozen=True):
    """The samples that a run trains on first, as its step gets them; `shuffled` if their order is drawn.

    `pictures` are (height, width, 3) arrays of bytes, stretched over the range of the batch, and `before` the same ones
    before their transforms, if there are any; `captions` are the labels, one a sample, in the units of the data. `rows`
    are the first columns of a table in the units of its file, their names first, with "…" for further ones, and
    `standardised` says that the step gets them standardised; `texts` are pieces of a text. `low` and `high` are the
    range of the batch.
    """

    spec: SourceSpec
    info: DataInfo
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    label_shape: tuple[int, ...]
    label_dtype: str
    captions: tuple[str, ...] = ()
    pictures: tuple[NDArray[np.uint8], ...] = ()
    before: tuple[NDArray[np.uint8], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    texts: tuple[str, ...] = ()
    shuffled: bool = False
    standardised: bool = False
