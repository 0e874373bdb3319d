"""Page "Checkpoint": bytes freed at the peak against the time to recompute each block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.util.formatting import MINUS, bytes_text, scientific
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import FiguresTable
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from collections.abc import Collection

    from app.autograd.diagnostics.results import WhatIf

HEADS = (
    "Block",
    "Class",
    "Freed at the peak",
    "Less held",
    "Peak without",
    "Step takes (rounds)",
    "Gradients",
    "Training",
)


def row_of(measurement: WhatIf, chosen: bool) -> tuple[str, ...]:
    """Return the cells of one block."""
    low, high = (f"{bound * 1000:+.1f}" for bound in measurement.spread)
    time = (
        f"{measurement.slower * 1000:+.1f} ms"
        if measurement.measurable
        else "within noise"
    )
    time = f"{time} ({low} to {high} ms)".replace("-", MINUS)
    grads = (
        "equal"
        if measurement.equal
        else f"differ by {scientific(measurement.difference, 1)}"
    )
    freed = (
        f"{MINUS if measurement.freed < 0 else ''}{bytes_text(abs(measurement.freed))}"
    )
    retained = f"{MINUS if measurement.held_less < 0 else ''}{bytes_text(abs(measurement.held_less))}"
    return (
        measurement.path,
        measurement.kind,
        freed,
        retained,
        bytes_text(measurement.plain.peak),
        time,
        grads,
        "recompute" if chosen else "",
    )


class CheckpointPage(QWidget):
    """`selected(path)` is emitted for the block of the current row; `wanted(path)` requests to toggle its checkpointing
    in training."""

    selected = Signal(str)
    wanted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[WhatIf, ...] = ()
        self._chosen: frozenset[str] = frozenset()
        self.table = FiguresTable(
            HEADS, "Blocks, with the effect of checkpointing each", {2, 3, 4, 5}
        )
        self.sentence = label("", "label", "text2", wrap=True)
        self.use = Button("Checkpoint in training", "primary")
        self.use.clicked.connect(self._use)
        foot = hbox((self.sentence, 1), self.use, margins=(16, 6, 16, 8), spacing=12)
        self._rest = QWidget()
        vbox((self.table, 1), foot, (self._rest, 1), on=self, margins=0, spacing=0)
        self.table.chosen.connect(lambda _row: self._moved())
        self.show_rows((), frozenset())

    @property
    def path(self) -> str:
        """Return the block of the selected row, "" for none."""
        return self.table.current[0] if self.table.current else ""

    def show_rows(
        self, rows: tuple[WhatIf, ...], chosen: Collection[str], hint: str = ""
    ) -> None:
        """Show these blocks, those that frees most first; `chosen` are checkpointed in training already."""
        path = self.path
        self.rows, self._chosen = (
            tuple(sorted(rows, key=lambda row: -row.freed)),
            frozenset(chosen),
        )
        self.table.set_rows(
            [row_of(row, row.path in self._chosen) for row in self.rows]
        )
        self._words = hint
        indices = {row.path: index for index, row in enumerate(self.rows)}
        if self.rows:
            self.table.selectRow(indices.get(path, 0))
        self._show_selected()

    def _use(self) -> None:
        if self.path:
            self.wanted.emit(self.path)

    def _moved(self) -> None:
        self._show_selected()
        if self.path:
            self.selected.emit(self.path)

    def _show_selected(self) -> None:
        row = self.table.currentIndex().row()
        measurement = self.rows[row] if 0 <= row < len(self.rows) else None
        self.use.setVisible(measurement is not None)
        self.table.setVisible(bool(self.rows))
        self._rest.setVisible(not self.rows)
        if measurement is None:
            self.sentence.setText(self._words)
            return
        self.sentence.setText(measurement.sentence)
        inside = measurement.path in self._chosen
        self.use.setText(
            f"Do not checkpoint {measurement.path} in training"
            if inside
            else f"Checkpoint {measurement.path} in training"
        )
        self.use.setToolTip("Sets recompute under Training; Ctrl+Z undoes it")
