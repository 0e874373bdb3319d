"""The menu bar: the commands that features declare, and the search over all of them."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from app.builder.edits import alignment
from app.views.actions import Actions
from app.views.feature import Action, Adopted, Submenu
from app.views.ui.layouts import hbox
from app.views.ui.theme import manager
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Glyph, label

WAYS = ("left", "right", "up", "down")
# Keys of commands in their order; a line is "-", a menu in a menu its text and its rows.
SEARCH, SHORT_SEARCH = "Layers, settings, commands    Ctrl K", "Ctrl K"
Row = str | tuple[str, tuple[str, ...]]


def _canvas(*keys: str) -> tuple[str, ...]:
    return tuple(f"canvas.{key}" for key in keys)


MENUS: dict[str, tuple[str, tuple[Row, ...]]] = {
    "file": (
        "&File",
        (
            "new",
            "gallery",
            "open",
            "import",
            "open-model",
            "compare-with",
            "recent",
            "examples",
            "-",
            "save",
            "save-as",
            "-",
            "load-weights",
            "save-weights",
            "-",
            "export",
            "export-drawing",
            "recover",
            "-",
            "quit",
        ),
    ),
    "edit": (
        "&Edit",
        (
            "undo",
            "redo",
            "-",
            *_canvas(
                "cut",
                "copy",
                "paste",
                "duplicate",
                "delete",
                "delete_reconnect",
                "select_all",
            ),
            "-",
            "find",
            "-",
            "settings",
        ),
    ),
    "view": (
        "&View",
        (
            "show.network",
            "show.autograd",
            "show.observed",
            "show.attention",
            "show.diff",
            "show.code",
            "-",
            *_canvas("frame_all", "frame_selection", "zoom_in", "zoom_out", "zoom_100"),
            "-",
            "show.problems",
            "show.tape",
            "show.findings",
            "show.cost",
            "show.curves",
            "show.console",
            "show.runs",
            "show.evaluation",
            "show.layer",
            "-",
            "message",
            "docks",
            "theme",
            "text-size",
            "thick-wires",
            "reduce-motion",
            "projector",
        ),
    ),
    "layer": (
        "&Layer",
        (
            *_canvas(
                "search",
                "edit",
                "rename",
                "replace",
                "connect",
                "disconnect",
                "mute",
                "freeze",
                "lay_out",
            ),
            (
                "&Align and distribute",
                _canvas(
                    *(f"align_{edge}" for edge in alignment.EDGES),
                    *(f"distribute_{axis}" for axis in alignment.AXES),
                ),
            ),
            "-",
            (
                "&Comments and bends",
                _canvas(
                    "comment",
                    "fit_frame",
                    "next_note",
                    "previous_note",
                    "bend",
                    "straighten",
                    *(f"grow_{way}" for way in WAYS),
                ),
            ),
            ("&Navigate and nudge", _canvas(*WAYS, *(f"nudge_{way}" for way in WAYS))),
            "-",
            "replace-last",
            "drop-last",
            "freeze-but-last",
            "-",
            "add-layers",
        ),
    ),
    "block": (
        "&Block",
        (
            "block.make",
            "block.expand",
            "-",
            "block.in",
            "block.out",
            "-",
            "block.params",
            *_canvas("unfold", "unfold_level", "fold_all"),
            "-",
            "block.repeat",
            "block.unique",
            "block.expose",
            "block.rename",
            "-",
            "block.save",
            "block.folder",
            "block.choose",
        ),
    ),
    "run": (
        "&Run",
        (
            "run",
            "pause",
            "step",
            "stop",
            "continue",
            "apply-edits",
            "-",
            "capture-step",
            "script-batch",
            "script-save",
            "script-interrupt",
            "watch-again",
            "ranks",
            "-",
            "set-rate",
            "-",
            "debug-step",
            "first-step",
            "leave-out",
            "-",
            "places",
            "watch-run",
            "-",
            "forget-weights",
            "take-inits",
        ),
    ),
    "autograd": (
        "&Autograd",
        (
            "capture",
            "capture-eval",
            "-",
            "play-backward",
            "step-backward",
            "step-back",
            "run-to-selected",
            "break-at-selected",
            "html-replay",
            "-",
            "findings",
            "gain-ladder",
            "what-if-checkpoint",
            "-",
            "snippet",
        ),
    ),
    "help": ("&Help", ("commands", "shortcuts", "-", "about", "about-qt")),
}
PLACED = {
    row
    for _, rows in MENUS.values()
    for entry in rows
    for row in ((entry,) if isinstance(entry, str) else entry[1])
}


def build_menus(
    bar: QMenuBar, actions: Actions, declared: Iterable[Action | Adopted | Submenu]
) -> dict[str, QMenu]:
    """Fill the menu bar with the declared commands; return menus and submenus by key."""
    by_key = {command.key: command for command in declared}
    menus: dict[str, QMenu] = {}
    for entry in by_key.values():
        if isinstance(entry, Action) and not entry.text:
            actions.hide(entry.key, entry.does)
    for key, (title, rows) in MENUS.items():
        menu = menus[key] = actions.menu(title)
        for row in rows:
            if isinstance(row, str):
                _put(row, menu, actions, by_key, menus)
            else:
                inner = menu.addMenu(row[0])
                for inner_key in row[1]:
                    _put(inner_key, inner, actions, by_key, menus)
        for entry in by_key.values():
            if (
                isinstance(entry, Action)
                and entry.text
                and entry.menu == key
                and entry.key not in PLACED
                and entry.after not in by_key
            ):
                _put(entry.key, menu, actions, by_key, menus)
    bar.setCornerWidget(_search_field(bar, actions["commands"]))
    bar.setCornerWidget(_brand(bar), Qt.Corner.TopLeftCorner)
    fit_corners(bar)
    return menus


def _put(
    key: str,
    menu: QMenu,
    actions: Actions,
    by_key: dict[str, Action | Adopted | Submenu],
    menus: dict[str, QMenu],
) -> None:
    entry = by_key.get(key)
    if key == "-":
        menu.addSeparator()
    elif isinstance(entry, Adopted) and not entry.listed:
        menu.addAction(entry.action)
    elif isinstance(entry, Adopted):
        actions.adopt(menu, key, entry.action)
    elif isinstance(entry, Submenu):
        menus[key] = menu.addMenu(entry.text)
        entry.fill(actions, menus[key])
    elif isinstance(entry, Action):
        action = actions.add(
            menu, key, entry.text, entry.does, entry.shortcut, entry.icon, entry.tip
        )
        action.setEnabled(entry.enabled)
    for below in by_key.values():
        if isinstance(below, Action) and below.after == key:
            _put(below.key, menu, actions, by_key, menus)


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
