"""Parameters of a model apart from its calls: registration order, and which of them are frozen."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from torch import nn

from app.builder.blocks import Blocks, with_blocks
from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.builder.plan import with_sequence
from app.features.importing.compute.lowering.ir import Draft, DraftNode, drafts_in
from app.util import module_tree
from app.util.frozen import FrozenMap

LEARNS = "requires_grad"


def partly_frozen(module: nn.Module) -> bool:
    """Return whether only some parameters of a module are trainable, which a node cannot express."""
    return (
        len({parameter.requires_grad for parameter in module_tree.parameters(module)})
        > 1
    )


def wholly_frozen(module: nn.Module) -> bool | None:
    """Return whether all parameters of a module are frozen; None if it has none."""
    learning = [parameter.requires_grad for parameter in module_tree.parameters(module)]
    return not any(learning) if learning else None


def mixed(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield partly frozen layers that cannot be written as free parameters, with the reason."""
    for path, module in module_tree.named_modules(model):
        if isinstance(module, nn.RNNBase | nn.RNNCellBase) and partly_frozen(module):
            yield (
                path,
                "only some of its parameters are trainable, and a node freezes all or none",
            )


# --- Drafts


def freeze(draft: Draft) -> bool | None:
    """Freeze whole submodules instead of each layer in them; return whether a draft is wholly frozen, None without
    parameters."""
    for node in draft.nodes.values():
        if node.inner is not None:
            node.frozen = freeze(node.inner)
            if node.frozen:
                _thaw(node.inner)
    flags = [
        frozen
        for node in draft.nodes.values()
        if not node.shares and (frozen := _frozen(node)) is not None
    ]
    return all(flags) if flags else None


def _frozen(node: DraftNode) -> bool | None:
    return node.params.get(LEARNS) is False if node.op == "parameter" else node.frozen


def _thaw(draft: Draft) -> None:
    for node in draft.nodes.values():
        node.frozen = None
        if node.op == "parameter":
            node.params.pop(LEARNS, None)
        if node.inner is not None:
            _thaw(node.inner)


def number(root: Draft, model: nn.Module) -> None:
    """Give every node that owns something the place at which the model registers it, among those of its sheet."""
    positions = {path: position for position, path in enumerate(_registered(model))}
    for draft in drafts_in(root):
        prefix = f"{draft.path}." if draft.path else ""
        there = {
            node.id: positions[prefix + node.name]
            for node in draft.nodes.values()
            if not node.shares and _owns(node) and prefix + node.name in positions
        }
        for order, key in enumerate(sorted(there, key=there.__getitem__), 1):
            draft.nodes[key].order = order


def _owns(node: DraftNode) -> bool:
    return (
        node.inner is not None
        or node.op in ("parameter", "buffer", "constant", "packed")
        or (node.op.startswith(("nn.", "ops.", "custom.")))
    )


def _registered(model: nn.Module) -> Iterator[str]:
    """Yield the names of modules, parameters and buffers in registration order."""
    for path, module in module_tree.named_modules(model, remove_duplicate=False):
        yield path
        tensors = (*module._parameters.items(), *module._buffers.items())
        yield from (f"{path}.{name}" if path else name for name, _ in tensors)


# --- Graphs


def as_called(graph: Graph, blocks: Blocks, catalog: Catalog) -> tuple[Graph, Blocks]:
    """Drop the registration order where it equals call order."""
    ops = with_blocks(catalog, blocks)

    def plain(graph: Graph) -> Graph:
        ordered = sorted(
            (node for node in graph.nodes.values() if node.order),
            key=lambda node: node.order,
        )
        return (
            with_sequence(graph, ops, [node.id for node in ordered])
            if ordered
            else graph
        )

    return plain(graph), FrozenMap(
        {
            name: replace(block, graph=plain(block.graph))
            for name, block in blocks.items()
        }
    )
