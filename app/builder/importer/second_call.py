"""What a model does when it is called once more, where a call changed something that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from app.builder.importer import leftovers
from app.builder.importer.again import PARAMETERS, hangs_on, hashes
from app.builder.importer.frames import Frame, TraceError
from app.builder.importer.leftovers import Facts, Where

if TYPE_CHECKING:
    from app.builder.importer.tracing import Tracer

Made = Callable[[], "Tracer"]


def check_again(
    tracer: Tracer, frame: Frame, before: Facts, made: Made, given: tuple[Any, Any], training: bool
) -> None:
    """Raise TraceError if another call of a traced model would do something else, or keep something else.

    `made` gives a tracer for that call, `given` is what it is called with, `training` the mode of both.
    """
    model = tracer.root
    written = leftovers.changed_tensor(model, tracer.views.became)
    if written is not None:
        (owner, name), node = written
        error = _refused(model, (owner, name), f"{leftovers.named((owner, name))} changes at every call")
        error.place = tracer.places.get(node)
        raise error
    beside = {path for path, one in tracer.apart.items() if one.spec is not None}
    after = leftovers.facts(model, beside)
    changed = leftovers.differing(before, after)
    if not changed:
        return
    first = next((place for place in changed if place[1].startswith("its ")), changed[0])
    what = leftovers.named(first)
    if first[1].startswith("its "):
        raise _refused(model, first, f"{what} change when it is called")
    kept = leftovers.settled(model)
    after = leftovers.facts(model, beside)
    second = made()
    second.carried = {key: f"kept {number}" for number, key in enumerate(kept)}
    try:
        other = second.follow(model, given[0], given[1], tracer.original)
    except TraceError as error:
        raise _refused(model, first, f"it keeps {what} for its next call ({error.why})") from error
    if still := leftovers.differing(after, leftovers.facts(model, beside)):
        raise _refused(model, still[0], f"{leftovers.named(still[0])} changes at every call")
    _check_used(tracer, second, kept, set() if training else _let_go(model, before, after))
    mine = hashes(frame, tracer.constants, {})
    carried = {node: mine[kept[key][1]] for node, key in _carried(second).items() if kept[key][1] in mine}
    theirs = hashes(other, second.constants, carried)
    if _outputs(frame, mine) != _outputs(other, theirs):
        raise _refused(model, first, f"it does something else once {what} is set")
    for where in dict.fromkeys(place for place, _ in kept.values()):
        kind = type(model.get_submodule(where[0])).__name__
        name = leftovers.named(("", where[1]))  # as in its class: there may be many of it
        tracer.report.add(f"{name} of {kind} keeps values of the last call: the drawing does not.")


def _check_used(
    tracer: Tracer, second: Tracer, kept: dict[int, tuple[Where, fx.Node]], let_go: Collection[Where]
) -> None:
    for key in dict.fromkeys(_carried(second).values()):
        where, node = kept[key]
        why = hangs_on(node, tracer.values, tracer.gradients.outside)
        if why and not (why == PARAMETERS and where in let_go):
            raise _refused(tracer.root, where, f"it keeps {leftovers.named(where)}, made of {why}, for its next call")


def _let_go(model: nn.Module, before: Facts, after: Facts) -> set[Where]:
    """What a call left that goes when the model is trained again: `train()` sets it back, so that it is never old."""
    modules = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        model.train()
        now = leftovers.facts(model)
    finally:
        for module, own in modules:
            module.__dict__.clear()
            module.__dict__.update(own)
    found = set()
    for where in leftovers.differing(before, after):
        owner = where[0], where[1].partition("[")[0]
        if all(now.get(one) == before.get(one) for one in (where, owner)):
            found |= {where, owner}
    return found


def _carried(tracer: Tracer) -> dict[fx.Node, int]:
    """The values of a trace that an earlier call left in the model."""
    names = {name: key for key, name in tracer.carried.items()}
    return {node: names[str(node.target)] for node in tracer.values if node.op == "get_attr" and node.target in names}


def _outputs(frame: Frame, found: dict[fx.Node, int]) -> list[Any]:
    return [found[leaf] if isinstance(leaf, fx.Node) else repr(leaf) for leaf in frame.outputs]


def _refused(model: nn.Module, where: Where, why: str) -> TraceError:
    path = where[0]
    return TraceError(f"{path or type(model).__name__} cannot be followed: {why}", path, why, False)
