"""The real window in a process of its own, edited by mouse and keys from inside until somebody kills it.

    python -m tests.slow.material.driven_window MODE SEED [FILE]

`app.views.app.run_window` opens the window as `tapedeck` does. What happens is written to stdout, a line each,
with one `write` so that it survives the process: `offers N`, `restored DIGEST`, `settled`, `edit SECONDS DIGEST`,
`saving`, `saved DIGEST`, `journal`, `journalled DIGEST`, `cleared`, `running`, `fault WHAT`. DIGEST is that of the open
project.

MODE: `file` edits and saves FILE, `untitled` an example without a file, `run` trains it meanwhile.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QObject, QPoint, QPointF, Qt, QTimer
from PySide6.QtTest import QTest

from app.project.journal import Journal, JournalEntry
from app.project.project import Project
from app.views import app
from tests.slow.kill_window import digest
from tests.support.whole_window import WholeWindow

LEFT, CTRL = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier
PAUSE = 30, 250  # milliseconds between two gestures
KEYS = (Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Up, Qt.Key.Key_Down)
EXAMPLE = "digits.tape"
LARGEST = 60  # nodes; then copies are deleted again


def tell(*words: object) -> None:
    """Write a line at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Driver(QObject):
    """Goes on step by step on the window's own thread; each step gives the number of milliseconds until the next."""

    def __init__(
        self, window: WholeWindow, mode: str, seed: int, file: Path | None
    ) -> None:
        super().__init__(window)
        self._window, self._mode, self._file = window, mode, file
        self._choose = random.Random(seed)
        self._count = 0
        self._steps = self._life()
        self._timer = QTimer(self, singleShot=True, timeout=self._next)
        self._timer.start(0)

    def _next(self) -> None:
        try:
            self._timer.start(next(self._steps))
        except Exception as error:  # whatever it is, the one that watches hears of it
            tell("fault", repr(error))
            raise

    def _life(self) -> Iterator[int]:
        yield from self._recover()
        window = self._window
        window.document.changed.connect(self._changed)
        if self._mode == "run":
            while window.run_control.blocked:
                yield 50
        tell("ready", digest(window.document.project))
        if self._mode == "run":
            QTest.mouseClick(window.toolbar.deck.transport.button("run"), LEFT)
            while window.session.state != "running":
                yield 20
            tell("running")
        while True:
            yield from self._gesture()
            yield self._choose.randint(*PAUSE)

    def _recover(self) -> Iterator[int]:
        """Take what is offered, save it or give it up as a person would, and go to the project of this life."""
        window = self._window
        recovery = window.recovery
        recovery.find_journals()
        while recovery._looking is not None:
            yield 10
        dialog = recovery.dialog
        tell("offers", len(dialog.cards) if dialog is not None else 0)
        while dialog is not None and recovery.dialog is not None:
            QTest.mouseClick(dialog.cards[0].restore_button, LEFT)
            tell(
                "restored", digest(window.document.project), window.document.path or "-"
            )
            yield 10
        document = window.document
        if (
            document.dirty
            and document.path is not None
            and recovery.files.banner.isVisible()
        ):
            tell("banner", recovery.files.banner.title())
        if document.dirty:
            saved = window.files.save_to(
                document.path or Path(f"untitled-{os.getpid()}.tape").absolute()
            )
            tell("kept" if saved else "refused")
        if self._mode == "file" and self._file is not None:
            window.files.open(self._file)
        else:
            window.files.open_example(EXAMPLE)
        yield 200  # the journal of what was restored and saved goes on a thread
        tell("settled")

    def _changed(self, _before: Project, after: Project) -> None:
        tell("edit", f"{time.monotonic():.4f}", digest(after))

    def _gesture(self) -> Iterator[int]:
        window = self._window
        if window.banner.isVisible():
            window.banner.close_message()
        gestures = [
            self._type_a_note,
            self._type_a_note,
            self._nudge,
            self._drag,
            self._copy,
            self._undo,
            self._rename,
        ]
        if len(window.document.project.graph.nodes) > LARGEST:
            gestures = [self._delete]
        if self._file is not None and self._mode == "file":
            gestures.append(self._save)
        yield from self._choose.choice(gestures)()

    def _type_a_note(self) -> Iterator[int]:
        """The count of the edits goes into the project's notes, letter by letter."""
        self._count += 1
        window = self._window
        window.selection.set(())
        yield 5
        window.right.pane.show_page("inspector")
        field = window.inspector.overview.notes
        QTest.mouseClick(field.viewport(), LEFT, pos=QPoint(10, 10))
        QTest.keyClick(field, Qt.Key.Key_A, CTRL)
        for letter in f"edit {self._count}":
            QTest.keyClick(field, letter)
            yield 2

    def _node(self) -> QPoint:
        """Where a node is seen, selected by a click on it."""
        window = self._window
        window.canvas.frame_all()
        key = self._choose.choice(list(window.canvas.scene.nodes))
        item, view = window.canvas.scene.nodes[key], window.canvas.view
        spot = view.mapFromScene(item.body.center() + QPointF(10, 12))
        QTest.mouseClick(view.viewport(), LEFT, pos=spot)
        return spot

    def _nudge(self) -> Iterator[int]:
        self._node()
        yield 5
        for _ in range(self._choose.randint(1, 5)):
            QTest.keyClick(self._window.canvas.view, self._choose.choice(KEYS))
            yield 5

    def _drag(self) -> Iterator[int]:
        spot, port = self._node(), self._window.canvas.view.viewport()
        far = QPoint(self._choose.randint(-60, 60), self._choose.randint(-60, 60))
        QTest.mousePress(port, LEFT, pos=spot)
        QTest.mouseMove(port, spot + far / 2)
        yield 5
        QTest.mouseMove(port, spot + far)
        QTest.mouseRelease(port, LEFT, pos=spot + far)

    def _copy(self) -> Iterator[int]:
        self._node()
        yield 5
        QTest.keyClick(self._window.canvas.view, Qt.Key.Key_D, CTRL)

    def _delete(self) -> Iterator[int]:
        self._node()
        yield 5
        QTest.keyClick(self._window.canvas.view, Qt.Key.Key_Delete)

    def _undo(self) -> Iterator[int]:
        for key in self._choose.choices(
            ("undo", "redo"), (2, 1), k=self._choose.randint(1, 3)
        ):
            self._window.actions_by_key[key].trigger()
            yield 5

    def _rename(self) -> Iterator[int]:
        window = self._window
        window.selection.set(())
        yield 5
        field = window.inspector.overview.name
        QTest.mouseClick(field, LEFT)
        QTest.keyClick(field, Qt.Key.Key_A, CTRL)
        for letter in self._choose.choice(("net", "other net", "netz")):
            QTest.keyClick(field, letter)
        QTest.keyClick(field, Qt.Key.Key_Return)
        yield 5

    def _save(self) -> Iterator[int]:
        """Ctrl+S; what is said of it beforehand lets the one that watches kill in its midst."""
        window = self._window
        tell("saving", digest(window.document.project))
        window.actions_by_key["save"].trigger()
        tell(
            "saved" if not window.document.dirty else "unsaved",
            digest(window.document.project),
        )
        yield 5


class DrivenWindow(WholeWindow):
    """The window, with somebody at it."""

    mode, seed = "untitled", 0
    file: Path | None = None

    def start(self) -> None:
        super().start()
        self.driver = Driver(self, self.mode, self.seed, self.file)


def main() -> int:
    DrivenWindow.mode, DrivenWindow.seed = sys.argv[1], int(sys.argv[2])
    DrivenWindow.file = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    write, clear = Journal.write, Journal.clear

    def told(self: Journal, entry: JournalEntry) -> None:
        tell("journal", digest(entry.project))
        write(self, entry)
        tell("journalled", digest(entry.project))

    def told_clear(self: Journal) -> None:
        clear(self)
        tell("cleared")

    Journal.write, Journal.clear = told, told_clear  # type: ignore[method-assign]
    app.MainWindow = DrivenWindow  # type: ignore[misc]
    return app.run_window(None)


if __name__ == "__main__":
    sys.exit(main())
