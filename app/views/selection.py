"""One selection for all views: the ids of the drawing's nodes."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject, Signal


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
