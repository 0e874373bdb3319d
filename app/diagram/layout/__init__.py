"""Layout of drawings: `arrange` turns a `Drawing` and the sizes of its boxes into a `Layout`."""

from app.diagram.layout.arrange import HEADER, PAD, Layout, Sizes, arrange, estimated_sizes
from app.diagram.layout.tree_layout import Rect

__all__ = ["HEADER", "PAD", "Layout", "Rect", "Sizes", "arrange", "estimated_sizes"]
