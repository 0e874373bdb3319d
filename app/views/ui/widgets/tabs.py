"""Tabs with icon, text and a count badge, over docks and over the centre."""

from __future__ import annotations

from msgspec import Struct
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QTabBar, QWidget

from app.views.ui import icons
from app.views.ui.theme import Theme, current
from app.views.ui.widgets.painting import KeyboardFocus, TextLine, at_least, box, start

HEIGHT = 34
PADS, BARE_PAD = (
    (14, 11, 9),
    9,
)  # of icon and name, from the roomiest, and of an icon alone
NAME_PADS = (12, 10, 8, 6, 5, 4)  # of names without icons, from the roomiest
ICON = 15
BADGE, BADGE_GAP = 16, 7  # least width of a badge, and its distance from the name, px


class _Tab(Struct):
    key: str
    text: TextLine
    icon: str
    edge: str
    badge: TextLine | None = None
    badge_fill: str = "errorFill"
    badge_room: float = 0  # kept when the badge goes, so that no other tab moves; the name is centred in it
    bare: bool = False  # only its icon, for want of room
    pad: int = PADS[0]
    named: bool = False  # only its name
    counted: bool = (
        True  # has room also while it is hidden, unless it was from the beginning
    )

    def width(self, bare: bool, pad: int, named: bool = False) -> float:
        """Return the width with icon and words, with its icon alone, or with its name alone."""
        badge = BADGE_GAP + self.badge_room if self.badge_room else 0
        if named and not bare:
            return 2 * pad + self.text.width + badge
        text_width = 0.0 if bare else (6 if self.icon else 0) + self.text.width
        return (
            2 * (BARE_PAD if bare else pad)
            + (ICON if self.icon else 0)
            + text_width
            + badge
        )

    @property
    def spare(self) -> float:
        """The width kept for a badge that is not shown, or for a wider one."""
        shown = BADGE_GAP + self.badge_width if self.badge else 0
        return max(BADGE_GAP + self.badge_room - shown, 0) if self.badge_room else 0

    @property
    def badge_width(self) -> float:
        return max(float(BADGE), self.badge.width + 10) if self.badge else 0.0


class ToolTabs(KeyboardFocus, QTabBar):
    """Tabs identified by a key, all of them in sight. Where there is no room for all, they show their names without
    icons; where there is none for that, the last ones show their icon alone. None moves when another becomes active.

    The active one has the colour `panel` and a line on top, 1 px over a dock, else 2 px.

    Args:
        central: Whether they are over the centre, where the line is `accent` or the `edge` given to `add`.
        hidden_count: Whether hidden tabs have room too, so that those in sight look the same when one is shown.
    """

    selected = Signal(str)

    def __init__(
        self,
        parent: QWidget | None = None,
        *,
        central: bool = False,
        hidden_count: bool = False,
    ) -> None:
        super().__init__(parent)
        self._central, self._hidden_count = central, hidden_count
        self._tabs: list[_Tab] = []
        self._room: int | None = None
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setUsesScrollButtons(False)
        self.setElideMode(Qt.TextElideMode.ElideNone)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMouseTracking(True)
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.currentChanged.connect(self._emit_selected)

    def add(
        self,
        key: str,
        text: str,
        icon: str = "",
        edge: str = "",
        position: int | None = None,
        *,
        counts: bool = False,
    ) -> int:
        """Add a tab, at the end or at a position, and return its index; `edge` colours its line while active, and one
        that `counts` has room for a badge from the beginning.
        """
        default = "accent" if self._central else "line3"
        index = len(self._tabs) if position is None else position
        room = BADGE if counts else 0
        self._tabs.insert(
            index,
            _Tab(key, TextLine(text, "tab"), icon, edge or default, badge_room=room),
        )
        self.insertTab(index, text)
        self.setAccessibleTabName(index, text)
        self._fit()
        return index

    def set_badge(self, key: str, count: int, fill: str = "errorFill") -> None:
        """Show a count after a tab's text; 0 removes it.

        Raises:
            KeyError: there is no such tab.
        """
        index = self.index(key)
        tab = self._tabs[index]
        shown = (tab.badge.text if tab.badge else "", tab.badge_fill)
        if shown == (f"{count:,}" if count else "", fill):
            return
        tab.badge = TextLine(f"{count:,}", "shape") if count else None
        tab.badge_fill = fill
        tab.badge_room = max(tab.badge_room, tab.badge_width)
        self.setAccessibleTabName(
            index, f"{tab.text.text}, {count:,}" if count else tab.text.text
        )
        self._fit()
        self.setTabText(index, tab.text.text)  # makes the bar recompute its sizes
        self.update()

    def index(self, key: str) -> int:
        """Return the index of a tab.

        Raises:
            KeyError: there is no such tab.
        """
        for i, tab in enumerate(self._tabs):
            if tab.key == key:
                return i
        raise KeyError(f"no tab is called {key!r}")

    def value(self) -> str:
        """Return the key of the active tab, or an empty text."""
        return (
            self._tabs[self.currentIndex()].key
            if 0 <= self.currentIndex() < len(self._tabs)
            else ""
        )

    def set_value(self, key: str) -> None:
        """Activate a tab; a hidden one becomes visible."""
        index = self.index(key)
        self._show(index, True)
        self.setCurrentIndex(index)

    def set_shown(self, key: str, shown: bool) -> None:
        """Hide a tab or show it again; the active one stays visible."""
        index = self.index(key)
        tab = self._tabs[index]
        tab.counted = shown or (tab.counted and self.isVisible())
        if index != self.currentIndex():
            self._show(index, shown)

    def _show(self, index: int, shown: bool) -> None:
        if self.isTabVisible(index) != shown:
            self.setTabVisible(index, shown)
            self._fit()
            self.updateGeometry()  # it takes the room of its visible tabs

    def set_room(self, room: int) -> None:
        """Set the width that the tabs are fitted to, which may be less than that of the bar."""
        if room != self._room:
            self._room = room
            self._fit()

    def least_width(self) -> int:
        """Return the width that shows all names."""
        return self._width_of_all(NAME_PADS[-1], True)

    def _fit(self) -> None:
        """Choose what the tabs show: icons and names, names alone, or as few icons alone as need be, from the end."""
        before = [(tab.bare, tab.pad, tab.named) for tab in self._tabs]
        room = self.width() if self._room is None else self._room
        looks = [*((pad, False) for pad in PADS), *((pad, True) for pad in NAME_PADS)]
        fits = next((look for look in looks if self._width_of_all(*look) <= room), None)
        for tab in self._tabs:
            tab.pad, tab.named = fits or (PADS[0], False)
        over = 0 if fits else self._width_of_all(PADS[0], False) - room
        for index in reversed(range(len(self._tabs))):
            tab = self._tabs[index]
            tab.bare = over > 0 and bool(tab.icon)
            if tab.bare and self._counts(index):
                over -= self._full(tab) - self.tabSizeHint(index).width()
        for index, (tab, was) in enumerate(zip(self._tabs, before, strict=True)):
            if (tab.bare, tab.pad, tab.named) != was:
                self.setTabToolTip(index, tab.text.text if tab.bare else "")
                self.setTabText(
                    index, tab.text.text
                )  # makes the bar recompute its sizes

    def sizeHint(self) -> QSize:
        """Return the room for all words, which layouts give it where there is that much."""
        return QSize(
            sum(
                self._full(tab)
                for index, tab in enumerate(self._tabs)
                if self.isTabVisible(index)
            ),
            HEIGHT,
        )

    def minimumSizeHint(self) -> QSize:
        """Return the room for the icons, or less: `_fit` makes do with what it gets."""
        return QSize(HEIGHT, HEIGHT)

    def _width_of_all(self, pad: int, named: bool) -> int:
        counted = [tab for index, tab in enumerate(self._tabs) if self._counts(index)]
        return sum(
            at_least(tab.width(False, pad, named), HEIGHT).width() for tab in counted
        )

    def _counts(self, index: int) -> bool:
        if self.isTabVisible(index):
            return True
        return self._hidden_count and (self._central or self._tabs[index].counted)

    def _full(self, tab: _Tab) -> int:
        return at_least(tab.width(False, PADS[0]), HEIGHT).width()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()
        super().resizeEvent(event)

    def _emit_selected(self, index: int) -> None:
        if 0 <= index < len(self._tabs):
            self.selected.emit(self._tabs[index].key)

    def tabSizeHint(self, index: int) -> QSize:
        tab = self._tabs[index] if index < len(self._tabs) else None
        return (
            at_least(tab.width(tab.bare, tab.pad, tab.named), HEIGHT)
            if tab is not None
            else QSize(0, HEIGHT)
        )

    def minimumTabSizeHint(self, index: int) -> QSize:
        return self.tabSizeHint(index)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        painter.fillRect(self.rect(), theme.window)
        painter.fillRect(0, self.height() - 1, self.width(), 1, theme.line)
        hovered = (
            self.tabAt(self.mapFromGlobal(self.cursor().pos()))
            if self.underMouse()
            else -1
        )
        for index, tab in enumerate(self._tabs):
            if self.isTabVisible(index):
                self._paint_tab(painter, theme, index, tab, hovered == index)
        painter.end()

    def _paint_tab(
        self, painter: QPainter, theme: Theme, index: int, tab: _Tab, hovered: bool
    ) -> None:
        area = QRectF(self.tabRect(index))
        active = index == self.currentIndex()
        if active:
            painter.fillRect(area, theme.panel)
            painter.fillRect(
                QRectF(area.left(), 0, area.width(), 2 if self._central else 1),
                theme.color(tab.edge),
            )
            for x in (area.left(), area.right() - 1):
                painter.fillRect(QRectF(x, 0, 1, self.height()), theme.line)
            self.paint_ring(painter, area.adjusted(3, 4, -3, -4), 4)
        color = (
            "text4"
            if not self.isTabEnabled(index)
            else "text"
            if active or hovered
            else "text3"
        )
        x = area.left() + (BARE_PAD if tab.bare else tab.pad) + tab.spare / 2
        if tab.icon and (tab.bare or not tab.named):
            icons.draw(painter, tab.icon, color, x, (HEIGHT - ICON) / 2, ICON)
            x += ICON
        if not tab.bare:
            x += 6 if tab.icon and not tab.named else 0
            tab.text.draw_in(painter, x, area, theme.color(color))
            x += tab.text.width
        if tab.badge is not None:
            pill = QRectF(x + BADGE_GAP, (HEIGHT - BADGE) / 2, tab.badge_width, BADGE)
            box(painter, pill, 8, theme.color(tab.badge_fill))
            tab.badge.draw_in(
                painter, pill.center().x() - tab.badge.width / 2, pill, theme.onFill
            )
