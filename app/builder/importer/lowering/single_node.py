"""A model that is one node from its inputs to its outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from app.builder.catalog.catalog import OpSpec
from app.builder.codegen.whole_net import WHOLE
from app.builder.importer.lowering.ir import Draft, DraftError
from app.builder.importer.lowering.package_classes import is_generated
from app.builder.importer.tracing.real_evaluation import (
    argument_names,
    port_name,
    run_alone,
)
from app.builder.importer.tracing.records import is_record, plain
from app.builder.literals import DType


def draw_as_one_node(
    model: nn.Module, spec: OpSpec, params: dict[str, Any], examples: tuple[Any, Any]
) -> Draft:
    """Draw a model as one node with its inputs and outputs. Raises DraftError."""
    args, kwargs = examples
    draft = Draft("", type(model).__name__)
    made = draft.add(spec.key, WHOLE, params)
    names = [port_name(spec, name) for name in argument_names(model)]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise DraftError(
                f"{draft.kind} is called with a {type(value).__name__}, which an input cannot be"
            )
        shape: dict[str, Any] = {"shape": tuple(value.shape[1:])}
        if value.dtype != torch.float32:
            shape["dtype"] = DType(str(value.dtype).removeprefix("torch."))
        node = draft.add("input", name, shape)
        draft.inputs.append(node.id)
        draft.wires.append((node.id, 0, made.id, name, 0))
    found = run_alone(model, args, kwargs)
    leaves = tree_flatten(plain(found))[0]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    closed = is_record(found) and not is_generated(spec)
    if closed or not tensors or len(tensors) != len(spec.outputs):
        raise DraftError(
            f"{draft.kind} returns a {type(found).__name__}, which an output cannot be"
        )
    for number in range(len(tensors)):
        node = draft.add(
            "output", f"output{number + 1}" if len(tensors) > 1 else "output", {}
        )
        draft.wires.append((made.id, number, node.id, "input", 0))
        draft.outputs.append(node.id)
    return draft
