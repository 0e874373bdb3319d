"""How far a sweep is: a strip on the page "Runs", with a button that cancels it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QProgressBar, QSizePolicy, QWidget

from app.util.formatting import counted
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import label

PARTS = 1000  # of a run, on the bar
BAR = 140  # px


class SweepStrip(QWidget):
    """Hidden while there is no sweep. `cancelled` is emitted by its button."""

    cancelled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = label("", "label", "text2")
        self.words.setMinimumWidth(0)
        self.words.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.failures = label("", "label", "error")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setFixedWidth(BAR)
        self.bar.setAccessibleName("Progress of the sweep")
        self.cancel = Button("Cancel sweep", icon="stop")
        self.cancel.setToolTip(
            "Stop the run in progress, which is saved, and start no other"
        )
        self.cancel.clicked.connect(self._cancel)
        row = ((self.words, 1), self.failures, self.bar, self.cancel)
        hbox(*row, on=self, margins=(12, 2, 8, 4), spacing=10)
        self.hide()

    def show_run(self, position: str, settings: str, count: int) -> None:
        """Show which of `count` runs is in progress."""
        text = f"Run {position}: {settings}"
        self.words.setText(text)
        self.words.setToolTip(text)
        self.bar.setRange(0, count * PARTS)
        self.cancel.setEnabled(True)
        self.show()

    def show_progress(self, done: float) -> None:
        """Show how many runs are done, with the part of the one in progress."""
        self.bar.setValue(round(done * PARTS))

    def show_failures(self, messages: list[str]) -> None:
        """Show how many runs failed, each with its reason in the tool tip."""
        self.failures.setText(
            f"{counted(len(messages), 'run')} failed" if messages else ""
        )
        self.failures.setToolTip("\n".join(messages))
        self.failures.setVisible(bool(messages))

    def _cancel(self) -> None:
        self.cancel.setEnabled(False)
        self.words.setText("Stopping: the current batch is finished first")
        self.cancelled.emit()
