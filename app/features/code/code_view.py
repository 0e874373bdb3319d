"""The Code tab: the generated source of the net, its lines linked to the nodes of the canvas."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import (
    QGuiApplication,
    QKeySequence,
    QShortcut,
    QShowEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QLabel, QStackedWidget, QWidget

from app.builder.catalog.catalog import Catalog
from app.features.code.typing import CodeTyping, TypingEdit
from app.source.generated import Source
from app.views.navigation import SheetDocument
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.code_edit import CodeEdit
from app.views.ui.icons import icon
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, EmptyState, icon_button
from app.views.ui.widgets.find_bar import FindBar

COPIED_FOR_MS = 1600
NOTHING = (
    "No code yet",
    "Put an input, layers and an output on the canvas and wire them.",
)
_WITHIN = Qt.ShortcutContext.WidgetWithChildrenShortcut


class CodeFindBar(FindBar):
    """Search in the source; initially for the selected text."""

    def __init__(self, edit: CodeEdit) -> None:
        self._edit = edit
        self._found: list[QTextCursor] = []
        self._at = -1
        super().__init__("Find in the code")

    def open_bar(self, query: str = "") -> None:
        super().open_bar(query or self._edit.textCursor().selectedText())

    def end_search(self) -> None:
        self._edit.mark_found([])
        self._edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def search(self) -> None:
        """Find all matches, also again after the text changed."""
        self._found, self._at = [], -1
        text = self.field.text()
        if text and not self.isHidden():
            match = self._edit.document().find(text)
            while not match.isNull():
                self._found.append(match)
                match = self._edit.document().find(text, match)
        self._edit.mark_found(self._found)
        if self._found:
            self.go_to_match(1)
        else:
            self.show_count(-1, 0)

    def go_to_match(self, step: int) -> None:
        """Go to the next place, or with −1 the one before, round and round."""
        if self._found:
            self._at = (self._at + step) % len(self._found)
            self._edit.reveal([self._found[self._at].blockNumber() + 1])
            self.show_count(self._at, len(self._found))


class CodeView(QWidget):
    """The source. Choosing a line selects its node; selecting a node marks its lines.

    If `edits` is set, values and names of layers are editable.
    """

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self._source: Source | None = None
        self._hovered: str | None = None
        self.edit = TypingEdit()
        self.typing: CodeTyping | None = None
        self._waiting: tuple[Source | None, str] | None = None
        self.find_bar = CodeFindBar(self.edit)
        self.empty = EmptyState("code", *NOTHING)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.empty)
        self._pages.addWidget(self.edit)
        self._make_bar()
        vbox(self._bar, self.find_bar, (self._pages, 1), on=self, margins=0, spacing=0)
        self._copied = QTimer(self, singleShot=True, interval=COPIED_FOR_MS)
        self._copied.timeout.connect(self._show_copy)
        QShortcut(
            QKeySequence.StandardKey.Find,
            self,
            lambda: self.find_bar.open_bar(),
            context=_WITHIN,
        )
        self.edit.line_chosen.connect(self._line_chosen)
        selection.changed.connect(self._selection_changed)
        selection.hovered.connect(self._hover_changed)
        self.set_source(None, "")

    def _make_bar(self) -> None:
        self._bar = QWidget()
        self.title = QLabel("model.py")
        self.title.setFont(theme.font("section"))
        self.note = QLabel()
        self.note.setFont(theme.font("caption"))
        self.note.setProperty("tone", "text3")
        self.find_button = icon_button("search", "Find (Ctrl+F)")
        self.find_button.clicked.connect(lambda: self.find_bar.open_bar())
        self.copy_button = Button("Copy", icon="copy")
        self.copy_button.setAccessibleName("Copy the source")
        self.copy_button.clicked.connect(self.copy)
        hbox(
            self.title,
            (self.note, 1),
            self.find_button,
            self.copy_button,
            on=self._bar,
            margins=(16, 8, 12, 8),
            spacing=8,
        )

    def edits(self, sheet: SheetDocument, catalog: Catalog) -> None:
        """Make the text editable; statements become edits of the open graph."""
        self.typing = CodeTyping(self.edit, sheet, catalog)
        self.typing.ended.connect(self._catch_up)

    def _catch_up(self) -> None:
        """Show the source that was generated while the user typed."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.set_source(*waiting)

    @property
    def source(self) -> Source | None:
        return self._source

    def set_source(self, source: Source | None, note: str = "") -> None:
        """Show a source, with `note` next to its name; without a source, `note` says why there is none.

        Deferred while a line is being edited.
        """
        if self.typing is not None:
            if self.typing.under_way:
                self._waiting = source, note
                return
            self.typing.set_source(
                None if source is not None and source.opened else source
            )
        self._source = source
        self.title.setText(
            f"{source.module_name}.py" if source is not None else "model.py"
        )
        for widget in (self.title, self.copy_button, self.find_button):
            widget.setVisible(source is not None)
        if source is None:
            self.find_bar.hide()
            self.note.setText("")
            self.empty.set_text(NOTHING[0], note or NOTHING[1])
            self._pages.setCurrentWidget(self.empty)
            self.edit.show_text("")
            return
        count = source.text.rstrip("\n").count("\n") + 1
        able = (
            "values and names are editable"
            if self.typing is not None and not source.opened
            else ""
        )
        self.note.setText(" · ".join(filter(None, (f"{count} lines", note, able))))
        self._pages.setCurrentWidget(self.edit)
        if self.isVisible():
            self._write()

    def _write(self) -> None:
        """Show the source; while the tab is hidden, that is deferred."""
        if self._source is not None:
            self.edit.show_text(self._source.text.rstrip("\n"))
            self._mark()
            if not self.find_bar.isHidden():
                self.find_bar.search()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._write()
        self.edit.reveal(self._lines(self._selection.ids))

    def copy(self) -> None:
        """Put the whole source on the clipboard."""
        if self._source is not None:
            QGuiApplication.clipboard().setText(self._source.text)
            self.copy_button.setText("Copied")
            self.copy_button.setIcon(icon("check"))
            self._copied.start()

    def _show_copy(self) -> None:
        self.copy_button.setText("Copy")
        self.copy_button.setIcon(icon("copy"))

    def _lines(self, nodes: Iterable[str]) -> list[int]:
        if self._source is None:
            return []
        return [line for node in nodes for line in self._source.lines.get(node, ())]

    def _mark(self) -> None:
        if not self.isVisible():
            return
        self.edit.mark(
            self._lines(self._selection.ids),
            self._lines([self._hovered] if self._hovered else []),
        )

    def _line_chosen(self, line: int) -> None:
        node = self._source.node_at(line) if self._source else None
        if node is not None:
            self._selection.set({node}, self)

    def _selection_changed(self, ids: frozenset[str], origin: object) -> None:
        self._mark()
        if origin is not self:
            self.edit.reveal(self._lines(ids))

    def _hover_changed(self, node: str | None) -> None:
        self._hovered = node
        self._mark()
