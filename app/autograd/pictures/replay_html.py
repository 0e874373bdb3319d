"""Write a recorded backward pass as one self-contained HTML file that replays it.

The page contains the picture, every step as JSON, and one script. Names in a net are untrusted: they are escaped in the
picture, and the page's content security policy allows only our script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from typing import Any

from app.autograd.grouping import Folded, deeper, fold
from app.autograd.pictures.diagram import draw, summary
from app.autograd.pictures.positions import TapePositions
from app.autograd.pictures.replay_svg import CATEGORIES, text, to_svg
from app.autograd.playback.memory_timeline import held_by_step, stretches
from app.autograd.playback.steps import FanIn, GradStats, PassResult, StepRecord
from app.autograd.tape import Tape
from app.diagram.diagram import Drawing
from app.diagram.layout import Layout
from app.util import resources
from app.util.formatting import shape_text

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
