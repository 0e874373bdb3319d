"""The dialog behind Ctrl+K: commands and all else that can be found by words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QRect,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QAction, QFontMetrics, QIcon, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.views.ui import fuzzy, icons, theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.dialogs.shortcuts import command_text, key_text
from app.views.ui.layouts import vbox
from app.views.ui.op_rows import Index
from app.views.ui.present import present
from app.views.ui.widgets import SearchField
from app.views.ui.widgets.painting import box, label

# What a match is worth: in a name, in another phrase for it, in what is shown, in further words, in the kind of thing.
NAME, PHRASE, TEXT, WORD, KIND = 1.0, 0.95, 0.85, 0.6, 0.5
NOTHING = (
    "Nothing has a name like that.\nTry a name of PyTorch (Conv2d, AdamW), a setting (epochs), data (MNIST), "
    "or a word for what you look for (overfitting)."
)


class SearchEntry(Struct, frozen=True):
    """Something to find by words, and what choosing it `does`.

    `text` says what happens, `names` are what it is called, `kind` is what it is, such as "Optimizer", and `words` find
    it too. `key` is what `resources/search_phrases.json` lists other phrases for, such as "setting.patience".
    """

    key: str
    text: str
    does: Callable[[], object]
    kind: str = ""
    names: tuple[str, ...] = ()
    words: str = ""
    icon: str | QIcon = "search"
    shortcut: str = ""
    tip: str = ""
    enabled: bool = True
    checked: bool = False
    phrases: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[tuple[str, float], ...]:
        """The texts to compare a query with, by weight."""
        return (
            *((name, NAME) for name in self.names),
            *((phrase, PHRASE) for phrase in self.phrases),
            (self.text, TEXT),
            (self.words, WORD),
            (self.kind, KIND),
        )

    def phrase_for(self, query: str) -> str:
        """Return the phrase that a query matches, "" where it matches what is shown anyway."""
        shown = ((text, 1.0) for text in (*self.names, self.text))
        if not query.strip() or fuzzy.score(query, *shown) is not None:
            return ""
        fitting = fuzzy.ranked(query, self.phrases, lambda phrase: ((phrase, 1.0),))
        return fitting[0] if fitting else ""


def command_entry(key: str, action: QAction) -> SearchEntry:
    """Return the entry of a command of the menus."""
    text = command_text(action)
    return SearchEntry(
        f"command.{key}",
        text,
        action.trigger,
        "Page" if key.startswith("show.") else "",
        (text,),
        words=str(action.data() or ""),
        icon=action.icon(),
        shortcut=key_text(action),
        tip=action.statusTip(),
        enabled=action.isEnabled(),
        checked=action.isCheckable() and action.isChecked(),
    )


class SearchModel(QAbstractListModel):
    """The entries that fit, best first; without a query the commands alone."""

    def __init__(
        self,
        commands: Sequence[SearchEntry],
        others: Sequence[SearchEntry],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._commands, self._others = tuple(commands), tuple(others)
        self._shown = list(self._commands)
        self.query = ""

    def set_query(self, query: str) -> None:
        self.beginResetModel()
        self.query = query
        self._shown = (
            fuzzy.ranked(
                query,
                (*self._commands, *self._others),
                lambda entry: entry.fields,
                partly=True,
            )
            if query.strip()
            else list(self._commands)
        )
        self.endResetModel()

    def entry(self, index: Index) -> SearchEntry | None:
        return self._shown[index.row()] if index.isValid() else None

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._shown)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        entry = self.entry(index)
        if entry is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return entry.text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            unavailable = "" if entry.enabled else "not available now"
            phrase = entry.phrase_for(self.query)
            parts = (entry.text, phrase, entry.kind, entry.shortcut, unavailable)
            return ", ".join(filter(None, parts))
        if role == Qt.ItemDataRole.ToolTipRole:
            return entry.tip or None
        return None


class _EntryDelegate(QStyledItemDelegate):
    """Icon, text, and at the right the shortcut, or what kind of thing it is."""

    def __init__(self, model: SearchModel) -> None:
        super().__init__(model)
        self._model = model

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, max(28, QFontMetrics(theme.font("label")).height() + 10))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: Index
    ) -> None:
        entry = self._model.entry(index)
        if entry is None:
            return
        colors = theme.current()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = QRectF(option.rect.adjusted(6, 1, -6, -1))
        if option.state & QStyle.StateFlag.State_Selected:
            box(painter, ground, 5, colors.accentBg, colors.accent)
        elif option.state & QStyle.StateFlag.State_MouseOver:
            box(painter, ground, 5, colors.hover)
        area: QRect = option.rect.adjusted(16, 0, -16, 0)
        picture = icons.icon(entry.icon) if isinstance(entry.icon, str) else entry.icon
        picture.paint(painter, QRect(area.left(), area.center().y() - 7, 16, 16))
        side, role = entry.shortcut or entry.kind, "caption"
        if entry.shortcut:
            role = "formula"
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.setFont(theme.font(role))
        painter.setPen(colors.text3)
        painter.drawText(area, right, side)
        side_width = QFontMetrics(theme.font(role)).horizontalAdvance(side)
        room = area.adjusted(26, 0, -side_width - 12, 0)
        painter.setFont(theme.font("label"))
        painter.setPen(colors.text if entry.enabled else colors.text4)
        shown = QFontMetrics(theme.font("label")).elidedText(
            entry.text + (" ✓" if entry.checked else ""),
            Qt.TextElideMode.ElideRight,
            room.width(),
        )
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(room, left, shown)
        room.setLeft(room.left() + painter.fontMetrics().horizontalAdvance(shown) + 10)
        painter.setPen(colors.text3)
        painter.drawText(room, left, entry.phrase_for(self._model.query))
        painter.restore()


class SearchDialog(Dialog):
    """Commands, listed at once, and `others`, found once something is typed. Enter or a click does the chosen one."""

    def __init__(
        self,
        commands: Sequence[SearchEntry],
        others: Sequence[SearchEntry] = (),
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Search", parent)
        self.heading.hide()
        self.setMinimumSize(520, 380)
        present(self.layout()).setContentsMargins(10, 12, 10, 8)
        self.field = SearchField("Search layers, settings, data, commands")
        self.model = SearchModel(commands, others, self)
        self.view = QListView()
        self.view.setModel(self.model)
        self.view.setItemDelegate(_EntryDelegate(self.model))
        self.view.setUniformItemSizes(True)
        self.view.setMouseTracking(True)
        self.view.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setAccessibleName("Found")
        self.none = label(NOTHING, "label", "text3", wrap=True)
        self.none.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.none.hide()
        column = vbox(self.field, (self.view, 1), (self.none, 1), spacing=8)
        self.body.addLayout(column, 1)
        self.field.lead(self.view, 10, lambda: self.run(self.view.currentIndex()))
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._filter)
        self.view.clicked.connect(self.run)
        self.field.setFocus()
        self._filter("")

    def _filter(self, query: str) -> None:
        self.model.set_query(query)
        self.view.setCurrentIndex(self.model.index(0))
        empty = self.model.rowCount() == 0
        self.none.setVisible(empty)
        self.view.setVisible(not empty)

    def run(self, index: QModelIndex) -> None:
        """Close the dialog and do the entry, unless it is disabled."""
        entry = self.model.entry(index)
        if entry is not None and entry.enabled:
            self.accept()
            entry.does()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Close at Esc, whatever is typed."""
        if (
            watched is self.field
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Escape
        ):
            self.reject()
            return True
        return super().eventFilter(watched, event)
