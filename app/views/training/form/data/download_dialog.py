"""Download of a data set: states the size first, shows progress, can be cancelled at any time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QProgressBar, QWidget

from app.data.download import (
    DownloadCancelledError,
    download,
    unpack_from,
)
from app.data.known_sources import STAND_IN
from app.data.sources import SOURCES
from app.engine.client import shared
from app.engine.requests.data import FindAddresses
from app.util.formatting import megabytes
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.progress import POLL_INTERVAL, ProgressDialog
from app.views.ui.layouts import hbox
from app.views.ui.task import Cancelled, Report
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import label

Fetch = Callable[..., object]  # as `fetch`


def fetch(
    source: str,
    root: Path,
    progress: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
    folder: Path | None = None,
) -> None:
    """Download from the addresses in the engine's torchvision, or take the same files from `folder`.

    Raises DownloadCancelledError, DownloadError.
    """
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
    takes = download if folder is None else partial(unpack_from, folder)
    takes(source, addresses, root, progress, cancelled)


class DownloadDialog(ProgressDialog):
    """Asks, then downloads. Accepted when the data are complete, which `downloaded(source)` also reports.

    After a failure it offers the files in a folder, and of data that have one the stand-in: `stand_in_chosen(source)`.
    """

    downloaded = Signal(str)
    stand_in_chosen = Signal(str)

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
        self.stand_in = Button("Train on the stand-in")
        self.stand_in.setToolTip(
            "Small data that are made here, until the download is there; runs name it"
        )
        self.stand_in.clicked.connect(self._choose_stand_in)
        self.from_folder = Button("I have these files in a folder…", icon="folder")
        self.from_folder.clicked.connect(self._choose_folder)
        for widget in (self.words, self.bar, self.state):
            self.body.addWidget(widget)
        self.body.addLayout(hbox(self.from_folder, self.stand_in, 1, spacing=8))
        self._offer_others(False)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.start_button = self.add_button(
            f"Download {megabytes(spec.download_bytes)}", "primary", default=True
        )
        self.start_button.clicked.connect(lambda: self.start())
        self.start_button.setFocus()

    def _offer_others(self, offered: bool) -> None:
        """Offer what else there is than the download, after it has failed."""
        self.from_folder.setVisible(offered)
        self.stand_in.setVisible(offered and STAND_IN in SOURCES[self._source].options)

    def _choose_stand_in(self) -> None:
        self.stand_in_chosen.emit(self._source)
        self.reject()

    def _choose_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(self, "Folder with the files")
        if name:
            self.start(Path(name))

    def start(self, folder: Path | None = None) -> None:
        """Begin to fetch, or to take the files from a folder."""
        if self.running:
            return
        self._offer_others(False)
        self.start_button.setEnabled(False)
        self.bar.show()
        self.state.setProperty("tone", "text3")
        self.state.style().polish(self.state)
        self.state.show()
        self.begin(partial(self._download, folder))

    def _download(
        self, folder: Path | None, report: Report, cancelled: Cancelled
    ) -> None:
        fetch = self._fetch if folder is None else partial(self._fetch, folder=folder)
        fetch(self._source, self._root, lambda *progress: report(progress), cancelled)

    def show_progress(self, message: str) -> None:
        assert self._work is not None
        progress: Any = self._work.progress or (0, 0, "")
        done, total, name = progress
        self.bar.setValue(round(1000 * done / total) if total else 0)
        fetched = f"{megabytes(done)} of {megabytes(total)} · {name}"
        stage = fetched if name else "Connecting to the server…"
        self.state.setText("Stopping…" if self._work.cancelled else stage)

    def finished_with(self, answer: WorkerFailure | None, cancelled: bool) -> None:
        if answer is None:
            self.downloaded.emit(self._source)
            self.accept()
        elif isinstance(answer.error, DownloadCancelledError):
            self.reject()
        else:
            self.bar.hide()
            self.state.setProperty("tone", "error")
            self.state.style().polish(self.state)
            self.state.setText(answer.message)
            self.state.setToolTip(answer.traceback)
            self.start_button.setText("Try again")
            self.start_button.setEnabled(True)
            self._offer_others(True)
            self.adjustSize()
