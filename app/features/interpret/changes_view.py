"""Parts of a net muted, or taken from another sample: which, and the loss without and with them, sample by sample."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCompleter, QSplitter, QWidget

from app.features.interpret.values import Effect, Intervention
from app.util.columns import Column
from app.util.formatting import figure, grouped_digits
from app.util.language import marked, tr, trn
from app.views.fields.form_field import code_field
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.scrolled import Scrolled
from app.views.ui.tables import Table
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

WHOLE, CHANNEL, HEAD = "whole", "channel", "head"
ZEROS, OTHER = "zeros", "other"
THIS, WORST, FIRST = "sample", "worst", "first"
HINT = marked("Choose a layer and the replacement for its output.")
PARTS = [(WHOLE, "Its output"), (CHANNEL, "A channel"), (HEAD, "A head")]
LEAST = 90  # px, of the height of the tables; what has less room is scrolled


def _replacement(change: Intervention) -> str:
    if change.source is None:
        return "zeros"
    return f"its output for sample {change.source}"


class SampleEffect(NamedTuple):
    """The loss of a sample without and with the changes, and its predictions."""

    sample: int
    before: float
    after: float
    old: str
    new: str

    @property
    def tone(self) -> str:
        if self.after == self.before:
            return ""
        return "error" if self.after > self.before else "run"


def effects_of(effect: Effect | None) -> list[SampleEffect]:
    """Return the effect on each sample; [] where it was not measured."""
    if effect is None or len(effect.each_before) != len(effect.samples):
        return []
    measured = zip(
        effect.samples,
        effect.each_before,
        effect.each_after,
        effect.predictions,
        strict=True,
    )
    return [
        SampleEffect(sample, before, after, *predicted)
        for sample, before, after, predicted in measured
    ]


CHANGES = (Column("Part", str), Column("Replaced by", _replacement))
EFFECTS = (
    Column("Sample", lambda row: grouped_digits(row.sample), number=True),
    Column("Before", lambda row: figure(row.before), number=True),
    Column("After", lambda row: figure(row.after), number=True),
    Column(
        "Change",
        lambda row: f"{row.after - row.before:+.3g}",
        number=True,
        color=lambda row: row.tone,
    ),
    Column(
        "Prediction",
        lambda row: row.old if row.old == row.new else f"{row.old} → {row.new}",
    ),
)


class ChangesTable(Table):
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

    def __init__(self) -> None:
        super().__init__()
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
        self.add.setToolTip(tr("Runs the samples with this part replaced as well"))
        self.samples = Segmented(
            [(THIS, "This sample"), (WORST, "Worst 6"), (FIRST, "First 64")],
            "Samples to measure",
        )
        self.effect = label(tr(HINT), "label", wrap=True)
        self.remarks = label("", "caption", "text3", wrap=True)
        self.remove, self.clear = Button("Remove", icon="remove"), Button("Remove all")
        self.table = ChangesTable(CHANGES, "Changed parts")
        self.each = Table(EFFECTS, "Loss of each sample")
        for table in (self.table, self.each):
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
        self.table.cells.set_rows(changes)
        self.table.resizeColumnToContents(0)
        self._offer()
        self.changed.emit()

    def set_effect(self, effect: Effect | None) -> None:
        """Show the loss without and with the changes; None while it is not known."""
        self.each.cells.set_rows(effects_of(effect))
        self.remarks.setText("")
        if effect is None:
            self.effect.setText(
                tr("Measuring the loss…") if self.table.rows else tr(HINT)
            )
            return
        text = tr(
            "{parts} changed: {measure} of {samples} {before} → {after} ({change:+.3g}); the output changes by "
            "{shift:.2f} % of its norm",
            parts=trn("{count} part", "{count} parts", len(self.table.rows)),
            measure=effect.measure,
            samples=trn("{count} sample", "{count} samples", len(effect.samples)),
            before=figure(effect.before),
            after=figure(effect.after),
            change=effect.change,
            shift=100 * effect.shift,
        )
        self.effect.setText(text)
        self.remarks.setText(" ".join(f"{remark}." for remark in effect.remarks))
        self.each.resizeColumnsToContents()

    def _offer(self) -> None:
        self.number.setVisible(self.part.value() != WHOLE)
        self.source.setVisible(self.what.value() == OTHER)
        self.add.setEnabled(
            bool(self.layer.text().strip()) or self.part.value() == HEAD
        )
        self.remove.setEnabled(self.table.currentIndex().isValid())
        self.clear.setEnabled(bool(self.table.rows))

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
        if intervention not in self.table.rows:
            self.set_changes([*self.table.rows, intervention])

    def _remove(self, row: int) -> None:
        if 0 <= row < len(self.table.rows):
            self.set_changes(
                [change for at, change in enumerate(self.table.rows) if at != row]
            )
