"""A live module as a graph with blocks: traced, drafted, merged, laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from app.builder.arrange import arrange
from app.builder.blocks import Blocks
from app.builder.catalog import Catalog
from app.builder.graph import Graph
from app.builder.importer.drafting import Draft, Drafter
from app.builder.importer.merging import Merger
from app.builder.importer.modes import with_evaluation
from app.builder.importer.modules import key_of
from app.builder.importer.tracing import Tracer
from app.builder.importer.values import on_meta
from app.builder.sheet import Positions
from app.frozen import FrozenMap


@dataclass(frozen=True)
class Imported:
    """A drawing of a live module: its graph, its blocks and where the nodes stand."""

    graph: Graph
    blocks: Blocks
    positions: Positions


def import_module(
    model: nn.Module,
    args: tuple[Any, ...],
    catalog: Catalog,
    kwargs: Mapping[str, Any] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Imported:
    """The drawing of a module called with `args`: tensors, of which shapes and dtypes are read, and plain values.

    Nothing of the model is changed and no value is computed. Raises TraceError or DraftError.
    """

    def whole(module: nn.Module) -> bool:
        return key_of(module, catalog) is not None

    def drafted(training: bool) -> tuple[Draft, bool]:
        tracer = Tracer(whole, cancelled)
        copied, flag = on_meta(model, training, whole)
        frame = tracer.follow(copied, tuple(map(_on_meta, args)), {k: _on_meta(v) for k, v in (kwargs or {}).items()})
        return Drafter(tracer, model, catalog).draft(frame), bool(flag.asked)

    root, asked = drafted(True)
    if asked:
        with_evaluation(root, drafted(False)[0])
    graph, blocks = Merger(catalog).merge(root)
    laid = {name: replace(block, positions=arrange(block.graph, {})) for name, block in blocks.items()}
    return Imported(graph, FrozenMap(laid), FrozenMap(arrange(graph, {})))


def _on_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value
