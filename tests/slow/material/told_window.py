"""The real window in a process of its own that does what it is told on stdin, by mouse and keys (see `two_windows`).

A command is a line of words with tabs between: `open FILE`, `edit TEXT`, `save CHOICE`, `state`. Each is answered by
lines about versions of the file, by their digests (`read D`, `shown D`, `replaces OLD NEW`), and then `done`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from PySide6.QtCore import QObject, QPoint, QSocketNotifier, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from app.features.files.changed_file_dialog import ChangedFileDialog
from app.project import file
from app.views import app
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog
from tests.support.whole_window import WholeWindow

LEFT, CTRL = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier


def tell(*words: object) -> None:
    """Write a line at once."""
    os.write(1, ("\t".join(map(str, words)) + "\n").encode())


class Obedient(QObject):
    """Carries out one command after another on the window's thread."""

    def __init__(self, window: WholeWindow) -> None:
        super().__init__(window)
        self._window, self._half, self._choice, self._copies = window, b"", "keep", 0
        self._commands: list[list[str]] = []
        self._busy = False
        self._input = QSocketNotifier(0, QSocketNotifier.Type.Read, self)
        self._input.activated.connect(self._read)
        self._dialogs = QTimer(self, interval=20, timeout=self._answer)
        self._dialogs.start()
        QFileDialog.getSaveFileName = lambda *_: (str(self._elsewhere()), "")  # type: ignore[method-assign,assignment]
        tell("ready")

    def _elsewhere(self) -> Path:
        self._copies += 1
        return Path(f"copy-{os.getpid()}-{self._copies}.tape").absolute()

    def _read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            os._exit(0)
        *whole, self._half = (self._half + data).split(b"\n")
        self._commands += [line.decode().split("\t") for line in whole]
        QTimer.singleShot(0, self, self._next)

    def _next(self) -> None:
        if self._busy or not self._commands:
            return
        self._busy = True
        word, *rest = self._commands.pop(0)
        try:
            getattr(self, f"do_{word}")(*rest)
        except Exception as error:  # whatever it is, the one that watches hears of it
            tell("fault", repr(error))
        self._busy = False
        tell("done")
        self._next()

    def do_open(self, name: str) -> None:
        window = self._window
        window.document.undo_stack.setClean()
        window.files.open(Path(name))
        tell("read", window.document.on_disk)
        banner = window.recovery.files.banner
        if "Edit anyway" in banner.actions_offered() and banner.isVisible():
            QTest.mouseClick(banner.button("Edit anyway"), LEFT)

    def do_edit(self, text: str) -> None:
        window = self._window
        window.selection.set(())
        QApplication.processEvents()
        window.right.pane.show_page("inspector")
        field = window.inspector.overview.notes
        QTest.mouseClick(field.viewport(), LEFT, pos=QPoint(10, 10))
        QTest.keyClick(field, Qt.Key.Key_A, CTRL)
        QTest.keyClicks(field, text)
        if window.document.project.notes != text:
            raise RuntimeError(
                f"typed {text}, the notes are {window.document.project.notes}"
            )

    def do_save(self, choice: str) -> None:
        """Ctrl+S; `choice` is what is pressed if the window asks about the file."""
        window = self._window
        self._choice = choice
        before = window.document.path
        window.actions_by_key["save"].trigger()
        if (
            window.document.path != before and before is not None
        ):  # saved elsewhere: back to the file that it is about
            self.do_open(str(before))

    def do_state(self) -> None:
        window = self._window
        document, banner = window.document, window.recovery.files.banner
        in_file = file.read(document.path) if document.path is not None else None
        tell("state", in_file == document.project, document.dirty, banner.isVisible())

    def _answer(self) -> None:
        dialog = QApplication.activeModalWidget()
        if isinstance(dialog, ChangedFileDialog) and dialog.on_disk is not None:
            tell("shown", dialog.on_disk.digest)
            QTest.mouseClick(getattr(dialog, f"{self._choice}_button"), LEFT)
            self._choice = (
                "keep"  # asked once more about a third version, it lets that be
            )
        elif isinstance(dialog, QuestionDialog):
            dialog.answer = DialogAnswer.DISCARD
            dialog.accept()


class ToldWindow(WholeWindow):
    """The window, with somebody at it who is told what to do."""

    def start(self) -> None:
        super().start()
        self.obedient = Obedient(self)


def main() -> int:
    put = file._put

    def told(data: bytes, path: Path) -> Path | None:
        """What is replaced is read where nobody else can replace it meanwhile."""
        if path.name == "net.tape":
            tell("replaces", file.digest(path), hashlib.sha256(data).hexdigest())
        return put(data, path)

    file._put = told
    app.MainWindow = ToldWindow  # type: ignore[misc]
    return app.run_window(None)


if __name__ == "__main__":
    sys.exit(main())
