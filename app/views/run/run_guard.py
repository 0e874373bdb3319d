"""Ask before an active run is ended for another project or for closing the window, and wait for its end."""

from __future__ import annotations

from PySide6.QtCore import QEventLoop, QObject, QTimer
from PySide6.QtWidgets import QWidget

from app.views.run.session import RunSession
from app.views.ui.dialogs.base import Dialog
from app.views.ui.dialogs.message import DialogAnswer, running_dialog
from app.views.ui.widgets.painting import label

PATIENCE = 300  # milliseconds before a dialog says what is waited for


class StoppingDialog(Dialog):
    """Shown until the current batch is trained and the run is saved. Cancel stops waiting; the run ends anyway."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("Stopping the run", parent)
        self.body.addWidget(
            label(
                "The current batch is finished first, then the run is saved.",
                "label",
                "text2",
            )
        )
        self.add_button("Cancel").clicked.connect(self.reject)


class RunGuard(QObject):
    """Asks before a run is stopped because of something else."""

    def __init__(self, session: RunSession, window: QWidget) -> None:
        super().__init__(window)
        self._session, self._window = session, window

    def may_end(self, quits: bool = False) -> bool:
        """Ask whether the active run may end, and wait until it has; True without one.

        `quits` if the window is to close; else another project is to be opened.
        """
        if not self._session.active:
            return True
        if self._session.state != "stopping" and not self._asked(quits):
            return False
        self._session.leave()
        self._wait()
        return not self._session.active

    def _asked(self, quits: bool) -> bool:
        run = self._session.current
        series = run.series if run is not None else None
        left = series.count - series.number if series is not None else 0
        saved = run is None or run.recorder is not None
        dialog = running_dialog(
            self._where(), quits, self._session.watches, self._window, left, saved
        )
        dialog.exec()
        dialog.deleteLater()
        return dialog.answer is DialogAnswer.DISCARD

    def _where(self) -> str:
        progress = self._session.progress()
        return (
            f"epoch {progress.epoch:,} of {progress.epochs:,}"
            if progress
            else "its beginning"
        )

    def _wait(self) -> None:
        """Wait with a responsive window; after a while show a dialog that can be cancelled."""
        loop = QEventLoop(self)
        self._session.runEnded.connect(loop.quit)
        if self._session.active:
            QTimer.singleShot(PATIENCE, loop, loop.quit)
            loop.exec(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents)
        if self._session.active:
            dialog = StoppingDialog(self._window)
            self._session.runEnded.connect(dialog.accept)
            dialog.exec()
            dialog.deleteLater()
        loop.deleteLater()
