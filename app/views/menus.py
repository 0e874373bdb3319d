"""The menu bar: the commands that features declare, and the search over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from app.views.actions import Actions
from app.views.feature import Action, Adopted, Submenu
from app.views.ui.layouts import hbox
from app.views.ui.theme import manager
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Glyph, label

SEARCH, SHORT_SEARCH = "Layers, settings, commands    Ctrl K", "Ctrl K"
Command = Action | Adopted | Submenu
# Title and groups of each menu, in their order; a group with a title is a menu in the menu. Commands say which group
# they are of, as "file.save".
MENUS: dict[str, tuple[str, tuple[str | tuple[str, str], ...]]] = {
    "file": ("&File", ("project", "save", "weights", "results", "leave")),
    "edit": ("&Edit", ("history", "clipboard", "search", "preferences")),
    "view": ("&View", ("centre", "zoom", "pages", "problems", "window")),
    "layer": (
        "&Layer",
        (
            "edit",
            ("align", "&Align and distribute"),
            ("notes", "&Comments and bends"),
            ("navigate", "&Navigate and nudge"),
            "last",
            "file",
        ),
    ),
    "block": ("&Block", ("make", "go", "fold", "instance", "library")),
    "run": (
        "&Run",
        (
            "control",
            ("script", "&Watched script"),
            "rate",
            "trials",
            "memory",
            "past",
            "place",
            "weights",
        ),
    ),
    "autograd": ("&Autograd", ("record", "play", "reports", "code")),
    "help": ("&Help", ("learn", "search", "about")),
}


def build_menus(
    bar: QMenuBar, actions: Actions, declared: Iterable[Command]
) -> dict[str, QMenu]:
    """Fill the menu bar with the declared commands; return menus and submenus by key.

    Raises ValueError for a command with a text and no group, or one of no menu.
    """
    menus: dict[str, QMenu] = {}
    groups: dict[str, list[Command]] = {
        f"{key}.{group if isinstance(group, str) else group[0]}": []
        for key, (_, names) in MENUS.items()
        for group in names
    }
    for command in declared:
        if isinstance(command, Action) and not command.text:
            actions.hide(command.key, command.does)
        elif command.menu in groups:
            groups[command.menu].append(command)
        elif command.menu or isinstance(command, Action):
            raise ValueError(
                f"Command {command.key!r} is of the group {command.menu!r}. There are: {', '.join(groups)}"
            )
    for key, (title, names) in MENUS.items():
        menu = menus[key] = actions.menu(title)
        for group in names:
            if isinstance(group, str):
                if menu.actions():
                    menu.addSeparator()
                _fill(menu, groups[f"{key}.{group}"], actions, menus)
            else:
                name, text = group
                _fill(menu.addMenu(text), groups[f"{key}.{name}"], actions, menus)
    bar.setCornerWidget(_search_field(bar, actions["commands"]))
    bar.setCornerWidget(_brand(bar), Qt.Corner.TopLeftCorner)
    fit_corners(bar)
    return menus


def _ordered(group: list[Command]) -> Iterator[Command]:
    """Yield the commands as they were declared, those that come after another one right below it."""
    keys = {command.key for command in group}

    def below(key: str) -> Iterator[Command]:
        for command in group:
            after = command.after if isinstance(command, Action) else ""
            if (after if after in keys else "") == key:
                yield command
                yield from below(command.key)

    return below("")


def _fill(
    menu: QMenu,
    commands: list[Command],
    actions: Actions,
    menus: dict[str, QMenu],
) -> None:
    for command in _ordered(commands):
        if isinstance(command, Adopted) and not command.listed:
            menu.addAction(command.action)
        elif isinstance(command, Adopted):
            actions.adopt(menu, command.key, command.action)
        elif isinstance(command, Submenu):
            menus[command.key] = menu.addMenu(command.text)
            command.fill(actions, menus[command.key])
        else:
            actions.add(
                menu,
                command.key,
                command.text,
                command.does,
                command.shortcut,
                command.icon,
                command.tip,
            ).setEnabled(command.enabled)


def fit_corners(bar: QMenuBar) -> None:
    """Lay out the corners of the menu bar again for another text size."""
    for corner in (Qt.Corner.TopLeftCorner, Qt.Corner.TopRightCorner):
        widget = bar.cornerWidget(corner)
        for button in widget.findChildren(Button):
            button.setText(SHORT_SEARCH if manager().scale > 1.5 else SEARCH)
        widget.adjustSize()
        bar.setCornerWidget(widget, corner)


def _brand(window: QWidget) -> QWidget:
    """Return the program's icon and name for the start of the menu bar."""
    brand = QWidget(window)
    hbox(
        Glyph("tapedeck", "back", size=18),
        label("Tapedeck", "section"),
        on=brand,
        margins=(12, 0, 10, 0),
        spacing=8,
    )
    return brand


def _search_field(window: QWidget, command: QAction) -> QWidget:
    """Return a button that looks like a search field and opens the list of commands."""
    button = Button(SEARCH, "secondary", "search", window)
    button.setFixedHeight(22)
    button.setToolTip("Search layers, settings, nodes and commands")
    button.clicked.connect(command.trigger)
    holder = QWidget(window)
    hbox(button, on=holder, margins=(0, 0, 12, 4))
    return holder
