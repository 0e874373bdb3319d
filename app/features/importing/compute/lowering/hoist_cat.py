"""Hoisting of `torch.cat` out of submodules that concatenate a list of inputs, so that lists of any length are one
block.

A dense layer takes the outputs of all layers before it. Drawn as traced, each has one input more than the last and is a
separate block; with the `torch.cat` moved to the caller, they are instances of one.
"""

from __future__ import annotations

from typing import Any

from app.features.importing.compute.lowering.ir import Draft, DraftNode, drafts_in

JOIN = "torch.cat"


def join_outside(root: Draft) -> None:
    """Move the joins out of submodules of which some take longer lists than others."""
    callers = list(_calls(root))
    lengths: dict[str, set[int]] = {}
    joins: dict[int, DraftNode] = {}
    for _, node in callers:
        assert node.inner is not None
        join = _first_join(node.inner)
        if join is not None:
            joins[id(node.inner)] = join
            lengths.setdefault(node.inner.kind, set()).add(len(node.inner.inputs))
    for outer, node in callers:
        assert node.inner is not None
        join = joins.get(id(node.inner))
        wired = sum(wire[2] == node.id for wire in outer.wires)
        if (
            join is not None
            and len(lengths[node.inner.kind]) > 1
            and wired == len(node.inner.inputs)
        ):
            _moved(outer, node, node.inner, join)


def join_further(root: Draft) -> None:
    """Extend an earlier concatenation where one includes it: `cat([cat([a, b]), c])`."""
    for draft in drafts_in(root):
        _further(draft)


def _further(draft: Draft) -> None:
    lists: dict[str, list[tuple[str, int]]] = {
        node.id: [] for node in draft.nodes.values() if node.op == JOIN
    }
    others: set[str] = set()  # those that a wire gives more than the tensors
    for source, output, target, port, _ in sorted(
        draft.wires, key=lambda wire: wire[4]
    ):
        if target in lists:
            lists[target].append((source, output))
            others |= {target} if port != "tensors" else set()
    first_ids: dict[tuple[Any, ...], str] = {}
    for node in draft.nodes.values():  # in running order
        if node.id not in lists or node.id in others:
            continue
        tensors, dim = lists[node.id], node.params.get("dim", 0)
        length = next(
            (
                end
                for end in range(len(tensors) - 1, 1, -1)
                if (dim, *tensors[:end]) in first_ids
            ),
            0,
        )
        first_ids.setdefault((dim, *tensors), node.id)
        if length:
            now = [(first_ids[dim, *tensors[:length]], 0), *tensors[length:]]
            draft.wires = [wire for wire in draft.wires if wire[2] != node.id]
            draft.wires += [
                (*source, node.id, "tensors", number)
                for number, source in enumerate(now)
            ]


def _calls(root: Draft) -> list[tuple[Draft, DraftNode]]:
    """List every submodule call with the draft containing it, innermost first."""
    return [
        (draft, node)
        for draft in drafts_in(root)
        for node in draft.nodes.values()
        if node.inner is not None
    ][::-1]


def _first_join(draft: Draft) -> DraftNode | None:
    """Return the `cat` of all inputs of a draft, each used once and only there, along a non-batch dimension."""
    inputs = [draft.nodes[node] for node in draft.inputs]
    if not inputs or not all(node.params.get("shape") for node in inputs):
        return None
    targets = {wire[2] for wire in draft.wires if wire[0] in draft.inputs}
    join = draft.nodes[targets.pop()] if len(targets) == 1 else None
    if join is None or join.op != JOIN:
        return None
    wires = sorted(
        (wire for wire in draft.wires if wire[2] == join.id), key=lambda wire: wire[4]
    )
    dim = join.params.get("dim", 0)
    rank = len(inputs[0].params["shape"]) + 1
    joins_all_inputs = (
        [wire[0] for wire in wires] == draft.inputs
        and type(dim) is int
        and dim not in (0, -rank)
    )
    return join if joins_all_inputs else None


def _moved(outer: Draft, node: DraftNode, inner: Draft, join: DraftNode) -> None:
    inputs = [inner.nodes[input_id] for input_id in inner.inputs]
    sources = [_into(outer, node, input_node.name) for input_node in inputs]
    outer.wires = [wire for wire in outer.wires if wire[2] != node.id]
    entry = _joined_already(inner, inputs, join)
    if len(inputs) == 1 and _kept_by(inner, entry):
        outer.wires.append((*sources[0], node.id, entry.name, 0))
        return
    join_node = outer.add(JOIN, outer.fresh("cat"), dict(join.params))
    outer.wires += [
        (*source, join_node.id, "tensors", number)
        for number, source in enumerate(sources)
    ]
    outer.wires.append((join_node.id, 0, node.id, entry.name, 0))
    del outer.nodes[join_node.id]
    outer.nodes = dict(
        item
        for entry_item in outer.nodes.items()
        for item in (
            ((join_node.id, join_node), entry_item)
            if entry_item[0] == node.id
            else (entry_item,)
        )
    )


def _into(draft: Draft, node: DraftNode, port: str) -> tuple[str, int]:
    return next(
        (wire[0], wire[1])
        for wire in draft.wires
        if wire[2] == node.id and wire[3] == port
    )


def _joined_already(
    draft: Draft, inputs: list[DraftNode], join: DraftNode
) -> DraftNode:
    """Replace the inputs of a draft by one for their concatenation, with nodes renumbered."""
    shape = list(inputs[0].params["shape"])
    dim = join.params.get("dim", 0)
    axis = dim - 1 if dim > 0 else dim
    shape[axis] = sum(input_node.params["shape"][axis] for input_node in inputs)
    entry = DraftNode("", "input", "x", {**inputs[0].params, "shape": tuple(shape)})
    left = [
        node
        for node in draft.nodes.values()
        if node.id not in draft.inputs and node is not join
    ]
    if any(node.name == entry.name for node in left):
        entry.name = inputs[0].name
    new = {
        join.id: "n1",
        **{node.id: f"n{number}" for number, node in enumerate(left, 2)},
    }
    draft.wires = [
        (new[a], output, new[b], port, index)
        for a, output, b, port, index in draft.wires
        if b != join.id
    ]
    draft.outputs = [new[output_id] for output_id in draft.outputs]
    entry.id = "n1"
    for node in left:
        node.id, node.shares = new[node.id], new.get(node.shares, "")
        node.tied = {
            name: (new[other], theirs) for name, (other, theirs) in node.tied.items()
        }
    draft.nodes = {node.id: node for node in (entry, *left)}
    draft.inputs, draft.made = [entry.id], len(draft.nodes)
    return entry


def _kept_by(draft: Draft, entry: DraftNode) -> bool:
    """Return whether the input is never modified in place, so that `cat` of one tensor is that tensor."""
    takers = [draft.nodes[wire[2]] for wire in draft.wires if wire[0] == entry.id]
    return all(
        node.op.startswith("nn.") and not node.params.get("inplace") for node in takers
    )
