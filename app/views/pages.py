"""Pages by key: which one is in front of its dock, and switching to another."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QByteArray, QObject, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QBoxLayout,
    QDockWidget,
    QMainWindow,
    QStackedWidget,
    QWidget,
)

from app.views.ui.docks import TabbedPane
from app.views.ui.present import present
from app.views.ui.widgets.focus import focus_in


class Pages(QObject):
    """`shown(key)` is emitted when a page comes to the front of its dock.

    The window adds docks and pages; features refer to pages of any feature by key, which need not be there.
    """

    shown = Signal(str)

    def __init__(self, make: Callable[[str], None], window: QMainWindow) -> None:
        """`make(key)` makes a page if it is not there yet."""
        super().__init__(window)
        self.make = make
        self.enlarged = Enlarged(window)
        self._panes: dict[str, tuple[TabbedPane, QDockWidget | None]] = {}
        self._dock_of: dict[str, str] = {}
        self._below: dict[str, list[QWidget]] = {}
        self._stand_ins: dict[
            tuple[str, str], dict[str, QWidget]
        ] = {}  # by stacked page and dock: by page in front

    # -- for the window -----------------------------------------------------------------------------------------------

    def add_dock(self, name: str, pane: TabbedPane, dock: QDockWidget | None) -> None:
        """Take the pane of a dock, or of the centre, which is in none."""
        self._panes[name] = (pane, dock)
        self.enlarged.add(name, dock)
        pane.shown.connect(self.shown)
        pane.tabs.tabBarDoubleClicked.connect(lambda _tab: self.enlarged.toggle(name))

    def add_page(self, key: str, dock: str, widget: QWidget | None) -> None:
        """Register the dock of a page, and append the widgets that were added below it before it existed."""
        self._dock_of[key] = dock
        if widget is not None:
            for below in self._below.pop(key, ()):
                _append(widget, below)

    def fill(
        self, key: str, widget: QWidget, controls: Callable[[], QWidget] | None
    ) -> None:
        """Set the widget of a page that was registered without one, and what stands beside its tab."""
        pane = self._panes[self._dock_of[key]][0]
        pane.fill(key, widget)
        if controls is not None:
            pane.add_controls(key, controls())

    # -- for features -------------------------------------------------------------------------------------------------

    def show(self, key: str) -> None:
        """Bring a page to the front and show its dock; create the page if it does not exist yet."""
        if key not in self._dock_of:
            return
        self.make(key)
        if self.enlarged.name != self._dock_of[key]:
            self.enlarged.put_back()
        pane, dock = self._panes[self._dock_of[key]]
        if dock is not None:
            dock.show()
        pane.show_page(key)

    def enlarge(self, key: str) -> None:
        """Give the window to the dock of a page."""
        self.enlarged.enlarge(self._dock_of[key])

    def enlarge_focused(self) -> None:
        """Give the window to the dock with the keyboard focus, or put back what has it."""
        focused = (name for name, (pane, _) in self._panes.items() if focus_in(pane))
        self.enlarged.toggle(self.enlarged.name or next(focused, "centre"))

    def widget(self, key: str) -> QWidget:
        """Return the widget of a page; an empty one if it does not exist yet."""
        return self._panes[self._dock_of[key]][0].widget_of(key)

    def turn_to(self, *keys: str) -> None:
        """Bring the first of some pages that exists to the front of its dock, which stays hidden if it is.

        The last is a page of the kernel; those before it may be of features that are not there."""
        key = next(key for key in keys if key in self._dock_of)
        self._panes[self._dock_of[key]][0].show_page(key)

    def front(self, dock: str) -> str:
        """Return the key of the page in front of a dock."""
        return self._panes[dock][0].page

    @property
    def docks(self) -> tuple[str, ...]:
        """The names of the docks, and of the centre."""
        return tuple(self._panes)

    def is_offered(self, dock: str, key: str) -> bool:
        """Return whether the tab of a page is in a dock, and visible."""
        if self._dock_of.get(key) != dock:
            return False
        tabs = self._panes[dock][0].tabs
        return tabs.isTabVisible(tabs.index(key))

    def put_in_front(self, dock: str, key: str) -> None:
        """Bring a page to the front without saying so: it need not exist yet."""
        pane = self._panes[dock][0]
        pane.blockSignals(True)
        pane.show_page(key)
        pane.blockSignals(False)

    def is_front(self, key: str) -> bool:
        """Return whether a page is in front of its dock."""
        return key in self._dock_of and self.front(self._dock_of[key]) == key

    def set_offered(self, key: str, on: bool) -> None:
        """Show or hide the tab of a page."""
        if key in self._dock_of:
            self._panes[self._dock_of[key]][0].tabs.set_shown(key, on)

    def set_badge(self, key: str, number: int, color: str) -> None:
        """Put a number on the tab of a page, 0 for none."""
        self._panes[self._dock_of[key]][0].tabs.set_badge(key, number, color)

    def add_below(self, key: str, widget: QWidget) -> None:
        """Append a widget below a page's content."""
        if key in self._dock_of:
            _append(self._panes[self._dock_of[key]][0].widget_of(key), widget)
        else:
            self._below.setdefault(key, []).append(widget)

    def stand_in(self, key: str, widget: QWidget, while_front: str) -> None:
        """Show `widget` instead of the content of a stacked page while another page is in front."""
        stack = self._panes[self._dock_of[key]][0].widget_of(key)
        assert isinstance(stack, QStackedWidget)
        dock = self._dock_of[while_front]
        others = self._stand_ins.setdefault((key, dock), {})
        others[while_front] = widget
        stack.addWidget(widget)
        if len(others) == 1:
            usual = present(stack.currentWidget())

            def turn(shown: str) -> None:
                if self._dock_of[shown] == dock:
                    stack.setCurrentWidget(others.get(shown, usual))

            self.shown.connect(turn)
        if self.is_front(while_front):
            stack.setCurrentWidget(widget)


def _append(page: QWidget, widget: QWidget) -> None:
    layout = present(page.layout())
    assert isinstance(layout, QBoxLayout)
    layout.addWidget(widget)


class Enlarged(QObject):
    """Gives one dock, or the centre, the whole window: the others are hidden until Esc or `put_back`.

    `changed(name)` is emitted with the name of the dock, "" when all are as they were.
    """

    changed = Signal(str)

    def __init__(self, window: QMainWindow) -> None:
        super().__init__(window)
        self.name = ""
        self._window = window
        self._docks: dict[str, QDockWidget | None] = {}
        self._before = QByteArray()
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), window)
        self._escape.setEnabled(False)
        self._escape.activated.connect(self.put_back)
        self._escape.activatedAmbiguously.connect(self.put_back)

    def add(self, name: str, dock: QDockWidget | None) -> None:
        """Take a dock, or the centre, which is in none."""
        self._docks[name] = dock

    def toggle(self, name: str) -> None:
        """Give the window to a dock, or put back what has it."""
        if self.name == name:
            self.put_back()
        else:
            self.enlarge(name)

    def enlarge(self, name: str) -> None:
        """Give the window to a dock."""
        if self.name == name:
            return
        self.put_back()
        self._before = self._window.saveState()
        for other, dock in self._docks.items():
            if dock is not None:
                dock.setVisible(other == name)
        present(self._window.centralWidget()).setVisible(self._docks[name] is None)
        self._turn(name)

    def put_back(self) -> None:
        """Show the other docks again, as they were."""
        if self.name:
            present(self._window.centralWidget()).show()
            self._window.restoreState(self._before)
            self._turn("")

    def _turn(self, name: str) -> None:
        self.name = name
        self._escape.setEnabled(bool(name))
        self.changed.emit(name)
