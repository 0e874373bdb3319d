"""The selection of nodes shared by all views; inside a block there is one of its nodes and one of the network's."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject, Signal

from app.views.navigation import NETWORK, Navigation

RESTORED = "restored"  # the origin of a selection that comes back with a project: no page turns for it


class Selection(QObject):
    """Which nodes are selected, and which one the pointer is over.

    `changed(ids, origin)` names the view that made the change, so that it need not answer itself.
    """

    changed = Signal(object, object)
    hovered = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._ids: frozenset[str] = frozenset()
        self._hover: str | None = None

    @property
    def ids(self) -> frozenset[str]:
        return self._ids

    @property
    def single(self) -> str | None:
        """The selected node if there is exactly one."""
        return next(iter(self._ids)) if len(self._ids) == 1 else None

    def set(self, ids: Iterable[str], origin: object = None) -> None:
        new = frozenset(ids)
        if new != self._ids:
            self._ids = new
            self.changed.emit(new, origin)

    def hover(self, node: str | None) -> None:
        if node != self._hover:
            self._hover = node
            self.hovered.emit(node)


class NetworkSelection(Selection):
    """The selection for views of the whole network: autograd graph, curves, costs, problems.

    With the network in view it equals the selection `front`. Inside a block it is the open instance, and selecting here
    navigates back to the network.
    """

    def __init__(
        self, front: Selection, place: Navigation, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._front, self._place = front, place
        front.changed.connect(self._follow)
        front.hovered.connect(self._follow_hover)
        place.changed.connect(lambda _before, _after: self._follow(front.ids, self))
        self._follow(front.ids, self)

    def set(self, ids: Iterable[str], origin: object = None) -> None:
        chosen = frozenset(ids)
        if chosen != self._ids:
            self._place.go_to(NETWORK)
        if not self._place.path:
            self._front.set(chosen, origin)

    def hover(self, node: str | None) -> None:
        if not self._place.path:
            self._front.hover(node)

    def _follow(self, ids: frozenset[str], origin: object) -> None:
        way = self._place.path
        super().set({way[0][0]} if way else ids, origin)

    def _follow_hover(self, node: str | None) -> None:
        super().hover(None if self._place.path else node)
