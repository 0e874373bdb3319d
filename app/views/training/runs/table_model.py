"""The rows of the page "Runs": stored runs, and those of this window while they run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.runs import record
from app.runs.record import Summary
from app.runs.store import Kept
from app.util import formatting
from app.util.late_dataclass import dataclass
from app.views.training.runs.session import Run
from app.views.ui import icons, theme
from app.views.ui.tables import ColumnsModel, Index, side

COLUMNS = (
    "Run", "State", "Device", "Optimizer", "Epochs", "Steps", "Train loss", "Validation loss", "Best loss",
    "Validation accuracy", "Best accuracy", "Time", "Started",
)  # fmt: skip
NAME = 0

# icon and words of each state
STATES: dict[str, tuple[str, str]] = {
    "starting": ("run", "Starting"),
    "running": ("run", "Running"),
    "paused": ("pause", "Paused"),
    "stopping": ("stop", "Stopping"),
    "done": ("check", "Done"),
    "stopped": ("stop", "Stopped"),
    "failed": ("error", "Failed"),
    "interrupted": ("warning", "Interrupted"),
}


@dataclass(eq=False)
class RunRow:
    """A stored run, one of this window, or both. The state is read once, as that accesses the disk."""

    kept: Kept | None = None
    run: Run | None = None
    state_kept: str = ""
    _texts: tuple[object, tuple[str, ...]] = (None, ())

    @property
    def state(self) -> str:
        return self.run.state if self.run is not None else self.state_kept

    @property
    def title(self) -> str:
        """The display name of the run."""
        if self.kept is not None:
            return self.kept.record.title
        return f"Run {self.run.display_number}" if self.run is not None else ""

    @property
    def outcome(self) -> str:
        """A message about how the run ended."""
        if self.run is not None and self.run.failed is not None:
            return self.run.failed.message
        ending = self.kept.record.ending if self.kept is not None else None
        if ending is not None:
            return ending.message or (ending.note[:1].upper() + ending.note[1:])
        if self.state == "interrupted":
            return "The program ended during this run. It can be resumed from its newest checkpoint."
        return ""

    @property
    def figures(self) -> Summary:
        if self.run is not None:
            return record.summary_of(self.run.history)
        return self.kept.record.summary if self.kept is not None else Summary()

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column, a dash if not measured; cached until something changes."""
        history = self.run.history if self.run is not None else None
        known = (len(history.steps), len(history.epochs), history.started) if history is not None else None
        now = (known, self.state, self.kept)
        if now != self._texts[0]:
            self._texts = (now, self._cells())
        return self._texts[1]

    def _cells(self) -> tuple[str, ...]:
        shown, kept = self.figures, self.kept.record if self.kept is not None else None
        if self.run is not None:
            training = self.run.job.training
            started = self.run.history.started
            device = started.device if started else training.device
            options = ", ".join([training.optimizer.name, *(f"{k}={v}" for k, v in training.optimizer.params.items())])
            epochs, began = training.epochs, self.run.began
        else:
            assert kept is not None
            device, options, epochs = kept.device, kept.optimizer, kept.epochs
            began = datetime.fromisoformat(kept.began)
        return (
            self.title,
            STATES[self.state][1],
            device,
            options,
            f"{shown.epochs:,}/{epochs:,}",
            formatting.grouped_digits(shown.steps),
            *(formatting.figure(value) for value in (shown.train_loss, shown.val_loss, shown.best_loss)),
            *(formatting.percent_sign(value) for value in (shown.val_accuracy, shown.best_accuracy)),
            formatting.duration(shown.seconds) if shown.steps else "–",
            _when(began),
        )


def _when(began: datetime) -> str:
    """Format the time of a run of today, the date of others."""
    own = began.astimezone() if began.tzinfo else began
    return f"{own:%H:%M:%S}" if own.date() == datetime.now().date() else f"{own:%Y-%m-%d %H:%M}"


class RunsModel(ColumnsModel):
    """One row per run, newest on top. `renamed(kept, name)` is emitted by an edit of the first column."""

    renamed = Signal(object, str)
    heads = COLUMNS
    figures = range(4, 12)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[RunRow] = []

    def set_stored(self, runs: list[Kept], mine: list[Run]) -> None:
        """Show stored runs; a run of `mine`, this window's, that is stored shares the row."""
        by_folder = {run.recorder.kept.folder: run for run in mine if run.recorder is not None}
        rows = []
        for kept in runs:
            run = by_folder.pop(kept.folder, None)
            rows.append(RunRow(kept, run, "" if run is not None else kept.state))
        left = [run for run in mine if run.active and (run.recorder is None or run.recorder.kept.folder in by_folder)]
        left += [run for run in mine if not run.active and run.recorder is None]
        rows = [RunRow(None, run) for run in reversed(left)] + rows
        self.beginResetModel()
        self.rows = rows
        self.endResetModel()

    def add(self, run: Run) -> None:
        """Add a run of this window that starts, or attach it to its row if it is resumed."""
        kept = run.recorder.kept if run.recorder is not None else None
        if kept is not None:
            for place, row in enumerate(self.rows):
                if row.kept is not None and row.kept.folder == kept.folder:
                    row.run = run
                    self._changed(place)
                    return
        self.beginInsertRows(QModelIndex(), 0, 0)
        self.rows.insert(0, RunRow(kept, run))
        self.endInsertRows()

    def row_at(self, row: int) -> RunRow:
        return self.rows[row]

    def place_of(self, run: Run) -> int | None:
        return next((place for place, row in enumerate(self.rows) if row.run is run), None)

    def refresh(self, run: Run | None) -> None:
        """Update the row of a run."""
        place = self.place_of(run) if run is not None else None
        if place is not None:
            self._changed(place)

    def _changed(self, place: int) -> None:
        self.dataChanged.emit(self.index(place, 0), self.index(place, len(COLUMNS) - 1))

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        kept = index.isValid() and self.rows[index.row()].kept is not None
        return flags | Qt.ItemFlag.ItemIsEditable if kept and index.column() == NAME else flags

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row = self.rows[index.row()]
        if role != Qt.ItemDataRole.EditRole or row.kept is None or value == row.title:
            return False
        self.renamed.emit(row.kept, str(value))
        return True

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self.rows[index.row()]
        state = COLUMNS[index.column()] == "State"
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row.cells()[index.column()]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return side(index.column() in self.figures)
        if role == Qt.ItemDataRole.DecorationRole and state:
            return icons.icon(STATES[row.state][0], size=14)
        if role == Qt.ItemDataRole.ForegroundRole and state:
            now = theme.current()
            return {"failed": now.error, "interrupted": now.warn}.get(row.state)
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.outcome or (row.cells()[index.column()] if index.column() == 3 else None)
        return None
