"""A sheet as SVG of its physical size: text is outlined, so it looks the same without the font.

Fonts in data URIs are ignored by Inkscape, librsvg, Word and TeX; outlines are not. Each text keeps its letters as the
label of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from app.views.export.printing.glyphs import Outlines
from app.views.export.printing.marks import Frame, Mark, Path, Segment, Words
from app.views.export.printing.paper import Sheet


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
