"""Docks whose title bar is a row of tabs."""

from __future__ import annotations

from PySide6.QtCore import QObject, QSize, Qt, Signal
from PySide6.QtWidgets import QDockWidget, QMainWindow, QStackedWidget, QWidget

from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.widgets.tabs import ToolTabs


class TabbedPane(QWidget):
    """Tabs over a stack of pages. `shown(key)` is emitted with the page in front."""

    shown = Signal(str)

    def __init__(self, parent: QWidget | None = None, *, central: bool = False) -> None:
        super().__init__(parent)
        self.tabs = ToolTabs(self, central=central)
        self.stack = QStackedWidget(self)
        # A page that would rather be wider must not push a dock out of the window.
        self.stack.setMinimumSize(160, 80)
        self._keys: list[str] = []
        self._controls: dict[str, QWidget] = {}
        self.bar = QWidget(self)
        self.bar.setProperty("role", "tabbar")
        self._bar_row = hbox(self.tabs, 1, on=self.bar, margins=(6, 0, 8, 0), spacing=8)
        vbox(self.bar, (self.stack, 1), on=self, margins=0, spacing=0)
        self.tabs.selected.connect(self._select)

    def add(
        self, key: str, text: str, icon: str, page: QWidget | None = None, edge: str = "", *, after: str = ""
    ) -> None:
        """Add a tab, at the end or `after` another; `fill` supplies its page if it does not exist yet."""
        place = self._keys.index(after) + 1 if after else len(self._keys)
        shown = self.stack.currentWidget()
        self._keys.insert(place, key)
        self.stack.insertWidget(place, page or QWidget())
        if shown is not None:
            self.stack.setCurrentWidget(shown)
        self.tabs.add(key, text, icon, edge, place)

    def fill(self, key: str, page: QWidget) -> None:
        """Set the page of a tab."""
        index = self._keys.index(key)
        shown = self.stack.currentIndex()
        placeholder = present(self.stack.widget(index))
        self.stack.insertWidget(index, page)
        self.stack.removeWidget(placeholder)
        placeholder.deleteLater()
        self.stack.setCurrentIndex(shown)

    def add_controls(self, key: str, widget: QWidget) -> None:
        """Put a widget at the right end of the row of tabs, shown while the page `key` is in front."""
        self._bar_row.addWidget(widget)
        self._controls[key] = widget
        widget.setVisible(self.page == key)

    def add_corner(self, widget: QWidget) -> None:
        """Put a widget at the right end of the row of tabs."""
        self._bar_row.addWidget(widget)

    def show_page(self, key: str) -> None:
        self.tabs.set_value(key)
        self._select(key)

    def widget_of(self, key: str) -> QWidget:
        """Return the page of a tab."""
        return present(self.stack.widget(self._keys.index(key)))

    @property
    def page(self) -> str:
        """The key of the page in front."""
        return self._keys[self.stack.currentIndex()]

    def _select(self, key: str) -> None:
        index = self._keys.index(key)
        if self.stack.currentIndex() != index or not self.stack.isVisible():
            self.stack.setCurrentIndex(index)
        for other, controls in self._controls.items():  # first, or the tabs would scroll for lack of room
            if other != key:
                controls.hide()
        if key in self._controls:
            self._controls[key].show()
        self.shown.emit(key)


class _DockPane(TabbedPane):
    """A pane whose size hint is the initial size of its dock, independent of its pages."""

    def __init__(self, size: QSize, parent: QWidget) -> None:
        super().__init__(parent)
        self._size = size

    def sizeHint(self) -> QSize:
        return self._size


class TabbedDock(QDockWidget):
    """A dock with a `TabbedPane`; it is resized at its edge, hidden and shown from the View menu."""

    def __init__(self, name: str, title: str, size: QSize, least: int, parent: QWidget | None = None) -> None:
        super().__init__(title, parent)
        self.setObjectName(name)
        self.setFeatures(QDockWidget.DockWidgetFeature.DockWidgetClosable)
        self.setTitleBarWidget(QWidget(self))
        self.pane = _DockPane(size, self)
        self.pane.setMinimumSize(min(size.width(), least), min(size.height(), 120))
        self.setWidget(self.pane)


class PageHeights(QObject):
    """Restores, for each page of the bottom dock, the height that the user left it at."""

    def __init__(self, window: QMainWindow, dock: TabbedDock, first: dict[str, int], usual: int) -> None:
        super().__init__(dock)
        self._window, self._dock, self._heights, self._usual = window, dock, dict(first), usual
        self._page = dock.pane.page
        dock.pane.shown.connect(self._page_shown)

    def _page_shown(self, page: str) -> None:
        if page == self._page:
            return
        if self._dock.isVisible():
            self._heights[self._page] = self._dock.height()
        self._page = page
        height = self._heights.get(page, self._usual)
        self._window.resizeDocks([self._dock], [height], Qt.Orientation.Vertical)
