"""The dialog that says what is missing, and offers to install PyTorch or to use a Python elsewhere."""

from __future__ import annotations

import shlex
import sys

from PySide6.QtCore import QProcess, Qt, Signal
from PySide6.QtWidgets import QProgressBar, QWidget

from app.features.torch_setup import installing
from app.features.torch_setup.installing import NoInstallerError
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.widgets import Button, TextField
from app.views.ui.widgets.painting import label

WITHOUT = (
    "Drawing works without it; checking a network, training it and autograd need it."
)
KEPT = (
    "PyTorch {version} is there, and is not replaced here. To repair it, run this in a terminal, then start Tapedeck "
    "again:"
)
INDEX_HINT = "Empty, or the address of another index, as of the CPU builds"
ELSEWHERE = "Runs can also be at a place, which is another machine or queue with a Python that has PyTorch."
FEW = 4  # lines of the installer that a failure shows


class TorchDialog(Dialog):
    """`installed` when PyTorch was installed, `placesRequested` asks for the places."""

    installed = Signal()
    placesRequested = Signal()

    def __init__(
        self, reason: str, places: bool, parent: QWidget | None = None
    ) -> None:
        """`reason` is why it could not be loaded; `places` says whether there are any to go to."""
        version = installing.there()
        super().__init__(
            "PyTorch cannot be loaded" if version else "PyTorch is missing",
            parent,
            icon="warning",
        )
        self.setMinimumWidth(560)
        self._process: QProcess | None = None
        self._lines: list[str] = []
        self._cancelled = False
        self.command = label("", "code", wrap=True)
        self.command.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.index = TextField(installing.default_index())
        self.index.setAccessibleName("Index")
        self.index.setPlaceholderText(INDEX_HINT)
        self.index.setToolTip(INDEX_HINT)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.hide()
        self.state = label("", "label", "text2", wrap=True)
        self.state.hide()
        self.places = Button("Places…", icon="chip")
        self.places.setVisible(places)
        self.body.addWidget(label(reason, "body", wrap=True))
        self.body.addWidget(label(WITHOUT, "body", "text2", wrap=True))
        if version:
            self.body.addWidget(label(KEPT.format(version=version), "body", wrap=True))
        else:
            row = hbox(label("Index", "label", "text2"), (self.index, 1), spacing=8)
            self.body.addLayout(row)
        self.body.addWidget(self.command)
        self.body.addWidget(self.progress)
        self.body.addWidget(self.state)
        if places:
            self.body.addWidget(label(ELSEWHERE, "body", "text2", wrap=True))
            row = hbox(self.places, spacing=8)
            row.addStretch(1)
            self.body.addLayout(row)
        self.close_button = self.add_button("Close")
        self.close_button.clicked.connect(self.reject)
        self.install = self.add_button("Install", "primary", default=True)
        self.install.setVisible(not version)
        self.install.clicked.connect(self._begin)
        self.index.textChanged.connect(self._show_command)
        self.places.clicked.connect(self.placesRequested)
        self._version = version
        self._show_command()

    def _show_command(self) -> None:
        if self._version:
            repair = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--force-reinstall",
                "torch",
            ]
            self.command.setText(shlex.join(repair))
            return
        try:
            self.command.setText(
                shlex.join(installing.command(self.index.text().strip()))
            )
        except NoInstallerError as error:
            self.command.setText(str(error))
            self.install.setEnabled(False)

    def _begin(self) -> None:
        """Install, in a process of its own, unless PyTorch is there by now."""
        if installing.there():
            self.installed.emit()
            return
        program, *arguments = installing.command(self.index.text().strip())
        process = self._process = QProcess(self)
        process.setProcessChannelMode(QProcess.ProcessChannelMode.MergedChannels)
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._ended)
        process.errorOccurred.connect(self._not_started)
        self._lines, self._cancelled = [], False
        self.install.setEnabled(False)
        self.index.setEnabled(False)
        self.close_button.setText("Cancel")
        self.progress.setRange(0, 0)
        self.progress.show()
        self._say("Starting the installer…")
        process.start(program, arguments)

    def _read(self) -> None:
        assert self._process is not None
        while self._process.canReadLine():
            line = bytes(self._process.readLine().data()).decode("utf-8", "replace")
            message = installing.parse_line(line)
            if message.done is not None:
                self.progress.setRange(0, 1000)
                self.progress.setValue(round(1000 * message.done))
            elif message.text:
                self._lines.append(message.text)
                self.progress.setRange(0, 0)
                self._say(message.text)

    def _not_started(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart and self._process is not None:
            self._lines.append(self._process.errorString())
            self._ended(1)

    def _ended(self, code: int, *_status: object) -> None:
        if self._process is None:
            return
        self._read()
        self._process.deleteLater()
        self._process = None
        self.progress.hide()
        self.install.setEnabled(True)
        self.index.setEnabled(True)
        self.close_button.setText("Close")
        if self._cancelled:
            self._say("The installation was cancelled. Nothing of it is used.")
        elif code or not installing.there():
            last = "\n".join(self._lines[-FEW:])
            self._say(f"The installation failed:\n{last}")
        else:
            self._say(f"PyTorch {installing.there()} is installed. Loading it…")
            self.install.setEnabled(False)
            self.installed.emit()

    def _say(self, text: str) -> None:
        self.state.setText(text)
        self.state.show()

    def reject(self) -> None:
        """Cancel the installation, or else close."""
        if self._process is None:
            super().reject()
            return
        self._cancelled = True
        self._say("Cancelling…")
        self._process.kill()

    def done(self, result: int) -> None:
        if self._process is not None:
            self._cancelled = True
            self._process.kill()
            self._process.waitForFinished()
        super().done(result)
