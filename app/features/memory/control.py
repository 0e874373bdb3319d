"""The memory of a step in the window: estimated for the open drawing, measured on a run, and the two compared."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QHeaderView, QWidget

from app.features.memory.values import EstimateMemory
from app.preflight import preflight
from app.telemetry.layer_bytes import LayerBytes
from app.training.monitoring import memory_report
from app.training.monitoring.memory_report import MemoryReport
from app.training.run_requests import TellMemory, WriteSnapshot
from app.util import atomic, formatting
from app.util.columns import Column
from app.views.ui.deferred_answer import when_done
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.views.run.session import Run
    from app.views.workspace import Workspace

# --- Memory of a training step by layer: estimated before a run, measured during it

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


class MemoryControl(QObject):
    """Opens the dialog and fills it; estimates every run when it begins."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self.dialog: MemoryDialog | None = None
        self.estimates: dict[int, int] = {}  # bytes, by the number of the run
        self._asked: Future | None = None
        workspace.session.runStarted.connect(self._run_started)

    def open(self) -> None:
        """Show the memory of the active run, or the estimate of the next one."""
        if self.dialog is None:
            self.dialog = MemoryDialog(self._workspace.window)
            self.dialog.measure_wanted.connect(self._measure)
            self.dialog.file_wanted.connect(self._ask_file)
            self.dialog.empty_wanted.connect(self._empty)
        self.dialog.open()
        self._measure()

    def _run_started(self, run: Run) -> None:
        def keep(report: MemoryReport) -> None:
            if report.step is not None:
                self.estimates[run.number] = report.step.total.total

        self._workspace.engine.ask(
            "memory of a run",
            EstimateMemory(run.job),
            on_answer=keep,
            on_error=lambda _failure: None,
        )

    def _measure(self) -> None:
        workspace, session = self._workspace, self._workspace.session
        if self._asked is not None or self.dialog is None:
            return
        if session.active and session.training_thread is not None:
            self._ask(session.training_thread.run_between_steps(TellMemory()))
        elif (
            workspace.live.analysis is None
            or not workspace.live.up_to_date
            or workspace.run_control.blocked
        ):
            reason = workspace.run_control.blocked or "the network is being checked"
            self.dialog.show_message(f"Nothing to estimate: {reason}.")
        else:
            job = preflight.job(
                workspace.document.project,
                workspace.live.analysis,
                str(workspace.settings.data_folder),
            )
            workspace.engine.ask(
                "memory",
                EstimateMemory(job),
                on_answer=self._show,
                on_error=lambda failure: self._fail(failure.error),
            )

    def _ask(self, future: Future) -> None:
        self._asked = future
        when_done(future, self, self._show, self._fail)

    def _show(self, report: MemoryReport) -> None:
        self._asked = None
        if report.step is not None:
            sizes = asdict(report.step.total) | {"total": report.step.total.total}
            self._workspace.activity.measured.emit("memory", sizes)
        if self.dialog is not None:
            self.dialog.show_report(
                report, "" if report.estimated else self._score(report)
            )

    def _score(self, report: MemoryReport) -> str:
        """Compare the estimate made when the run began with the measurement."""
        run = self._workspace.session.current
        estimate = self.estimates.get(run.number) if run is not None else None
        if estimate is None or report.step is None:
            return ""
        peak = report.allocator.peak if report.allocator is not None else None
        measured = report.step.total.total if peak is None else peak
        off = memory_report.score(estimate, measured)
        reference = "the counted total" if peak is None else "the peak"
        return f"The estimate before the run was {size(estimate)}, {formatting.figure(100 * off)} % off {reference}."

    def _fail(self, error: BaseException) -> None:
        self._asked = None
        if self.dialog is not None:
            self.dialog.show_message(f"{type(error).__name__}: {error}")

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(
            self.dialog, "Save the memory report", "memory.json", "JSON (*.json)"
        )
        if name:
            self.write(Path(name if Path(name).suffix else f"{name}.json"))

    def write(self, path: Path) -> None:
        """Write what is shown; during a run on a device that has one also the allocator's snapshot."""
        if self.dialog is None or self.dialog.report is None:
            return
        report = self.dialog.report
        try:
            atomic.write_text(path, report.to_json())
        except OSError as error:
            self._workspace.notifier.refuse(
                "The memory report could not be saved",
                f"“{path}”: {error.strerror or error}.",
            )
            return
        self._workspace.notifier.say("Memory report saved", str(path))
        session = self._workspace.session
        if (
            report.allocator is not None
            and session.active
            and session.training_thread is not None
        ):
            snapshot = path.with_suffix(".pickle")
            when_done(
                session.training_thread.run_between_steps(WriteSnapshot(str(snapshot))),
                self,
                partial(self._snapshot_saved, snapshot),
                lambda error: self._workspace.notifier.refuse(
                    "The snapshot could not be saved", f"“{snapshot}”: {error}."
                ),
            )

    def _snapshot_saved(self, path: Path, saved: bool) -> None:
        """Say so; a device without such an allocator has written nothing."""
        if saved:
            self._workspace.notifier.say("Snapshot of the allocator saved", str(path))

    def _empty(self) -> None:
        """Release cached memory between two steps of a run."""
        thread = self._workspace.session.training_thread
        if (
            self._asked is None
            and thread is not None
            and self._workspace.session.active
        ):
            self._ask(thread.run_between_steps(TellMemory(empty=True)))
