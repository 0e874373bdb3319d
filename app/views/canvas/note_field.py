"""In-place editors of a note's text and of a node's name: Enter commits, Esc reverts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QWidget

from app.views.canvas.note_items import TITLE_BAND, TITLE_LEFT, height_for
from app.views.ui.theme import font

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

NEW_SIZE = (208.0, 64.0)
LEAST_WIDTH, LEAST_HEIGHT = 168, 30
LONGEST = 10_000


class NoteField(QPlainTextEdit):
    """`written(text)` on Enter or when the focus goes elsewhere, `left` on Esc. Shift+Enter begins a new line."""

    written = Signal(str)
    left = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._one_line = False
        self.setAccessibleName("Text of the comment")
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabChangesFocus(True)
        self.hide()

    def open_over(self, text: str, one_line: bool) -> None:
        """Begin with a text, which is selected."""
        self._one_line = one_line
        self.setAccessibleName(
            "Title of the frame" if one_line else "Text of the comment"
        )
        self.setPlaceholderText(
            "Title" if one_line else "Comment. Shift+Enter for a new line."
        )
        self.setLineWrapMode(
            QPlainTextEdit.LineWrapMode.NoWrap
            if one_line
            else QPlainTextEdit.LineWrapMode.WidgetWidth
        )
        self.setFont(font("section" if one_line else "label"))
        self.setPlainText(text)
        self.selectAll()
        self.show()
        self.raise_()
        self.setFocus(Qt.FocusReason.PopupFocusReason)

    def end(self) -> None:
        """Commit the text."""
        if self.isVisible():
            self.hide()
            text = self.toPlainText()[:LONGEST].strip()
            self.written.emit(" ".join(text.split()) if self._one_line else text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.hide()
            self.left.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if (
                event.modifiers() & Qt.KeyboardModifier.ShiftModifier
                and not self._one_line
            ):
                self.insertPlainText("\n")
            else:
                self.end()
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusOut and self.isActiveWindow():
            self.end()
        elif (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and event.key() == Qt.Key.Key_Escape
        ):
            event.accept()  # or the window's own Esc would have it
            return True
        return super().event(event)


class NoteEditor(QObject):
    """Edits the text of notes on a canvas, of those that are there and of a comment that is about to be."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas)
        self._canvas = canvas
        self.field = NoteField(canvas)
        self._note: str | None = None
        self._new = self._open = False
        self._at = QPointF()
        self.field.written.connect(self._written)
        self.field.left.connect(self._close)

    def edit(self, note: str, new: bool = False) -> None:
        """Edit a note's text; with `new` the text belongs to the undo step that created it."""
        self.field.end()
        item = self._canvas.scene.notes.items[note]
        self._note, self._new, self._open = note, new, True
        # Of a frame around nodes in sight only the title has to be.
        self._canvas.reveal_title(
            item.body
        ) if item.is_frame else self._canvas.reveal_area(item.body)
        item.set_state(edited=True)
        self.update_position()
        self.field.open_over(item.note.text, item.is_frame)

    def begin(self, at: QPointF) -> None:
        """Write a comment with its corner at a point; there is none until something is written."""
        self.field.end()
        self._note, self._new, self._open, self._at = None, True, True, at
        self.update_position()
        self.field.open_over("", False)

    def update_position(self) -> None:
        """Move the field over its note."""
        if not self._open:
            return
        item = self._canvas.scene.notes.items.get(self._note or "")
        if item is not None and item.is_frame:
            width = min(item.note.width - 2 * TITLE_LEFT, 320.0)
            area = QRectF(item.x() + TITLE_LEFT - 6, item.y() + 2, width, TITLE_BAND)
        elif item is not None:
            area = item.body
            area.setHeight(
                max(area.height(), height_for(item.note.text, area.width()) + 8)
            )
        else:
            area = QRectF(self._at.x(), self._at.y(), *NEW_SIZE)
        rect = self._canvas.on_canvas(area)
        width, height = (
            max(round(rect.width()), LEAST_WIDTH),
            max(round(rect.height()), LEAST_HEIGHT),
        )
        least = LEAST_HEIGHT if item is not None and item.is_frame else 56
        most = LEAST_HEIGHT if item is not None and item.is_frame else 400
        self.field.setGeometry(
            round(rect.left()), round(rect.top()), width, min(max(height, least), most)
        )

    def _written(self, text: str) -> None:
        note, new, commands = self._note, self._new, self._canvas.commands
        item = self._canvas.scene.notes.items.get(
            note or ""
        )  # it may have gone meanwhile
        if note is None and text:
            commands.notes.add_comment(text, self._at)
        elif item is not None and (text or item.is_frame):
            commands.notes.write(item.key, text, new)
        self._close()

    def _close(self) -> None:
        item = self._canvas.scene.notes.items.get(self._note or "")
        if item is not None:
            item.set_state(edited=False)
        self._note, self._open = None, False
        self._canvas.view.setFocus()


class RenameField(QLineEdit):
    """`renamed(node, name)` on Enter or when the focus goes elsewhere; Esc leaves the name as it was."""

    renamed = Signal(str, str)
    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._node = ""
        self._old = ""
        self.setMaxLength(200)
        self.setAccessibleName("Name of the node")
        self.returnPressed.connect(self._finish)
        self.hide()

    def open_over(self, node: str, name: str, area: QRectF) -> None:
        """Begin, over an area of the parent."""
        self._node, self._old = node, name
        self.setFont(font("node"))
        self.setText(name)
        self.selectAll()
        width = max(round(area.width()), 120)
        self.setGeometry(
            round(area.left()), round(area.top()), width, max(round(area.height()), 26)
        )
        self.show()
        self.raise_()
        self.setFocus(Qt.FocusReason.PopupFocusReason)

    def _finish(self) -> None:
        if self.isVisible():
            self.hide()
            if self.text().strip() and self.text().strip() != self._old:
                self.renamed.emit(self._node, self.text().strip())
            self.closed.emit()

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.FocusOut
            and self.isVisible()
            and self.isActiveWindow()
        ):
            self._finish()
        elif (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Escape
        ):
            self.hide()
            self.closed.emit()
            return True
        return super().event(event)
