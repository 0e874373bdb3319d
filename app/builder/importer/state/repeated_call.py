"""A second call of a model that was changed by the first: whether it computes the same."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from app.builder.importer.tracing.frames import Frame

# What takes of a tensor no more than its sizes, its dtype and where it lies.
_OF_ITS_KIND = frozenset(
    "size dim zeros_like ones_like full_like empty_like new_zeros new_ones new_full".split()
)
PARAMETERS = "its parameters"
_CHANCE = frozenset(
    "rand randn randint randperm rand_like randn_like dropout normal bernoulli".split()
)


def hashes(
    frame: Frame,
    constants: Mapping[fx.Node, torch.Tensor],
    known: Mapping[fx.Node, int],
) -> dict[fx.Node, int]:
    """Hash how every value of a trace is computed; equal computations get equal numbers.

    `known` are the numbers of earlier values. Module boundaries do not count.
    """
    found: dict[fx.Node, int] = dict(known)

    def hashable(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return found[value]
        if isinstance(value, tuple | list):
            return tuple(map(hashable, value))
        if isinstance(value, dict):
            return tuple((key, hashable(item)) for key, item in value.items())
        if isinstance(value, slice):
            return (
                "slice",
                hashable(value.start),
                hashable(value.stop),
                hashable(value.step),
            )
        return repr(value)

    def walk(frame: Frame) -> None:
        for node in frame.graph.nodes:
            if node in found:
                continue
            if node.op == "placeholder":
                outer = frame.outer.get(node)
                found[node] = (
                    found[outer]
                    if outer in found
                    else hash(("input", frame.path, frame.inputs.index(node)))
                )
            elif node in constants:
                value = constants[node]
                found[node] = hash((str(value.dtype), tuple(value.shape), str(value)))
            elif node in frame.inner:
                walk(frame.inner[node])
                found[node] = hash(("call", *map(hashable, frame.inner[node].outputs)))
            elif node.target is operator.getitem and node.args[0] in frame.inner:
                leaf = frame.inner[node.args[0]].outputs[node.args[1]]
                found[node] = (
                    hashable(leaf)
                    if isinstance(leaf, fx.Node)
                    else hash(hashable(leaf))
                )
            else:
                name = (
                    node.target
                    if isinstance(node.target, str)
                    else getattr(node.target, "__name__", "")
                )
                found[node] = hash(
                    (node.op, name, hashable(node.args), hashable(node.kwargs))
                )

    walk(frame)
    return found


def hangs_on(
    node: fx.Node, values: Mapping[fx.Node, Any], outside: Mapping[fx.Node, fx.Node]
) -> str:
    """Describe the changing inputs of a value, such as parameters or random numbers; "" if only sizes and constants.

    PARAMETERS means that it depends on them alone, so it changes with training.
    """
    todo, seen, found = [node], set[fx.Node](), ""
    while todo:
        one = todo.pop()
        if one in seen or not isinstance(values.get(one), torch.Tensor | tuple | list):
            continue  # numbers derive from sizes
        seen.add(one)
        if one.target is getattr and one.args[1] in ("shape", "dtype", "device"):
            continue
        name = (
            one.target
            if isinstance(one.target, str)
            else getattr(one.target, "__name__", "")
        )
        if name in _OF_ITS_KIND or isinstance(values[one], torch.Size):
            continue
        if name.rstrip("_") in _CHANCE:
            return "random numbers"
        if one.op == "placeholder" and one not in outside:
            return "its input"
        if one.op == "call_module":
            return "the output of a layer"
        if one.op == "get_attr" and isinstance(values[one], torch.nn.Parameter):
            found = PARAMETERS
        taken = one.all_input_nodes[:1] if name == "type_as" else one.all_input_nodes
        todo += [outside[one]] if one in outside else taken
    return found
