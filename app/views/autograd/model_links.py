"""What joins the backward graph of an opened model and the picture of its calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.autograd.grouping import LayerGroup, module_link
from app.autograd.tape import Tape, TapeNode
from app.observe.observation import CallPlace

if TYPE_CHECKING:
    from app.views.autograd.page import AutogradPage


def place_of(tape: Tape, item: TapeNode | LayerGroup) -> CallPlace:
    """Return where the operation of a backward node, or the module of a group, was called."""
    if isinstance(item, TapeNode):
        return CallPlace(item.layer, item.call, item.file, item.line or 0)
    path = (item.link or "").removeprefix(module_link(""))
    first = tape.nodes[item.nodes[0]]
    return CallPlace(path, first.call if first.layer == path else 0)


def select_calls(page: AutogradPage, call_locations: Iterable[CallPlace]) -> None:
    """Outline the backward nodes of these calls: the nodes that are drawn, else the groups of their modules, or what
    those lie in."""
    tape, calls = page.tape, tuple(call_locations)
    if tape is None:
        return
    paths = {location.path for location in calls}
    page.select_nodes(frozenset(map(module_link, paths)))
    while (
        paths
        and paths != {""}
        and not (page.scene.linked_parts() or page.scene.current_key())
    ):
        paths = {path.rpartition(".")[0] for path in paths}
        page.select_nodes(frozenset(map(module_link, paths)))
    lines = {
        (location.path, location.file, location.line)
        for location in calls
        if location.line
    }
    drawn = (
        str(node.id)
        for node in tape.nodes
        if (node.layer, node.file, node.line) in lines and not node.is_leaf
    )
    if key := next((box_key for box_key in drawn if box_key in page.scene.boxes), ""):
        page.choose_quietly(key)
