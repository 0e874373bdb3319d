"""Draw the tape. Gradients run from right to left, so layers keep their forward order from left to right."""

from __future__ import annotations

from functools import lru_cache

from app.autograd.blocks import group_by_block
from app.autograd.grouping import Folded, LayerGroup, fold, group_by_layer, opened
from app.autograd.tape import SavedTensor, Tape, TapeNode
from app.diagram.diagram import Arrow, Box, Chip, Drawing, Group
from app.util.formatting import bytes_text, counted, plural, shape_text, significant

CHIPS = 2
_KINDS = {"activation": "held"}


def to_drawing(
    tape: Tape,
    unfolded: frozenset[str] | None = None,
    *,
    grouped: bool = True,
    blocks: bool = False,
) -> Drawing:
    """Draw the tape with the groups of these keys open (None: the small ones); `grouped=False` draws no groups.

    `blocks` nests groups like the modules.
    """
    groups = group_by_block(tape) if blocks else group_by_layer(tape)
    if not grouped:
        unfolded = frozenset(group.key for group in groups)
    elif unfolded is None:
        unfolded = opened(groups)
    return draw(tape, fold(tape, groups, unfolded), grouped=grouped)


def draw(tape: Tape, folded: Folded, *, grouped: bool = True) -> Drawing:
    """Draw a folded tape; boxes come in forward order."""
    boxes: list[tuple[int, Box]] = []
    frames: list[Group] = []
    group_of: dict[str, str] = {}
    shown: set[str | None] = {None}
    ranks = tape.forward_ranks
    for group in folded.groups:
        if group.parent not in shown:
            continue
        frame = group.parent if grouped else None
        if group.key not in folded.unfolded:
            name = f"fold:{group.key}"
            boxes.append((ranks[group.nodes[0]], _folded_box(group, name, frame)))
            group_of[name] = group.key
            continue
        shown.add(group.key)
        framed = grouped and not (
            len(group.nodes) == 1 and tape.nodes[group.nodes[0]].is_leaf
        )
        if framed:
            frames.append(_frame(group))
        hanging = _hanging(tape, group)
        for node in group.own:
            name = str(node)
            group_of[name] = group.key
            boxes.append(
                (
                    ranks[node],
                    _box(tape.nodes[node], name, group, hanging.get(node), framed),
                )
            )
    boxes.sort(key=_rank)
    arrows = []
    for edge in folded.edges:
        inside = group_of[edge.source] == group_of[edge.target]
        label = (
            shape_text(edge.shapes[0], "scalar")
            if len(edge.shapes) == 1 and not inside
            else ""
        )
        arrows.append(Arrow(edge.source, edge.target, label, "gradient", edge.count))
    return Drawing(
        tuple(box for _, box in boxes),
        tuple(arrows),
        tuple(frames),
        "RL",
        summary(tape),
    )


def _rank(ranked: tuple[int, Box]) -> int:
    return ranked[0]


def summary(tape: Tape) -> str:
    """Format the line above the picture, such as "84 nodes · loss 2.31 · 53.2 MiB held for backward"."""
    count = len(tape.nodes)
    parts = [f"{counted(count, 'node')}"]
    if tape.loss is not None:
        parts.append(f"{tape.root} {significant(tape.loss, 4)}")
    if not tape.train:
        parts.append("eval() mode")
    if any(node.order > 1 for node in tape.nodes):
        parts.append("backward of the squared gradient norm")
    parts.append(f"{bytes_text(tape.held_bytes)} held for backward")
    return " · ".join(parts)


def _frame(group: LayerGroup) -> Group:
    caption = bytes_text(group.held) if group.held else ""
    return Group(
        group.key, group.title, group.category, group.parent, caption, group.link
    )


def _folded_box(group: LayerGroup, name: str, frame: str | None) -> Box:
    count, names = len(group.nodes), group.parameters
    lines = [f"{count} {plural(count, 'node')}"]
    if group.held:
        lines.append(f"{bytes_text(group.held)} held")
    if names:
        lines.append(names[0] if len(names) == 1 else f"{len(names)} parameters")
    return Box(
        name,
        group.title,
        group.kind,
        tuple(lines),
        group.category,
        "folded",
        frame,
        link=group.link,
    )


def _box(
    node: TapeNode, name: str, group: LayerGroup, under: int | None, grouped: bool
) -> Box:
    frame = group.key if grouped else None
    hang = None if under is None else str(under)
    if node.is_leaf:
        title = node.parameters[0] if node.parameters else "leaf tensor"
        subtitle = (
            node.name
            if len(node.parameters) < 2
            else f"{node.name} · also {', '.join(node.parameters[1:])}"
        )
        return Box(
            name,
            title,
            subtitle,
            (),
            group.category,
            "leaf",
            frame,
            (),
            hang,
            group.link,
        )
    called = ", ".join(node.variables)
    return Box(
        name,
        node.name,
        called,
        (),
        group.category,
        "op",
        frame,
        _chips(node.saved),
        hang,
        group.link,
    )


@lru_cache(maxsize=4096)
def _chip(name: str, count: int, kind: str) -> Chip:
    return Chip(f"{name} {bytes_text(count)}", _KINDS.get(kind, kind))


def _chips(saved: tuple[SavedTensor, ...]) -> tuple[Chip, ...]:
    """Return chips for the largest saved tensors, and a count of the rest."""
    chips = [_chip(s.name, s.bytes, s.kind) for s in shown_first(saved)]
    if len(saved) > CHIPS:
        chips.append(Chip(f"+{len(saved) - CHIPS} more", "more"))
    return tuple(chips)


def shown_first(saved: tuple[SavedTensor, ...]) -> tuple[SavedTensor, ...]:
    """Return the saved tensors that get a chip, in order."""
    if len(saved) < 2:
        return saved
    return tuple(
        sorted(saved, key=lambda s: (s.kind != "activation", -s.bytes))[:CHIPS]
    )


def _hanging(tape: Tape, group: LayerGroup) -> dict[int, int]:
    """Map parameters, and nodes that only prepare one (the transpose of a weight), to the node they hang under.

    All others are on the gradient's path through the net and are drawn in the row.
    """
    members = set(group.own)
    under: dict[int, int] = {}
    todo: list[int] = []
    for node in group.own:
        if tape.nodes[node].is_leaf:
            users = [
                edge.source
                for edge in tape.incoming.get(node, ())
                if edge.source in members
            ]
            if users:
                under[node] = min(users, key=lambda n: tape.nodes[n].sequence or 0)
                todo.append(under[node])
    while todo:
        node = todo.pop()
        users = [
            edge.source
            for edge in tape.incoming.get(node, ())
            if edge.source in members
        ]
        if node in under or len(tape.incoming.get(node, ())) != 1 or not users:
            continue
        targets = {edge.target for edge in tape.outgoing.get(node, ())}
        prepares = len(targets) == 1 and all(
            under.get(target) == node for target in targets
        )
        if prepares and not any(
            saved.kind in ("activation", "input") for saved in tape.nodes[node].saved
        ):
            under[node] = users[0]
            todo.append(users[0])
    return under
