"""The page "Runs": the runs of this window, how they ended and what they reached."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView, QStackedLayout, QTableView, QWidget

from app.views import icons, theme
from app.views.training import figures
from app.views.training.session import Run, RunSession
from app.views.widgets.empty import EmptyState

COLUMNS = (
    "Run", "State", "Device", "Optimizer", "Epochs", "Steps",
    "Train loss", "Validation loss", "Validation accuracy", "Time", "Started",
)  # fmt: skip
NUMBERS = frozenset(COLUMNS[4:10])

# icon and words of each state
STATES: dict[str, tuple[str, str]] = {
    "starting": ("run", "Starting"),
    "running": ("run", "Running"),
    "paused": ("pause", "Paused"),
    "stopping": ("stop", "Stopping"),
    "done": ("check", "Done"),
    "stopped": ("stop", "Stopped"),
    "failed": ("error", "Failed"),
}

Index = QModelIndex | QPersistentModelIndex


def cells(run: Run) -> tuple[str, ...]:
    """The texts of a run's row, one a column; what was not measured is a dash."""
    history, training = run.history, run.job.training
    steps, epochs = history.steps, history.epochs
    last = len(epochs) - 1

    def figure(name: str) -> float | None:
        return None if last < 0 or np.isnan(epochs[name][last]) else float(epochs[name][last])

    accuracy = figure("val_accuracy")
    return (
        str(run.number),
        STATES[run.state][1],
        history.started.device if history.started else training.device,
        ", ".join([training.optimizer.name, *(f"{k}={v}" for k, v in training.optimizer.params.items())]),
        f"{len(epochs)}/{training.epochs}",
        figures.count(len(steps)),
        figures.figure(figure("train_loss")),
        figures.figure(figure("val_loss")),
        "–" if accuracy is None else f"{figures.percent(accuracy)} %",
        figures.duration(float(steps["seconds"][-1])) if len(steps) else "–",
        f"{run.began:%H:%M:%S}",
    )


class RunsModel(QAbstractTableModel):
    """A row a run, the newest on top."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._runs: list[Run] = []

    def add(self, run: Run) -> None:
        self.beginInsertRows(QModelIndex(), 0, 0)
        self._runs.insert(0, run)
        self.endInsertRows()

    def run_at(self, row: int) -> Run:
        return self._runs[row]

    def refresh(self) -> None:
        """The newest run has moved on."""
        if self._runs:
            self.dataChanged.emit(self.index(0, 0), self.index(0, len(COLUMNS) - 1))

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._runs)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side(section)
        return COLUMNS[section] if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        run = self.run_at(index.row())
        state = COLUMNS[index.column()] == "State"
        if role == Qt.ItemDataRole.DisplayRole:
            return cells(run)[index.column()]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side(index.column())
        if role == Qt.ItemDataRole.DecorationRole and state:
            return icons.icon(STATES[run.state][0], size=14)
        if role == Qt.ItemDataRole.ForegroundRole and state and run.state == "failed":
            return theme.current().error
        if role == Qt.ItemDataRole.ToolTipRole and run.failed is not None:
            return run.failed.message
        return None


def _side(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if COLUMNS[column] in NUMBERS else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


class RunPanel(QWidget):
    """The table of runs. `runChosen(run)` is sent when a row is chosen, so that its curves can be shown."""

    runChosen = Signal(object)
    runRequested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = RunsModel(self)
        self.table = QTableView()
        self.table.setModel(self.model)
        self.table.setFrameShape(QFrame.Shape.NoFrame)
        self.table.setShowGrid(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(26)
        header = self.table.horizontalHeader()
        header.setFont(theme.font("caption"))
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        header.setHighlightSections(False)
        self.table.selectionModel().currentRowChanged.connect(self._on_row)
        hint = "Every run of this window is listed here with what it reached. The list ends with the window."
        self.empty = EmptyState("runs", "No run yet", hint, "Run")
        self.empty.acted.connect(self.runRequested)
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.table)

    def set_session(self, session: RunSession) -> None:
        """List the runs of this session, those that were and those to come."""
        for run in session.runs:
            self._add(run)
        session.runStarted.connect(self._add)
        session.stateChanged.connect(self._on_state)

    @Slot()
    def refresh(self) -> None:
        """The newest run has moved on."""
        if self.isVisible():
            self.model.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.model.refresh()

    @Slot(object)
    def _add(self, run: Run) -> None:
        self.model.add(run)
        self._stack.setCurrentIndex(1)
        self.table.selectRow(0)

    @Slot(str)
    def _on_state(self, _state: str) -> None:
        self.model.refresh()

    @Slot(QModelIndex, QModelIndex)
    def _on_row(self, current: QModelIndex, _before: QModelIndex) -> None:
        if current.isValid():
            self.runChosen.emit(self.model.run_at(current.row()))
