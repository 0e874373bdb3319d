"""The rows of the page "Runs": stored runs, and those of this window while they run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.runs import list_columns, record
from app.runs.list_columns import ListedRun
from app.runs.record import Summary
from app.runs.store import Kept
from app.util.columns import Column
from app.views.run.session import Run
from app.views.ui.tables import Index, RowsModel

KEYS = tuple(column.key for column in list_columns.COLUMNS)
NAME, STATE = KEYS.index("run"), KEYS.index("state")
EDITED = {
    "run": "name",
    "note": "note",
    "tags": "tags",
}  # what an edit of a column changes of the run

# icon and words of each state
STATES: dict[str, tuple[str, str]] = {
    "starting": ("run", "Starting"),
    "waiting": ("run", "Waiting for its first step"),
    "running": ("run", "Running"),
    "paused": ("pause", "Paused"),
    "stopping": ("stop", "Stopping"),
    "done": ("check", "Done"),
    "stopped": ("stop", "Stopped"),
    "left": ("run", "No longer watched"),
    "failed": ("error", "Failed"),
    "interrupted": ("warning", "Interrupted"),
}


class RunRow(Struct, eq=False):
    """A stored run, one of this window, or both. The state is read once, as that accesses the disk."""

    kept: Kept | None = None
    run: Run | None = None
    state_kept: str = ""
    _texts: tuple[object, tuple[str, ...]] = (None, ())

    @property
    def state(self) -> str:
        return self.run.state if self.run is not None else self.state_kept

    @property
    def key(self) -> object:
        """What tells its run from others; the folder of one of this window may become another."""
        if self.run is not None or self.kept is None:
            return id(self.run)
        return self.kept.folder

    @property
    def elsewhere(self) -> bool:
        """True while another process trains it."""
        return self.run is None and self.state_kept == "running"

    @property
    def title(self) -> str:
        """The display name of the run."""
        if self.kept is not None:
            return self.kept.record.title
        return f"Run {self.run.display_number}" if self.run is not None else ""

    @property
    def label(self) -> str:
        """The display name with the tags."""
        return self.kept.record.label if self.kept is not None else self.title

    @property
    def outcome(self) -> str:
        """A message about how the run ended."""
        if self.run is not None and self.run.failed is not None:
            return self.run.failed.message
        ending = self.kept.record.ending if self.kept is not None else None
        if self.run is not None and self.run.finished is not None:
            return _sentence(self.run.finished.reason_text)
        if ending is not None:
            return ending.message or _sentence(ending.note)
        if self.state == "interrupted":
            return "The program ended during this run."
        return ""

    @property
    def figures(self) -> Summary:
        if self.run is not None:
            return record.summary_of(self.run.history)
        return self.kept.record.summary if self.kept is not None else Summary()

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column, a dash if not measured; cached until something changes."""
        history = self.run.history if self.run is not None else None
        progress = None
        if history is not None:
            progress = (
                len(history.steps),
                len(history.epochs),
                len(history.rates_set),
                history.started,
            )
        now = (progress, self.state, self.kept)
        if now != self._texts[0]:
            self._texts = (now, self._cells())
        return self._texts[1]

    def _cells(self) -> tuple[str, ...]:
        listed = self.listed
        texts = [column.shown(listed) for column in list_columns.COLUMNS]
        texts[STATE] = STATES[self.state][1]
        return tuple(texts)

    @property
    def listed(self) -> ListedRun:
        """What the columns, filters and sorting read, as it is now."""
        stored_run, run = self.kept, self.run
        if run is None:
            assert stored_run is not None
            return ListedRun(stored_run.record, stored_run.record.summary, self.state)
        training, history = run.job.training, run.history
        run_record = (
            stored_run.record
            if stored_run is not None
            else record.record_of(
                training, "", run.display_number, run.began.isoformat()
            )
        )
        settings, rates = record.hyperparameters(training), history.steps["rate"]
        if settings.lr is None and len(rates) and rates[0] == rates[0]:
            settings = replace(settings, lr=float(rates[0]))
        started, epochs = history.started, training.epochs
        if run.watched is not None:  # nothing is known of it but what its lines say
            size, seed = (started.batch_size, started.seed) if started else (0, -1)
            settings = replace(settings, batch_size=size, seed=seed)
            epochs = started.epochs if started and started.steps_per_epoch else 0
        run_record = replace(
            run_record,
            settings=settings,
            rates_set=max(run_record.rates_set, len(history.rates_set)),
            device=started.device if started else training.device,
            epochs=epochs,
        )
        return ListedRun(run_record, self.figures, self.state)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}." if note else ""


def _tip(row: RunRow, key: str) -> str:
    """Return what a cell says at length: the note, all options of the optimizer, or how the run ended."""
    if row.kept is not None and key == "note" and row.kept.record.note:
        return row.kept.record.note
    return row.listed.record.optimizer if key == "optimizer" else row.outcome


def _column(at: int, listed: list_columns.Column) -> Column:
    column = Column(
        listed.title,
        lambda row: row.cells()[at],
        listed.meaning,
        listed.number,
        lambda row: listed.value(row.listed),
        tip=lambda row: _tip(row, listed.key),
    )
    if listed.key != "state":
        return column
    colors = {"failed": "error", "interrupted": "warn"}
    return replace(
        column,
        icon=lambda row: STATES[row.state][:1],
        color=lambda row: colors.get(row.state, ""),
    )


class RunsModel(RowsModel):
    """One row per run, newest on top unless a column sorts them, and those alone that the filter takes.

    `annotated(kept, what, text)` is emitted by an edit of the name, the note or the tags.
    """

    annotated = Signal(object, str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        columns = [_column(*numbered) for numbered in enumerate(list_columns.COLUMNS)]
        super().__init__(columns, parent=parent)
        self._all: list[RunRow] = []  # newest first
        self._takes: list_columns.Test = lambda _run: True

    def identity(self, row: RunRow) -> object:
        return row.key

    @property
    def count(self) -> int:
        """The number of runs, those that the filter leaves out counted."""
        return len(self._all)

    @property
    def newest_first(self) -> tuple[RunRow, ...]:
        """All runs, whatever filters and sorts them."""
        return tuple(self._all)

    @property
    def elsewhere(self) -> bool:
        """True while another process trains one of the runs."""
        return any(row.elsewhere for row in self._all)

    def set_stored(self, runs: list[Kept], mine: list[Run]) -> None:
        """Show stored runs; a run of `mine`, this window's, that is stored shares the row."""
        by_folder = {
            run.recorder.kept.folder: run for run in mine if run.recorder is not None
        }
        rows = []
        for stored_run in runs:
            run = by_folder.pop(stored_run.folder, None)
            rows.append(
                RunRow(stored_run, run, "" if run is not None else stored_run.state)
            )
        left = [
            run
            for run in mine
            if run.active
            and (run.recorder is None or run.recorder.kept.folder in by_folder)
        ]
        left += [run for run in mine if not run.active and run.recorder is None]
        # Begun after the folder was read: it keeps its folder, by which the selection knows it.
        new_rows = [
            RunRow(run.recorder.kept if run.recorder is not None else None, run)
            for run in reversed(left)
        ]
        self._all = new_rows + rows
        self._arrange()

    def set_filter(self, text: str) -> None:
        """Show the runs that a filter takes, see `list_columns.matcher`. Raises RunError."""
        self._takes = list_columns.matcher(text)
        self._arrange()

    def _arrange(self) -> None:
        self.set_rows([row for row in self._all if self._takes(row.listed)])

    def add(self, run: Run) -> None:
        """Add a run of this window that starts, or attach it to its row if it is resumed."""
        stored_run = run.recorder.kept if run.recorder is not None else None
        if stored_run is not None:
            for row in self._all:
                if row.kept is not None and row.kept.folder == stored_run.folder:
                    row.run = run
                    if row in self.rows:
                        self.refresh(run)
                    return
        for row in [
            row for row in self._all if row.run is not None and run.continues(row.run)
        ]:
            self._remove(row)
        self._all.insert(0, RunRow(stored_run, run))
        self.beginInsertRows(
            QModelIndex(), 0, 0
        )  # whatever sorts or filters them: it has just begun
        self.rows.insert(0, self._all[0])
        self._natural = [self._all[0], *self._natural]
        self.endInsertRows()

    def _remove(self, row: RunRow) -> None:
        self._all.remove(row)
        if row in self.rows:
            index = self.rows.index(row)
            self.beginRemoveRows(QModelIndex(), index, index)
            self.rows.remove(row)
            self._natural = [other for other in self._natural if other is not row]
            self.endRemoveRows()

    def place_of(self, run: Run) -> int | None:
        return next(
            (index for index, row in enumerate(self.rows) if row.run is run), None
        )

    def refresh(self, run: Run | None) -> None:
        """Update the row of a run."""
        index = self.place_of(run) if run is not None else None
        if index is not None:
            self.rows_changed(index, index)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        stored = index.isValid() and self.rows[index.row()].kept is not None
        return (
            flags | Qt.ItemFlag.ItemIsEditable
            if stored and KEYS[index.column()] in EDITED
            else flags
        )

    def setData(
        self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole
    ) -> bool:
        row, key = self.rows[index.row()], KEYS[index.column()]
        if role != Qt.ItemDataRole.EditRole or row.kept is None or key not in EDITED:
            return False
        if str(value) == self.data(index, Qt.ItemDataRole.EditRole):
            return False
        self.annotated.emit(row.kept, EDITED[key], str(value))
        return True

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.EditRole:
            row, key = self.rows[index.row()], KEYS[index.column()]
            if row.kept is not None and key == "note":
                return row.kept.record.note  # with its lines
            if row.kept is not None and key == "tags":
                return ", ".join(row.kept.record.tags)
        return super().data(index, role)
