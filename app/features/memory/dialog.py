"""Memory of a training step by layer: estimated before a run, measured during it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app.telemetry.layer_bytes import LayerBytes
from app.training.monitoring.memory_report import MemoryReport
from app.util import formatting
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.widgets.painting import label

COLUMNS = ("Layer", "Parameters", "Gradients", "Optimizer", "Activations", "Together")
OUTSIDE = "Outside layers"
KIBIBYTE = 1024
NO_CACHE = "No cache to empty: only CUDA has one"


class MemoryDialog(Dialog):
    """`measure_wanted` requests a measurement, `file_wanted` a file, `empty_wanted` to empty the CUDA cache."""

    measure_wanted = Signal()
    file_wanted = Signal()
    empty_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Memory of a training step", parent)
        self.report: MemoryReport | None = None
        self.summary = label("", "label", "text", wrap=True)
        self.device = label("", "caption", "text2", wrap=True)
        self.table = QTableWidget(0, len(COLUMNS))
        self.table.setHorizontalHeaderLabels(list(COLUMNS))
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(24)
        self.table.setShowGrid(False)
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        header = self.table.horizontalHeader()
        header.setFont(theme.font("caption"))
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        explanation = (
            "Activations are tensors saved for backward; each storage is counted for the layer that saved it first. "
            f"“{OUTSIDE}” is what operations outside all layers saved, those of the loss included."
        )
        for widget in (self.summary, self.device):
            self.body.addWidget(widget)
        self.body.addWidget(self.table, 1)
        self.body.addWidget(label(explanation, "caption", "text3", wrap=True))
        self.empty = self.add_button("Empty the cache", left=True)
        self.empty.setToolTip(NO_CACHE)
        self.empty.clicked.connect(self.empty_wanted)
        self.write = self.add_button("Save to a file…", left=True)
        self.write.clicked.connect(self.file_wanted)
        self.again = self.add_button("Measure again")
        self.again.clicked.connect(self.measure_wanted)
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
        self.resize(720, 520)
        self.show_message("Counting…")

    def show_message(self, text: str) -> None:
        """Show a message in place of the figures."""
        self.report = None
        self.summary.setText(text)
        self.device.setText("")
        self.table.setRowCount(0)
        self.write.setEnabled(False)
        self.empty.setEnabled(False)

    def show_report(self, report: MemoryReport, score: str = "") -> None:
        """Show figures; `score` is how the estimate compares with them."""
        self.report = report
        self.write.setEnabled(True)
        on_cuda = report.allocator is not None
        self.empty.setEnabled(on_cuda)
        self.empty.setToolTip("" if on_cuda else NO_CACHE)
        self.summary.setText(
            " ".join(text for text in (summary(report), score) if text)
        )
        self.device.setText(device_text(report))
        rows = [] if report.step is None else [report.step.total, *report.step.layers]
        self.table.setRowCount(len(rows))
        for row, layer in enumerate(rows):
            self._set_row(row, layer, "All" if row == 0 else layer.layer or OUTSIDE)

    def _set_row(self, row: int, layer: LayerBytes, name: str) -> None:
        sizes = (
            layer.parameters,
            layer.gradients,
            layer.optimizer,
            layer.activations,
            layer.total,
        )
        for column, text in enumerate(
            (name, *(size(byte_count) for byte_count in sizes))
        ):
            item = QTableWidgetItem(text)
            if column:
                item.setTextAlignment(
                    Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                )
            if row == 0:
                item.setFont(theme.font("section"))
            self.table.setItem(row, column, item)


def size(count: int) -> str:
    """
    >>> size(0), size(512), size(20_520), size(40_000_000)
    ('–', '512 B', '20.0 KiB', '38.1 MiB')
    """
    if not count:
        return "–"
    if count < KIBIBYTE:
        return f"{count} B"
    if count < formatting.MEBIBYTE:
        return f"{formatting.figure(count / KIBIBYTE)} KiB"
    return f"{formatting.mebibytes(count)} MiB"


def summary(report: MemoryReport) -> str:
    """Return the total, and whether it was measured."""
    if report.step is None:
        return "Memory of this network or optimizer cannot be estimated without running it: start a run and measure."
    how = (
        "Estimated, without running anything"
        if report.estimated
        else "Measured on a batch of this run"
    )
    return (
        f"{how}: {size(report.step.total.total)} for a batch of {report.step.batch:,}."
    )


def device_text(report: MemoryReport) -> str:
    """Return allocator, utilisation and temperature as text, or why they are missing."""
    texts = []
    if report.allocator is not None:
        a = report.allocator
        texts.append(
            f"CUDA: {size(a.allocated)} allocated, {size(a.reserved)} reserved, {size(a.peak)} at the peak, "
            f"{formatting.percent(a.fragmentation)} % of the reserved memory is fragmented."
        )
    if report.resident is not None:
        texts.append(
            f"Resident memory of the process: {size(report.resident)}, libraries included."
        )
    gpu = report.gpu
    if gpu.utilisation is None and gpu.temperature is None:
        texts.append(
            f"Utilisation and temperature: not available, {gpu.reason or 'not reported by this GPU'}."
        )
    else:
        busy = (
            "utilisation not available"
            if gpu.utilisation is None
            else f"{gpu.utilisation} % busy"
        )
        warm = (
            "temperature not available"
            if gpu.temperature is None
            else f"{gpu.temperature} °C"
        )
        texts.append(f"{gpu.name or 'GPU'}: {busy}, {warm}.")
    return " ".join(texts)
