"""Texts as outlines: the glyphs of a font as paths, so that a picture needs no font where it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from PySide6.QtGui import QRawFont, QTextLayout

from app.views.export.printing.faces import paper_font
from app.views.export.printing.marks import Segment, Words
from app.views.export.printing.plate import segments

DRAWN = (
    32  # pixels of the glyphs in which outlines are kept; they are scaled to each text
)


class Outlines:
    """The glyphs of all texts of a picture, each once. `paths` are by key, at a size of 1."""

    def __init__(self) -> None:
        self.paths: dict[str, tuple[Segment, ...]] = {}
        self._keys: dict[tuple[str, str, int], str] = {}

    def of(self, mark: Words) -> Iterator[tuple[str, float]]:
        """Yield the key of each visible glyph of a text, and how far right of its start it is, in pixels."""
        for font, indexes, positions in _shaped(mark.text, mark.size, mark.bold):
            for index, x in zip(indexes, positions, strict=True):
                face = (font.familyName(), font.styleName(), index)
                if face not in self._keys:
                    path = _outline(font, index)
                    key = self._keys[face] = f"g{len(self.paths)}" if path else ""
                    if path:
                        self.paths[key] = path
                if key := self._keys[face]:
                    yield key, x


@lru_cache(maxsize=4096)
def _shaped(
    text: str, size: int, bold: bool
) -> tuple[tuple[QRawFont, tuple[int, ...], tuple[float, ...]], ...]:
    """Return the runs of glyphs of a text, one a font, with their places."""
    layout = QTextLayout(text, paper_font(size, bold))
    layout.beginLayout()
    layout.createLine()
    layout.endLayout()
    return tuple(
        (
            run.rawFont(),
            tuple(run.glyphIndexes()),
            tuple(point.x() for point in run.positions()),
        )
        for run in layout.glyphRuns()
    )


def _outline(font: QRawFont, index: int) -> tuple[Segment, ...]:
    large = QRawFont(font)
    large.setPixelSize(DRAWN)
    outline = segments(large.pathForGlyph(index))
    return tuple(
        Segment(s.kind, tuple((x / DRAWN, y / DRAWN) for x, y in s.points))
        for s in outline
    )
