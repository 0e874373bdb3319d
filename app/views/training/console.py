"""The page "Console": what happened, line by line, to be read and to be copied."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from PySide6.QtCore import QUrl, Slot
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QTextBlockFormat, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QHBoxLayout, QStackedLayout, QTextBrowser, QVBoxLayout, QWidget

from app.training.events import Event, Paused, Resumed
from app.views import theme
from app.views.training.report import Line, lines_of
from app.views.training.session import Run
from app.views.widgets.button import Button
from app.views.widgets.empty import EmptyState

MOST = 2000  # lines


@dataclass
class _Entry:
    line: Line
    time: datetime = field(default_factory=datetime.now)
    opened: bool = False


class Console(QWidget):
    """A log of the window. `log` adds a line, `begin` and `tell` what a run does."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._entries: deque[_Entry] = deque(maxlen=MOST)
        self._first = 0  # the number of the oldest entry that is still here
        self._epochs = 0
        self._standing = False
        self._view = QTextBrowser()
        self._view.setOpenLinks(False)
        self._view.setFrameShape(QFrame.Shape.NoFrame)
        # It fills its page: no field's border round it.
        self._view.setStyleSheet("QTextBrowser { border: none; border-radius: 0; }")
        self._view.setUndoRedoEnabled(False)
        self._view.anchorClicked.connect(self._toggle)
        self._copy = Button("Copy all", "flat", "copy")
        self._clear = Button("Clear", "flat", "trash")
        self._copy.clicked.connect(self.copy_all)
        self._clear.clicked.connect(self.clear)
        self._build()
        theme.manager().changed.connect(self._write_all)
        self._write_all()

    def _build(self) -> None:
        tools = QHBoxLayout()
        tools.setContentsMargins(12, 4, 8, 0)
        tools.addStretch(1)
        tools.addWidget(self._copy)
        tools.addWidget(self._clear)
        log = QWidget()
        inside = QVBoxLayout(log)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(0)
        inside.addLayout(tools)
        inside.addWidget(self._view, 1)
        hint = "What a run does is written here: its device and seed, every epoch, and what went wrong."
        self._stack = QStackedLayout(self)
        self._stack.addWidget(EmptyState("console", "Nothing has happened yet", hint))
        self._stack.addWidget(log)

    def log(self, text: str, tone: str = "text2", detail: str = "") -> None:
        """Add a line in the colour of a token; `detail` is shown after a click."""
        self._add(_Entry(Line(text, tone, detail)))

    @property
    def texts(self) -> list[str]:
        """The lines, oldest first."""
        return [entry.line.text for entry in self._entries]

    def text(self) -> str:
        """Everything as plain text, details included."""
        lines = []
        for entry in self._entries:
            lines.append(f"{entry.time:%H:%M:%S}  {entry.line.text}")
            if entry.line.detail:
                lines.append(entry.line.detail)
        return "\n".join(lines) + "\n"

    @Slot()
    def copy_all(self) -> None:
        QGuiApplication.clipboard().setText(self.text())

    @Slot()
    def clear(self) -> None:
        self._first += len(self._entries)
        self._entries.clear()
        self._write_all()

    @Slot(object)
    def begin(self, run: Run) -> None:
        """A run starts; what is told from now on is its own."""
        self._epochs = run.job.training.epochs
        self._standing = False
        self.log(f"Run {run.kept_number} {'goes on' if len(run.history.steps) else 'starts'}.", "text3")
        if run.job.training.start is not None:
            from app.views.weights_control import start_words

            self.log(f"{start_words(run.job.training.start, run.job.source)[0]}.", "text3")

    @Slot(object)
    def tell(self, events: list[Event]) -> None:
        """Write what these events are worth."""
        for event in events:
            if isinstance(event, Paused):
                # A run that is taken batch by batch stands after each of them; that is said once.
                if self._standing:
                    continue
                self._standing = True
            elif isinstance(event, Resumed):
                self._standing = False
            for line in lines_of(event, self._epochs):
                self._add(_Entry(line))

    def _add(self, entry: _Entry) -> None:
        if len(self._entries) == MOST:
            self._entries.popleft()
            self._first += 1
            cursor = QTextCursor(self._view.document().firstBlock())
            cursor.movePosition(QTextCursor.MoveOperation.NextBlock, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
        self._entries.append(entry)
        self._stack.setCurrentIndex(1)
        bar = self._view.verticalScrollBar()
        at_end = bar.value() >= bar.maximum() - 4
        self._write(entry, self._first + len(self._entries) - 1)
        if at_end:
            bar.setValue(bar.maximum())

    @Slot()
    def _write_all(self) -> None:
        """Write every line anew: in other colours, or with a detail opened."""
        place = self._view.verticalScrollBar().value()
        self._view.clear()
        self._view.document().setDocumentMargin(12)
        self._view.setFont(theme.font("code"))
        for number, entry in enumerate(self._entries, start=self._first):
            self._write(entry, number)
        self._view.verticalScrollBar().setValue(place)
        self._stack.setCurrentIndex(1 if self._entries else 0)

    def _write(self, entry: _Entry, number: int) -> None:
        """One block of text: the time, the line, and where there is a detail the link to it."""
        cursor = QTextCursor(self._view.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        block = QTextBlockFormat()
        time_width = QFontMetricsF(theme.font("code")).horizontalAdvance("00:00:00  ")
        block.setLeftMargin(time_width)
        block.setTextIndent(-time_width)
        block.setBottomMargin(3)
        if not self._view.document().isEmpty():
            cursor.insertBlock(block)
        else:
            cursor.setBlockFormat(block)
        cursor.insertText(f"{entry.time:%H:%M:%S}  ", _format("text3"))
        cursor.insertText(entry.line.text, _format(entry.line.tone))
        if entry.line.detail:
            link = _format("accent")
            link.setAnchor(True)
            link.setAnchorHref(f"detail:{number}")
            cursor.insertText("  ", _format("text3"))
            cursor.insertText("Hide traceback" if entry.opened else "Show traceback", link)
            if entry.opened:
                # Line separators keep it inside the block, which is one entry.
                cursor.insertText("\u2028" + entry.line.detail.replace("\n", "\u2028"), _format("text2"))

    @Slot(QUrl)
    def _toggle(self, url: QUrl) -> None:
        number = int(url.path()) - self._first
        if 0 <= number < len(self._entries):
            self._entries[number].opened = not self._entries[number].opened
            self._write_all()


def _format(tone: str) -> QTextCharFormat:
    result = QTextCharFormat()
    result.setForeground(theme.current().color(tone))
    return result
