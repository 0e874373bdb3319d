"""The memory and the time of a training step in the window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHeaderView, QWidget

from app.features.memory.control import MemoryControl
from app.features.memory.snapshot_dialog import SnapshotDialog
from app.features.memory.values import ReadSnapshot
from app.training.monitoring.looks import OpTime, StepProfile
from app.training.run_requests import ProfileStep
from app.util import formatting
from app.util.columns import Column
from app.views.feature import Action, Feature
from app.views.ui.deferred_answer import when_done
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label
from app.views.workspace import Workspace

# --- The profile of a training step in the window: taken between two steps of the run, shown, and written as a trace

# --- A profile of a training step: time per operation

TOTAL = "All"
WORDS = (
    "Self time excludes the operations that an operation calls. The optimizer step is skipped, so the run's weights "
    "do not change."
)


class ProfileDialog(Dialog):
    """`measure_wanted` requests a new profile, `file_wanted` one with its trace in a file."""

    measure_wanted = Signal()
    file_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Profile of a training step", parent)
        self.profile: StepProfile | None = None
        self.summary = label("", "label", "text", wrap=True)
        self.told = label("", "caption", "text2", wrap=True)
        self.table = Table((), "Time of each operation")
        header = self.table.horizontalHeader()
        header.setMinimumSectionSize(104)
        self.body.addWidget(self.summary)
        self.body.addWidget(self.told)
        self.body.addWidget(self.table, 1)
        self.body.addWidget(label(WORDS, "caption", "text3", wrap=True))
        self.write = self.add_button("Save a trace…", left=True)
        self.write.setToolTip(
            "Profile again and save a trace for chrome://tracing or ui.perfetto.dev"
        )
        self.write.clicked.connect(self.file_wanted)
        self.again = self.add_button("Measure again")
        self.again.clicked.connect(self.measure_wanted)
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
        self.resize(720, 520)
        self.show_message("Measuring…")

    def show_message(self, text: str) -> None:
        """Show a message in place of the figures."""
        self.profile = None
        self.summary.setText(text)
        self.table.cells.set_rows([])
        self.write.setEnabled(False)
        self.show_note("")

    def show_note(self, text: str) -> None:
        """Show a note about the trace file."""
        self.told.setText(text)
        self.told.setVisible(bool(text))

    def show_profile(self, profile: StepProfile) -> None:
        """Show figures."""
        self.profile = profile
        self.write.setEnabled(True)
        self.summary.setText(summary(profile))
        calls = sum(row.calls for row in profile.rows)
        total = OpTime(TOTAL, calls, profile.cpu, profile.on_device)
        self.table.cells.set_rows([total, *profile.rows], columns_of(profile))
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)


def columns_of(profile: StepProfile) -> list[Column]:
    """Return the columns of a profile; a run on the processor has no times of a device."""

    def column(title: str, text: Callable[[OpTime], str], **more: Any) -> Column:
        return Column(title, text, font=_strong, **more)

    columns = [
        column("Operation", lambda row: row.name),
        # The calls of the rows that are left out are not known.
        column(
            "Calls",
            lambda row: (
                "" if row.name == TOTAL else formatting.grouped_digits(row.calls)
            ),
            number=True,
        ),
        column("Self CPU ms", lambda row: milliseconds(row.cpu), number=True),
    ]
    if profile.on_device is not None:
        text = "Self device ms"
        columns.append(
            column(text, lambda row: milliseconds(row.on_device), number=True)
        )
    share = column(
        "Share",
        lambda row: f"{formatting.percent(profile.share(row))} %",
        number=True,
    )
    return [*columns, share]


def _strong(row: OpTime) -> str:
    return "section" if row.name == TOTAL else ""


def milliseconds(micro: float | None) -> str:
    """
    >>> milliseconds(1234.5), milliseconds(0.0), milliseconds(None)
    ('1.234', '0.000', '–')
    """
    return "–" if micro is None else f"{micro / 1000:,.3f}"


def summary(profile: StepProfile) -> str:
    """Return what was measured, and how much of it the table omits."""
    text = (
        f"Forward and backward of a batch of {profile.batch:,} on {profile.device}: "
        f"{formatting.figure(profile.milliseconds)} ms, profiling overhead included."
    )
    if profile.left_out:
        text += f" {profile.left_out:,} more, shorter operations are not listed."
    return text


NOTHING = "No run is training: start or pause a run, then try again."


class ProfileControl(QObject):
    """Opens the dialog and fills it."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self.dialog: ProfileDialog | None = None
        self._asked: Future | None = None

    def open(self) -> None:
        """Profile the active run, or report that there is none."""
        if self.dialog is None:
            self.dialog = ProfileDialog(self._workspace.window)
            self.dialog.measure_wanted.connect(self._measure)
            self.dialog.file_wanted.connect(self._ask_file)
        self.dialog.open()
        self._measure()

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(
            self.dialog, "Save a trace", "trace.json", "JSON (*.json)"
        )
        if name:
            self.write(Path(name if Path(name).suffix else f"{name}.json"))

    def write(self, path: Path) -> None:
        """Profile again, and write the trace of the new profile."""
        self._measure(str(path))

    def _measure(self, trace: str = "") -> None:
        session = self._workspace.session
        if self._asked is not None or self.dialog is None:
            return
        if not session.active or session.training_thread is None:
            self.dialog.show_message(NOTHING)
            return
        if self.dialog.profile is None:
            self.dialog.show_message("Measuring…")
        self._asked = session.training_thread.run_between_steps(ProfileStep(trace))
        when_done(
            self._asked, self, partial(self._show, trace), partial(self._fail, trace)
        )

    def _show(self, trace: str, profile: StepProfile) -> None:
        self._asked = None
        if self.dialog is not None:
            self.dialog.show_profile(profile)
            self.dialog.show_note(
                f"The trace of this step was saved to {trace}" if trace else ""
            )

    def _fail(self, trace: str, error: BaseException) -> None:
        self._asked = None
        if self.dialog is None:
            return
        if trace:  # the shown profile was measured before and stays valid
            self.dialog.show_note(f"The trace could not be saved: {error}")
        else:
            self.dialog.show_message(f"{type(error).__name__}: {error}")


SNAPSHOT = "memory snapshot"
SNAPSHOTS = "Snapshots (*.pickle *.pkl);;All files (*)"
BY_LAYER = "By layer: estimated for the network, measured during a run"


class MemoryFeature(Feature):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.memory_control = MemoryControl(workspace)
        self.profile_control = ProfileControl(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "memory",
                "&Memory of a step…",
                self.memory_control.open,
                icon="memory",
                tip=BY_LAYER,
                menu="run.memory",
            ),
            Action(
                "profile",
                "Profile of a step…",
                self.profile_control.open,
                tip="Time of a training step by operation",
                menu="run.memory",
            ),
            Action(
                "memory_snapshot",
                "Memory snapshot…",
                self.ask_snapshot,
                tip="Open a snapshot of torch's allocator: memory by line of code",
                menu="run.memory",
            ),
        )

    def ask_snapshot(self) -> None:
        """Open a snapshot that the user chooses."""
        window = self.workspace.window
        name, _ = QFileDialog.getOpenFileName(
            window, "Open a memory snapshot", "", SNAPSHOTS
        )
        if name:
            self.open_snapshot(Path(name))

    def open_snapshot(self, path: Path) -> SnapshotDialog:
        """Show the memory in a snapshot by line; it is read in the engine."""
        dialog = SnapshotDialog(path.name, self.workspace.window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.workspace.engine.ask(
            SNAPSHOT,
            ReadSnapshot(str(path)),
            on_answer=dialog.show_snapshot,
            on_error=lambda failure: dialog.show_failure(failure.message),
        )
        dialog.finished.connect(lambda: self.workspace.engine.forget(SNAPSHOT))
        dialog.open()
        return dialog
