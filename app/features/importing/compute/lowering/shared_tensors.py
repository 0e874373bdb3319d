"""Tensors that a model has under several names, reads past the layer that they belong to, or never uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from torch import nn

from app.builder.catalog.catalog import Catalog
from app.features.importing.compute.lowering.binding import BindingError
from app.features.importing.compute.lowering.ir import (
    VALUES,
    Draft,
    DraftNode,
    drafts_in,
)
from app.features.importing.compute.lowering.lowering import tensor_params
from app.features.importing.compute.lowering.modules import described, key_of
from app.features.importing.compute.lowering.parameter_order import (
    partly_frozen,
    wholly_frozen,
)
from app.util import module_tree
from app.util.module_tree import inside, parent


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


def keep_unused(root: Draft, model: nn.Module, catalog: Catalog) -> None:
    """Add a node for every parameter and buffer without one; for those of a whole layer, that layer."""
    drafts: dict[str, list[Draft]] = {}
    keys_on_sheets: set[str] = set()
    for draft in drafts_in(root):
        drafts.setdefault(draft.path, []).append(draft)
        keys_on_sheets.update(_keys_on_sheet(draft, model, catalog))
    missing = [key for key in _keys(model) if key not in keys_on_sheets]
    if not missing:
        return
    sheets = sorted(drafts, key=len, reverse=True)
    of_sheet: dict[str, list[str]] = {}
    for key in missing:
        sheet = next(path for path in sheets if inside(key.rpartition(".")[0], path))
        of_sheet.setdefault(sheet, []).append(key)
    for path, keys in of_sheet.items():
        for name, op, params in list(_nodes(model, path, set(keys), catalog)):
            layer = (
                model.get_submodule(f"{path}.{name}" if path else name)
                if op not in VALUES
                else None
            )
            for draft in drafts[path]:
                node = draft.add(op, name, dict(params))
                node.kept, node.frozen = (
                    True,
                    None if layer is None else wholly_frozen(layer),
                )


def _keys(model: nn.Module) -> Iterator[str]:
    """Yield the tensor keys of the state_dict, in order."""
    for path, module in module_tree.named_modules(model, remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in module._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name


def _keys_on_sheet(draft: Draft, model: nn.Module, catalog: Catalog) -> Iterator[str]:
    """Yield the keys that the nodes of a sheet hold, those inside blocks excepted."""
    for node in draft.nodes.values():
        path = f"{draft.path}.{node.name}" if draft.path else node.name
        if node.op in VALUES:
            yield path
        elif (
            node.op
            and catalog[node.op].kind in ("module", "custom")
            and not (node.shares or node.written)
        ):
            covers_model = (
                node.name == "self" and not draft.path
            )  # a model that is one node
            layer = model if covers_model else model.get_submodule(path)
            yield from (
                (key if covers_model else f"{path}.{key}") for key in layer.state_dict()
            )


def _nodes(
    model: nn.Module, sheet: str, missing: set[str], catalog: Catalog
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield names, ops and parameters of nodes for the missing keys of a sheet."""
    prefix = f"{sheet}." if sheet else ""
    done: set[str] = set()
    for path, module in module_tree.named_modules(
        model.get_submodule(sheet), remove_duplicate=False
    ):
        full_path = f"{prefix}{path}" if path else sheet
        if any(inside(full_path, other) for other in done):
            continue
        keys = [
            f"{full_path}.{key}" if full_path else key for key in module.state_dict()
        ]
        as_one = key_of(module, catalog) is not None and not partly_frozen(module)
        if path and keys and missing.issuperset(keys) and as_one:
            try:
                spec, params = described(module, catalog)
            except (
                BindingError
            ):  # modified after construction: keep its tensors one by one
                pass
            else:
                done.add(full_path)
                yield path, spec.key, params
                continue
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            key = f"{full_path}.{name}" if full_path else name
            if tensor is not None and key in missing:
                op = "parameter" if name in module._parameters else "buffer"
                yield key.removeprefix(prefix), op, tensor_params(tensor)
