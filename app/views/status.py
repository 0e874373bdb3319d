"""The status bar: problems at the left, measurements at the right."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QStatusBar, QWidget

from app.util.formatting import parameters_text, plural
from app.views.ui import theme
from app.views.ui.present import present

EDGES = 24  # pixels beside the first label and the last, and between left and right


LINKS = ("errors", "warnings")  # lead to the problems

# What goes first where there is no room for all.
SPARED = ("checked", "torch", "kept", "start", "parameters", "compute")


class StatusLine(QStatusBar):
    """Short facts, each in its own label; empty ones take no room, and some are hidden in a narrow window.

    A click on the number of errors or warnings emits `problem_followed`.
    """

    problem_followed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizeGripEnabled(False)
        self.setFixedHeight(24)
        self._left = {
            key: self._label()
            for key in ("state", "errors", "warnings", "tape", "kept", "checked")
        }
        self._right = {
            key: self._label()
            for key in ("start", "parameters", "compute", "run", "torch", "autosave")
        }
        for label in self._left.values():
            self.addWidget(label)
        for key in LINKS:
            self._left[key].installEventFilter(self)
            self._left[key].setToolTip("Go to the next problem (F4)")
        for label in self._right.values():
            self.addPermanentWidget(label)
        theme.manager().changed.connect(self._restyle)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.MouseButtonPress and watched.property("link"):
            self.problem_followed.emit()
            return True
        return super().eventFilter(watched, event)

    def text(self, key: str) -> str:
        """Return the text of a field, for assistive tools and tests."""
        return (self._left | self._right)[key].text()

    def set_problems(self, errors: int, warnings: int) -> None:
        self._put("errors", _count(errors, "error"), "error" if errors else "text3")
        self._put("warnings", _count(warnings, "warning"), "warn")
        if not errors and not warnings:
            self._put("errors", "No problems", "run")
        for key, count in zip(LINKS, (errors, warnings), strict=True):
            self._left[key].setProperty("link", bool(count))
            hand = (
                Qt.CursorShape.PointingHandCursor
                if count
                else Qt.CursorShape.ArrowCursor
            )
            self._left[key].setCursor(hand)

    def forget_check(self) -> None:
        """Say neither problems nor that there are none: what is open has not been checked yet."""
        for key in ("errors", "warnings", "checked"):
            self._put(key, "", "text3")

    def set_checked(self, milliseconds: float | None) -> None:
        """Say how long the shapes took; None where none are inferred, as of a model of code."""
        text = (
            ""
            if milliseconds is None
            else f"Shapes checked in {milliseconds:,.1f} ms without allocating memory"
        )
        self._put("checked", text, "text3")

    def set_parameters(self, count: int | None, frozen: int = 0) -> None:
        """Show the number of parameters, and of those that are frozen; None while it is not known."""
        self._put(
            "parameters",
            "" if count is None else parameters_text(count, frozen),
            "text3",
        )

    def set_compute(self, text: str, note: str = "") -> None:
        """Show the estimated compute per sample, explained by `note`; "" while nothing is counted."""
        self._put("compute", text, "text3")
        self._right["compute"].setToolTip(note)

    def set_start(self, text: str, note: str = "") -> None:
        """Show which weights a run starts from, "" for random ones, with details in `note`."""
        self._put("start", text, "text3")
        self._right["start"].setToolTip(note)

    def set_torch(self, text: str) -> None:
        self._put("torch", text, "text3")

    def set_autosave(self, text: str, color: str = "text3", note: str = "") -> None:
        """Show when unsaved work was last written to the journal, or why not; "" if nothing is unsaved."""
        self._put("autosave", text, color)
        self._right["autosave"].setToolTip(note)

    def set_state(self, text: str, color: str = "text2") -> None:
        """Show the state of the run, "" if there is none."""
        self._put("state", text, color)

    def set_tape(self, text: str) -> None:
        """Show the position of a backward pass being played, "" for none."""
        self._put("tape", text, "back")

    def set_graph_memory(self, text: str) -> None:
        """Show the memory held by captured graphs."""
        self._put("kept", text, "text3")

    def set_run(self, text: str) -> None:
        self._put("run", text, "text3")

    def _label(self) -> QLabel:
        label = QLabel(self)
        label.setFont(theme.font("caption"))
        label.setContentsMargins(6, 0, 6, 0)
        label.hide()
        return label

    def _put(self, key: str, text: str, color: str) -> None:
        label = self._left.get(key) or self._right[key]
        if text != label.text():
            label.setText(text)
            self._fit()
        if color != label.property("ink"):
            label.setProperty("ink", color)
            self._paint(label)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Show what has room, so that nothing is cut off or pushed out of the window."""
        shown = {
            key: label
            for key, label in (self._left | self._right).items()
            if label.text()
        }
        gap = present(self.layout()).spacing()
        room = self.width() - EDGES
        for key in SPARED:
            if sum(label.sizeHint().width() + gap for label in shown.values()) <= room:
                break
            shown.pop(key, None)
        for key, label in (self._left | self._right).items():
            label.setVisible(key in shown)

    def _paint(self, label: QLabel) -> None:
        ink = theme.current().color(label.property("ink") or "text3")
        label.setStyleSheet(f"color: {ink.name()};")

    def _restyle(self) -> None:
        for label in (*self._left.values(), *self._right.values()):
            self._paint(label)


def _count(number: int, word: str) -> str:
    return f"{number} {plural(number, word)}" if number else ""
