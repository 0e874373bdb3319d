"""The interface by which a node or a wire requests repaints."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QRectF


class RepaintTarget(Protocol):
    """Collects changed areas."""

    def touch(self, item: object, area: QRectF) -> None:
        """Mark an item as changed within an area of the scene."""
        ...
