"""Render a drawing as inline SVG: its colours are the page's CSS, and every part has an id.

Boxes and groups carry `data-key` (their place among boxes, then groups), arrows `data-arrow`, chips `data-chip`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from msgspec.structs import replace as with_values

from app.diagram.diagram import Arrow, Box, Chip, Drawing, Group
from app.diagram.layout import Layout, Sizes, arrange, estimated_sizes
from app.diagram.layout_model import Rect

CATEGORIES = (
    "io",
    "conv",
    "linear",
    "act",
    "norm",
    "shape",
    "drop",
    "merge",
    "seq",
    "block",
    "loss",
)
NUMBER = 46.0  # px for a norm next to an arrow
UNNAMED = "\N{NO-BREAK SPACE}"  # label of an arrow that only reserves room for a norm
CHIP, LINE, MARGIN = 15.0, 17.0, 22.0

Point = tuple[float, float]


def laid_out(drawing: Drawing) -> Layout:
    """Lay the drawing out, with room for a norm at each arrow."""
    roomy = replace(
        drawing,
        arrows=tuple(
            with_values(arrow, label=arrow.label or UNNAMED) for arrow in drawing.arrows
        ),
    )
    sizes = estimated_sizes(roomy)
    boxes = {box.id: _with_chips(box, sizes.boxes[box.id]) for box in drawing.boxes}
    labels = {label: max(width, NUMBER) for label, width in sizes.labels.items()}
    return arrange(roomy, Sizes(boxes, sizes.headers, labels))


def to_svg(drawing: Drawing, layout: Layout | None = None, off: bool = False) -> str:
    """Render as one `svg` element; `off`: hidden at first. Computes the layout if none is given."""
    return "\n".join(_lines(drawing, layout or laid_out(drawing), off))


def text(content: str) -> str:
    """Escape text for the page, attributes included.

    >>> text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    shown = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in content
    )
    return html.escape(shown, quote=True)


def _lines(drawing: Drawing, layout: Layout, off: bool) -> Iterator[str]:
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    box = f"{-MARGIN:g} {-MARGIN:g} {width:.0f} {height:.0f}"
    yield (
        f'<svg class="{"off" if off else "on"}" role="img" aria-label="{text(drawing.title)}" viewBox="{box}" '
        f'width="{width:.0f}" height="{height:.0f}" xmlns="http://www.w3.org/2000/svg">'
    )
    first = len(drawing.boxes)
    for index, group in enumerate(drawing.groups):
        yield from _group(first + index, group, layout.groups[group.id])
    for number, arrow in enumerate(drawing.arrows):
        yield from _arrow(number, arrow, layout.routes[number], layout.labels[number])
    for index, drawn_box in enumerate(drawing.boxes):
        yield from _box(index, drawn_box, layout.boxes[drawn_box.id])
    yield "</svg>"


def _group(key: int, group: Group, rect: Rect) -> Iterator[str]:
    yield f'<g class="group {_category(group.category)}" data-key="{key}">'
    yield f"<title>{text(group.title)}</title>{_rect(rect, 8, 'frame')}{_rect(rect, 8, 'next-frame')}"
    yield (
        f'<svg x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" height="22">'
        f'<text class="head" x="10" y="15">{text(group.title)}</text>'
        f'<text class="small" x="{rect.width - 24:.1f}" y="15" text-anchor="end">{text(group.caption)}</text></svg>'
        f"{_tick(rect)}</g>"
    )


def _box(key: int, box: Box, rect: Rect) -> Iterator[str]:
    radius = 9 if box.shape == "leaf" else 5
    tooltip = "\n".join(filter(None, (box.title, box.subtitle, *box.lines)))
    yield (
        f'<g class="box {box.shape if box.shape in ("op", "leaf", "folded", "call") else "op"} '
        f'{_category(box.category)}" data-key="{key}" tabindex="-1">'
    )
    yield f"<title>{text(tooltip)}</title>{_rect(rect, radius, 'base')}{_rect(rect, radius, 'body')}"
    # Clips text that is too long for its box.
    yield f'<svg x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" height="{rect.height:.1f}">'
    y = 16.0
    yield f'<text class="name" x="9" y="{y:g}">{text(box.title)}</text>'
    for line in filter(None, (box.subtitle, *box.lines)):
        y += LINE
        yield f'<text class="small" x="9" y="{y:g}">{text(line)}</text>'
    if box.chips:
        yield from _chips(box.chips, y + 6)
    if box.shape == "folded":
        yield f'<rect class="rail" x="8" y="{rect.height - 6:.1f}" width="{rect.width - 16:.1f}" height="3"/>'
        yield (
            f'<rect class="bar" x="8" y="{rect.height - 6:.1f}" width="0" height="3" '
            f'data-full="{rect.width - 16:.1f}"/>'
        )
    yield f"</svg>{_rect(rect, radius, 'next-frame')}{_tick(rect)}</g>"


def _with_chips(box: Box, size: tuple[float, float]) -> tuple[float, float]:
    """Return the size of a box with room for its name, badge, chips and progress bar."""
    width = max(
        size[0],
        len(box.title) * 7.4 + 26,
        sum(_chip_width(chip) + 4 for chip in box.chips) + 14,
    )
    return width, size[1] + (3 if box.chips else 4 if box.shape == "folded" else 0)


def _chip_width(chip: Chip) -> float:
    return len(chip.text) * 6.0 + 10


def _chips(chips: Sequence[Chip], y: float) -> Iterator[str]:
    x = 8.0
    for index, chip in enumerate(chips):
        width = _chip_width(chip)
        kind = "held" if chip.kind == "held" else "plain"
        yield (
            f'<g class="chip {kind}" data-chip="{index}"><rect x="{x:g}" y="{y:g}" width="{width:g}" '
            f'height="{CHIP:g}" rx="3"/><text x="{x + 5:g}" y="{y + 11:g}">{text(chip.text)}</text>'
            f'<path d="M{x + 3:g} {y + 7.5:g}h{width - 6:g}"/></g>'
        )
        x += width + 4


def _rect(rect: Rect, radius: int, name: str) -> str:
    return (
        f'<rect class="{name}" x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" '
        f'height="{rect.height:.1f}" rx="{radius}"/>'
    )


def _tick(rect: Rect) -> str:
    """Draw a badge on the upper right corner, shown once all has run."""
    x, y = rect.x + rect.width - 4, rect.y + 3
    return (
        f'<g class="tick"><circle cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
        f'<path d="M{x - 3:.1f} {y:.1f}l2.2 2.4 3.8-4.6"/></g>'
    )


def _arrow(
    number: int, arrow: Arrow, route: Sequence[Point], label: Point | None
) -> Iterator[str]:
    middle, hangs = label or _middle(route), _hangs(route)
    (x, y), name = (
        middle,
        arrow.label if arrow.count == 1 else f"{arrow.label} ×{arrow.count}".strip(),
    )
    yield f'<g class="arrow" data-arrow="{number}"><title></title><path class="way" d="{_path(route)}"/>'
    yield f'<path class="head" d="{_head(route)}"/>'
    if hangs:
        yield f'<text class="norm" x="{x + 6:.1f}" y="{y + 3:.1f}"></text></g>'
        return
    if name:
        yield f'<text class="shape" x="{x:.1f}" y="{y - 7:.1f}" text-anchor="middle">{text(name)}</text>'
    yield f'<text class="norm" x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle"></text></g>'


def _hangs(route: Sequence[Point]) -> bool:
    """Return whether an arrow of two points is steep, so that it leaves and arrives vertically."""
    return len(route) == 2 and abs(route[1][1] - route[0][1]) > abs(
        route[1][0] - route[0][0]
    )


def _path(route: Sequence[Point]) -> str:
    """Level and upright pieces as lines, slanting ones as curves that leave and arrive level."""
    parts = [f"M{route[0][0]:.1f} {route[0][1]:.1f}"]
    for (ax, ay), (bx, by) in zip(route, route[1:], strict=False):
        if abs(ax - bx) < 0.5 or abs(ay - by) < 0.5:
            parts.append(f"L{bx:.1f} {by:.1f}")
        elif _hangs(route):
            half = (ay + by) / 2
            parts.append(f"C{ax:.1f} {half:.1f} {bx:.1f} {half:.1f} {bx:.1f} {by:.1f}")
        else:
            half = (ax + bx) / 2
            parts.append(f"C{half:.1f} {ay:.1f} {half:.1f} {by:.1f} {bx:.1f} {by:.1f}")
    return "".join(parts)


def _head(route: Sequence[Point], size: float = 8.0) -> str:
    """Draw an arrowhead in the direction of the last segment."""
    (ax, ay), (bx, by) = route[-2], route[-1]
    dx, dy = (0.0, by - ay) if _hangs(route) or abs(ax - bx) < 0.5 else (bx - ax, 0.0)
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    left = (
        f"{bx - size * ux - size * 0.5 * uy:.1f} {by - size * uy + size * 0.5 * ux:.1f}"
    )
    right = (
        f"{bx - size * ux + size * 0.5 * uy:.1f} {by - size * uy - size * 0.5 * ux:.1f}"
    )
    return f"M{bx:.1f} {by:.1f}L{left}L{right}Z"


def _middle(route: Sequence[Point]) -> Point:
    """Return the midpoint of the longest segment."""
    pieces = list(zip(route, route[1:], strict=False))
    (ax, ay), (bx, by) = max(pieces, key=lambda piece: math.dist(*piece))
    return (ax + bx) / 2, (ay + by) / 2


def _category(name: str) -> str:
    return f"c-{name}" if name in CATEGORIES else "c-io"
