"""The table of a snippet's named tensors and their autograd state."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from app.autograd.snippets.snippet import NamedTensor, SnippetAnswer
from app.util.formatting import shape_text, significant, typeset
from app.views.ui import theme
from app.views.ui.tables import ColumnsModel, Index, plain

COLUMNS = (
    "Name",
    "Shape",
    "requires_grad",
    "grad_fn",
    ".grad",
    "is_leaf",
    "_version",
    "dtype",
    "Values",
)
WIDEST = 190  # px of a column of text
ROOM = 18
JUDGED = 60  # rows that a column's width is judged by
_ROLE = Qt.ItemDataRole


def cells(tensor: NamedTensor) -> tuple[str, ...]:
    """Return the cells of a row."""
    grad = "None"
    if tensor.grad or tensor.grad_norm is not None:
        grad = typeset(tensor.grad)
        grad = (
            grad
            if tensor.grad_norm is None
            else f"{grad}  norm {significant(tensor.grad_norm, 4)}"
        )
    version = "not counted" if tensor.version is None else str(tensor.version)
    return (
        tensor.name,
        shape_text(tensor.shape, "()"),
        str(tensor.requires_grad),
        tensor.grad_fn or "None",
        grad,
        str(tensor.is_leaf),
        version,
        tensor.dtype,
        typeset(tensor.values),
    )


class TensorModel(ColumnsModel):
    """One row a tensor. Those that a graph can be shown of have their grad_fn in the accent's colour."""

    heads = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.tensors: tuple[NamedTensor, ...] = ()
        self.rows: list[tuple[str, ...]] = []
        self._graphs: frozenset[str] = frozenset()

    def set_answer(self, answer: SnippetAnswer | None) -> None:
        self.beginResetModel()
        self.tensors = answer.tensors if answer else ()
        self.rows = [cells(tensor) for tensor in self.tensors]
        self._graphs = (
            frozenset(graph.name for graph in answer.graphs) if answer else frozenset()
        )
        self.endResetModel()

    def texts(self, column: int) -> list[str]:
        """Return the texts of a column that its width is computed from."""
        return [row[column] for row in self.rows[:JUDGED]]

    def data(self, index: Index, role: int = _ROLE.DisplayRole) -> Any:
        if not index.isValid():
            return None
        text, tensor = self.rows[index.row()][index.column()], self.tensors[index.row()]
        column = COLUMNS[index.column()]
        if role == _ROLE.DisplayRole:
            return text
        if role == _ROLE.ToolTipRole:
            if column == "grad_fn" and tensor.name in self._graphs:
                return f"Show the graph below {tensor.name}"
            if column == ".grad" and tensor.retains_grad:
                return f"{text}\nretain_grad() was called on it"
            return text
        if role == _ROLE.FontRole and column in ("Name", ".grad", "Values"):
            return theme.font("formula")
        if role == _ROLE.ForegroundRole:
            if column == "grad_fn" and tensor.name in self._graphs:
                return theme.current().accent
            faint = text in ("None", "False") or column in (
                "dtype",
                "Values",
                "is_leaf",
                "_version",
                "Shape",
            )
            return theme.current().text2 if faint else theme.current().text
        return None


class TensorTable(QTableView):
    """`chosen(name)` comes when a row is gone to."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.tensors = TensorModel(self)
        self.setModel(self.tensors)
        plain(self, "Named tensors", 22, room=5)
        self.setAccessibleDescription(
            "A row with a grad_fn shows the graph below that tensor"
        )
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        self.selectionModel().currentRowChanged.connect(self._emit_chosen)

    def set_answer(self, answer: SnippetAnswer | None) -> None:
        """Show the tensors of an answer."""
        self.selectionModel().blockSignals(True)
        self.tensors.set_answer(answer)
        self.selectionModel().blockSignals(False)
        self._fit()

    def _fit(self) -> None:
        """Make columns as wide as their texts, up to a bound."""
        heads, plain = self.horizontalHeader().fontMetrics(), self.fontMetrics()
        code = QFontMetrics(theme.font("formula"))
        for column, name in enumerate(COLUMNS[:-1]):
            measure = code if name in ("Name", ".grad") else plain
            texts = self.tensors.texts(column)
            widest = max(
                [heads.horizontalAdvance(name), *map(measure.horizontalAdvance, texts)]
            )
            self.setColumnWidth(column, min(widest, WIDEST) + ROOM)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            QTimer.singleShot(0, self, self._fit)  # once the heading has its font too

    def wanted_height(self) -> int:
        """Return the height that shows all rows."""
        rows = self.tensors.rowCount() * self.verticalHeader().defaultSectionSize()
        bar = self.horizontalScrollBar().sizeHint().height()
        return (
            self.horizontalHeader().sizeHint().height()
            + rows
            + bar
            + 2 * self.frameWidth()
        )

    def choose(self, name: str) -> None:
        """Select a row without a word of it."""
        row = next(
            (
                at
                for at, tensor in enumerate(self.tensors.tensors)
                if tensor.name == name
            ),
            None,
        )
        self.selectionModel().blockSignals(True)
        if row is None:
            self.clearSelection()
        else:
            self.selectRow(row)
        self.selectionModel().blockSignals(False)
        self.viewport().update()

    def _emit_chosen(self, current: QModelIndex, _before: QModelIndex) -> None:
        if current.isValid():
            self.chosen.emit(self.tensors.tensors[current.row()].name)
