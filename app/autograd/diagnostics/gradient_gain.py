"""Gradient gain of each layer, and the first layer with a vanishing or exploding gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from app.autograd.grouping import LayerGroup, group_by_layer
from app.autograd.tape import LOSS, Tape
from app.util.formatting import significant
from app.util.language import tr

VANISHED, EXPLODED = 1e-3, 1e3


class Norms(Protocol):
    """A backward pass in norms: a `PassResult` or a `Recorded`."""

    @property
    def node_norms(self) -> Mapping[int, float]: ...

    @property
    def edge_norms(self) -> Mapping[tuple[int, int], float]: ...


class Rung(Struct, frozen=True):
    """One layer's call. `arriving` is |grad out|, `leaving` |grad in|: the norms of its incoming gradients and of those
    passed to other layers; `parameters` is the norm of its parameters' gradients. None without a gradient.

    `gain` is leaving / arriving, `reach` is leaving / arriving at the last layer of the net.
    """

    key: str
    title: str
    arriving: float | None
    leaving: float | None
    parameters: float | None
    gain: float | None
    reach: float | None


class GainFinding(Struct, frozen=True):
    """The first layer where the gradient degrades: `kind` is "vanishes", "explodes" or "non_finite".

    `rule` describes the violated bound, with numbers.
    """

    kind: str
    key: str
    title: str
    rule: str


class Ladder(Struct, frozen=True):
    """The layers in backward order, without the loss, and what was found."""

    rungs: tuple[Rung, ...]
    lost: tuple[GainFinding, ...]

    def __getitem__(self, key: str) -> Rung:
        return next(rung for rung in self.rungs if rung.key == key)


def ladder(
    tape: Tape, norms: Norms, vanished: float = VANISHED, exploded: float = EXPLODED
) -> Ladder:
    """Compute the gain of each layer of `tape` in a pass, a ratio of 2-norms, see `Rung`. `vanished` and `exploded`
    bound a rung's `reach`."""
    groups = sorted(
        group_by_layer(tape),
        key=lambda group: min(tape.steps[node] for node in group.nodes),
    )
    group_keys = {node: group.key for group in groups for node in group.nodes}
    measured = [
        (group, *_norms(tape, norms, group, group_keys))
        for group in groups
        if group.key != LOSS
    ]
    start = next((arriving for _, arriving, _, _ in measured if arriving), None)
    rungs = tuple(
        Rung(
            group.key,
            group.title,
            arriving,
            leaving,
            parameter_norm,
            _ratio(leaving, arriving),
            _ratio(leaving, start),
        )
        for group, arriving, leaving, parameter_norm in measured
    )
    return Ladder(rungs, tuple(_find_lost(rungs, vanished, exploded)))


def rung_of(tape: Tape, norms: Norms, group: LayerGroup) -> Rung:
    """Compute one group's rung alone, as far as its norms are known; its `reach` is None."""
    group_keys = dict.fromkeys(group.nodes, group.key)
    arriving, leaving, parameter_norm = _norms(tape, norms, group, group_keys)
    return Rung(
        group.key,
        group.title,
        arriving,
        leaving,
        parameter_norm,
        _ratio(leaving, arriving),
        None,
    )


def _norms(
    tape: Tape, norms: Norms, group: LayerGroup, group_keys: Mapping[int, str]
) -> tuple[float | None, float | None, float | None]:
    """Return the gradient norms into a group, out of it to other groups, and of its parameters."""
    arriving, leaving, parameter_norms = [], [], []
    for number in group.nodes:
        incoming = tape.incoming.get(number, ())
        if tape.nodes[number].is_leaf:
            if tape.nodes[number].parameters:
                parameter_norms.append(norms.node_norms.get(number))
        elif number in tape.roots or any(
            group_keys.get(edge.source) != group.key for edge in incoming
        ):
            arriving.append(norms.node_norms.get(number))
        for edge in tape.outgoing.get(number, ()):
            target = tape.nodes[edge.target]
            # A leaf without a name is the batch itself, where that requires a gradient: before the first layer.
            if (
                not target.parameters
                if target.is_leaf
                else group_keys.get(edge.target) != group.key
            ):
                leaving.append(norms.edge_norms.get((edge.source, edge.slot)))
    return _together(arriving), _together(leaving), _together(parameter_norms)


def _together(norms: Iterable[float | None]) -> float | None:
    available = [norm for norm in norms if norm is not None]
    return math.hypot(*available) if available else None


def _ratio(numerator: float | None, other: float | None) -> float | None:
    return numerator / other if numerator is not None and other else None


def _find_lost(
    rungs: tuple[Rung, ...], vanished: float, exploded: float
) -> Iterable[GainFinding]:
    """Yield at most one finding of each kind: the first layer in backward order."""
    kinds: set[str] = set()
    for rung in rungs:
        kind, rule = "", ""
        values = [
            value for value in (rung.leaving, rung.parameters) if value is not None
        ]
        if any(not math.isfinite(value) for value in values):
            kind, rule = (
                "non_finite",
                tr(
                    "its outgoing gradient or that of its parameters is NaN or infinite"
                ),
            )
        elif (
            rung.reach is not None and 0 < rung.reach < vanished
        ):  # one of exactly 0 has a cause of another kind
            kind = "vanishes"
            rule = tr(
                "its gradient norm is {share} of what reached the last layer, less than {bound:g}",
                share=significant(rung.reach, 2),
                bound=vanished,
            )
        elif rung.reach is not None and rung.reach > exploded:
            kind = "explodes"
            rule = tr(
                "its gradient norm is {share} times what reached the last layer, more than {bound:g}",
                share=significant(rung.reach, 2),
                bound=exploded,
            )
        if kind and kind not in kinds:
            kinds.add(kind)
            yield GainFinding(kind, rung.key, rung.title, rule)
