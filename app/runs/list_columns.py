"""Columns of the list of runs, in the window and of `tapedeck runs`: what each shows, sorts and filters by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from app.runs.record import Hyperparameters, Record, RunError, Summary
from app.util import formatting
from app.util.columns import in_order

Value = str | float | tuple[str, ...] | None
NOTHING = formatting.UNKNOWN


class ListedRun(Struct, frozen=True):
    """What the columns are read from."""

    record: Record
    summary: Summary
    state: str


class Column(Struct, frozen=True):
    """A column: its key in filters and JSON, its heading and meaning, and its value of a run."""

    key: str
    title: str
    meaning: str
    value: Callable[[ListedRun], Value]
    text: Callable[[Any], str] = str
    number: bool = False
    whole: Callable[[ListedRun], str] | None = (
        None  # the text, where it has more than the value
    )
    listed: bool = True  # else it is for filters alone

    def shown(self, run: ListedRun) -> str:
        """Return the text of the cell."""
        if self.whole is not None:
            return self.whole(run)
        value = self.value(run)
        return NOTHING if value is None else self.text(value)


def _settings(run: ListedRun) -> Hyperparameters:
    """Return the settings; of a record of an earlier version those that it has."""
    record = run.record
    if record.settings is not None:
        return record.settings
    name, *options = record.optimizer.split(", ")
    rate = next((text[3:] for text in options if text.startswith("lr=")), "")
    begun = record.beginning
    return Hyperparameters(
        name,
        _float(rate),
        begun.batch_size if begun is not None else 0,
        "",
        begun.seed if begun is not None else -1,
    )


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _lr(run: ListedRun) -> Value:
    return _settings(run).lr


def _by_hand(run: ListedRun) -> Value:
    return float(run.record.rates_set) or None


def _when(text: str) -> str:
    """Format the time of a run of today, date and time of others."""
    began = datetime.fromisoformat(text).astimezone()
    return (
        f"{began:%H:%M:%S}"
        if began.date() == datetime.now().date()
        else f"{began:%Y-%m-%d %H:%M}"
    )


def _count(value: float) -> str:
    return formatting.grouped_digits(int(value))


_figure, _share = formatting.figure, formatting.percent_sign


def _epochs_text(run: ListedRun) -> str:
    """Return the epochs done of those that were planned; of a script, which tells of none, nothing."""
    return (
        f"{run.summary.epochs:,}/{run.record.epochs:,}"
        if run.record.epochs
        else NOTHING
    )


def _lr_text(run: ListedRun) -> str:
    """Return the learning rate, with a mark where it was changed by hand."""
    rate, count = _settings(run).lr, run.record.rates_set
    rate_text = NOTHING if rate is None else f"{rate:g}"
    return (
        f"{rate_text}, set by hand{f' {count}×' if count > 1 else ''}"
        if count
        else rate_text
    )


ALL: tuple[Column, ...] = (
    Column("run", "Run", "Name of the run", lambda run: run.record.title),
    Column(
        "state", "State", "Where the run is, or how it ended", lambda run: run.state
    ),
    Column(
        "tags",
        "Tags",
        "Tags of the run, separated by commas",
        lambda run: run.record.tags or None,
        ", ".join,
    ),
    Column(
        "note",
        "Notes",
        "Notes on the run",
        lambda run: run.record.note or None,
        lambda text: " ".join(text.split()),
    ),
    Column(
        "best_loss",
        "Best loss",
        "Smallest validation loss",
        lambda run: run.summary.best_loss,
        _figure,
        True,
    ),
    Column(
        "val_loss",
        "Validation loss",
        "Validation loss of the last epoch",
        lambda run: run.summary.val_loss,
        _figure,
        True,
    ),
    Column(
        "train_loss",
        "Training loss",
        "Mean training loss of the last epoch",
        lambda run: run.summary.train_loss,
        _figure,
        True,
    ),
    Column(
        "best_accuracy",
        "Best accuracy",
        "Largest validation accuracy",
        lambda run: run.summary.best_accuracy,
        _share,
        True,
    ),
    Column(
        "val_accuracy",
        "Validation accuracy",
        "Validation accuracy of the last epoch",
        lambda run: run.summary.val_accuracy,
        _share,
        True,
    ),
    Column(
        "optimizer",
        "Optimizer",
        "Class of the optimizer",
        lambda run: _settings(run).optimizer,
    ),
    Column(
        "lr",
        "Learning rate",
        "Learning rate of the main parameter group at the start, and whether it was changed "
        "by hand",
        _lr,
        number=True,
        whole=_lr_text,
    ),
    Column(
        "by_hand",
        "Set by hand",
        "How often the learning rate was changed by hand during the run",
        _by_hand,
        _count,
        True,
        listed=False,
    ),
    Column(
        "batch",
        "Batch size",
        "Samples in a batch",
        lambda run: float(_settings(run).batch_size) or None,
        _count,
        True,
    ),
    Column(
        "schedule",
        "Schedule",
        "Schedule of the learning rate",
        lambda run: _settings(run).schedule or None,
    ),
    Column(
        "seed",
        "Seed",
        "Seed of weights, order and dropout",
        lambda run: float(_settings(run).seed) if _settings(run).seed >= 0 else None,
        lambda seed: f"{seed:.0f}",
        True,
    ),
    Column(
        "epochs",
        "Epochs",
        "Epochs of those that were planned",
        lambda run: float(run.summary.epochs),
        number=True,
        whole=_epochs_text,
    ),
    Column(
        "steps", "Steps", "Steps", lambda run: float(run.summary.steps), _count, True
    ),
    Column("loss", "Loss", "Class of the loss", lambda run: run.record.loss),
    Column("device", "Device", "Where the run trained", lambda run: run.record.device),
    Column(
        "seconds",
        "Time",
        "Time of the run, without pauses",
        lambda run: run.summary.seconds if run.summary.steps else None,
        formatting.duration,
        True,
    ),
    Column(
        "started", "Started", "When the run began", lambda run: run.record.began, _when
    ),
)
COLUMNS: tuple[Column, ...] = tuple(column for column in ALL if column.listed)
BY_KEY: Mapping[str, Column] = {column.key: column for column in ALL}


A = TypeVar("A")


def ordered(
    runs: Iterable[A],
    column: Column,
    descending: bool,
    listed: Callable[[A], ListedRun],
) -> list[A]:
    """Sort by a column what `listed` reads; those without a value come last."""
    rows = list(runs)
    values = [column.value(listed(run)) for run in rows]
    return [rows[at] for at in in_order(values, descending)]


def named(key: str) -> Column:
    """Return the column of a key. Raises RunError."""
    if (column := BY_KEY.get(key.strip().lower())) is None:
        raise RunError(f"There is no column “{key}”; there are {', '.join(BY_KEY)}.")
    return column


_CONDITION = re.compile(r"([A-Za-z_]+)(<=|>=|!=|=|<|>|:)(.*)", re.DOTALL)
_WORDS = re.compile(r'(?:[^\s"]|"[^"]*")+')
Test = Callable[[ListedRun], bool]


def matcher(text: str) -> Test:
    """Return the predicate of a filter such as `lr>0.001 tags:baseline adam`: all its words hold.

    A word is contained in any column, or compares one: `=`, `!=`, `<`, `<=`, `>`, `>=`, and `:` for "contains".
    Quotation marks hold words together. Raises RunError for an unknown column or a comparison with what is no number.
    """
    tests = [_test(word.replace('"', "")) for word in _WORDS.findall(text)]
    return lambda run: all(test(run) for test in tests)


def _test(word: str) -> Test:
    match = _CONDITION.fullmatch(word)
    if match is None:
        query = word.casefold()
        return lambda run: any(
            query in column.shown(run).casefold() for column in COLUMNS
        )
    key, sign, query = match.groups()
    column = named(key)
    if column.number and sign != ":":
        number = _float(query.rstrip("%×"))
        if number is None:
            raise RunError(f"{column.key} is a number, and “{query}” is none.")
        number = number / 100 if query.endswith("%") else number
        compare = _COMPARE[sign]
        return lambda run: _compares(column.value(run), compare, number, sign)
    if sign not in ("=", "!=", ":"):
        raise RunError(f"{column.key} is a text: compare it with =, != or :.")
    query = query.casefold()

    def texts(run: ListedRun) -> list[str]:
        value = column.value(run)
        return [
            text.casefold()
            for text in (value if isinstance(value, tuple) else (column.shown(run),))
        ]

    if sign == ":":
        return lambda run: any(query in text for text in texts(run))
    return lambda run: (query in texts(run)) == (sign == "=")


_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: abs(a - b) <= 1e-9 * max(abs(a), abs(b)),
    "!=": lambda a, b: abs(a - b) > 1e-9 * max(abs(a), abs(b)),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compares(
    value: Value, compare: Callable[[float, float], bool], number: float, sign: str
) -> bool:
    return compare(value, number) if isinstance(value, int | float) else sign == "!="
