"""A sheet as SVG of its physical size: text is outlined, so it looks the same without the font.

Fonts in data URIs are ignored by Inkscape, librsvg, Word and TeX; outlines are not. Each text keeps its letters as the
label of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape

from PySide6.QtGui import QRawFont, QTextLayout

from app.views.pictures.printing.faces import paper_font
from app.views.pictures.printing.paper import Frame, Mark, Path, Segment, Sheet, Words
from app.views.pictures.printing.plate import segments

DRAWN = (
    32  # pixels of the glyphs in which outlines are kept; they are scaled to each text
)


def to_svg(sheet: Sheet, metadata: str = "") -> str:
    """Return the file; `metadata` is one element that is put into it."""
    outlines = Outlines()
    body = [line for mark in sheet.plate.marks for line in _mark(mark, outlines)]
    glyphs = [
        f'<path id="{key}" d="{_d(path, 4)}"/>' for key, path in outlines.paths.items()
    ]
    width, height = f"{sheet.width:.2f}", f"{sheet.height:.2f}"
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width}pt" '
        # ImageMagick strokes what says nothing of it, a pixel wide before it is scaled: texts become blobs.
        f'height="{height}pt" viewBox="0 0 {width} {height}" stroke="none" role="img">',
        f"<title>{_text(sheet.plate.title)}</title>",
        "<desc>Drawn by Tapedeck</desc>",
        *([f"<metadata>{metadata}</metadata>"] if metadata else []),
        "<defs>",
        *glyphs,
        "</defs>",
        f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>',
        f'<g transform="translate({sheet.x:.2f} {sheet.y:.2f}) scale({sheet.scale:.4f})">',
        *body,
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    shown = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )
    return escape(shown.encode("utf-8", "replace").decode(), quote=True)


def _mark(mark: Mark, outlines: Outlines) -> Iterator[str]:
    if isinstance(mark, Frame):
        round_ = f' rx="{mark.radius:g}"' if mark.radius else ""
        dash = ' stroke-dasharray="4 2.5"' if mark.dashed else ""
        line = (
            f' stroke="{mark.line}" stroke-width="{mark.thick:g}"{dash}'
            if mark.line
            else ""
        )
        yield (
            f'<rect x="{mark.x:.1f}" y="{mark.y:.1f}" width="{mark.width:.1f}" height="{mark.height:.1f}"{round_} '
            f'fill="{mark.fill or "none"}"{line}/>'
        )
    elif isinstance(mark, Path):
        line = (
            f' stroke="{mark.line}" stroke-width="{mark.thick:g}"' if mark.line else ""
        )
        yield f'<path d="{_d(mark.segments, 1)}{"Z" if mark.fill else ""}" fill="{mark.fill or "none"}"{line}/>'
    else:
        yield from _text_element(mark, outlines)


def _text_element(mark: Words, outlines: Outlines) -> Iterator[str]:
    yield (
        f'<g aria-label="{_text(mark.text)}" fill="{mark.color}" '
        f'transform="translate({mark.left:.1f} {mark.y:.1f}) scale({mark.size})">'
    )
    uses = (
        f'<use xlink:href="#{key}" x="{x / mark.size:.3f}"/>'
        for key, x in outlines.of(mark)
    )
    yield f"{''.join(uses)}</g>"


def _d(segments: tuple[Segment, ...], digits: int) -> str:
    return "".join(
        s.kind
        + " ".join(f"{round(x, digits):g} {round(y, digits):g}" for x, y in s.points)
        for s in segments
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
