"""The cards of the gallery: content and painting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPointF,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPen,
    QPixmap,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import (
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
)

from app.features.gallery.values import (
    BROKEN,
    DOWNLOAD,
    NO_DATA,
    OFFLINE,
    Example,
    Facts,
)
from app.util.formatting import counted, grouped_digits
from app.views.ui import fuzzy, icons, theme
from app.views.ui.op_rows import Index
from app.views.ui.widgets.painting import box, elided

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
