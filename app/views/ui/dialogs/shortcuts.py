"""The sheet of keyboard shortcuts, and the command palette."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
from PySide6.QtGui import QAction, QFontMetrics, QKeyEvent, QKeySequence, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QGridLayout,
    QListView,
    QMenu,
    QScrollArea,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.views.actions import GROUP, NAME
from app.views.ui import fuzzy, theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import vbox
from app.views.ui.op_rows import Index
from app.views.ui.present import present
from app.views.ui.widgets import SearchField
from app.views.ui.widgets.painting import box, label

MORE = 0.95  # weight of what is no command: a command of the same name comes first

_KEY_NAMES = {"Del": "Delete", "Ins": "Insert", "Return": "Enter"}


def key_text(action: QAction) -> str:
    """Return an action's shortcuts for display, `Ctrl + K, Ctrl + Shift + P`; "" if it has none."""
    return ", ".join(
        _spread(shortcut.toString(QKeySequence.SequenceFormat.NativeText))
        for shortcut in action.shortcuts()
    )


def _spread(keys: str) -> str:
    """Format a shortcut with spaces between its keys.

    >>> _spread("Ctrl+Shift+P"), _spread("Ctrl++"), _spread("Del")
    ('Ctrl + Shift + P', 'Ctrl + +', 'Delete')
    """
    return " + ".join(
        _KEY_NAMES.get(key_name, key_name)
        for key_name in re.findall(r"[^+]+|\+$", keys)
    )


def command_text(action: QAction) -> str:
    """Return an action's name without menu marks: `&Save as...` is `Save as`."""
    text = (
        action.text()
        .replace("&&", "\0")
        .replace("&", "")
        .replace("\0", "&")
        .rstrip("….")
        .strip()
    )
    group = action.property(GROUP)
    return f"{group}: {text}" if group else text


class InputGesture(Struct, frozen=True):
    """A mouse or key gesture that is not a QAction: `Alt + click`, `cut a wire`."""

    keys: str
    text: str


# Mouse gestures and plain keys on the canvas and elsewhere, which have no action.
GESTURES = (
    (
        "Canvas",
        (
            InputGesture("Wheel", "Zoom at the pointer"),
            InputGesture("Middle drag, Space + drag", "Move the view"),
            InputGesture("Drag on empty canvas", "Select everything inside"),
            InputGesture(
                "Shift + drag, Ctrl + drag", "Add to the selection; toggle it"
            ),
            InputGesture(
                "Drag from a port",
                "Draw a wire; release on empty canvas to search for a layer",
            ),
            InputGesture("Drag an input end away", "Move or remove the wire"),
            InputGesture("Alt + click on a wire", "Cut it"),
            InputGesture("Double-click, Tab", "Search for a layer to add"),
        ),
    ),
    (
        "Autograd graph",
        (
            InputGesture(
                "Ctrl + F", "Find a node by name, layer, parameter or saved tensor"
            ),
            InputGesture("Arrow keys", "Follow the gradients"),
            InputGesture("Enter, double-click", "Fold or unfold a layer or a block"),
            InputGesture("], [", "Unfold or fold one level everywhere"),
            InputGesture(
                "Shift + click",
                "Highlight the gradient path from the selection; Esc ends it",
            ),
            InputGesture("F, Home", "Zoom to the selection, or to everything"),
        ),
    ),
    (
        "Fields",
        (
            InputGesture(
                "Up, Down", "Step a number; with Page Up and Page Down by ten"
            ),
            InputGesture("Esc", "Restore the previous value"),
        ),
    ),
)

Group = tuple[str, Sequence["QAction | InputGesture"]]


def by_menu(actions: Iterable[QAction]) -> list[Group]:
    """Group the actions by the title of their menu."""
    groups: dict[str, list[QAction | InputGesture]] = {}
    for action in actions:
        menus = [
            owner
            for owner in action.associatedObjects()
            if isinstance(owner, QMenu) and owner.title()
        ]
        title = menus[0].title().replace("&", "") if menus else "Other"
        groups.setdefault(title, []).append(action)
    return list(groups.items())


class ShortcutSheet(Dialog):
    """Lists every shortcut of `actions`, by menu, then mouse gestures. Actions without shortcut are left out."""

    def __init__(
        self,
        actions: Iterable[QAction],
        parent: QWidget | None = None,
        gestures: Sequence[Group] = GESTURES,
    ) -> None:
        super().__init__("Shortcuts", parent)
        self._groups = (*by_menu(actions), *gestures)
        self.field = SearchField("Search shortcuts")
        self.field.textChanged.connect(self._fill)
        self.none = label("Nothing matches.", "label", "text3")
        inside = QWidget()
        self._table = table = QGridLayout(inside)
        table.setContentsMargins(0, 0, 16, 0)
        table.setHorizontalSpacing(28)
        table.setVerticalSpacing(6)
        table.setColumnStretch(1, 1)
        self._fill("")
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inside)
        scroll.setMinimumWidth(inside.sizeHint().width() + 24)
        scroll.setAccessibleName("Shortcuts by menu")
        self.body.addWidget(self.field)
        self.body.addWidget(self.none)
        self.body.addWidget(scroll, 1)
        self.resize(600, 640)
        close = self.add_button("Close", "primary", default=True)
        close.clicked.connect(self.accept)
        self.field.setFocus()

    def _fill(self, query: str) -> None:
        """List what has all words of the query in its text, keys or menu."""
        while (item := self._table.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.deleteLater()
        for row in range(self._table.rowCount()):
            self._table.setRowStretch(row, 0)
            self._table.setRowMinimumHeight(row, 0)
        line = 0
        for title, members in self._groups:
            fitting = [member for member in members if _matches(query, title, member)]
            line = _fill(self._table, line, title, fitting)
        self._table.setRowStretch(line, 1)
        self.none.setVisible(not line)


def _matches(query: str, title: str, member: QAction | InputGesture) -> bool:
    text = " ".join((title, *(_line(member) or ()))).casefold()
    return all(
        word in text or word in text.replace(" ", "")
        for word in query.casefold().split()
    )


def _fill(
    table: QGridLayout, line: int, title: str, members: Sequence[QAction | InputGesture]
) -> int:
    """Write one group from `line` on; returns the line after it. A group without shortcuts is left out."""
    lines = [entry for member in members if (entry := _line(member))]
    if not lines:
        return line
    table.addWidget(
        label(title, "section", "text3"), line, 0, 1, 2, Qt.AlignmentFlag.AlignBottom
    )
    table.setRowMinimumHeight(line, 30)
    for number, (keys, text) in enumerate(lines, line + 1):
        table.addWidget(label(keys, "formula", "text2"), number, 0)
        table.addWidget(label(text, "label"), number, 1)
    return line + 1 + len(lines)


def _line(member: QAction | InputGesture) -> tuple[str, str] | None:
    if isinstance(member, InputGesture):
        return member.keys, member.text
    keys = key_text(member)
    return (keys, member.property(NAME) or command_text(member)) if keys else None


def _fit(query: str, action: QAction) -> float | None:
    """Score a command; its name weighs more than the further words to find it by."""
    text, more = command_text(action), str(action.data() or "")
    return fuzzy.best(query, ((text, 1.0), (f"{text} {more}", 0.7)))


class _CommandModel(QAbstractListModel):
    """The actions that fit, best first."""

    def __init__(self, actions: Sequence[QAction], parent: QObject) -> None:
        super().__init__(parent)
        self._all = [
            action
            for action in actions
            if command_text(action) and not action.isSeparator() and not action.menu()
        ]
        self._shown = list(self._all)
        self._more: list[QAction] = []

    def add(self, actions: Sequence[QAction]) -> None:
        """Add what is found beside the commands, but not listed before something is typed."""
        self._more = list(actions)

    def set_query(self, query: str) -> None:
        self.beginResetModel()
        scored = [
            (fit, action)
            for action in self._all
            if (fit := _fit(query, action)) is not None
        ]
        if query.strip():
            scored += [
                (fit * MORE, action)
                for action in self._more
                if (fit := _fit(query, action)) is not None
            ]
        self._shown = [
            action for _, action in sorted(scored, key=lambda pair: -pair[0])
        ]
        self.endResetModel()

    def action(self, index: Index) -> QAction | None:
        return self._shown[index.row()] if index.isValid() else None

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._shown)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        action = self.action(index)
        if action is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return command_text(action)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            parts = (
                command_text(action),
                key_text(action),
                "" if action.isEnabled() else "not available now",
            )
            return ", ".join(filter(None, parts))
        if role == Qt.ItemDataRole.ToolTipRole:
            return action.statusTip() or None
        return None


class _CommandDelegate(QStyledItemDelegate):
    """Icon, name, and the shortcut at right."""

    def __init__(self, model: _CommandModel) -> None:
        super().__init__(model)
        self._model = model

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, max(28, QFontMetrics(theme.font("label")).height() + 10))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: Index
    ) -> None:
        action = self._model.action(index)
        if action is None:
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
        action.icon().paint(painter, QRect(area.left(), area.center().y() - 7, 16, 16))
        keys = key_text(action)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.setFont(theme.font("formula"))
        painter.setPen(colors.text3)
        painter.drawText(area, right, keys)
        keys_width = QFontMetrics(theme.font("formula")).horizontalAdvance(keys)
        room = area.adjusted(26, 0, -keys_width - 12, 0)
        painter.setFont(theme.font("label"))
        painter.setPen(colors.text if action.isEnabled() else colors.text4)
        text = command_text(action) + (
            " ✓" if action.isCheckable() and action.isChecked() else ""
        )
        shown = QFontMetrics(theme.font("label")).elidedText(
            text, Qt.TextElideMode.ElideRight, room.width()
        )
        painter.drawText(
            room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown
        )
        painter.restore()


class CommandPalette(Dialog):
    """Every command, searchable, and what is `add`ed. Enter or a click runs it; an action's `data()` may hold more
    words to find it by."""

    def __init__(
        self, actions: Sequence[QAction], parent: QWidget | None = None
    ) -> None:
        super().__init__("Search", parent)
        self.heading.hide()
        self.setMinimumSize(480, 380)
        present(self.layout()).setContentsMargins(10, 12, 10, 8)
        self.field = SearchField("Search layers, settings, nodes, commands")
        self.model = _CommandModel(actions, self)
        self.view = QListView()
        self.view.setModel(self.model)
        self.view.setItemDelegate(_CommandDelegate(self.model))
        self.view.setUniformItemSizes(True)
        self.view.setMouseTracking(True)
        self.view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setAccessibleName("Found")
        self.none = label("Nothing matches.", "label", "text3")
        self.none.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.none.hide()
        column = vbox(self.field, (self.view, 1), self.none, spacing=8)
        self.body.addLayout(column, 1)
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._filter)
        self.view.clicked.connect(self.run)
        self.field.setFocus()
        self._filter("")

    def add(self, actions: Sequence[QAction]) -> None:
        """Add what is found once something is typed."""
        self.model.add(actions)

    def _filter(self, query: str) -> None:
        self.model.set_query(query)
        self.view.setCurrentIndex(self.model.index(0))
        self.none.setVisible(self.model.rowCount() == 0)

    def run(self, index: QModelIndex) -> None:
        """Close the palette and trigger the command, unless it is disabled."""
        action = self.model.action(index)
        if action is not None and action.isEnabled():
            self.accept()
            action.trigger()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            watched is self.field
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
        ):
            key = event.key()
            if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.run(self.view.currentIndex())
                return True
            steps: dict[int, int] = {
                Qt.Key.Key_Down: 1,
                Qt.Key.Key_Up: -1,
                Qt.Key.Key_PageDown: 10,
                Qt.Key.Key_PageUp: -10,
            }
            if key in steps and self.model.rowCount():
                row = min(
                    max(self.view.currentIndex().row() + steps[key], 0),
                    self.model.rowCount() - 1,
                )
                self.view.setCurrentIndex(self.model.index(row))
                return True
            if key == Qt.Key.Key_Escape:
                self.reject()
                return True
        return super().eventFilter(watched, event)
