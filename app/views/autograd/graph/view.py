"""View of the scene: zoom at the pointer, pan, fit, keyboard navigation, expand and collapse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from msgspec import Struct
from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent

from app.diagram.diagram import Arrow, Box, Group
from app.views.autograd.graph.parts import BoxPart, GroupPart
from app.views.autograd.graph.scene import TapeScene
from app.views.ui.graphview.accessible import PRESS, GraphAccess, PartFacts, Role
from app.views.ui.graphview.minimap import Minimap
from app.views.ui.graphview.pan_zoom_view import PanZoomView
from app.views.ui.graphview.small_names import simple_below
from app.views.ui.graphview.spatial import DOWN, LEFT, RIGHT, UP
from app.views.ui.theme import manager

# --- What a screen reader finds in the graph of operations: groups, boxes and the arrows between them

FOLD, MARK_PATH = "Fold or unfold", "Mark the path from the selection"
KEYS = {FOLD: ["Return"]}


class ArrowKey(Struct, frozen=True):
    number: int


class TapeAccess(GraphAccess):
    """The parts of a drawing in its order: groups and boxes by their ids, and the arrows."""

    def __init__(
        self,
        view: PanZoomView,
        scene: TapeScene,
        fold: Callable[[str], object],
        mark_path: Callable[[str], object],
    ) -> None:
        super().__init__(view)
        self._tape, self._scene = view, scene
        self._fold, self._mark_path = fold, mark_path
        scene.redrawn.connect(self.changed)
        scene.chosen.connect(self.chosen_changed)

    @property
    def _arrows(self) -> tuple[Arrow, ...]:
        return self._scene.drawing.arrows if self._scene.drawing is not None else ()

    def top_keys(self) -> Iterable[Hashable]:
        drawing = self._scene.drawing
        if drawing is None:
            return ()
        groups = (
            group.id for group in drawing.groups if group.id in self._scene.groups
        )
        return [
            *groups,
            *(box.id for box in drawing.boxes),
            *map(ArrowKey, range(len(drawing.arrows))),
        ]

    def facts(self, key: Hashable) -> PartFacts | None:
        if isinstance(key, ArrowKey):
            return self._arrow(key.number)
        box_or_group = self._scene.part(key) if isinstance(key, str) else None
        if box_or_group is None:
            return None
        if key in self._scene.groups:
            return self._group(self._scene.groups[str(key)].group)
        return self._box(self._scene.boxes[box_or_group.key].box)

    def _box(self, box: Box) -> PartFacts:
        kinds = {"leaf": "leaf", "folded": "folded group"}
        chips = (f"{chip.kind} {chip.text}" for chip in box.chips)
        played = self._scene.played.boxes.get(box.id)
        details = [
            kinds.get(box.shape, ""),
            *box.lines,
            *chips,
            *box.tags[:1],
            "has run" if played is not None and played.finished else "",
            "edited" if played is not None and played.edited else "",
        ]
        folded = True if box.shape == "folded" else None
        actions = (
            (PRESS, FOLD, MARK_PATH)
            if folded or box.group is not None
            else (PRESS, MARK_PATH)
        )
        name = ", ".join(filter(None, (box.title, box.subtitle)))
        area = QRectF(*self._scene.layout_.boxes[box.id])
        return PartFacts(
            name, ", ".join(filter(None, details)), Role.ListItem, area, actions, folded
        )

    def _group(self, group: Group) -> PartFacts:
        details = [
            f"group of {len(self._scene.boxes_in(group.id))} operations",
            group.caption,
            *group.tags[:1],
        ]
        area = QRectF(*self._scene.layout_.groups[group.id])
        return PartFacts(
            group.title,
            ", ".join(filter(None, details)),
            Role.ListItem,
            area,
            (PRESS, FOLD),
            False,
        )

    def _arrow(self, number: int) -> PartFacts | None:
        drawing = self._scene.drawing
        if drawing is None or number >= len(drawing.arrows):
            return None
        arrow = drawing.arrows[number]
        ends = [
            self._scene.boxes[end].box.title for end in (arrow.source, arrow.target)
        ]
        kind = "Gradient" if arrow.kind == "gradient" else "Arrow"
        label, _ = self._scene.label_at(number)
        area = self._scene.path_of(number).path.boundingRect().adjusted(-2, -2, 2, 2)
        return PartFacts(
            f"{kind} from {ends[0]} to {ends[1]}", label, Role.ListItem, area
        )

    def key_at(self, point: QPoint) -> Hashable | None:
        box_or_group = self._scene.part_at(self.view.mapToScene(point))
        return box_or_group.key if box_or_group is not None else None

    def chosen_keys(self) -> Sequence[Hashable]:
        key = self._scene.current_key()
        box_or_group = self._scene.part(key) if key else None
        return [box_or_group.key] if box_or_group is not None else []

    def choose(self, keys: Collection[Hashable]) -> None:
        chosen = [key for key in keys if isinstance(key, str)]
        self._scene.choose(chosen[-1] if chosen else "")
        if chosen and (area := self._scene.rect_of(chosen[-1])) is not None:
            self._tape.ensure_seen(QRectF(*area))

    def act(self, key: Hashable, action: str) -> None:
        if isinstance(
            key, ArrowKey
        ):  # there is nothing to select of an arrow but where it leads
            self.choose([self._arrows[key.number].target])
        elif action == FOLD:
            self._fold(str(key))
        elif action == MARK_PATH:
            self._mark_path(str(key))
        else:
            self.choose([key])

    def shortcut(self, action: str) -> list[str]:
        return KEYS.get(action, [])


HIDDEN = 0.2
SEPARATE = (
    0.25  # zoom from which the small name of a group does not lie over those in it
)
_KEYS = {
    Qt.Key.Key_Left: LEFT,
    Qt.Key.Key_Right: RIGHT,
    Qt.Key.Key_Up: UP,
    Qt.Key.Key_Down: DOWN,
}


class TapeView(PanZoomView):
    """The view of the graph. `folded(key)` toggles a group, `leveled(±1)` folds or unfolds a level everywhere;
    `led(key)` highlights the path from the selection to this part, `escaped` ends that."""

    folded = Signal(str)
    leveled = Signal(int)
    led = Signal(str)
    escaped = Signal()

    LEAST, MOST = 0.04, 3.0
    PADS = (24, 16, 24, 16)

    def __init__(self, name: str, description: str) -> None:
        self.graph = TapeScene()
        super().__init__(self.graph)
        self.graph.setParent(self)
        self.minimap = Minimap(self, self.graph, self, only_hidden_parts=True)
        self.make_access = self._make_access
        self.whole = True
        self._pan_from: QPoint | None = None
        self._pressed_at: QPoint | None = None
        self.setAccessibleName(name)
        self.setAccessibleDescription(f"{description}, Home shows everything")
        self.setCursor(Qt.CursorShape.ArrowCursor)
        manager().changed.connect(self.viewport().update)
        self.graph.redrawn.connect(self._redrawn)

    def _redrawn(self) -> None:
        # Qt repaints the area of the new drawing, and leaves what a larger one before it showed around that.
        self.viewport().update()
        self.zoom_changed(self.zoom)  # names are written of few boxes longer
        self.minimap.rebuild()

    def readable_zoom(self) -> float:
        return max(simple_below(len(self.graph.boxes)), SEPARATE)

    def _make_access(self) -> GraphAccess:
        return TapeAccess(self, self.graph, self.fold_at, self.led.emit)

    # -- viewport ------------------------------------------------------------------------------------------------------

    def whole_area(self) -> QRectF:
        return self.graph.sceneRect()

    def zoom_changed(self, zoom: float) -> None:
        self.graph.set_far(zoom < self.readable_zoom())

    def frame_all(self) -> None:
        """Fit everything, at most at full size; if names would be unreadable, the loss and what fits next to it."""
        self.frame(self.whole_area())
        self.whole = True

    def frame_selection(self) -> None:
        """Fit the selected or linked parts; everything if there are none."""
        key = self.graph.current_key()
        box_or_group = self.graph.part(key) if key else None
        parts = (
            [box_or_group] if box_or_group is not None else self.graph.linked_parts()
        )
        if not parts:
            self.frame_all()
            return
        self.frame(self.graph.area_of(parts).adjusted(-60, -60, 60, 60), 1.25)

    def show_near(self, area: QRectF) -> None:
        """Show an area at a readable scale."""
        if self.zoom < self.readable_zoom():
            self.zoom_to(1.0)
            self.show_point(area.center())
        else:
            self.ensure_seen(area)

    def fill_view(self) -> None:
        """Scroll as little as needed to show the drawing in each direction in which it fits at this scale, and no empty
        side in the other one, if much of it is hidden.

        A little may stay hidden, so that what is under the pointer stays there.
        """
        area, visible = self.whole_area(), self.visible_area()
        room = min(visible.width(), area.width()) * min(visible.height(), area.height())
        both = visible.intersected(area)
        if 1 - both.width() * both.height() / max(room, 1.0) <= HIDDEN:
            return
        right = _way_to_fill(area.left(), area.right(), visible.left(), visible.right())
        down = _way_to_fill(area.top(), area.bottom(), visible.top(), visible.bottom())
        self.pan(-right * self.zoom, -down * self.zoom)

    def tip_at(self, position: QPoint) -> str:
        return self.graph.tip_at(self.mapToScene(position))

    # -- events --------------------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        at = event.position().toPoint()
        middle = event.button() == Qt.MouseButton.MiddleButton
        if middle or (
            event.button() == Qt.MouseButton.LeftButton
            and (self.space_held or self._part_at(at) is None)
        ):
            self._pan_from = at
            self.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed_at = at
        event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        if self._pan_from is not None:
            by, self._pan_from = at - self._pan_from, at
            self.pan(by.x(), by.y())
            return
        box_or_group = self._part_at(at)
        self.graph.hover(box_or_group.key if box_or_group is not None else None)
        self.viewport().setCursor(
            Qt.CursorShape.PointingHandCursor
            if box_or_group is not None
            else Qt.CursorShape.ArrowCursor
        )

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        pressed, self._pressed_at, self._pan_from = self._pressed_at, None, None
        self.viewport().unsetCursor()
        if (
            event.button() != Qt.MouseButton.LeftButton
            or pressed is None
            or self.space_held
        ):
            return
        if (at - pressed).manhattanLength() <= 4:
            self._click(at, bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        box_or_group = self._part_at(at)
        if (
            event.button() == Qt.MouseButton.LeftButton
            and box_or_group is not None
            and not self._on_chevron(box_or_group, at)
        ):
            self.fold_at(box_or_group.key)
        event.accept()

    def _click(self, at: QPoint, leads: bool) -> None:
        box_or_group = self._part_at(at)
        if box_or_group is None:
            self.graph.choose("")
        elif leads:
            self.led.emit(box_or_group.key)
        elif self._on_chevron(box_or_group, at):
            self.fold_at(box_or_group.key)
        else:
            self.graph.choose(box_or_group.key)

    def _on_chevron(self, box_or_group: BoxPart | GroupPart, at: QPoint) -> bool:
        point = self.mapToScene(at)
        if isinstance(box_or_group, GroupPart):
            return box_or_group.on_chevron(point)
        return (
            box_or_group.foldable
            and point.x() - box_or_group.place.x <= 20
            and point.y() - box_or_group.place.y <= 22
        )

    def _part_at(self, at: QPoint) -> BoxPart | GroupPart | None:
        return self.graph.part_at(self.mapToScene(at))

    def fold_at(self, key: str) -> None:
        """Toggle the group of this key, or the one that contains the box."""
        if key in self.graph.groups:
            self.folded.emit(key)
            return
        item = self.graph.boxes.get(key)
        if item is not None and item.foldable:
            self.folded.emit(key.removeprefix("fold:"))
        elif item is not None and item.box.group is not None:
            self.folded.emit(item.box.group)

    def leaveEvent(self, event: QEvent) -> None:
        self.graph.hover(None)
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        here = self.graph.current_key()
        if key in _KEYS:
            there = self.graph.neighbour(here, _KEYS[key])
            if there:
                self.graph.choose(there)
                self.ensure_seen(self.graph.area_of_boxes([there]))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and here:
            self.fold_at(here)
        elif key == Qt.Key.Key_Home:
            self.frame_all()
        elif key in (Qt.Key.Key_F, Qt.Key.Key_Period):
            self.frame_selection()
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom_by(1.2)
        elif key == Qt.Key.Key_Minus:
            self.zoom_by(1 / 1.2)
        elif key in (Qt.Key.Key_BracketRight, Qt.Key.Key_BracketLeft):
            self.leveled.emit(1 if key == Qt.Key.Key_BracketRight else -1)
        elif key == Qt.Key.Key_Escape:
            if self.graph.highlighted:
                self.escaped.emit()
            else:
                self.graph.choose("")
        else:
            super().keyPressEvent(event)


def _way_to_fill(low: float, high: float, seen_low: float, seen_high: float) -> float:
    """Return how far a view has to move, at the least, so that it shows as much as it can.

    >>> _way_to_fill(0, 10, 4, 24), _way_to_fill(0, 50, -8, 12), _way_to_fill(0, 50, 3, 23)
    (-4, 8, 0)
    """
    least, most = sorted((low - seen_low, high - seen_high))
    return min(max(0, least), most)
