"""Check of a second call, for models whose call modifies their own state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from app.builder.importer.state import side_effects
from app.builder.importer.state.repeated_call import PARAMETERS, hangs_on, hashes
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
    made: Made,
    given: tuple[Any, Any],
    training: bool,
) -> None:
    """Raise TraceError if a second call of a traced model would compute or store something else.

    `made` creates a tracer for that call, `given` are its arguments, `training` the mode of both.
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
    beside = {path for path, one in tracer.apart.items() if one.spec is not None}
    after = side_effects.facts(model, beside)
    changed = side_effects.differing(before, after)
    if not changed:
        return
    first = next(
        (place for place in changed if place[1].startswith("its ")), changed[0]
    )
    what = side_effects.named(first)
    if first[1].startswith("its "):
        raise _refused(model, first, f"{what} change when it is called")
    kept = side_effects.settled(model)
    after = side_effects.facts(model, beside)
    second = made()
    second.carried = {key: f"kept {number}" for number, key in enumerate(kept)}
    try:
        other = second.follow(model, given[0], given[1], tracer.original)
    except TraceError as error:
        raise _refused(
            model, first, f"it stores {what} for its next call ({error.why})"
        ) from error
    if still := side_effects.differing(after, side_effects.facts(model, beside)):
        raise _refused(
            model, still[0], f"{side_effects.named(still[0])} changes at every call"
        )
    _check_used(
        tracer,
        second,
        kept,
        set() if training else _reset_by_train(model, before, after),
    )
    mine = hashes(frame, tracer.constants, {})
    carried = {
        node: mine[kept[key][1]]
        for node, key in _carried(second).items()
        if kept[key][1] in mine
    }
    theirs = hashes(other, second.constants, carried)
    if _outputs(frame, mine) != _outputs(other, theirs):
        raise _refused(model, first, f"it behaves differently once {what} is set")
    for where in dict.fromkeys(place for place, _ in kept.values()):
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
    kept: dict[int, tuple[Where, fx.Node]],
    let_go: Collection[Where],
) -> None:
    for key in dict.fromkeys(_carried(second).values()):
        where, node = kept[key]
        why = hangs_on(node, tracer.values, tracer.gradients.outside)
        if why and not (why == PARAMETERS and where in let_go):
            words = f"it keeps {side_effects.named(where)}, made of {why}, for its next call"
            raise _refused(tracer.root, where, words)


def _reset_by_train(model: nn.Module, before: Facts, after: Facts) -> set[Where]:
    """List state left by a call that `train()` resets, so that it is never stale."""
    modules = [(module, dict(module.__dict__)) for module in module_tree.modules(model)]
    try:
        module_tree.set_mode(model, True)
        now = side_effects.facts(model)
    finally:
        for module, own in modules:
            module.__dict__.clear()
            module.__dict__.update(own)
    found = set()
    for where in side_effects.differing(before, after):
        owner = where[0], where[1].partition("[")[0]
        if all(now.get(one) == before.get(one) for one in (where, owner)):
            found |= {where, owner}
    return found


def _carried(tracer: Tracer) -> dict[fx.Node, int]:
    """Return the values of a trace that an earlier call stored in the model."""
    names = {name: key for key, name in tracer.carried.items()}
    return {
        node: names[str(node.target)]
        for node in tracer.values
        if node.op == "get_attr" and node.target in names
    }


def _outputs(frame: Frame, found: dict[fx.Node, int]) -> list[Any]:
    return [
        found[leaf] if isinstance(leaf, fx.Node) else repr(leaf)
        for leaf in frame.outputs
    ]


def _refused(model: nn.Module, where: Where, why: str) -> TraceError:
    path = where[0]
    return TraceError(
        f"{path or type(model).__name__} cannot be followed: {why}", path, why, False
    )
