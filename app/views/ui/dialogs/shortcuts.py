"""The sheet of keyboard shortcuts and mouse gestures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from PySide6.QtCore import (
    Qt,
)
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import (
    QGridLayout,
    QMenu,
    QScrollArea,
    QWidget,
)

from app.views.actions import GROUP, NAME
from app.views.ui.dialogs.base import Dialog
from app.views.ui.widgets import SearchField
from app.views.ui.widgets.painting import label

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
    ) -> None:
        super().__init__("Shortcuts", parent)
        self._groups = (*by_menu(actions), *GESTURES)
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
