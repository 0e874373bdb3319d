"""Reading data off the window's thread, on a thread of its own.

A folder of pictures takes its time, and the background's worker has the drawing to check meanwhile.
"""

from __future__ import annotations

import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QThread, QTimer, Signal, Slot

from app.data.config import DataConfig
from app.data.spec import ReadingStopped
from app.views.ui.background import Failure

if TYPE_CHECKING:
    from app.data.preview import Preview

LOOK = 100  # ms between two looks at the progress


class _Thread(QThread):
    """One reading. It has no parent: a widget that goes meanwhile must not take the thread along."""

    def __init__(self, config: DataConfig, root: Path, batch: int) -> None:
        super().__init__()
        self.config, self._root, self._batch = config, root, batch
        self.stopping = threading.Event()
        self.progress: tuple[int, int, str] | None = None
        self.answer: Preview | Failure | None = None

    def _watch(self, done: int, total: int, name: str) -> None:
        self.progress = (done, total, name)  # one assignment: the window looks at it whenever it likes
        if self.stopping.is_set():
            raise ReadingStopped

    @Slot()
    def forget(self) -> None:
        self.wait()
        _running.discard(self)

    def run(self) -> None:
        try:
            from app.data.preview import preview

            self.answer = preview(self.config, self._root, self._batch, self._watch)
        except Exception as error:  # whatever it is, it is told in the panel
            self.answer = Failure(error, traceback.format_exc())


_running: set[_Thread] = set()


class DataReader(QObject):
    """`read(config, Preview | Failure)` answers the newest question; `progress(done, total, name)` comes meanwhile."""

    read = Signal(object, object)
    progress = Signal(int, int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread: _Thread | None = None
        self._next: tuple[DataConfig, Path, int] | None = None
        self._timer = QTimer(self, interval=LOOK, timeout=self._look)

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def ask(self, config: DataConfig, root: Path, batch: int) -> None:
        """Read these data and look at a batch; a question under way is stopped for it."""
        self._next = (config, root, batch)
        if self._thread is None:
            self._begin()
        else:
            self._thread.stopping.set()

    def stop(self) -> None:
        """End the reading under way, and ask nothing more."""
        self._next = None
        if self._thread is not None:
            self._thread.stopping.set()

    def close(self) -> None:
        """Stop, and wait until the thread has ended."""
        self.stop()
        if self._thread is not None:
            self._thread.wait()

    def _begin(self) -> None:
        assert self._next is not None
        question, self._next = self._next, None
        self._thread = _Thread(*question)
        _running.add(self._thread)
        self._thread.finished.connect(self._thread.forget)
        self._thread.finished.connect(self._ended, Qt.ConnectionType.QueuedConnection)
        self._thread.start()
        self._timer.start()

    def _look(self) -> None:
        if self._thread is not None and self._thread.progress is not None:
            self.progress.emit(*self._thread.progress)

    @Slot()
    def _ended(self) -> None:
        thread, self._thread = self._thread, None
        self._timer.stop()
        if thread is None:
            return
        thread.wait()
        if self._next is not None:
            self._begin()
        elif thread.answer is not None:
            self.read.emit(thread.config, thread.answer)
