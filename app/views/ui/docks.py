"""Docks whose title bar is a row of tabs."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QDockWidget, QStackedWidget, QWidget

from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.scaling import fit
from app.views.ui.theme import manager
from app.views.ui.widgets.tabs import HEIGHT, ToolTabs

EDGES = 6, 8  # room at the left and the right of the row of tabs, px
GAP = 8
LEAST_BESIDE = 150  # px high of a dock at a side, for what stands around its list


class TabbedPane(QWidget):
    """Tabs over a stack of pages. `shown(key)` is emitted with the page in front.

    Controls of a page are at the right end of the row of tabs. No tab moves when a page with other controls comes to
    the front, or is made: the tabs are fitted to what the widest controls leave, `reserve` px at least, and where that
    is too little for their names, all controls have a row below the tabs.
    """

    shown = Signal(str)

    def __init__(
        self, parent: QWidget | None = None, *, central: bool = False, reserve: int = 0
    ) -> None:
        super().__init__(parent)
        self._reserve = reserve
        self.tabs = ToolTabs(self, central=central, hidden_count=reserve > 0)
        self.stack = QStackedWidget(self)
        # A page that would rather be wider must not push a dock out of the window.
        self.stack.setMinimumSize(160, 80)
        self._keys: list[str] = []
        self._controls: dict[str, QWidget] = {}
        self._reserved = 0  # the most that controls wanted until now, at this text size
        self._scale = 0.0  # text size at which controls were measured
        self._styled = True  # for that text size
        manager().styled.connect(self._measure_again)
        self.bar, self._row_below, self._extras = (
            QWidget(self),
            QWidget(self),
            QWidget(self),
        )
        for row in (self.bar, self._row_below):
            row.setProperty("role", "tabbar")
            row.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._bar_row = hbox(
            self.tabs,
            1,
            self._extras,
            on=self.bar,
            margins=(EDGES[0], 0, EDGES[1], 0),
            spacing=GAP,
        )
        self._below = hbox(
            1, on=self._row_below, margins=(EDGES[0], 0, EDGES[1], 0), spacing=GAP
        )
        self._extras_row = hbox(on=self._extras, margins=0, spacing=GAP)
        self._row_below.setFixedHeight(HEIGHT)
        self._row_below.hide()
        vbox(self.bar, self._row_below, (self.stack, 1), on=self, margins=0, spacing=0)
        self._extras.installEventFilter(self)
        self.tabs.selected.connect(self._select)

    def add(
        self,
        key: str,
        text: str,
        icon: str,
        page: QWidget | None = None,
        edge: str = "",
        *,
        after: str = "",
        counts: bool = False,
    ) -> None:
        """Add a tab, at the end or `after` another that is there; `fill` supplies its page if it does not exist yet."""
        index = self._keys.index(after) + 1 if after in self._keys else len(self._keys)
        shown = self.stack.currentWidget()
        self._keys.insert(index, key)
        self.stack.insertWidget(index, page or QWidget())
        if shown is not None:
            self.stack.setCurrentWidget(shown)
        self.tabs.add(key, text, icon, edge, index, counts=counts)
        self._fit()

    def fill(self, key: str, page: QWidget) -> None:
        """Set the page of a tab."""
        index = self._keys.index(key)
        shown = self.stack.currentIndex()
        placeholder = present(self.stack.widget(index))
        self.stack.insertWidget(index, page)
        self.stack.removeWidget(placeholder)
        placeholder.deleteLater()
        self.stack.setCurrentIndex(shown)
        fit(page, manager().scale)

    def add_controls(self, key: str, widget: QWidget) -> None:
        """Put a widget at the right end of the row of tabs, shown while the page `key` is in front."""
        self._extras_row.addWidget(widget)
        fit(widget, manager().scale)
        self._controls[key] = widget
        widget.setVisible(self.page == key)
        self._fit()

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
        for other in sorted(
            self._controls, key=lambda other: other == key
        ):  # first hidden, then shown
            self._controls[other].setVisible(other == key)
        self._fit()
        self.shown.emit(key)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._extras and event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _measure_again(self) -> None:
        """Measure the controls once they are styled for another text size."""
        if not self._styled:
            self._scale = 0.0
            self._fit()
            self._styled = True

    def _fit(self) -> None:
        """Fit the tabs to what the controls leave, or put these below."""
        if self._scale != manager().scale:
            self._scale, self._reserved, self._styled = (
                manager().scale,
                beside_text(self._reserve),
                False,
            )
        widths = (
            controls.sizeHint().width() + GAP for controls in self._controls.values()
        )
        self._reserved = max(self._reserved, *widths, 0)
        room = self.width() - sum(EDGES)
        below = self.tabs.least_width() > room - self._reserved
        if below != (self._below.indexOf(self._extras) >= 0):
            (self._below if below else self._bar_row).addWidget(self._extras)
        controls = self._controls.get(self.page)
        self._row_below.setVisible(
            below and controls is not None and controls.sizeHint().width() > 0
        )
        self.tabs.set_room(room if below else room - self._reserved)


class _DockPane(TabbedPane):
    """A pane whose size hint is the initial size of its dock, independent of its pages."""

    def __init__(self, size: QSize, reserve: int, parent: QWidget) -> None:
        super().__init__(parent, reserve=reserve)
        self._size = size

        manager().changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        return QSize(beside_text(self._size.width()), self._size.height())


def beside_text(width: int) -> int:
    """Return the width of a dock at the text size in force: half as much wider as the text is larger."""
    return round(width * (1 + (manager().scale - 1) / 2))


class TabbedDock(QDockWidget):
    """A dock with a `TabbedPane`; it is resized at its edge, hidden and shown from the View menu."""

    def __init__(
        self,
        name: str,
        title: str,
        size: QSize,
        least: int,
        parent: QWidget | None = None,
        *,
        reserve: int = 0,
    ) -> None:
        super().__init__(title, parent)
        self.setObjectName(name)
        self.setFeatures(QDockWidget.DockWidgetFeature.DockWidgetClosable)
        self.setTitleBarWidget(QWidget(self))
        self.pane = _DockPane(size, reserve, self)
        self._least = min(size.width(), least), min(size.height(), 120)
        self.set_least()
        self.setWidget(self.pane)

    def set_least(self) -> None:
        """Set the smallest size at the text size in force."""
        width, height = self._least
        if self.objectName() != "bottom":
            width, height = beside_text(width), round(LEAST_BESIDE * manager().scale)
        self.pane.setMinimumSize(width, height)
