"""Tensors that a model has under several names, or reads past the layer that they belong to."""

from __future__ import annotations

from torch import nn

from app.builder.importer.drafting import Draft
from app.builder.importer.fallback import inside, parent


def tied(model: nn.Module) -> list[tuple[str, tuple[str, str]]]:
    """Tensors of two names: the submodule that has both of them in it, and the names."""
    names: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                names.setdefault(id(tensor), []).append(f"{path}.{name}" if path else name)
    return [(_around(first, last), (first, last)) for first, *_, last in (n for n in names.values() if len(n) > 1)]


def _around(one: str, other: str) -> str:
    outer = parent(one)
    while not inside(other, outer):
        outer = parent(outer)
    return outer


def read_past(root: Draft) -> tuple[str, bool] | None:
    """A submodule that is called, and of which another reads a tensor: where it stands, and whether it is a layer.

    None if there is none. The tensor would have the name of the layer before its own, as another tensor.
    """
    calls: dict[str, bool] = {}
    tensors: list[str] = []
    todo, seen = [root], set[int]()
    while todo:
        draft = todo.pop()
        if id(draft) in seen:
            continue
        seen.add(id(draft))
        for node in draft.nodes.values():
            path = f"{draft.path}.{node.name}" if draft.path else node.name
            if node.op in ("parameter", "buffer"):
                if "." in node.name:
                    tensors.append(path)
            elif node.inner is not None or node.op.startswith(("nn.", "ops.", "custom.")):
                calls.setdefault(path, node.inner is None)
            if node.inner is not None:
                todo.append(node.inner)
    for tensor in tensors:
        owner = parent(tensor)
        if owner in calls:
            return owner, calls[owner]
    return None
