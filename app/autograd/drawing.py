"""The tape as a picture. Gradients run from right to left, so layers keep their forward order from left to right."""

from __future__ import annotations

from app.autograd.grouping import Folded, LayerGroup, fold, group_by_layer, opened
from app.autograd.tape import Saved, Tape, TapeNode
from app.drawing import Arrow, Box, Chip, Drawing, Group, bytes_text, shape_text

CHIPS = 2
_KINDS = {"activation": "held"}


def to_drawing(tape: Tape, unfolded: frozenset[str] | None = None, *, grouped: bool = True) -> Drawing:
    """The picture with the groups of these keys open (None: those that are small); `grouped=False` draws no groups."""
    groups = group_by_layer(tape)
    if not grouped:
        unfolded = frozenset(group.key for group in groups)
    elif unfolded is None:
        unfolded = opened(groups)
    return draw(tape, fold(tape, groups, unfolded), grouped=grouped)


def draw(tape: Tape, folded: Folded, *, grouped: bool = True) -> Drawing:
    """The picture of a folded tape."""
    boxes: list[Box] = []
    frames: list[Group] = []
    group_of: dict[str, str] = {}
    for group in folded.groups:
        if group.key not in folded.unfolded:
            boxes.append(_folded_box(group))
            group_of[f"fold:{group.key}"] = group.key
            continue
        if grouped:
            frames.append(_frame(group))
        hanging = _hanging(tape, group)
        for node in group.nodes:
            group_of[str(node)] = group.key
            boxes.append(_box(tape.nodes[node], group, hanging.get(node), grouped))
    arrows = []
    for edge in folded.edges:
        inside = group_of[edge.source] == group_of[edge.target]
        label = shape_text(edge.shapes[0]) if len(edge.shapes) == 1 and not inside else ""
        arrows.append(Arrow(edge.source, edge.target, label, "gradient", edge.count))
    return Drawing(tuple(boxes), tuple(arrows), tuple(frames), "RL", summary(tape))


def summary(tape: Tape) -> str:
    """The line above the picture, such as "84 nodes · loss 2.31 · 53.2 MiB held for backward"."""
    count = len(tape.nodes)
    parts = [f"{count:,} node{'s' if count != 1 else ''}"]
    if tape.loss is not None:
        parts.append(f"loss {tape.loss:.4g}")
    parts.append(f"{bytes_text(tape.held)} held for backward")
    return " · ".join(parts)


def chip_text(saved: Saved) -> str:
    return f"{saved.name} {bytes_text(saved.bytes)}"


def _frame(group: LayerGroup) -> Group:
    caption = bytes_text(group.held) if group.held else ""
    return Group(group.key, group.title, group.category, None, caption, group.link)


def _folded_box(group: LayerGroup) -> Box:
    count, names = len(group.nodes), group.parameters
    lines = [f"{count} node{'s' if count != 1 else ''}"]
    if group.held:
        lines.append(f"{bytes_text(group.held)} held")
    if names:
        lines.append(names[0] if len(names) == 1 else f"{len(names)} parameters")
    return Box(f"fold:{group.key}", group.title, group.kind, tuple(lines), group.category, "folded", link=group.link)


def _box(node: TapeNode, group: LayerGroup, under: int | None, grouped: bool) -> Box:
    frame = group.key if grouped else None
    hang = None if under is None else str(under)
    if node.is_leaf:
        title = node.parameters[0] if node.parameters else "leaf tensor"
        subtitle = node.name if len(node.parameters) < 2 else f"{node.name} · also {', '.join(node.parameters[1:])}"
        return Box(str(node.id), title, subtitle, (), group.category, "leaf", frame, (), hang, group.link)
    return Box(
        str(node.id), node.name, "", (), group.category, "op", frame, _chips(node.saved), hang, group.link
    )


def _chips(saved: tuple[Saved, ...]) -> tuple[Chip, ...]:
    """The largest tensors held for backward first; more than fit are counted."""
    ranked = sorted(saved, key=lambda s: (s.kind != "activation", -s.bytes))
    chips = [Chip(chip_text(s), _KINDS.get(s.kind, s.kind)) for s in ranked[:CHIPS]]
    if len(ranked) > CHIPS:
        chips.append(Chip(f"+{len(ranked) - CHIPS} more", "more"))
    return tuple(chips)


def _hanging(tape: Tape, group: LayerGroup) -> dict[int, int]:
    """Node -> the node it hangs under: parameters, and what only prepares one (the transpose of a weight).

    Everything else is on a gradient's way through the net and stands in the row.
    """
    members = set(group.nodes)
    under: dict[int, int] = {}
    for node in sorted(members, key=lambda n: -tape.steps.get(n, 0)):
        users = [edge.source for edge in tape.incoming.get(node, ()) if edge.source in members]
        if not users:
            continue
        record = tape.nodes[node]
        if record.is_leaf:
            under[node] = min(users, key=lambda n: tape.nodes[n].sequence or 0)
            continue
        targets = {edge.target for edge in tape.outgoing.get(node, ())}
        prepares = len(targets) == 1 and all(under.get(target) == node for target in targets)
        keeps = any(saved.kind in ("activation", "input") for saved in record.saved)
        if prepares and not keeps and len(tape.incoming[node]) == 1:
            under[node] = users[0]
    return under
