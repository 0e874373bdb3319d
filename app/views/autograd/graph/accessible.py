"""What a screen reader finds in the graph of operations: groups, boxes and the arrows between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QPoint, QRectF

from app.diagram.diagram import Arrow, Box, Group
from app.views.ui.graphview.accessible import PRESS, GraphAccess, PartFacts, Role

if TYPE_CHECKING:
    from app.views.autograd.graph.scene import TapeScene
    from app.views.ui.graphview.pan_zoom_view import PanZoomView

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
