"""The page "Console": a log of events."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from itertools import islice
from time import perf_counter

from msgspec import Struct, field
from PySide6.QtCore import QTimer, QUrl, Slot
from PySide6.QtGui import (
    QFontMetricsF,
    QGuiApplication,
    QShowEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QStackedLayout, QTextBrowser, QWidget

from app.training.events import (
    Caught,
    EpochDone,
    Event,
    Failed,
    Finished,
    Noticed,
    Paused,
    RateSet,
    Resumed,
    Saved,
    Skipped,
    Started,
    StepDone,
)
from app.training.metrics import label_of
from app.util.formatting import (
    duration,
    figure,
    grouped_digits,
    parameters_text,
    percent,
)
from app.views.run.session import Run
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState

# --- Events of a run as text for the console. Qt-free


class ConsoleLine(Struct, frozen=True):
    """One line of the console: `tone` is a colour token, `detail` is shown on a click."""

    text: str
    tone: str = "text2"
    detail: str = ""


_ENDINGS = {
    "done": ("Done", "run"),
    "stopped": ("Stopped", "text"),
    "left": ("No longer watched", "text"),
}


def lines_of(event: Event, epochs: int = 0) -> list[ConsoleLine]:
    """Return the lines for an event; steps and measurements have none. `epochs` is the planned number."""
    match event:
        case Started():
            return _started(event)
        case EpochDone():
            return [ConsoleLine(_epoch(event, epochs))]
        case Paused():
            text = (
                f"after step {grouped_digits(event.step)}"
                if event.step
                else "before step 1"
            )
            return [ConsoleLine(f"Paused {text}.")]
        case Resumed():
            return [ConsoleLine(f"Resumed after step {grouped_digits(event.step)}.")]
        case Finished():
            word, tone = _ENDINGS[event.reason]
            spent = (
                f"{event.seconds:.1f} s"
                if event.seconds < 120
                else duration(event.seconds)
            )
            looking = (
                f" Telemetry took {percent(event.looking)} % of it."
                if event.looking
                else ""
            )
            why = f": {event.reason_text}" if event.reason_text else ""
            return [
                ConsoleLine(
                    f"{word} after {grouped_digits(event.steps)} steps, {spent}{why}.{looking}",
                    tone,
                )
            ]
        case Caught() | Noticed():
            return [ConsoleLine(event.message, "warn")]
        case Failed():
            return [
                ConsoleLine(
                    _sentences(event.message, event.cure),
                    "error",
                    event.traceback.rstrip(),
                )
            ]
        case RateSet():
            of = f" of {event.group}" if event.group else ""
            text = f"Learning rate{of} set to {figure(event.rate)} by hand after step {grouped_digits(event.step)}."
            return [
                ConsoleLine(
                    f"{text} From that step, results differ from those without the change.",
                    "warn",
                )
            ]
        case Skipped():
            return [ConsoleLine(f"Skipped: {_sentences(event.message)}", "warn")]
        case Saved() if event.problem:
            return [ConsoleLine(event.problem, "warn")]
    return []


def _started(event: Started) -> list[ConsoleLine]:
    count = parameters_text(event.parameters + event.frozen, event.frozen)
    if not event.steps_per_epoch:
        return [ConsoleLine(f"A script trains {count} on {event.device}.", "text")]
    seed = f", seed {event.seed}" if event.seed >= 0 else ""
    lines = [
        ConsoleLine(
            f"Training on {event.device}{seed}: {count}, "
            f"{grouped_digits(event.train_count)} training and {grouped_digits(event.validation_count)} validation "
            f"samples, {grouped_digits(event.epochs)} epochs of {grouped_digits(event.steps_per_epoch)} batches of "
            f"{event.batch_size}.",
            "text",
        )
    ]
    if event.loss:
        lines.append(ConsoleLine(f"{event.loss[:1].upper()}{event.loss[1:]}.", "text"))
    if event.stand_in:
        lines.append(ConsoleLine(event.stand_in, "warn"))
    if event.device_note:
        lines.append(ConsoleLine(event.device_note, "warn"))
    if event.changed:
        lines.append(ConsoleLine(event.changed, "warn"))
    return lines


def _sentences(*texts: str) -> str:
    """Join the non-empty texts as sentences."""
    stripped = [text.strip() for text in texts if text.strip()]
    return " ".join(text if text[-1] in ".!?…" else f"{text}." for text in stripped)


def _epoch(event: EpochDone, epochs: int) -> str:
    of = f"/{epochs:,}" if epochs else ""
    text = f"Epoch {event.epoch:,}{of}: training loss {figure(event.train_loss)}{_share(event.train_accuracy)}"
    if event.val_loss is None:
        return f"{text}; no validation samples."
    scores = "".join(
        f", {label_of(name)} {figure(value)}" for name, value in event.metrics
    )
    return f"{text}; validation loss {figure(event.val_loss)}{_share(event.val_accuracy)}{scores}."


def _share(accuracy: float | None) -> str:
    """Format the accuracy; "" for data without classes."""
    return "" if accuracy is None else f", accuracy {percent(accuracy)} %"


MOST = 2000  # lines
SLICE = 0.006  # seconds of writing in one turn of the event loop


class _Entry(Struct):
    line: ConsoleLine
    time: datetime = field(default_factory=datetime.now)
    opened: bool = False


class Console(QWidget):
    """The log of the window. `log` adds a line, `begin` and `write_events` report a run."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: deque[_Entry] = deque(maxlen=MOST)
        self._first = 0  # the number of the oldest entry still stored
        self._next = 0  # the number of the first entry not in the view yet
        self._epochs = 0
        self._standing = False
        self._place: int | None = None  # scroll position to restore after a rewrite
        self._view = QTextBrowser()
        self._view.setOpenLinks(False)
        self._view.setFrameShape(QFrame.Shape.NoFrame)
        # It fills its page, so it has no border.
        self._view.setStyleSheet("QTextBrowser { border: none; border-radius: 0; }")
        self._view.setUndoRedoEnabled(False)
        self._view.document().setMaximumBlockCount(MOST)  # an entry is a block
        self._view.anchorClicked.connect(self._toggle)
        self._copy = Button("Copy all", "flat", "copy")
        self._clear = Button("Clear", "flat", "trash")
        self._copy.clicked.connect(self.copy_all)
        self._clear.clicked.connect(self.clear)
        self._writing = QTimer(self, singleShot=True)
        self._writing.timeout.connect(self._write_some)
        self._build()
        self._write_all()
        theme.manager().changed.connect(self._write_all)
        self._at_end = True
        bar = self._view.verticalScrollBar()
        bar.valueChanged.connect(self._note_place)
        bar.rangeChanged.connect(self._keep_end)

    @Slot(int)
    def _note_place(self, value: int) -> None:
        self._at_end = value >= self._view.verticalScrollBar().maximum() - 4

    @Slot()
    def _keep_end(self) -> None:
        """Stay at the newest line when another width wraps the lines again."""
        if self._at_end:
            bar = self._view.verticalScrollBar()
            bar.setValue(bar.maximum())

    def _build(self) -> None:
        tools = hbox(1, self._copy, self._clear, margins=(12, 4, 8, 0))
        log = QWidget()
        vbox(tools, (self._view, 1), on=log, margins=0, spacing=0)
        hint = "Messages of a run appear here: its device and seed, every epoch, and errors."
        self._stack = QStackedLayout(self)
        self._stack.addWidget(EmptyState("console", "No messages yet", hint))
        self._stack.addWidget(log)

    def log(self, text: str, tone: str = "text2", detail: str = "") -> None:
        """Add a line in the colour of a token; `detail` is shown after a click."""
        self._add(_Entry(ConsoleLine(text, tone, detail)))

    @property
    def texts(self) -> list[str]:
        """The lines, oldest first."""
        return [entry.line.text for entry in self._entries]

    def text(self) -> str:
        """Return everything as plain text, details included."""
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
        """Log the start of a run; later events belong to it."""
        self._epochs = run.job.training.epochs
        self._standing = False
        self.log(
            f"Run {run.display_number} {'resumes' if len(run.history.steps) else 'starts'}.",
            "text3",
        )

    @Slot(object)
    def write_events(self, events: list[Event]) -> None:
        """Write the lines for these events."""
        for event in events:
            if type(event) is StepDone:
                continue  # by far the most frequent, and never logged
            if isinstance(event, Paused):
                # A run that is stepped pauses after each batch; log that once.
                if self._standing:
                    continue
                self._standing = True
            elif isinstance(event, Resumed):
                self._standing = False
            for line in lines_of(event, self._epochs):
                self._add(_Entry(line))

    def _add(self, entry: _Entry) -> None:
        if len(self._entries) == MOST:
            self._first += 1
        self._entries.append(entry)
        self._stack.setCurrentIndex(1)
        self._write_soon()

    def _write_soon(self) -> None:
        """Schedule writing. Nothing is laid out while hidden: an epoch of a small net may take less than a frame."""
        if self._view.isVisible() and not self._writing.isActive():
            self._writing.start(0)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self._write_soon)  # the view is shown after its page

    @Slot()
    def _write_some(self) -> None:
        """Write pending entries, a time slice per turn of the event loop."""
        self._next = max(self._next, self._first)
        bar = self._view.verticalScrollBar()
        at_end = bar.value() >= bar.maximum() - 4
        began = perf_counter()
        for entry in islice(self._entries, self._next - self._first, None):
            self._write(entry, self._next)
            self._next += 1
            if perf_counter() - began > SLICE:
                break
        if at_end:
            bar.setValue(bar.maximum())
        if self._next < self._first + len(self._entries):
            self._write_soon()
        elif self._place is not None:
            bar.setValue(self._place)
            self._place = None

    @Slot()
    def _write_all(self) -> None:
        """Write every line again, after a change of colours or when a detail was opened."""
        bar = self._view.verticalScrollBar()
        self._place = (
            bar.value()
            if self._view.isVisible() and bar.value() < bar.maximum() - 4
            else None
        )
        self._view.clear()
        self._view.document().setDocumentMargin(12)
        self._view.setFont(theme.font("code"))
        self._next = self._first
        self._stack.setCurrentIndex(1 if self._entries else 0)
        self._write_soon()

    def _write(self, entry: _Entry, number: int) -> None:
        """Append one block of text: the time, the line, and a link to details if there are some."""
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
            cursor.insertText(
                "Hide traceback" if entry.opened else "Show traceback", link
            )
            if entry.opened:
                # Line separators keep it inside the block, which is one entry.
                cursor.insertText(
                    "\u2028" + entry.line.detail.replace("\n", "\u2028"),
                    _format("text2"),
                )

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
