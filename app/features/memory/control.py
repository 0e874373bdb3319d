"""The memory of a step in the window: estimated for the open drawing, measured on a run, and the two compared."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from app.features.memory.dialog import MemoryDialog, size
from app.features.memory.values import EstimateMemory
from app.preflight import preflight
from app.training.monitoring import memory_report
from app.training.monitoring.memory_report import MemoryReport
from app.training.run_requests import TellMemory, WriteSnapshot
from app.util import atomic, formatting
from app.views.ui.deferred_answer import when_done

if TYPE_CHECKING:
    from app.views.run.session import Run
    from app.views.workspace import Workspace


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
