"""Parts of a net muted, or taken from another sample: which, and the loss without and with them, sample by sample."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCompleter, QSplitter, QTableView, QWidget

from app.features.interpret.values import Effect, Intervention
from app.util.formatting import counted, figure
from app.views.importing.import_pages import code_field
from app.views.ui import theme
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.scrolled import Scrolled
from app.views.ui.tables import ColumnsModel, Index, plain, side
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

WHOLE, CHANNEL, HEAD = "whole", "channel", "head"
ZEROS, OTHER = "zeros", "other"
THIS, WORST, FIRST = "sample", "worst", "first"
HINT = "Choose a layer and the replacement for its output."
PARTS = [(WHOLE, "Its output"), (CHANNEL, "A channel"), (HEAD, "A head")]
HEIGHT = 24
LEAST = 90  # px, of the height of the tables; what has less room is scrolled


class ChangesModel(ColumnsModel):
    """A row a change."""

    heads = ("Part", "Replaced by")
    rows: list[Intervention] = []

    def set_changes(self, changes: list[Intervention]) -> None:
        self.beginResetModel()
        self.rows = changes
        self.endResetModel()

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        change = self.rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            passes = (
                "zeros"
                if change.source is None
                else f"its output for sample {change.source}"
            )
            return (str(change), passes)[index.column()]
        return None


class EffectModel(ColumnsModel):
    """A row a sample: its loss without and with the changes, and its predictions."""

    heads = ("Sample", "Before", "After", "Change", "Prediction")
    figures = (0, 1, 2, 3)
    rows: list[tuple[int, float, float, str, str]] = []

    def set_effect(self, effect: Effect | None) -> None:
        self.beginResetModel()
        self.rows = []
        if effect is not None and len(effect.each_before) == len(effect.samples):
            measured = zip(
                effect.samples,
                effect.each_before,
                effect.each_after,
                effect.predictions,
                strict=True,
            )
            self.rows = [
                (number, before, after, *predicted)
                for number, before, after, predicted in measured
            ]
        self.endResetModel()

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        number, before, after, old, new = self.rows[index.row()]
        column = index.column()
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            predicted = old if old == new else f"{old} → {new}"
            return (
                f"{number:,}",
                figure(before),
                figure(after),
                f"{after - before:+.3g}",
                predicted,
            )[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return side(column in self.figures)
        if role == Qt.ItemDataRole.ForegroundRole and column == 3 and after != before:
            return theme.current().error if after > before else theme.current().run
        return None


class ChangesTable(QTableView):
    """`removed(row)` comes with Delete."""

    removed = Signal(int)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if (
            event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace)
            and self.currentIndex().isValid()
        ):
            self.removed.emit(self.currentIndex().row())
        else:
            super().keyPressEvent(event)


class ChangesView(QWidget):
    """`changed()` comes when other parts are changed or other samples are measured; `samples` says which of these."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.layer = code_field("Layer, such as encoder.0")
        self.layer.setAccessibleName("Layer")
        self.layer.setMinimumWidth(150)
        self.part = Segmented(PARTS, "Part of the layer")
        self.number = NumberField(0, minimum=0)
        self.number.setAccessibleName("Number of the channel or head")
        self.number.setFixedWidth(64)
        self.what = Segmented([(ZEROS, "Zeros"), (OTHER, "From sample")], "Replacement")
        self.source = NumberField(1, minimum=0)
        self.source.setAccessibleName("Sample to take from")
        self.source.setFixedWidth(76)
        self.add = Button("Change", "primary", "add")
        self.add.setToolTip("Runs the samples with this part replaced as well")
        self.samples = Segmented(
            [(THIS, "This sample"), (WORST, "Worst 6"), (FIRST, "First 64")],
            "Samples to measure",
        )
        self.effect = label(HINT, "label", wrap=True)
        self.remarks = label("", "caption", "text3", wrap=True)
        self.remove, self.clear = Button("Remove", icon="remove"), Button("Remove all")
        self.changes, self.effects = ChangesModel(self), EffectModel(self)
        self.table, self.each = ChangesTable(), QTableView()
        for table, model, name in (
            (self.table, self.changes, "Changed parts"),
            (self.each, self.effects, "Loss of each sample"),
        ):
            table.setModel(model)
            plain(table, name, HEIGHT)
            table.horizontalHeader().setStretchLastSection(True)
        self._lay_out()
        self._connect()
        self._offer()

    def _lay_out(self) -> None:
        content, row, second = QWidget(), QWidget(), QWidget()
        first = FlowLayout(row, (0, 6, 0, 2), 8)
        first.fill(self.layer)
        first.put(self.part, self.number)
        FlowLayout(second, (0, 2, 0, 2), 8).put(
            self.what, self.source, self.add, self.samples, self.remove, self.clear
        )
        tables = QSplitter(Qt.Orientation.Horizontal)
        tables.addWidget(self.table)
        tables.addWidget(self.each)
        tables.setSizes([300, 500])
        tables.setChildrenCollapsible(False)
        tables.setHandleWidth(1)
        for table in (self.table, self.each):
            table.setMinimumHeight(LEAST)
        controls = vbox(row, second, self.effect, margins=(12, 0, 12, 2), spacing=2)
        under = hbox((self.remarks, 1), margins=(12, 0, 12, 4))
        vbox(controls, (tables, 1), under, on=content, margins=0, spacing=2)
        vbox(Scrolled(content), on=self, margins=0)

    def _connect(self) -> None:
        self.part.changed.connect(lambda _key: self._offer())
        self.what.changed.connect(lambda _key: self._offer())
        self.layer.textChanged.connect(lambda _text: self._offer())
        self.layer.returnPressed.connect(self._add)
        self.add.clicked.connect(self._add)
        self.samples.changed.connect(lambda _key: self.changed.emit())
        self.table.removed.connect(self._remove)
        self.remove.clicked.connect(
            lambda: self._remove(self.table.currentIndex().row())
        )
        self.clear.clicked.connect(lambda: self.set_changes([]))
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._offer())

    def set_layers(self, layers: tuple[str, ...]) -> None:
        """Offer these modules while typing."""
        completer = QCompleter(layers, self.layer)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.layer.setCompleter(completer)

    def set_changes(self, changes: list[Intervention]) -> None:
        """Change these parts, and no others."""
        self.changes.set_changes(changes)
        self.table.resizeColumnToContents(0)
        self._offer()
        self.changed.emit()

    def set_effect(self, effect: Effect | None) -> None:
        """Show the loss without and with the changes; None while it is not known."""
        self.effects.set_effect(effect)
        self.remarks.setText("")
        if effect is None:
            self.effect.setText("Measuring the loss…" if self.changes.rows else HINT)
            return
        parts = counted(len(self.changes.rows), "part")
        self.effect.setText(
            f"{parts} changed: {effect.measure} of {counted(len(effect.samples), 'sample')} {figure(effect.before)} → "
            f"{figure(effect.after)} ({effect.change:+.3g}); "
            f"the output changes by {100 * effect.shift:.2f} % of its norm"
        )
        self.remarks.setText(" ".join(f"{remark}." for remark in effect.remarks))
        self.each.resizeColumnsToContents()

    def _offer(self) -> None:
        self.number.setVisible(self.part.value() != WHOLE)
        self.source.setVisible(self.what.value() == OTHER)
        self.add.setEnabled(
            bool(self.layer.text().strip()) or self.part.value() == HEAD
        )
        self.remove.setEnabled(self.table.currentIndex().isValid())
        self.clear.setEnabled(bool(self.changes.rows))

    def _add(self) -> None:
        if not self.add.isEnabled():
            return
        kind, number = self.part.value(), int(self.number.value())
        intervention = Intervention(
            self.layer.text().strip(),
            0,
            number if kind == HEAD else None,
            number if kind == CHANNEL else None,
            None,
            int(self.source.value()) if self.what.value() == OTHER else None,
        )
        if intervention not in self.changes.rows:
            self.set_changes([*self.changes.rows, intervention])

    def _remove(self, row: int) -> None:
        if 0 <= row < len(self.changes.rows):
            self.set_changes(
                [change for at, change in enumerate(self.changes.rows) if at != row]
            )
