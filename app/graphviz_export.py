"""A drawing as DOT or JSON, and as SVG, PDF or PNG by Graphviz's `dot`. Own pictures are `views.pictures.picture`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import graphviz
import msgspec

from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.util.errors import CodedError

TEXTS = ("dot", "json")
DOT_DRAWS = ("svg", "pdf", "png")
TIMEOUT = 120.0
PNG_DPI = 144

# Lines and soft fills of the categories for a white page.
_INK = {
    "io": ("#667080", "#ECEEF0"),
    "conv": ("#5157D6", "#EAEBFA"),
    "linear": ("#08806F", "#E1F0EE"),
    "act": ("#5C7D0B", "#EBEFE1"),
    "norm": ("#0F7FB3", "#E2F0F6"),
    "shape": ("#8A6A1F", "#F1EDE4"),
    "drop": ("#8B6464", "#F1ECEC"),
    "merge": ("#BC3F85", "#F7E8F0"),
    "seq": ("#8647C8", "#F0E9F8"),
    "block": ("#8A5F38", "#F1EBE7"),
    "loss": ("#C4473C", "#F8E9E7"),
    "error": ("#B42318", "#FDE3E0"),
}
_PLAIN = ("#464D57", "#F4F5F7")
_BACK, _WIRE = "#A84A05", "#7C8592"

_UNSPEAKABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


class ExportError(CodedError, RuntimeError):
    """A picture could not be exported; the message gives the reason and the cure."""


class NoGraphvizError(ExportError):
    """Graphviz's `dot` is not installed."""


class GraphvizError(ExportError):
    """`dot` ran and did not make the picture."""


def has_dot() -> bool:
    """Return whether Graphviz's `dot` is on the path."""
    return shutil.which(graphviz.DOT_BINARY) is not None


def quote(text: str) -> str:
    """Quote text as a DOT string that Graphviz shows verbatim.

    >>> print(quote("conv1"), quote("node"), quote('say "hi"'))
    "conv1" "node" "say \\"hi\\""
    >>> print(quote("C:\\\\new"), quote("two\\nlines"), quote("<b>"))
    "C:\\\\new" "two\\nlines" "<b>"

    `&lt;` and `\\N`, which Graphviz would expand to a character and the node's name, are escaped.

    >>> print(quote("&lt;"), quote("\\\\N"))
    "&amp;lt;" "\\\\N"

    What no picture can show (control characters, halves of surrogate pairs) becomes the replacement character.

    >>> quote("a\\0b") == '"a\\N{REPLACEMENT CHARACTER}b"'
    True
    """
    text = _UNSPEAKABLE.sub(
        "\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n")
    )
    text = (
        text.replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("&", "&amp;")
        .replace("\n", "\\n")
    )
    return f'"{text}"'


def to_dot(drawing: Drawing) -> str:
    """Return the drawing as DOT text: groups are clusters, with the drawing's direction; nodes are numbered."""
    return "\n".join(_lines(drawing)) + "\n"


def to_json(drawing: Drawing) -> dict[str, Any]:
    """Return the drawing as JSON-ready plain data, with the field names of `app.diagram.diagram`."""
    return {
        "title": drawing.title,
        "direction": drawing.direction,
        "boxes": msgspec.to_builtins(drawing.boxes),
        "arrows": msgspec.to_builtins(drawing.arrows),
        "groups": msgspec.to_builtins(drawing.groups),
    }


def text_of(drawing: Drawing, form: str) -> str:
    """Return the text of a file: "dot" or "json"."""
    return (
        to_dot(drawing)
        if form == "dot"
        else json.dumps(to_json(drawing), ensure_ascii=True, indent=1) + "\n"
    )


def render(dot: str, form: str, timeout: float = TIMEOUT) -> bytes:
    """Return the file that `dot` makes of DOT text: "svg", "pdf" or "png".

    Raises `NoGraphvizError` if it is not installed, `GraphvizError` if it fails or takes longer than `timeout` seconds.
    """
    command = [graphviz.DOT_BINARY, f"-T{form}"]
    if form == "png":
        command.append(f"-Gdpi={PNG_DPI}")
    try:
        done = subprocess.run(
            command,
            input=dot.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise NoGraphvizError(
            "Graphviz's dot is not installed. Install the package graphviz (apt install graphviz, brew install "
            "graphviz), or choose another arrangement."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise GraphvizError(
            f"dot was still drawing after {timeout:g} seconds. Fold some layers, or write a .dot file and lay it out "
            "with sfdp."
        ) from error
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode or not done.stdout:
        raise GraphvizError(
            f"dot stopped with code {done.returncode}: {said or 'it gave no reason'}"
        )
    return done.stdout


def _lines(drawing: Drawing) -> Iterator[str]:
    yield "digraph {"
    yield f"  graph [rankdir={drawing.direction}, nodesep=0.18, ranksep=0.32, fontname={quote('Helvetica')},"
    yield f"         fontsize=11, labelloc=t, label={quote(_heading(drawing))}]"
    yield f"  node [fontname={quote('Helvetica')}, fontsize=10, margin={quote('0.11,0.05')}, penwidth=1]"
    yield f"  edge [fontname={quote('Helvetica')}, fontsize=9, arrowsize=0.7]"
    children: dict[str | None, list[Group]] = {}
    for group in drawing.groups:
        children.setdefault(group.parent, []).append(group)
    boxes: dict[str | None, list[Box]] = {}
    for box in drawing.boxes:
        boxes.setdefault(box.group, []).append(box)
    numbers = {group.id: number for number, group in enumerate(drawing.groups)}
    names = {box.id: f"n{number}" for number, box in enumerate(drawing.boxes)}
    yield from (_box(names[box.id], box) for box in boxes.get(None, ()))
    todo: list[Group | None] = list(reversed(children.get(None, ())))
    while todo:
        now = todo.pop()
        if now is None:
            yield "  }"
            continue
        yield from _cluster(now, numbers[now.id])
        yield from (_box(names[box.id], box) for box in boxes.get(now.id, ()))
        todo += [None, *reversed(children.get(now.id, ()))]
    yield from (_arrow(names, arrow) for arrow in drawing.arrows)
    yield "}"


def _heading(drawing: Drawing) -> str:
    """Return the title, and what the numbers on the boxes are."""
    scale = drawing.scale
    if scale is None:
        return drawing.title
    return f"{drawing.title}\n{scale.caption}: {scale.low} to {scale.high}".strip()


def _cluster(group: Group, number: int) -> Iterator[str]:
    line, fill = _INK.get(group.category, _PLAIN)
    title = "   ".join(filter(None, (group.title, group.caption, *group.tags[:1])))
    yield f"  subgraph cluster_{number} {{"
    yield f"    graph [label={quote(title)}, labelloc=t, labeljust=l, style={quote('rounded,filled')},"
    yield f"           color={quote(line)}, fillcolor={quote(fill)}, fontcolor={quote(line)}, margin=9]"


def _box(name: str, box: Box) -> str:
    line, fill = _INK.get(box.category, _PLAIN)
    text = "\n".join(
        part
        for part in (box.title, box.subtitle, *box.lines, _chips(box), *box.tags[:1])
        if part
    )
    style = "rounded,filled" if box.shape == "leaf" else "filled"
    color = fill if box.shape == "folded" or box.category == "error" else "#FFFFFF"
    return (
        f"  {name} [label={quote(text)}, shape=box, style={quote(style)}, "
        f"fillcolor={quote(color)}, color={quote(line)}]"
    )


def _chips(box: Box) -> str:
    return " · ".join(chip.text for chip in box.chips)


def _arrow(names: dict[str, str], arrow: Arrow) -> str:
    color = _BACK if arrow.kind == "gradient" else _WIRE
    parts = [f"color={quote(color)}"]
    text = arrow.label if arrow.count == 1 else f"{arrow.label} ×{arrow.count}".strip()
    if text:
        parts.append(f"label={quote(text)}, fontcolor={quote(color)}")
    return f"  {names[arrow.source]} -> {names[arrow.target]} [{', '.join(parts)}]"
