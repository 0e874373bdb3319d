"""Write a recorded backward pass as one self-contained HTML file that replays it.

The page contains the picture, every step as JSON, and one script. Names in a net are untrusted: they are escaped in the
picture, and the page's content security policy allows only our script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace
from msgspec.structs import replace as with_values

from app.autograd.grouping import Folded, deeper, fold
from app.autograd.pictures.diagram import draw, summary
from app.autograd.pictures.positions import TapePositions
from app.autograd.playback.memory_timeline import held_by_step, stretches
from app.autograd.playback.steps import FanIn, GradStats, PassResult, StepRecord
from app.autograd.tape import Tape
from app.diagram.diagram import Arrow, Box, Chip, Drawing, Group
from app.diagram.layout import Layout, Sizes, arrange, estimated_sizes
from app.diagram.layout_model import Rect
from app.util import resources
from app.util.formatting import shape_text

# --- Render a drawing as inline SVG: its colours are the page's CSS, and every part has an id

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


MOST_BOXES = 1_500  # of a view that is not the current one
View = tuple[Folded, Drawing]

_MARK = re.compile("@([A-Z_]+)@")
_ENDS = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def replay_html(
    tape: Tape,
    folded: Folded,
    drawing: Drawing,
    passed: PassResult,
    *,
    title: str = "",
    failed: str = "",
    layout: Layout | None = None,
) -> str:
    """Return the page. `drawing` is that of `folded`, by `diagram.draw`; `failed` tells why the pass ended early.

    It opens in the state of the drawing, and can be folded and unfolded level by level.
    """
    views, shown = _views(tape, folded, drawing)
    style, script = _styles(), _file("page.js")
    replacements = {
        "TITLE": text(title or "Backward pass"),
        "SUMMARY": text(summary(tape)),
        "FAILED": f'<p class="failed">{text(failed)}</p>' if failed else "",
        "GRAPH": "\n".join(
            to_svg(view_drawing, layout if index == shown else None, index != shown)
            for index, (_, view_drawing) in enumerate(views)
        ),
        "STYLE": style,
        "SCRIPT": script,
        "STYLE_HASH": _hash(style),
        "SCRIPT_HASH": _hash(script),
        "DATA": _json(replay_data(tape, views, shown, passed)),
    }
    return _MARK.sub(lambda mark: replacements[mark[1]], _file("page.html"))


def _views(tape: Tape, folded: Folded, drawing: Drawing) -> tuple[list[View], int]:
    """Return views of the graph, folded to unfolded level by level, and the index of the current one.

    A graph without groups has one view only, and one with very many boxes has the current view only.
    """
    groups = folded.groups
    if not groups or (folded.unfolded and not drawing.groups):
        return [(folded, drawing)], 0
    level: frozenset[str] = frozenset()
    levels = {level, folded.unfolded}
    while (below := deeper(groups, level)) != level:
        level = below
        levels.add(level)
    views = []
    for unfolded in sorted(levels, key=lambda keys: (len(keys), sorted(keys))):
        folding = (
            folded if unfolded == folded.unfolded else fold(tape, groups, unfolded)
        )
        if folding is folded or len(set(folding.place)) <= MOST_BOXES:
            views.append(
                (folding, drawing if folding is folded else draw(tape, folding))
            )
    return views, next(
        index for index, (candidate, _) in enumerate(views) if candidate is folded
    )


def replay_data(
    tape: Tape, views: list[View], shown: int, passed: PassResult
) -> dict[str, Any]:
    """Return the data of the page's script, JSON-ready.

    `views` are drawings of the same graph, `shown` the place of the one that is seen first. `held` are the bytes held
    where 0, 1, ... nodes have run. NaN and Inf are "nan", "inf" and "-inf".
    """
    return {
        "view": shown,
        "views": [_view(tape, folded, drawing, passed) for folded, drawing in views],
        "steps": [_step(tape, record) for record in passed.records],
        "held": held_by_step(tape)[: len(passed.records) + 1],
        "turns": [
            {
                "title": stretch.title,
                "category": f"c-{stretch.category if stretch.category in CATEGORIES else 'io'}",
                "first": stretch.first,
                "end": min(stretch.end, len(passed.records)),
            }
            for stretch in stretches(tape)
            if stretch.first < len(passed.records)
        ],
    }


def _view(
    tape: Tape, folded: Folded, drawing: Drawing, passed: PassResult
) -> dict[str, Any]:
    """Serialize a view: `parts` are the drawing's boxes and then its groups, `arrows` have step and norm of each of
    their edges, `steps` lists which of these each step changes."""
    drawn = TapePositions(tape, folded, drawing)
    names = [
        *(box.id for box in drawing.boxes),
        *(group.id for group in drawing.groups),
    ]
    keys = {name: index for index, name in enumerate(names)}
    norms = passed.edge_norms
    return {
        "parts": [
            {"count": drawn.counts[name], "chips": list(drawn.chips(name))}
            for name in names
        ],
        "arrows": [
            [
                {"step": tape.steps[source], "norm": number(norms.get((source, slot)))}
                for source, slot in edges
            ]
            for edges in (drawn.edges[index] for index in range(len(drawing.arrows)))
        ],
        "steps": [
            _changes(tape, drawn, keys, record.node) for record in passed.records
        ],
    }


def _changes(
    tape: Tape, drawn: TapePositions, keys: dict[str, int], node: int
) -> dict[str, list[int]]:
    arrows = (
        drawn.arrow(edge.source, edge.target) for edge in tape.outgoing.get(node, ())
    )
    return {
        "keys": [keys[key] for key in drawn.keys(node)],
        "frees": sorted(
            {keys[drawn.place[holder]] for holder in drawn.freed_at.get(node, ())}
        ),
        "arrows": sorted({arrow for arrow in arrows if arrow is not None}),
    }


def played_json(passed: PassResult, failed: str = "") -> dict[str, Any]:
    """Serialize a pass: order, norms by node and edge, bytes held and released by step."""
    return {
        "order": list(passed.order),
        "node_norms": {
            str(node): number(norm) for node, norm in passed.node_norms.items()
        },
        "edge_norms": [
            {"source": source, "slot": slot, "norm": number(norm)}
            for (source, slot), norm in passed.edge_norms.items()
        ],
        "released_bytes": [record.released for record in passed.records],
        "held_bytes": [record.held for record in passed.records],
        "failed": failed or None,
    }


def number(value: float | None) -> float | str | None:
    """Return a number as JSON can represent it.

    >>> number(0.5), number(None), number(float("nan")), number(-math.inf)
    (0.5, None, 'nan', '-inf')
    """
    return value if value is None or math.isfinite(value) else str(value)


def _step(tape: Tape, record: StepRecord) -> dict[str, Any]:
    node = tape.nodes[record.node]
    return {
        "node": node.id,
        "name": node.name,
        "layer": tape.title_of(node),
        "line": node.line,
        "code": tape.code_of(node),
        "parameters": list(node.parameters),
        "norm": number(record.norm),
        "arriving": [_stats(stats) for stats in record.arriving],
        "leaving": [
            {
                "to": _to(tape, edge.target),
                "slot": edge.slot,
                "stats": _stats(edge.stats),
            }
            for edge in record.leaving
        ],
        "sums": [_sum(tape, gradient_sum) for gradient_sum in record.fan_ins],
        "inside": [
            {"name": name, "stats": _stats(stats)} for name, stats in record.inside
        ],
        "saved": [
            {
                "name": saved.name,
                "shape": shape_text(saved.shape, "scalar"),
                "dtype": saved.dtype,
                "bytes": saved.bytes,
                "kind": saved.kind,
                "freed": tape.steps[tape.storages[saved.storage].freed_by]
                if saved.kind == "activation"
                else None,
            }
            for saved in node.saved
        ],
        "seconds": record.seconds,
        "released": record.released,
        "edited": list(record.edited),
        "hooked": list(record.hooked),
    }


def _stats(stats: GradStats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    return {
        "norm": number(stats.norm),
        "absmax": number(stats.absmax),
        "mean": number(stats.mean),
        "zeros": stats.zeros,
        "nonfinite": stats.nonfinite,
        "shape": shape_text(stats.shape, "scalar"),
        "dtype": stats.dtype,
    }


def _sum(tape: Tape, sum_: FanIn) -> dict[str, Any]:
    shares = []
    for index, share in enumerate(sum_.shares):
        others = [other for other in range(len(sum_.shares)) if other != index]
        largest = max(others, key=lambda other: sum_.shares[other].norm, default=None)
        cosine = None if largest is None else sum_.cosines[index][largest]
        origin = "given or edited" if share.source < 0 else _to(tape, share.source)
        shares.append(
            {
                "from": origin,
                "norm": number(share.norm),
                "share": share.projection,
                "cosine": cosine,
            }
        )
    return {
        "output": sum_.output_nr,
        "norm": number(sum_.norm),
        "edges": sum_.edges,
        "shares": shares,
    }


def _to(tape: Tape, number_: int) -> str:
    node = tape.nodes[number_]
    return (
        node.parameters[0]
        if node.parameters
        else f"{node.name} of {tape.title_of(node)}"
    )


def _json(data: dict[str, Any]) -> str:
    """Serialize to JSON that cannot close an HTML element."""
    serialized = json.dumps(
        data, ensure_ascii=True, allow_nan=False, separators=(",", ":")
    )
    return re.sub("[<>&\u2028\u2029]", lambda mark: _ENDS[mark[0]], serialized)


def _styles() -> str:
    """Return the page's style, with the colours of both themes."""
    light, dark = _colours("light"), _colours("dark")
    ways = "".join(f".c-{name}{{--cat:var(--c-{name})}}" for name in CATEGORIES)
    return (
        f":root{{color-scheme:light;{light}}}"
        f'@media screen and (prefers-color-scheme:dark){{:root:not([data-theme="light"]){{color-scheme:dark;{dark}}}}}'
        f'@media screen{{:root[data-theme="dark"]{{color-scheme:dark;{dark}}}}}'
        f"{ways}\n{_file('page.css')}"
    )


def _colours(theme: str) -> str:
    palette = json.loads(resources.path("themes", f"{theme}.json").read_text("utf-8"))
    colours = {
        **palette["colors"],
        **{f"c-{key}": value for key, value in palette["categories"].items()},
    }
    colours["held"] = palette["series"][0]
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def _file(name: str) -> str:
    return resources.path("replay", name).read_text("utf-8")


def _hash(content: str) -> str:
    return (
        "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    )
