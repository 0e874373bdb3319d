"""The difference of two versions of a project, item by item: nodes, wires, blocks and settings. Qt-free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.builder.blocks import Block
from app.builder.graph import Edge, Graph
from app.builder.sheet import Sheet
from app.project.project import LessonWork, Project
from app.util.formatting import counted
from app.views.canvas.difference import differing, moved

ADDED, REMOVED, CHANGED = "+", "-", "~"
VERBS = {ADDED: "added", REMOVED: "removed", CHANGED: "changed"}
NETWORK, SETTINGS = "Network", ("data", "training")
LONGEST = 60  # letters of a value that is shown


class ProjectDifference(Struct, frozen=True):
    """An item added, removed or changed: `part` is where, `noun` its kind, `text` which item and how."""

    mark: str
    part: str
    noun: str
    text: str


def differences(before: Project, after: Project) -> tuple[ProjectDifference, ...]:
    """Return the changes from `before` to `after`, in the order of a project's parts."""
    return tuple(_differences(before, after))


def summary(changes: tuple[ProjectDifference, ...]) -> str:
    """Count the changes by kind: `2 nodes added, 1 setting changed`; "" for none."""
    counts = Counter((change.noun, change.mark) for change in changes)
    return ", ".join(
        f"{counted(count, noun)} {VERBS[mark]}"
        for (noun, mark), count in counts.items()
    )


def lines(changes: tuple[ProjectDifference, ...]) -> tuple[str, ...]:
    """Format the changes as lines, below a heading line that begins with @ for each part."""
    rows: list[str] = []
    section = ""
    for change in changes:
        if change.part != section:
            section = change.part
            rows.append(f"@ {section}")
        rows.append(f"{change.mark} {change.text}")
    return tuple(rows)


def _differences(before: Project, after: Project) -> Iterator[ProjectDifference]:
    if before.name != after.name:
        yield ProjectDifference(
            CHANGED, "Project", "name", _change("name", before.name, after.name)
        )
    yield from _sheet(NETWORK, before, after)
    for name in _ordered(before.blocks, after.blocks):
        old, new = before.blocks.get(name), after.blocks.get(name)
        if old is None or new is None:
            yield ProjectDifference(
                ADDED if old is None else REMOVED, "Blocks", "block", name
            )
        else:
            yield from _block(f"Block {name}", old, new)
    yield from _layer_files(before.layer_files, after.layer_files)
    for key in SETTINGS:
        for name, text in _values(getattr(before, key), getattr(after, key)):
            yield ProjectDifference(
                CHANGED, key.capitalize(), "setting", f"{name} {text}"
            )
    if before.origin != after.origin:
        models = [
            origin.model if origin is not None else "no model"
            for origin in (before.origin, after.origin)
        ]
        how = (
            f"{models[0]} → {models[1]}"
            if models[0] != models[1]
            else f"{models[1]}, imported or checked again"
        )
        yield ProjectDifference(CHANGED, "Project", "origin", f"imported from {how}")
    if before.opened != after.opened:
        old, new = (
            str(model.source) if model is not None else "a drawing"
            for model in (before.opened, after.opened)
        )
        how = (
            f"{old} → {new}"
            if old != new
            else f"{new}, with other code, arguments or inputs"
        )
        yield ProjectDifference(CHANGED, "Project", "model", how)
    if before.lesson != after.lesson:
        yield ProjectDifference(CHANGED, "Project", "lesson", _lesson(after.lesson))
    if before.notes != after.notes:
        yield ProjectDifference(
            CHANGED, "Project", "note", _change("notes", before.notes, after.notes)
        )


def _lesson(work: LessonWork | None) -> str:
    if work is None:
        return "not of a lesson"
    return f"lesson {work.name}, {counted(len(work.reached), 'goal')} reached"


def _layer_files(
    before: tuple[str, ...], after: tuple[str, ...]
) -> Iterator[ProjectDifference]:
    for name in _ordered(dict.fromkeys(before), dict.fromkeys(after)):
        if name not in before or name not in after:
            yield ProjectDifference(
                REMOVED if name in before else ADDED, "Layer files", "layer file", name
            )


def _block(section: str, before: Block, after: Block) -> Iterator[ProjectDifference]:
    yield from _sheet(section, before, after)
    if before.params != after.params:
        yield ProjectDifference(CHANGED, section, "block", "its parameters")
    if before.note != after.note:
        yield ProjectDifference(
            CHANGED, section, "block", _change("its note", before.note, after.note)
        )


def _sheet(section: str, before: Sheet, after: Sheet) -> Iterator[ProjectDifference]:
    yield from _nodes(section, before.graph, after.graph)
    gone, came = moved(before.graph.edges, after.graph.edges)
    for mark, wires, graph in (
        (REMOVED, gone - came, before.graph),
        (ADDED, came - gone, after.graph),
    ):
        for wire in sorted(wires):
            yield ProjectDifference(mark, section, "wire", f"wire {_wire(wire, graph)}")
    for key in _only(
        differing(before.comments, after.comments), before.comments, after.comments
    ):
        old, new = before.comments.get(key), after.comments.get(key)
        comment = new or old
        assert comment is not None
        mark = ADDED if old is None else REMOVED if new is None else CHANGED
        was = (
            f"{_value_text(old.text)} → "
            if old is not None and new is not None and old.text != new.text
            else ""
        )
        yield ProjectDifference(
            mark,
            section,
            comment.kind,
            f"{comment.kind} {was}{_value_text(comment.text)}",
        )
    both = before.graph.nodes.keys() & after.graph.nodes.keys()
    moved_nodes = differing(before.positions, after.positions) & both
    if moved_nodes:
        yield ProjectDifference(
            CHANGED, section, "layout", f"{counted(len(moved_nodes), 'node')} moved"
        )
    if before.bends != after.bends and not gone and not came:
        yield ProjectDifference(CHANGED, section, "layout", "bends of wires")
    if before.unfolded != after.unfolded:
        yield ProjectDifference(CHANGED, section, "layout", "which blocks are unfolded")


def _nodes(section: str, before: Graph, after: Graph) -> Iterator[ProjectDifference]:
    keys = differing(before.nodes, after.nodes)
    for key in _only(keys, before.nodes, after.nodes):
        old, new = before.nodes.get(key), after.nodes.get(key)
        if new is None or old is None:
            node = old or new
            assert node is not None
            yield ProjectDifference(
                ADDED if old is None else REMOVED,
                section,
                "node",
                f"{node.name} ({node.op})",
            )
        else:
            changes = ", ".join(f"{name} {text}" for name, text in _values(old, new))
            yield ProjectDifference(CHANGED, section, "node", f"{new.name}: {changes}")


def _values(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and description of each field in which two values of one type differ."""
    if type(before) is type(after) and isinstance(before, Struct):
        for field in before.__struct_fields__:
            name = path if field == "params" else f"{path}.{field}" if path else field
            yield from _values(getattr(before, field), getattr(after, field), name)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in _ordered(before, after):
            old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
            yield from _values(old, new, f"{path}.{key}" if path else str(key))
    elif before != after or repr(before) != repr(after):
        yield path, f"{_value_text(before)} → {_value_text(after)}"


class _Absent:
    def __repr__(self) -> str:
        return "default"


_ABSENT = _Absent()


def _change(name: str, before: Any, after: Any) -> str:
    return f"{name} {_value_text(before)} → {_value_text(after)}"


def _value_text(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else f"“{value}”"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _wire(edge: Edge, graph: Graph) -> str:
    names = [
        graph.nodes[key].name if key in graph.nodes else key
        for key in (edge.source, edge.target)
    ]
    return " → ".join(names)


def _ordered(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[Any]:
    """Return the keys of both, in order and without duplicates."""
    return list(dict.fromkeys((*before, *after)))


def _only(
    keys: set[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    return [key for key in _ordered(before, after) if key in keys]
