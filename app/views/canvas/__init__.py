"""The canvas on which a network is drawn: `Canvas`."""

from app.views.canvas.canvas import Canvas

__all__ = ["Canvas"]
