"""Check of a second call, for models whose call modifies their own state."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from app.builder.importer.state import side_effects
from app.builder.importer.state.side_effects import Facts, Where
from app.builder.importer.tracing.frames import Frame, TraceError
from app.util import module_tree

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer


Made = Callable[[], "Tracer"]


def check_again(
    tracer: Tracer,
    frame: Frame,
    before: Facts,
    create_tracer: Made,
    example: tuple[Any, Any],
    training: bool,
) -> None:
    """Raise TraceError if a second call of a traced model would compute or store something else.

    `create_tracer` creates a tracer for that call, `example` are its arguments, `training` the mode of both.
    """
    model = tracer.root
    written = side_effects.changed_tensor(model, tracer.views.became)
    if written is not None:
        (owner, name), node = written
        error = _refused(
            model,
            (owner, name),
            f"{side_effects.named((owner, name))} changes at every call",
        )
        error.place = tracer.places.get(node)
        raise error
    beside = {path for path, entry in tracer.apart.items() if entry.spec is not None}
    after = side_effects.facts(model, beside)
    changed = side_effects.differing(before, after)
    if not changed:
        return
    first = next(
        (location for location in changed if location[1].startswith("its ")), changed[0]
    )
    state_name = side_effects.named(first)
    if first[1].startswith("its "):
        raise _refused(model, first, f"{state_name} change when it is called")
    settled = side_effects.settled(model)
    after = side_effects.facts(model, beside)
    second = create_tracer()
    second.carried = {key: f"kept {number}" for number, key in enumerate(settled)}
    try:
        other = second.follow(model, example[0], example[1], tracer.original)
    except TraceError as error:
        raise _refused(
            model, first, f"it stores {state_name} for its next call ({error.why})"
        ) from error
    if still := side_effects.differing(after, side_effects.facts(model, beside)):
        raise _refused(
            model, still[0], f"{side_effects.named(still[0])} changes at every call"
        )
    _check_used(
        tracer,
        second,
        settled,
        set() if training else _reset_by_train(model, before, after),
    )
    mine = hashes(frame, tracer.constants, {})
    carried = {
        node: mine[settled[key][1]]
        for node, key in _carried(second).items()
        if settled[key][1] in mine
    }
    theirs = hashes(other, second.constants, carried)
    if _outputs(frame, mine) != _outputs(other, theirs):
        raise _refused(model, first, f"it behaves differently once {state_name} is set")
    for where in dict.fromkeys(
        stored_location for stored_location, _ in settled.values()
    ):
        kind = type(model.get_submodule(where[0])).__name__
        name = side_effects.named(
            ("", where[1])
        )  # as in its class: there may be many of it
        tracer.report.add(
            f"{name} of {kind} stores values of the last call: the network does not."
        )


def _check_used(
    tracer: Tracer,
    second: Tracer,
    settled: dict[int, tuple[Where, fx.Node]],
    let_go: Collection[Where],
) -> None:
    for key in dict.fromkeys(_carried(second).values()):
        where, node = settled[key]
        why = hangs_on(node, tracer.values, tracer.gradients.outside)
        if why and not (why == PARAMETERS and where in let_go):
            reason = f"it keeps {side_effects.named(where)}, made of {why}, for its next call"
            raise _refused(tracer.root, where, reason)


def _reset_by_train(model: nn.Module, before: Facts, after: Facts) -> set[Where]:
    """List state left by a call that `train()` resets, so that it is never stale."""
    modules = [(module, dict(module.__dict__)) for module in module_tree.modules(model)]
    try:
        module_tree.set_mode(model, True)
        now = side_effects.facts(model)
    finally:
        for module, attributes in modules:
            module.__dict__.clear()
            module.__dict__.update(attributes)
    reset = set()
    for where in side_effects.differing(before, after):
        owner = where[0], where[1].partition("[")[0]
        if all(
            now.get(candidate) == before.get(candidate) for candidate in (where, owner)
        ):
            reset |= {where, owner}
    return reset


def _carried(tracer: Tracer) -> dict[fx.Node, int]:
    """Return the values of a trace that an earlier call stored in the model."""
    names = {name: key for key, name in tracer.carried.items()}
    return {
        node: names[str(node.target)]
        for node in tracer.values
        if node.op == "get_attr" and node.target in names
    }


def _outputs(frame: Frame, hashes_by_node: dict[fx.Node, int]) -> list[Any]:
    return [
        hashes_by_node[leaf] if isinstance(leaf, fx.Node) else repr(leaf)
        for leaf in frame.outputs
    ]


def _refused(model: nn.Module, where: Where, why: str) -> TraceError:
    path = where[0]
    return TraceError(
        f"{path or type(model).__name__} cannot be followed: {why}", path, why, False
    )


# --- How values are computed, and what they depend on


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
    earlier_hashes: Mapping[fx.Node, int],
) -> dict[fx.Node, int]:
    """Hash how every value of a trace is computed; equal computations get equal numbers.

    `earlier_hashes` are the numbers of earlier values. Module boundaries do not count.
    """
    hashes_by_node: dict[fx.Node, int] = dict(earlier_hashes)

    def hashable(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return hashes_by_node[value]
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
            if node in hashes_by_node:
                continue
            if node.op == "placeholder":
                outer = frame.outer.get(node)
                hashes_by_node[node] = (
                    hashes_by_node[outer]
                    if outer in hashes_by_node
                    else hash(("input", frame.path, frame.inputs.index(node)))
                )
            elif node in constants:
                value = constants[node]
                hashes_by_node[node] = hash(
                    (str(value.dtype), tuple(value.shape), str(value))
                )
            elif node in frame.inner:
                walk(frame.inner[node])
                hashes_by_node[node] = hash(
                    ("call", *map(hashable, frame.inner[node].outputs))
                )
            elif node.target is operator.getitem and node.args[0] in frame.inner:
                leaf = frame.inner[node.args[0]].outputs[node.args[1]]
                hashes_by_node[node] = (
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
                hashes_by_node[node] = hash(
                    (node.op, name, hashable(node.args), hashable(node.kwargs))
                )

    walk(frame)
    return hashes_by_node


def hangs_on(
    node: fx.Node, values: Mapping[fx.Node, Any], outside: Mapping[fx.Node, fx.Node]
) -> str:
    """Describe the changing inputs of a value, such as parameters or random numbers; "" if only sizes and constants.

    PARAMETERS means that it depends on them alone, so it changes with training.
    """
    todo, visited, dependence = [node], set[fx.Node](), ""
    while todo:
        current = todo.pop()
        if current in visited or not isinstance(
            values.get(current), torch.Tensor | tuple | list
        ):
            continue  # numbers derive from sizes
        visited.add(current)
        if current.target is getattr and current.args[1] in (
            "shape",
            "dtype",
            "device",
        ):
            continue
        name = (
            current.target
            if isinstance(current.target, str)
            else getattr(current.target, "__name__", "")
        )
        if name in _OF_ITS_KIND or isinstance(values[current], torch.Size):
            continue
        if name.rstrip("_") in _CHANCE:
            return "random numbers"
        if current.op == "placeholder" and current not in outside:
            return "its input"
        if current.op == "call_module":
            return "the output of a layer"
        if current.op == "get_attr" and isinstance(values[current], torch.nn.Parameter):
            dependence = PARAMETERS
        inputs = (
            current.all_input_nodes[:1]
            if name == "type_as"
            else current.all_input_nodes
        )
        todo += [outside[current]] if current in outside else inputs
    return dependence
