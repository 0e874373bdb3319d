"""The lines of a layer in A and in B, side by side in the text that they are in."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSplitter, QStackedLayout, QWidget

from app.views.ui.code_edit import CodeEdit
from app.views.ui.layouts import vbox
from app.views.ui.widgets.painting import label

MOST = 20_000  # lines of a text that is shown


class SourceLine(Struct, frozen=True):
    """A line of a text, 0 where none is known; `name` is the file's."""

    name: str = ""
    text: str = ""
    line: int = 0


def read_line(file: str, line: int, generated: str) -> SourceLine:
    """Read the text that a line is in; `generated` is that of a project's net."""
    if not line:
        return SourceLine()
    try:
        text = generated or Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return SourceLine(f"{Path(file).name}: {error}")
    return SourceLine(
        "the generated code" if generated else Path(file).name, text, line
    )


class SourcePane(QWidget):
    """One side: a caption over its text."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self._side = side
        self.caption = label("", "caption", "text2")
        self.caption.setContentsMargins(12, 4, 8, 2)
        self.edit = CodeEdit()
        self.edit.setAccessibleName(f"Line in {side}")
        self.nothing = label("", "label", "text3", wrap=True)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        holder = QWidget()
        self._stack = QStackedLayout(holder)
        self._stack.addWidget(self.edit)
        self._stack.addWidget(self.nothing)
        vbox(self.caption, (holder, 1), on=self, margins=0, spacing=0)
        self.show_line(SourceLine())

    def show_line(self, source_line: SourceLine) -> None:
        """Show the text with its line marked."""
        if not source_line.line or source_line.text.count("\n") > MOST:
            self.caption.setText(self._side)
            self.nothing.setText(source_line.name or "Source line unknown")
            self._stack.setCurrentWidget(self.nothing)
            return
        self.caption.setText(f"{self._side}   {source_line.name}:{source_line.line}")
        self._stack.setCurrentWidget(self.edit)
        self.edit.show_text(source_line.text)
        self.edit.mark([source_line.line], [])
        self.edit.reveal([source_line.line])


class SourceLines(QSplitter):
    """Both sides."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.a, self.b = SourcePane("A"), SourcePane("B")
        self.addWidget(self.a)
        self.addWidget(self.b)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(1)

    def show_lines(self, a: SourceLine, b: SourceLine) -> None:
        """Show a line of each."""
        self.a.show_line(a)
        self.b.show_line(b)
