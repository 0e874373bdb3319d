"""Download of a data set: states the size first, shows progress, can be cancelled at any time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QProgressBar, QWidget

from app.data.downloads.download import DownloadCancelledError, download
from app.data.sources import SOURCES
from app.engine.client import shared
from app.engine.requests.data import FindAddresses
from app.util.formatting import megabytes
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.task import BackgroundTask, Cancelled, Report
from app.views.ui.widgets.painting import label

Fetch = Callable[
    [str, Path, Callable[[int, int, str], None], Callable[[], bool]], object
]
POLL_INTERVAL = 100  # ms between two polls of the progress


def fetch(
    source: str,
    root: Path,
    progress: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> None:
    """Download from the addresses in the engine's torchvision. Raises DownloadCancelledError, DownloadError."""
    question = shared().ask(FindAddresses(source))
    while True:
        try:
            addresses = question.result(POLL_INTERVAL / 1000)
        except TimeoutError:
            if not cancelled():
                continue
            question.stop()
            raise DownloadCancelledError from None
        break
    download(source, addresses, root, progress, cancelled)


class DownloadDialog(Dialog):
    """Asks, then downloads. Accepted when the data are complete, which `downloaded(source)` also reports."""

    downloaded = Signal(str)

    def __init__(
        self,
        source: str,
        root: Path,
        parent: QWidget | None = None,
        fetch: Fetch = fetch,
    ) -> None:
        spec = SOURCES[source]
        super().__init__(f"Download {spec.label}?", parent, icon="save")
        self.setWindowTitle("Download data")
        self.setMinimumWidth(460)
        self._source, self._root, self._fetch = source, root, fetch
        self._task: BackgroundTask | None = None
        self.words = label(
            f"{megabytes(spec.download_bytes)} from {spec.host}, saved in {root}. Nothing else is downloaded.",
            "body",
            "text2",
            wrap=True,
        )
        self.bar = QProgressBar()
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the download")
        self.bar.hide()
        self.state = label("", "label", "text3", wrap=True)
        self.state.hide()
        for widget in (self.words, self.bar, self.state):
            self.body.addWidget(widget)
        self.cancel_button = self.add_button("Cancel")
        self.cancel_button.clicked.connect(self.reject)
        self.start_button = self.add_button(
            f"Download {megabytes(spec.download_bytes)}", "primary", default=True
        )
        self.start_button.clicked.connect(self.start)
        self.start_button.setFocus()
        self._timer = QTimer(self, interval=POLL_INTERVAL)
        self._timer.timeout.connect(self._show_progress)

    def start(self) -> None:
        """Begin to fetch."""
        if self._task is not None:
            return
        self.start_button.setEnabled(False)
        self.bar.show()
        self.state.setProperty("tone", "text3")
        self.state.style().polish(self.state)
        self.state.setText("Connecting to the server…")
        self.state.show()
        self._task = BackgroundTask(
            self._download, (0, SOURCES[self._source].download_bytes, "")
        )
        self._task.ended.connect(self._ended, Qt.ConnectionType.QueuedConnection)
        self._task.begin()
        self._timer.start()

    def _download(self, report: Report, cancelled: Cancelled) -> None:
        self._fetch(
            self._source, self._root, lambda *progress: report(progress), cancelled
        )

    def _show_progress(self) -> None:
        if self._task is not None:
            done, total, name = self._task.progress
            self.bar.setValue(round(1000 * done / total) if total else 0)
            self.state.setText(
                f"{megabytes(done)} of {megabytes(total)} · {name}"
                if name
                else "Connecting to the server…"
            )

    def _ended(self, failure: WorkerFailure | None) -> None:
        self._timer.stop()
        self._task = None
        if failure is None:
            self.downloaded.emit(self._source)
            self.accept()
        elif isinstance(failure.error, DownloadCancelledError):
            super().reject()
        else:
            self.bar.hide()
            self.state.setProperty("tone", "error")
            self.state.style().polish(self.state)
            self.state.setText(failure.message)
            self.state.setToolTip(failure.traceback)
            self.start_button.setText("Try again")
            self.start_button.setEnabled(True)
            self.adjustSize()

    def reject(self) -> None:
        """Close; while something is being fetched, stop that first."""
        if self._task is None:
            super().reject()
            return
        self._task.cancel()
        self.cancel_button.setEnabled(False)
        self.state.setText("Stopping…")
        self._timer.stop()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._task is not None:
            event.ignore()
            self.reject()
        else:
            super().closeEvent(event)
