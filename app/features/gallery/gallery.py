"""The gallery: a card for each bundled example, with a thumbnail and a description."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPointF,
    QRectF,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QKeyEvent,
    QPainter,
    QPainterPath,
    QPen,
    QPixmap,
    QResizeEvent,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.features.gallery.values import (
    BROKEN,
    DOWNLOAD,
    NO_DATA,
    OFFLINE,
    DescribeExample,
    Example,
    Facts,
    read,
)
from app.features.gallery.values import paths as example_paths
from app.util.formatting import counted, grouped_digits
from app.views.engine_service import EngineService
from app.views.ui import fuzzy, icons, theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.op_rows import Index
from app.views.ui.thumbnails import ThumbnailRequest, Thumbnails
from app.views.ui.widgets import SearchField
from app.views.ui.widgets.painting import box, elided, label

# --- The cards of the gallery: content and painting

PICTURE = QSize(284, 132)
LEAST = 300  # the narrowest card with the gap beside it, px
GAP, PAD, RADIUS = 6.0, 11.0, 6.0
LINES = 3
# state of the training: icon, and the token of its colour
SIGNS = {
    OFFLINE: ("check", "run"),
    DOWNLOAD: ("save", "text2"),
    NO_DATA: ("info", "text3"),
    BROKEN: ("error", "error"),
}


class GalleryCard(Struct, frozen=True):
    """A project to choose. `path` is None for the blank project; facts not known yet are None."""

    path: Path | None
    title: str
    words: str
    example: Example | None = None
    facts: Facts | None = None

    @property
    def size(self) -> str:
        """`4 layers with weights · 55,338 parameters`, the parameters once they are counted."""
        if self.example is None:
            return ""
        layers = f"{counted(self.example.layers, 'layer')} with weights"
        return (
            f"{layers} · {grouped_digits(self.facts.parameters)} parameters"
            if self.facts
            else layers
        )

    @property
    def accessible_text(self) -> str:
        data = self.facts.data if self.facts else ""
        return ", ".join(filter(None, (self.title, self.words, self.size, data)))


class CardModel(QAbstractListModel):
    """The cards that match the search text, in their fixed order while it is empty."""

    def __init__(self, cards: Sequence[GalleryCard], parent: QObject) -> None:
        super().__init__(parent)
        self.cards = list(cards)
        self.pictures: dict[Path | None, QPixmap] = {}
        self._query = ""
        self._shown = list(cards)

    def card(self, index: Index) -> GalleryCard | None:
        return (
            self._shown[index.row()]
            if index.isValid() and index.row() < len(self._shown)
            else None
        )

    def add(self, card: GalleryCard) -> None:
        self.cards.append(card)
        if self._query:
            self.set_query(self._query)
            return
        self.beginInsertRows(QModelIndex(), len(self._shown), len(self._shown))
        self._shown.append(card)
        self.endInsertRows()

    def learn(self, path: Path, facts: Facts) -> None:
        """Set the facts of an example, computed by the engine."""
        self.cards = [
            replace(card, facts=facts) if card.path == path else card
            for card in self.cards
        ]
        cards_by_path = {card.path: card for card in self.cards}
        self._shown = [cards_by_path[card.path] for card in self._shown]
        self._changed(path)

    def show_picture(self, path: Path, picture: QPixmap) -> None:
        self.pictures[path] = picture
        self._changed(path)

    def _changed(self, path: Path) -> None:
        for row, card in enumerate(self._shown):
            if card.path == path:
                self.dataChanged.emit(self.index(row), self.index(row))

    def set_query(self, query: str) -> None:
        self._query = query.strip()
        self.beginResetModel()
        self._shown = fuzzy.ranked(
            query,
            self.cards,
            lambda card: ((card.title, 1.0), (card.words, 0.7)),
        )
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._shown)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        card = self.card(index)
        if card is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return card.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return card.accessible_text
        if role == Qt.ItemDataRole.ToolTipRole and card.example is not None:
            return card.example.project.notes or None
        return None


def stage_height(width: float) -> float:
    """Return the height of the picture on a card of a width."""
    return width * PICTURE.height() / PICTURE.width()


def card_height(width: float) -> int:
    """Return the height of a card with margins: picture, title, three lines of description, two of facts."""
    caption = QFontMetricsF(theme.font("caption")).height()
    title = QFontMetricsF(theme.font("node")).height()
    return int(
        stage_height(width - 2 * GAP)
        + title
        + (LINES + 2) * caption
        + 2 * PAD
        + 14
        + 2 * GAP
    )


class CardDelegate(QStyledItemDelegate):
    """Picture, title, words, how large it is, and whether it can be trained."""

    def __init__(self, model: CardModel) -> None:
        super().__init__(model)
        self._model = model

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        grid = (
            option.widget.gridSize()
            if isinstance(option.widget, QListView)
            else QSize()
        )
        return grid if grid.isValid() else QSize(LEAST, card_height(LEAST))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: Index
    ) -> None:
        card = self._model.card(index)
        if card is None:
            return
        colors = theme.current()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        area = QRectF(option.rect).adjusted(GAP, GAP, -GAP, -GAP)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        over = bool(option.state & QStyle.StateFlag.State_MouseOver)
        box(painter, area, RADIUS, colors.hover if over else colors.raised)
        stage = QRectF(
            area.left(), area.top(), area.width(), stage_height(area.width())
        )
        self._paint_picture(painter, card, stage)
        self._paint_text(
            painter, card, area.adjusted(PAD, stage.height() + PAD, -PAD, -PAD)
        )
        line = colors.accent if chosen else colors.line3 if over else colors.line2
        box(painter, area, RADIUS, None, line, 2 if chosen else 1)
        painter.restore()

    def _paint_picture(
        self, painter: QPainter, card: GalleryCard, stage: QRectF
    ) -> None:
        colors = theme.current()
        ground = QPainterPath()
        ground.setFillRule(Qt.FillRule.WindingFill)
        ground.addRoundedRect(stage, RADIUS, RADIUS)
        ground.addRect(stage.adjusted(0, RADIUS, 0, 0))
        painter.fillPath(ground, colors.canvas)
        painter.setPen(QPen(colors.line, 1))
        painter.drawLine(stage.bottomLeft(), stage.bottomRight())
        picture = self._model.pictures.get(card.path)
        if picture is not None:
            painter.drawPixmap(stage, picture, QRectF(picture.rect()))
        elif card.path is None:
            icons.draw(
                painter,
                "add",
                "text3",
                stage.center().x() - 12,
                stage.center().y() - 12,
                24,
            )

    def _paint_text(self, painter: QPainter, card: GalleryCard, area: QRectF) -> None:
        colors = theme.current()
        title = elided(card.title, "node", area.width())
        title.draw(painter, area.left(), area.top(), colors.text)
        below = area.adjusted(0, title.height + 4, 0, 0)
        write_lines(painter, card.words, below, colors.text2)
        row = QFontMetricsF(theme.font("caption")).height()
        facts = QRectF(area.left(), area.bottom() - 2 * row - 2, area.width(), row)
        elided(card.size, "caption", area.width()).draw_in(
            painter, facts.left(), facts, colors.text3
        )
        if card.facts is not None:
            icon, tone = SIGNS[card.facts.training]
            line = facts.translated(0, row + 3)
            icons.draw(painter, icon, tone, line.left(), line.center().y() - 6, 12)
            data_text = elided(card.facts.data, "caption", area.width() - 18)
            data_text.draw_in(painter, line.left() + 18, line, colors.color(tone))


def write_lines(painter: QPainter, text: str, area: QRectF, color: QColor) -> None:
    """Paint a caption of at most LINES lines; the last one is elided if there is more."""
    font = theme.font("caption")
    metrics = QFontMetricsF(font)
    layout = QTextLayout(text, font)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WordWrap)
    layout.setTextOption(option)
    layout.beginLayout()
    painter.setFont(font)
    painter.setPen(color)
    for number in range(LINES):
        line = layout.createLine()
        if not line.isValid():
            break
        line.setLineWidth(area.width())
        piece = text[line.textStart() : line.textStart() + line.textLength()]
        if number == LINES - 1 and line.textStart() + line.textLength() < len(text):
            piece = metrics.elidedText(
                text[line.textStart() :], Qt.TextElideMode.ElideRight, area.width()
            )
        painter.drawText(
            QPointF(
                area.left(), area.top() + number * metrics.height() + metrics.ascent()
            ),
            piece,
        )
    layout.endLayout()


BLANK = "Blank project"
KEY = "gallery"
MOST_COLUMNS = 4
ROUND = QSize(
    62, 160
)  # around the cards: margins and scroll bar; title, field and buttons


class Cards(QListView):
    """Cards in as many columns as there is room for, each as wide as its share."""

    def __init__(self, model: CardModel) -> None:
        super().__init__()
        self.setModel(model)
        self.setViewMode(QListView.ViewMode.IconMode)
        self.setMovement(QListView.Movement.Static)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setMouseTracking(True)
        self.setAccessibleName("Examples")
        self.setItemDelegate(CardDelegate(model))
        self.setFrameShape(QListView.Shape.NoFrame)

    def resizeEvent(self, event: QResizeEvent) -> None:
        width = (self.viewport().width() - 1) // self.columns
        self.setGridSize(QSize(width, card_height(width)))
        super().resizeEvent(event)

    @property
    def columns(self) -> int:
        return columns_in(self.viewport().width())


def columns_in(width: int) -> int:
    """Return how many cards fit side by side."""
    return max((width - 1) // LEAST, 1)


class GalleryDialog(Dialog):
    """Choose an example, or a blank project. `chosen(path)` comes after it has closed; None is the blank one."""

    chosen = Signal(object)

    def __init__(
        self,
        engine: EngineService,
        data_root: Path,
        parent: QWidget | None = None,
        *,
        paths: Sequence[Path] | None = None,
    ) -> None:
        super().__init__("New from example", parent)
        self._engine, self._data_root = engine, data_root
        self._unread = list(example_paths() if paths is None else paths)
        self._unasked: list[Example] = []
        self.thumbnails = Thumbnails(PICTURE, self)
        self.model = CardModel([GalleryCard(None, BLANK, "An empty canvas.")], self)
        self.view = Cards(self.model)
        self.field = SearchField("Type to filter")
        self.none = label("No example matches.", "label", "text3")
        self.none.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.none.hide()
        for widget in (self.field, self.view, self.none):
            self.body.addWidget(widget, 0 if widget is self.field else 1)
        cancel = self.add_button("Cancel")
        self.open_button = self.add_button("Open a copy", "primary", default=True)
        self._connect()
        cancel.clicked.connect(self.reject)
        self.setMinimumSize(LEAST + 90, 480)
        self.resize(_fitting(parent, len(self._unread) + 1))
        self.field.setFocus()
        self._filter("")
        QTimer.singleShot(0, self, self._read_one)

    def _connect(self) -> None:
        self.field.textChanged.connect(self._filter)
        self.field.installEventFilter(self)
        self.view.installEventFilter(self)
        self.view.doubleClicked.connect(lambda index: self._choose())
        self.view.selectionModel().currentChanged.connect(
            lambda now, before: self._name_button()
        )
        self.open_button.clicked.connect(self._choose)
        self.thumbnails.ready.connect(self._painted)
        theme.manager().changed.connect(self._repaint)
        self.finished.connect(self._leave)

    # --- Filling the cards, one piece of work a turn of the event loop

    def _read_one(self) -> None:
        if not self._unread:
            self._ask_one()
            return
        example = read(self._unread.pop(0))
        self.model.add(
            GalleryCard(example.path, example.project.name, example.words, example)
        )
        if not self.view.currentIndex().isValid():
            self._filter(self.field.text())
        self._unasked.append(example)
        self._paint(example, None)
        QTimer.singleShot(0, self, self._read_one)

    def _ask_one(self) -> None:
        """Request one card at a time, so that requests of the open project need not wait for all."""
        if self._unasked and self.isVisible():
            example = self._unasked.pop(0)
            self._engine.ask(
                KEY,
                DescribeExample(example.project, self._data_root),
                on_answer=lambda facts: self._learned(example, facts),
                on_error=lambda failure: self._ask_one(),
            )

    def _learned(self, example: Example, facts: Facts) -> None:
        self.model.learn(example.path, facts)
        self._paint(example, facts)
        self._ask_one()

    def _paint(self, example: Example, facts: Facts | None) -> None:
        ops = with_blocks(catalog(), example.project.blocks)
        key = (example.path, example.path.stat().st_mtime_ns)
        self.thumbnails.request(
            ThumbnailRequest(
                key, example.project, ops, facts.analysis if facts else None
            )
        )

    def _painted(self, key: tuple[Path, int], picture: QPixmap) -> None:
        self.model.show_picture(key[0], picture)

    def _repaint(self) -> None:
        """Paint the thumbnails again after a change of the theme."""
        for card in self.model.cards:
            if card.example is not None:
                self._paint(card.example, card.facts)

    # --- Choosing

    def _filter(self, query: str) -> None:
        self.model.set_query(query)
        self.view.setCurrentIndex(self.model.index(0))
        some = self.model.rowCount() > 0
        self.none.setVisible(not some)
        self.view.setVisible(some)
        self._name_button()

    def _name_button(self) -> None:
        card = self.model.card(self.view.currentIndex())
        self.open_button.setEnabled(card is not None)
        self.open_button.setText(
            "New project" if card is not None and card.path is None else "Open a copy"
        )

    def _choose(self) -> None:
        card = self.model.card(self.view.currentIndex())
        if card is not None:
            self.accept()
            self.chosen.emit(card.path)

    def _leave(self) -> None:
        self._engine.forget(KEY)
        self.thumbnails.forget()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let arrow keys select cards from the search field, and typed letters search wherever the focus is."""
        if event.type() != QEvent.Type.KeyPress or not isinstance(event, QKeyEvent):
            return super().eventFilter(watched, event)
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose()
            return True
        if watched is self.field:
            return self._walk(event.key())
        if (
            event.text().strip()
            and not event.modifiers() & Qt.KeyboardModifier.ControlModifier
        ):
            self.field.setFocus()
            self.field.insert(event.text())
            return True
        return super().eventFilter(watched, event)

    def _walk(self, key: int) -> bool:
        steps = {Qt.Key.Key_Down: self.view.columns, Qt.Key.Key_Up: -self.view.columns}
        if not self.field.text():
            steps |= {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}
        if key not in steps or not self.model.rowCount():
            return False
        row = self.view.currentIndex().row() + steps[Qt.Key(key)]
        if 0 <= row < self.model.rowCount():
            self.view.setCurrentIndex(self.model.index(row))
        return True


def _fitting(parent: QWidget | None, cards: int) -> QSize:
    """Return a size with as many columns as fit the window, and the rows that result."""
    room = parent.size() if parent is not None else QSize(1280, 800)
    width = min(room.width() - 120, MOST_COLUMNS * 320 + ROUND.width())
    columns = columns_in(width - ROUND.width())
    height = (
        -(-cards // columns) * card_height((width - ROUND.width()) / columns)
        + ROUND.height()
    )
    return QSize(width, min(height, room.height() - 60))
