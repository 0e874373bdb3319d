"""A profile of a training step: time per operation."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app.training.monitoring.looks import OpTime, StepProfile
from app.util import formatting
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.widgets.painting import label

COLUMNS = ("Operation", "Calls", "Self CPU ms", "Self device ms", "Share")
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
ON_DEVICE = COLUMNS.index("Self device ms")
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
        self.table = QTableWidget(0, len(COLUMNS))
        self.table.setHorizontalHeaderLabels(list(COLUMNS))
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(24)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        header = self.table.horizontalHeader()
        header.setFont(theme.font("caption"))
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        header.setMinimumSectionSize(104)
        header.setDefaultAlignment(RIGHT)
        first = QTableWidgetItem(COLUMNS[0])
        first.setTextAlignment(LEFT)
        self.table.setHorizontalHeaderItem(0, first)
        self.table.setColumnHidden(ON_DEVICE, True)
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
        self.table.setRowCount(0)
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
        self.table.setColumnHidden(ON_DEVICE, profile.on_device is None)
        self.table.setRowCount(len(profile.rows) + 1)
        self._set_row(
            0,
            OpTime(
                "All",
                sum(row.calls for row in profile.rows),
                profile.cpu,
                profile.on_device,
            ),
            profile,
        )
        for number, row in enumerate(profile.rows, 1):
            self._set_row(number, row, profile)

    def _set_row(self, number: int, row: OpTime, profile: StepProfile) -> None:
        # The calls of the rows that are left out are not known.
        calls = formatting.grouped_digits(row.calls) if number else ""
        share = f"{formatting.percent(profile.share(row))} %"
        for column, text in enumerate(
            (row.name, calls, milliseconds(row.cpu), milliseconds(row.on_device), share)
        ):
            item = QTableWidgetItem(text)
            if column:
                item.setTextAlignment(RIGHT)
            else:
                item.setToolTip(text)
            if number == 0:
                item.setFont(theme.font("section"))
            self.table.setItem(number, column, item)


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
