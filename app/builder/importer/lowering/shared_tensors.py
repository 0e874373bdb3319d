"""Tensors that a model has under several names, or reads past the layer that they belong to."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from app.builder.importer.fallback_report import inside, parent
from app.builder.importer.lowering.ir import VALUES, Draft, DraftNode, drafts_in
from app.util import module_tree


def tied(model: nn.Module) -> list[tuple[str, tuple[str, ...]]]:
    """List tensors with several names: their common submodule, and the names. Non-persistent buffers are left out."""
    names: dict[int, list[str]] = {}
    for path, module in module_tree.named_modules(model, remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in module._non_persistent_buffers_set:
                names.setdefault(id(tensor), []).append(
                    f"{path}.{name}" if path else name
                )
    groups = []
    for several in (group for group in names.values() if len(group) > 1):
        outer = _around(several[0], several[-1])
        for first, other in pairwise(several):
            outer = min(outer, _around(first, other), key=len)
        groups.append((outer, tuple(several)))
    return groups


def tie(root: Draft, names: tuple[str, ...], outer: str) -> bool:
    """Tie the nodes that hold a tensor under these names; return whether that was possible."""
    drafts: dict[str, list[Draft]] = {}
    for draft in drafts_in(root):
        drafts.setdefault(draft.path, []).append(draft)
    sheet = max((path for path in drafts if inside(outer, path)), key=len)
    for draft in drafts[sheet]:
        holders = [_holder(draft, name) for name in names]
        first, *others = holders
        if first is None or None in others:
            return False
        for other in others:
            assert other is not None
            if other[0] is not first[0]:
                other[0].tied[other[1]] = first[0].id, first[1]
            elif other[1] != first[1]:
                return False
        if first[
            0
        ].kept:  # constructed first, as the others take its tensor; torch reports the first of two names
            draft.nodes = {first[0].id: first[0], **draft.nodes}
    return True


def _holder(draft: Draft, name: str) -> tuple[DraftNode, str] | None:
    """Return the node of a sheet that holds a tensor, and the tensor's name in it."""
    relative = name.removeprefix(f"{draft.path}.") if draft.path else name
    for node in draft.nodes.values():
        if node.shares or (node.inner is None and not _holds(node)):
            continue
        if node.op in VALUES and node.name == relative:
            return node, ""
        if node.op not in VALUES and relative.startswith(f"{node.name}."):
            return node, relative.removeprefix(f"{node.name}.")
    return None


def _holds(node: DraftNode) -> bool:
    return node.op in VALUES or node.op.startswith(("nn.", "ops.", "custom."))


def _around(first: str, other: str) -> str:
    outer = parent(first)
    while not inside(other, outer):
        outer = parent(outer)
    return outer


def read_past(root: Draft) -> tuple[str, bool] | None:
    """Find a submodule that is called while another reads one of its tensors: its path, and whether it is a layer.

    None if there is none. The tensor would be drawn as a second tensor under the layer's name.
    """
    calls: dict[str, bool] = {}
    tensors: list[str] = []
    for draft in drafts_in(root):
        for node in draft.nodes.values():
            path = f"{draft.path}.{node.name}" if draft.path else node.name
            if node.op in VALUES:
                if "." in node.name:
                    tensors.append(path)
            elif _owns(node):
                calls.setdefault(path, node.inner is None)
    for tensor in tensors:
        owner = parent(tensor)
        if owner in calls:
            return owner, calls[owner]
    return None


def called_past(root: Draft) -> tuple[str, bool] | None:
    """Find a part of the model that is called by the sheet that calls a part of it too: its path, and whether it is a
    block, which can be drawn as part of the sheet.

    None if there is none. The part would be drawn twice.
    """
    for draft in drafts_in(root):
        owning = [
            node
            for node in draft.nodes.values()
            if node.op not in VALUES and _owns(node)
        ]
        blocks = {node.name: node.inner is not None for node in owning}
        for node in owning:
            outer = parent(node.name)
            while outer and outer not in blocks:
                outer = parent(outer)
            if outer:
                return f"{draft.path}.{outer}" if draft.path else outer, blocks[outer]
    return None


def _owns(node: DraftNode) -> bool:
    return node.inner is not None or node.op.startswith(("nn.", "ops.", "custom."))
