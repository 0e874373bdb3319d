"""Memory of a training step by layer: estimated before a run, measured during it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHeaderView, QWidget

from app.telemetry.layer_bytes import LayerBytes
from app.training.monitoring.memory_report import MemoryReport
from app.util import formatting
from app.util.columns import Column
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label

OUTSIDE, TOTAL = "Outside layers", "All"
KIBIBYTE = 1024
NO_CACHE = "No cache to empty: an accelerator has one, while a run is on it"


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


def _strong(row: tuple[str, LayerBytes]) -> str:
    return "section" if row[0] == TOTAL else ""


def _bytes(title: str, value: Callable[[LayerBytes], int]) -> Column:
    return Column(
        title,
        lambda row: size(value(row[1])),
        number=True,
        value=lambda row: value(row[1]),
        font=_strong,
    )


COLUMNS = (
    Column("Layer", lambda row: row[0], font=_strong),
    _bytes("Parameters", lambda layer: layer.parameters),
    _bytes("Gradients", lambda layer: layer.gradients),
    _bytes("Optimizer", lambda layer: layer.optimizer),
    _bytes("Activations", lambda layer: layer.activations),
    _bytes("Together", lambda layer: layer.total),
)


class MemoryDialog(Dialog):
    """`measure_wanted` requests a measurement, `file_wanted` a file, `empty_wanted` to empty the device's cache."""

    measure_wanted = Signal()
    file_wanted = Signal()
    empty_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Memory of a training step", parent)
        self.report: MemoryReport | None = None
        self.summary = label("", "label", "text", wrap=True)
        self.device = label("", "caption", "text2", wrap=True)
        self.table = Table(COLUMNS, "Memory of each layer")
        stretch = QHeaderView.ResizeMode.Stretch
        self.table.horizontalHeader().setSectionResizeMode(stretch)
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
        self.table.cells.set_rows([])
        self.write.setEnabled(False)
        self.empty.setEnabled(False)

    def show_report(self, report: MemoryReport, score: str = "") -> None:
        """Show figures; `score` is how the estimate compares with them."""
        self.report = report
        self.write.setEnabled(True)
        has_cache = report.allocator is not None and not report.estimated
        self.empty.setEnabled(has_cache)
        self.empty.setToolTip("" if has_cache else NO_CACHE)
        self.summary.setText(
            " ".join(text for text in (summary(report), score) if text)
        )
        self.device.setText(device_text(report))
        rows = [] if report.step is None else [report.step.total, *report.step.layers]
        names = [layer.layer or OUTSIDE for layer in rows]
        names[:1] = [TOTAL] * bool(rows)
        self.table.cells.set_rows(list(zip(names, rows, strict=True)))


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
        figures = {
            "allocated": a.allocated,
            "reserved": a.reserved,
            "at the peak": a.peak,
        }
        parts = [
            f"{size(count)} {what}"
            for what, count in figures.items()
            if count is not None
        ]
        if a.fragmentation is not None:
            share = formatting.percent(a.fragmentation)
            parts.append(f"{share} % of the reserved memory is fragmented")
        texts.append(f"{report.device}: {', '.join(parts)}.")
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
