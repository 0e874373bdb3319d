"""What a node or a wire stands on: it is told what has to be painted anew."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QRectF


class Ground(Protocol):
    """Collects what is no longer as it was painted."""

    def touch(self, item: object, area: QRectF) -> None:
        """An item looks different now within an area of the scene."""
        ...
