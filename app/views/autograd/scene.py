"""The picture of a tape as a scene: built anew when groups open or close, repainted only where a state changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from PySide6.QtCore import QObject, QPointF, QRectF, Signal
from PySide6.QtWidgets import QGraphicsScene

from app.drawing import Drawing
from app.layout import arrange
from app.views.autograd.faces import label_of, measure
from app.views.autograd.items import ArrowItem, BoxItem, FarArrows, GroupItem, LabelItem, _Part
from app.views.theme import manager

MARGIN = 40.0


class TapeScene(QGraphicsScene):
    """Boxes and groups by key. `chosen` tells the key of the box or group that was selected, "" for none."""

    chosen = Signal(str)
    hovered = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.boxes: dict[str, BoxItem] = {}
        self.groups: dict[str, GroupItem] = {}
        self.arrows: list[ArrowItem] = []
        self.drawing: Drawing | None = None
        self._labels: list[LabelItem] = []
        self._touching: dict[str, list[ArrowItem]] = {}
        self._far = False
        self._far_arrows: FarArrows | None = None
        self._linked: frozenset[str] = frozenset()
        self._current = ""
        self._hover: str | None = None
        # Everything is inside the scene's rectangle from the start, and few items move.
        self.setItemIndexMethod(QGraphicsScene.ItemIndexMethod.BspTreeIndex)
        manager().changed.connect(self.update)

    def show_drawing(self, drawing: Drawing, page: tuple[float, float], row: float | None = None) -> float:
        """Lay a drawing out in the form of `page`, in place of the old one; what is selected stays if it can.

        `row` asks for rows of a given width instead; returns the width that a row has now.
        """
        current = self._current
        self.clear()
        self.boxes, self.groups, self.arrows, self._labels, self._touching = {}, {}, [], [], {}
        self.drawing, self._hover, self._current = drawing, None, ""
        box_faces, group_faces, _, sizes = measure(drawing)
        layout = arrange(drawing, sizes, row, page=page)
        for key, face in group_faces.items():
            if key in layout.groups:
                self.groups[key] = GroupItem(face, layout.groups[key])
                self.addItem(self.groups[key])
        for key, face in box_faces.items():
            self.boxes[key] = BoxItem(face, layout.boxes[key])
            self.addItem(self.boxes[key])
        for arrow, route, at in zip(drawing.arrows, layout.routes, layout.labels, strict=True):
            item = ArrowItem(arrow, route)
            item.setVisible(not self._far)
            self.arrows.append(item)
            for end in (arrow.source, arrow.target):
                self._touching.setdefault(end, []).append(item)
            self.addItem(item)
            if at is not None and arrow.label:
                self._labels.append(LabelItem(label_of(arrow), at))
                self._labels[-1].setVisible(not self._far)
                self.addItem(self._labels[-1])
        self._far_arrows = FarArrows(layout.routes, QRectF(-1, -1, layout.width + 2, layout.height + 2))
        self._far_arrows.setVisible(self._far)
        self.addItem(self._far_arrows)
        self.setSceneRect(QRectF(0, 0, layout.width, layout.height).adjusted(-MARGIN, -MARGIN, MARGIN, MARGIN))
        self.set_linked(self._linked)
        if self.part(current) is not None:
            self.choose(current)
        return max(layout.width, page[0])

    def part(self, key: str) -> BoxItem | GroupItem | None:
        """The box or the open group of this key; a closed group is found by its group's key too."""
        return self.boxes.get(key) or self.groups.get(key) or self.boxes.get(f"fold:{key}")

    def current_key(self) -> str:
        return self._current

    def choose(self, key: str) -> None:
        """Select a box or a group, "" for nothing."""
        if key == self._current:
            return
        self._mark(self._current, False)
        self._current = key
        self._mark(key, True)
        self.chosen.emit(key)

    def _mark(self, key: str, on: bool) -> None:
        part = self.part(key) if key else None
        if part is not None:
            part.set_state(replace(part.state(), selected=on))
            for arrow in self._touching.get(part.key, ()):
                arrow.set_marked(on)

    def set_linked(self, links: frozenset[str]) -> None:
        """Outline the groups that stand for these nodes of the canvas."""
        self._linked = links
        inside = {item.face.box.group for item in self.boxes.values()}
        for item in self.groups.values():
            item.set_state(replace(item.state(), linked=item.link in links))
        for item in self.boxes.values():
            alone = item.foldable or item.face.box.group is None or item.face.box.group not in inside
            item.set_state(replace(item.state(), linked=alone and item.link in links))

    def set_far(self, far: bool) -> None:
        """From afar labels cannot be read and are not there, and all arrows are painted at once."""
        if far == self._far:
            return
        self._far = far
        for item in (*self._labels, *self.arrows):
            item.setVisible(not far)
        if self._far_arrows is not None:
            self._far_arrows.setVisible(far)

    def linked_parts(self) -> list[_Part]:
        """The groups and boxes that are outlined."""
        return [p for p in (*self.groups.values(), *self.boxes.values()) if p.state().linked]

    def hover(self, key: str | None) -> None:
        """The pointer is over this box or group's header."""
        if key == self._hover:
            return
        for old, on in ((self._hover, False), (key, True)):
            part = self.part(old) if old else None
            if part is not None:
                part.set_state(replace(part.state(), hovered=on))
        self._hover = key
        part = self.part(key) if key else None
        self.hovered.emit(part.link if part is not None else None)

    def part_at(self, at: QPointF) -> BoxItem | GroupItem | None:
        """The box at a point of the scene, or the group in whose header it lies."""
        for item in self.items(at):
            if isinstance(item, BoxItem):
                return item
            if isinstance(item, GroupItem):
                return item if item.in_header(at) else None
        return None

    def neighbour(self, key: str, direction: str) -> str:
        """The box to go to with an arrow key: along the gradients left and right, to the next one above or below.

        Where no arrow leads on, the nearest box in that direction is next; "" at the end.
        """
        here = self.boxes.get(key)
        if here is None:
            return next(iter(self.boxes), "")
        if direction in ("left", "right"):
            ends = [
                arrow.arrow.target if direction == "left" else arrow.arrow.source
                for arrow in self._touching.get(key, ())
                if (arrow.arrow.source if direction == "left" else arrow.arrow.target) == key
            ]
            main = [end for end in ends if self.boxes[end].face.box.shape != "leaf"] or ends
            if main:
                return min(main, key=lambda end: abs(self.boxes[end].rect.center[1] - here.rect.center[1]))
        return self._nearest(here, direction)

    def _nearest(self, here: BoxItem, direction: str) -> str:
        x, y = here.rect.center
        best, best_far = "", float("inf")
        for key, item in self.boxes.items():
            dx, dy = item.rect.center[0] - x, item.rect.center[1] - y
            along, across = {"left": (-dx, dy), "right": (dx, dy), "up": (-dy, dx), "down": (dy, dx)}[direction]
            if along > 4 and (far := along + 3 * abs(across)) < best_far:
                best, best_far = key, far
        return best

    def area_of(self, parts: Iterable[_Part]) -> QRectF:
        """The rectangle around some boxes and groups."""
        area = QRectF()
        for part in parts:
            area = area.united(part.sceneBoundingRect())
        return area
