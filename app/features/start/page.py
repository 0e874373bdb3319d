"""The page "Start": recent projects, examples and lessons as rows, and what else one can begin with as buttons."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QWidget

from app.util.language import tr
from app.views.ui.layouts import hbox, vbox
from app.views.ui.list_row import ListRow
from app.views.ui.scrolled import Scrolled
from app.views.ui.theme import manager
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Glyph, label

WIDEST = 1080  # px of the content
COLUMNS = ((720, 3), (440, 2), (0, 1))  # px from which so many lists are side by side
EDGE = 24


class Offer(Struct, frozen=True):
    """What a row begins: its text, more about it, and what choosing it `does`."""

    text: str
    does: Callable[[], object]
    detail: str = ""


class OfferRow(ListRow):
    """A row: its text, and below it more about it, cut at the left where there is no room."""

    def __init__(self, offer: Offer, icon: str) -> None:
        super().__init__()
        self.offer = offer
        self._text, self._detail = label("", "label"), label("", "caption", "text3")
        for part in (self._text, self._detail):
            part.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._detail.setVisible(bool(offer.detail))
        texts = vbox(self._text, self._detail, margins=0, spacing=1)
        hbox(
            (Glyph(icon, "text3", 14), 0, Qt.AlignmentFlag.AlignVCenter),
            (texts, 1),
            on=self,
            margins=(8, 6, 8, 7),
            spacing=8,
        )
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(f"{offer.text} {offer.detail}".strip())
        self.setToolTip(offer.detail or offer.text)
        self.followed.connect(offer.does)
        self._cut()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._cut()

    def _cut(self) -> None:
        for part, text, side in (
            (self._text, self.offer.text, Qt.TextElideMode.ElideRight),
            (self._detail, self.offer.detail, Qt.TextElideMode.ElideLeft),
        ):
            metrics = QFontMetrics(part.font())
            part.setText(metrics.elidedText(text, side, max(part.width(), 40)))


class OfferList(QWidget):
    """A heading with its rows, which the arrows go through; a sentence where there is none, and a link to more."""

    moreRequested = Signal()

    def __init__(self, title: str, icon: str, nothing: str, more: str = "") -> None:
        super().__init__()
        self.setAccessibleName(title)
        self._icon = icon
        self._nothing = label(nothing, "label", "text3", wrap=True)
        self._rows = vbox(margins=0, spacing=0)
        self.more = Button(more, "link")
        self.more.setVisible(bool(more))
        self.more.clicked.connect(self.moreRequested)
        column = vbox(
            label(title, "section"),
            self._nothing,
            self._rows,
            (self.more, 0, Qt.AlignmentFlag.AlignLeft),
            on=self,
            margins=0,
            spacing=6,
        )
        column.addStretch(1)
        self.rows: list[OfferRow] = []

    def set_offers(self, offers: Iterable[Offer]) -> None:
        """Show other rows."""
        for row in self.rows:
            self._rows.removeWidget(row)
            row.deleteLater()
        self.rows = [OfferRow(offer, self._icon) for offer in offers]
        for number, row in enumerate(self.rows):
            self._rows.addWidget(row)
            row.left.connect(lambda by, at=number: self._move(at + by))
        self._nothing.setVisible(not self.rows)

    def _move(self, to: int) -> None:
        if 0 <= to < len(self.rows):
            self.rows[to].setFocus(Qt.FocusReason.TabFocusReason)


class StartPage(Scrolled):
    """`newRequested`, `openRequested`, `modelRequested` and `dataRequested` come from the buttons."""

    newRequested = Signal()
    openRequested = Signal()
    modelRequested = Signal()
    dataRequested = Signal()

    def __init__(self) -> None:
        self.new = Button(tr("New network"), "primary", "new")
        self.open = Button(tr("Open a project…"), icon="folder")
        self.model = Button(tr("Open a model…"), icon="layers")
        self.data = Button(tr("My data…"), icon="io")
        self.model.setToolTip(tr("Draw any PyTorch model of yours, and train it"))
        self.data.setToolTip(tr("A table, a folder of images, a text: then a net"))
        self.recent = OfferList(
            tr("Recent projects"),
            "tapedeck",
            tr("Projects that you open or save are listed here."),
        )
        self.examples = OfferList(
            tr("Examples"), "network", "", tr("All with pictures…")
        )
        self.lessons = OfferList(tr("Lessons"), "help", "", tr("All lessons…"))
        content, column = QWidget(), QWidget()
        column.setMaximumWidth(round(WIDEST * manager().scale))
        column.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._buttons, self._lists = QGridLayout(), QGridLayout()
        self._buttons.setSpacing(8)
        self._lists.setHorizontalSpacing(28)
        self._lists.setVerticalSpacing(24)
        inside = vbox(
            label(tr("What do you want to do?"), "title"),
            self._buttons,
            self._lists,
            on=column,
            margins=EDGE,
            spacing=20,
        )
        inside.addStretch(1)
        hbox((column, 1), on=content, margins=0)
        super().__init__(content)
        self.setAccessibleName(tr("Start"))
        self._columns = 0
        self._arrange()
        self.new.clicked.connect(self.newRequested)
        self.open.clicked.connect(self.openRequested)
        self.model.clicked.connect(self.modelRequested)
        self.data.clicked.connect(self.dataRequested)

    def home(self) -> QWidget:
        """Return what gets the keys: the project opened last, else the first button."""
        return self.recent.rows[0] if self.recent.rows else self.new

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Put the lists beside one another where there is room, else below; the buttons in two rows then."""
        width = self.width() / manager().scale
        columns = next(columns for least, columns in COLUMNS if width >= least)
        if columns == self._columns:
            return
        self._columns = columns
        for number, part in enumerate((self.recent, self.examples, self.lessons)):
            self._lists.addWidget(part, number // columns, number % columns)
        for place in range(3):
            self._lists.setColumnStretch(place, int(place < columns))
        wide = 4 if columns == 3 else 2
        for place in range(5):
            self._buttons.setColumnStretch(place, int(place == wide))
        for number, button in enumerate((self.new, self.open, self.model, self.data)):
            self._buttons.addWidget(button, number // wide, number % wide)
