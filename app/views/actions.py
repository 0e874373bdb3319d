"""The actions of the window: every command as one QAction with text, icon and shortcut."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from app.views.ui import icons

GROUP = "group"  # property: what a choice is of, as "Theme" of "Dark"
NAME = "name"  # property: what a command is called in lists, where its own text says more, as "Undo Add Linear"


class Actions:
    """Makes actions, keeps them by key, and puts them into menus."""

    def __init__(self, window: QWidget, bar: QMenuBar) -> None:
        self._window, self._bar = window, bar
        self.by_key: dict[str, QAction] = {}
        self._hidden: dict[str, Callable[..., object]] = {}
        self._menus: list[QMenu] = []

    def __getitem__(self, key: str) -> QAction:
        return self.by_key[key]

    def trigger(self, key: str, *arguments: object) -> None:
        """Trigger a command unless it is disabled, or its feature is not there; one without a menu entry can take
        arguments."""
        if key in self._hidden:
            self._hidden[key](*arguments)
        elif key in self.by_key:
            self.by_key[key].trigger()

    def has(self, key: str) -> bool:
        """Return whether a feature has declared a command."""
        return key in self._hidden or key in self.by_key

    def set_enabled(self, key: str, on: bool) -> None:
        """Make a command grey, or not."""
        self.by_key[key].setEnabled(on)

    def hide(self, key: str, slot: Callable[..., object]) -> None:
        """Register a command without a menu entry, for features to trigger."""
        self._hidden[key] = slot

    def insert_menu(self, menu: QMenu, before: str) -> None:
        """Put a menu, and a line under it, before a command."""
        action = self.by_key[before]
        home = next(menu for menu in self._menus if action in menu.actions())
        home.insertMenu(action, menu)
        home.insertSeparator(action)

    def menu(self, title: str) -> QMenu:
        menu = self._bar.addMenu(title)
        menu.setToolTipsVisible(True)
        self._menus.append(menu)
        return menu

    def add(
        self,
        menu: QMenu,
        key: str,
        text: str,
        slot: Callable[[], object],
        shortcut: str | QKeySequence.StandardKey | tuple[str, ...] = "",
        icon: str = "",
        tip: str = "",
    ) -> QAction:
        """Add a command; `slot` is called without arguments."""
        action = QAction(text, self._window)
        action.setObjectName(key)
        if icon:
            action.setIcon(icons.icon(icon))
        if isinstance(shortcut, tuple):
            action.setShortcuts([QKeySequence(sequence) for sequence in shortcut])
        elif shortcut:
            action.setShortcut(QKeySequence(shortcut))
        action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
        if tip:
            action.setToolTip(tip)
        action.triggered.connect(lambda *_: slot())
        self._keep(menu, key, action)
        return action

    def adopt(self, menu: QMenu, key: str, action: QAction) -> None:
        """Show an action that a view has made."""
        self._keep(menu, key, action)

    def choices(
        self,
        menu: QMenu,
        key: str,
        options: tuple[tuple[str, str], ...],
        slot: Callable[[str], object],
        title: str = "",
        terms: str = "",
    ) -> dict[str, QAction]:
        """Add a group of exclusive actions, as (value, text); return them by value.

        Where they are listed among other commands, `title` says of what they are; `terms` find them too.
        """
        group = QActionGroup(self._window)
        actions = {}
        for value, text in options:
            action = QAction(text, self._window, checkable=True)
            action.setProperty(GROUP, title)
            action.setData(terms)
            action.triggered.connect(lambda _on, chosen=value: slot(chosen))
            group.addAction(action)
            self._keep(menu, f"{key}.{value}", action)
            actions[value] = action
        return actions

    def _keep(self, menu: QMenu, key: str, action: QAction) -> None:
        self.by_key[key] = action
        menu.addAction(action)

    def all(self) -> list[QAction]:
        """Return every command, in menu order."""
        return list(self.by_key.values())
