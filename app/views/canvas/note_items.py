"""All comments and frames of the drawing: items, selection and hit testing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QPainter,
    QPen,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import (
    QGraphicsItem,
    QGraphicsScene,
)

from app.builder.graph import Graph
from app.builder.sheet import FRAME, Comment, Comments
from app.util.formatting import counted
from app.util.frozen import FrozenMap
from app.views.ui import theme
from app.views.ui.graphview.spatial import RectIndex
from app.views.ui.theme import Theme, scene_font
from app.views.ui.widgets.painting import Drawn, TextLine, elided

if TYPE_CHECKING:
    from app.builder.results import Analysis

FRAMES, COMMENTS, TITLES = (
    -3.0,
    -2.0,
    8.0,
)  # layers: frames and comments behind everything, far titles before it
FRAME_RADIUS, COMMENT_RADIUS = 8.0, 6.0
TITLE_LEFT, TITLE_BASE, TITLE_BAND = 28.0, 19.0, 28.0
PAD_X, PAD_Y, BAR = 12.0, 8.0, 3.0
REACH = 6.0  # how far from an edge a press still means it
GRIP = 7.0
SMALLEST, SMALL = (
    10.0,
    7.0,
)  # pixels of the screen that the letters of a title, and of a comment, have at least
GROWN = 1.7  # a title scaled further than this is shown above its frame
TINT = 0.10

Edges = str  # of the letters l, r, t, b: the edges that a grip moves; "" is no grip


class NoteItem(Drawn, QGraphicsItem):
    """Shows one comment or frame. `zoom` makes letters larger from afar."""

    def __init__(self, key: str, note: Comment) -> None:
        super().__init__()
        self.key = key
        self.title = FarTitle()
        self._note = note
        self._words = ""
        self._zoom = 1.0
        self._selected = self._hovered = self._edited = False
        self._lines: list[tuple[QPointF, TextLine]] = []
        self._measure()
        self.setCacheMode(QGraphicsItem.CacheMode.NoCache)

    # --- Appearance

    @property
    def note(self) -> Comment:
        return self._note

    @property
    def is_frame(self) -> bool:
        return self._note.kind == FRAME

    @property
    def body(self) -> QRectF:
        """Its rectangle on the scene."""
        return QRectF(self.x(), self.y(), self._note.width, self._note.height)

    def set_note(self, note: Comment) -> None:
        """Show another value."""
        if note != self._note or (self.x(), self.y()) != (note.x, note.y):
            self._note = note
            self._measure()

    def set_subtitle(self, text: str) -> None:
        """Set the text behind a frame's title."""
        if text != self._words:
            self._words = text
            self._measure()

    def set_zoom(self, zoom: float) -> None:
        if zoom != self._zoom:
            self._zoom = zoom
            self._measure()

    def set_state(
        self,
        *,
        selected: bool | None = None,
        hovered: bool | None = None,
        edited: bool | None = None,
    ) -> None:
        """Set or clear states; None leaves one unchanged. While it is edited, a field covers the text."""
        new = (
            self._selected if selected is None else selected,
            self._hovered if hovered is None else hovered,
            self._edited if edited is None else edited,
        )
        if new != (self._selected, self._hovered, self._edited):
            self._selected, self._hovered, self._edited = new
            self.title.setVisible(self._grows() and not self._edited)
            self.update()

    def retheme(self) -> None:
        """Apply changed colours and fonts."""
        self._measure()

    @property
    def scale_of_text(self) -> float:
        """How much larger than at 100 % the letters are."""
        return max(1.0, (SMALLEST if self.is_frame else SMALL) / (12 * self._zoom))

    def _grows(self) -> bool:
        return self.is_frame and self.scale_of_text > GROWN and bool(self._note.text)

    def _measure(self) -> None:
        """Lay out the text again."""
        self.prepareGeometryChange()
        note = self._note
        self.setPos(note.x, note.y)
        # Large frames are below small ones; equal ones in creation order.
        self.setZValue(
            (FRAMES if self.is_frame else COMMENTS)
            - min(note.width * note.height, 1e9) / 1e10
        )
        if self.is_frame:
            self._measure_title()
        else:
            self._measure_text()
        self.update()

    def _measure_title(self) -> None:
        note, scale = self._note, self.scale_of_text
        grows = self._grows()
        if grows:
            self.title.show_title(note, min(scale, 12.0))
        self.title.setVisible(grows and not self._edited)
        self._lines = []
        if grows:
            return
        # The words of the title's end are left out before the title itself is cut.
        room = (note.width - 2 * TITLE_LEFT) / scale
        line = elided(note.text, "section", room, scene=True)
        self._lines = [(QPointF(TITLE_LEFT / scale, 0.0), line)]
        rest = elided(self._words, "caption", room - line.width - 8, scene=True)
        if rest.text == self._words:
            self._lines.append(
                (
                    QPointF(
                        TITLE_LEFT / scale + line.width + (8 if line.text else 0), 0.0
                    ),
                    rest,
                )
            )

    def _measure_text(self) -> None:
        """Fit as many lines as there is room for, the last with an ellipsis if there are more."""
        note = self._note
        scale = min(self.scale_of_text, 4.0)
        width = (note.width - 2 * PAD_X) / scale
        room = (note.height - 2 * PAD_Y) / scale
        lines = wrapped(note.text, width)
        height = QFontMetricsF(scene_font("label")).lineSpacing()
        count = max(1, int((room + 2) // height))
        if len(lines) > count:
            lines = [*lines[: count - 1], lines[count - 1].rstrip() + "…"]
        self._lines = [
            (
                QPointF(PAD_X / scale, PAD_Y / scale + i * height),
                elided(text, "label", width, scene=True),
            )
            for i, text in enumerate(lines)
        ]
        self._text_scale = scale

    # --- Where it is taken hold of

    def grip_at(self, point: QPointF, zoom: float) -> Edges:
        """Return the edges that a press at a point of the scene drags."""
        reach = max(REACH, min(REACH / zoom, 16.0))
        body = self.body
        if not body.adjusted(-reach, -reach, reach, reach).contains(point):
            return ""
        inner = (
            reach if self.is_frame else reach / 2
        )  # a small comment must still be moved
        core = body.adjusted(inner, inner, -inner, -inner)
        across = (
            "l" if point.x() < core.left() else "r" if point.x() > core.right() else ""
        )
        return across + (
            "t" if point.y() < core.top() else "b" if point.y() > core.bottom() else ""
        )

    def holds(self, point: QPointF) -> bool:
        """Return whether a press at a point of the scene hits it: anywhere on a comment, the title of a frame."""
        if not self.is_frame:
            return self.body.contains(point)
        band = QRectF(self.x(), self.y(), self._note.width, TITLE_BAND)
        return band.contains(point) or (
            self.title.isVisible() and self.title.sceneBoundingRect().contains(point)
        )

    # --- Qt

    def boundingRect(self) -> QRectF:
        return QRectF(
            -GRIP, -GRIP, self._note.width + 2 * GRIP, self._note.height + 2 * GRIP
        )

    def draw(self, painter: QPainter) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area = QRectF(0.5, 0.5, self._note.width - 1, self._note.height - 1)
        if self.is_frame:
            self._paint_frame(painter, area, now)
        else:
            self._paint_comment(painter, area, now)
        if self._selected:
            self._paint_grips(painter, now)

    def _border(self, now: Theme) -> QPen:
        if self._selected:
            return QPen(now.accent, max(1.5, 1.5 / self._zoom))
        shade = _shade(self._note, now)
        plain = now.line if self.is_frame else now.line2
        color = theme.mix(plain, shade, 0.5) if shade is not None else plain
        pen = QPen(now.line3 if self._hovered else color, 1)
        pen.setCosmetic(self._zoom < 1)
        return pen

    def _paint_frame(self, painter: QPainter, area: QRectF, now: Theme) -> None:
        shade = _shade(self._note, now)
        painter.setPen(self._border(now))
        painter.setBrush(
            theme.mix(now.frame, shade, TINT) if shade is not None else now.frame
        )
        painter.drawRoundedRect(area, FRAME_RADIUS, FRAME_RADIUS)
        if self._edited or not self._lines:
            return
        scale = self.scale_of_text
        base = TITLE_BASE + (scale - 1) * 4
        painter.save()
        painter.scale(scale, scale)
        for i, (position, line) in enumerate(self._lines):
            ascent = QFontMetricsF(scene_font("caption" if i else "section")).ascent()
            line.draw(
                painter,
                position.x(),
                base / scale - ascent,
                now.text3 if i else now.text,
            )
        painter.restore()

    def _paint_comment(self, painter: QPainter, area: QRectF, now: Theme) -> None:
        shade = _shade(self._note, now)
        painter.setPen(self._border(now))
        painter.setBrush(
            theme.mix(now.panel, shade, TINT) if shade is not None else now.panel
        )
        painter.drawRoundedRect(area, COMMENT_RADIUS, COMMENT_RADIUS)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(shade if shade is not None else now.line3)
        painter.drawRoundedRect(
            QRectF(4, 5, BAR, self._note.height - 10), BAR / 2, BAR / 2
        )
        if self._edited:
            return
        painter.save()
        painter.scale(self._text_scale, self._text_scale)
        for position, line in self._lines:
            line.draw(painter, position.x(), position.y(), now.text2)
        painter.restore()

    def _paint_grips(self, painter: QPainter, now: Theme) -> None:
        size = GRIP / max(self._zoom, 0.5)
        painter.setPen(QPen(now.accent, size / 5))
        painter.setBrush(now.canvas)
        for x in (0.0, self._note.width):
            for y in (0.0, self._note.height):
                painter.drawRect(QRectF(x - size / 2, y - size / 2, size, size))


class FarTitle(Drawn, QGraphicsItem):
    """A frame's title from afar: a tab upon its upper edge, before nodes and wires, with letters that can be read."""

    def __init__(self) -> None:
        super().__init__()
        self._line = TextLine("", "section", scene=True)
        self._scale = 1.0
        self._color = ""
        self.setZValue(TITLES)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setVisible(False)

    def show_title(self, note: Comment, scale: float) -> None:
        """Show the title, at most as wide as its frame."""
        self.prepareGeometryChange()
        self._scale, self._color = scale, note.color
        self._line = elided(
            note.text, "section", max(note.width / scale - 12, 24.0), scene=True
        )
        self.setPos(note.x, note.y + 4)
        self.update()

    def boundingRect(self) -> QRectF:
        width, height = (
            (self._line.width + 12) * self._scale,
            (self._line.height + 4) * self._scale,
        )
        return QRectF(0, -height, width, height)

    def draw(self, painter: QPainter) -> None:
        now = theme.current()
        area = self.boundingRect()
        shade = now.categories.get(self._color)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(
            theme.faded(
                theme.mix(now.raised, shade, 0.2) if shade is not None else now.raised,
                0.92,
            )
        )
        painter.drawRoundedRect(area, 3 * self._scale, 3 * self._scale)
        painter.save()
        painter.translate(area.topLeft())
        painter.scale(self._scale, self._scale)
        self._line.draw(painter, 6, 2, now.text)
        painter.restore()


def _shade(note: Comment, now: Theme) -> QColor | None:
    return now.categories.get(note.color)


def wrapped(text: str, width: float) -> list[str]:
    """Wrap the text to lines of at most `width` pixels in the font of comments; too long words are broken."""
    face = scene_font("label")
    lines: list[str] = []
    for paragraph in text.split("\n"):
        layout = QTextLayout(paragraph, face)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        layout.setTextOption(option)
        layout.beginLayout()
        while True:
            line = layout.createLine()
            if not line.isValid():
                break
            line.setLineWidth(max(width, 8.0))
            lines.append(
                paragraph[
                    line.textStart() : line.textStart() + line.textLength()
                ].rstrip()
            )
        layout.endLayout()
        if not paragraph:
            lines.append("")
    return lines


def height_for(text: str, width: float) -> float:
    """Return the height of a comment of a width for its text."""
    return (
        len(wrapped(text, width - 2 * PAD_X))
        * QFontMetricsF(scene_font("label")).lineSpacing()
        + 2 * PAD_Y
    )


class Notes:
    """Keeps the items in line with a sheet's comments. Which are selected is the canvas's own affair, as with wires."""

    def __init__(self, scene: QGraphicsScene) -> None:
        self._scene = scene
        self.items: dict[str, NoteItem] = {}
        self.comments: Comments = FrozenMap()
        self.selected: frozenset[str] = frozenset()
        self._hovered: str | None = None
        self._zoom = 1.0

    def show(self, comments: Comments) -> bool:
        """Update the items; return whether anything changed."""
        if comments is self.comments:
            return False
        self.comments = comments
        for key in [key for key in self.items if key not in comments]:
            item = self.items.pop(key)
            self._scene.removeItem(item)
            self._scene.removeItem(item.title)
        for key, note in comments.items():
            if key in self.items:
                self.items[key].set_note(note)
            else:
                self.items[key] = item = NoteItem(key, note)
                item.set_zoom(self._zoom)
                item.set_state(selected=key in self.selected)
                self._scene.addItem(item)
                self._scene.addItem(item.title)
        self.selected &= self.items.keys()
        return True

    def drag(self, notes: Mapping[str, Comment]) -> None:
        """Show notes otherwise while they are dragged; the project does not know of it yet."""
        for key, note in notes.items():
            self.items[key].set_note(note)

    def settle(self) -> None:
        """Show every note as the project has it."""
        for key, item in self.items.items():
            item.set_note(self.comments[key])

    def count(self, subtitles: Mapping[str, str]) -> None:
        """Put words behind the titles of frames."""
        for key, item in self.items.items():
            item.set_subtitle(subtitles.get(key, ""))

    def set_zoom(self, zoom: float) -> None:
        self._zoom = zoom
        for item in self.items.values():
            item.set_zoom(zoom)

    def select(self, notes: Iterable[str]) -> None:
        """Show a selection."""
        selection = frozenset(notes) & self.items.keys()
        for key in selection ^ self.selected:
            self.items[key].set_state(selected=key in selection)
        self.selected = selection

    def set_hovered(self, note: str | None) -> None:
        """Set the hovered note."""
        if note != self._hovered:
            for key in (self._hovered, note):
                if key in self.items:
                    self.items[key].set_state(hovered=key == note)
            self._hovered = note

    def retheme(self) -> None:
        for item in self.items.values():
            item.retheme()

    # --- Questions

    def note_at(self, point: QPointF, zoom: float) -> tuple[str, Edges] | None:
        """Return the note at a point, and its edges that a press there drags, if any."""
        for item in sorted(self.items.values(), key=lambda item: -item.zValue()):
            grip = item.grip_at(point, zoom)
            if grip or item.holds(point):
                return item.key, grip
        return None

    def bodies(self, notes: Iterable[str] | None = None) -> list[QRectF]:
        """Return the rectangles of some notes, or of all."""
        return [
            item.body
            for key, item in self.items.items()
            if notes is None or key in notes
        ]


def subtotals(
    notes: Mapping[str, NoteItem],
    node_index: RectIndex[str],
    graph: Graph,
    analysis: Analysis | None,
) -> dict[str, str]:
    """Format the number of parameters in each frame; a module that is called twice counts once."""
    texts = {}
    for key, item in notes.items():
        if analysis is not None and item.is_frame:
            body = item.body
            inside = (
                node
                for node in node_index.inside(body)
                if body.contains(node_index[node].center())
            )
            owners = {graph.owner(node).id for node in inside if node in graph.nodes}
            count = sum(analysis.parameters.get(node, 0) for node in owners)
            texts[key] = f"{counted(count, 'param')}" if count else ""
    return texts
