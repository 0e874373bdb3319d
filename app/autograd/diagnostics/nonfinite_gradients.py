"""Play a backward pass to its end and find every node where a NaN or an Inf arises, masked afterwards or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.autograd.diagnostics import nonfinite_reasons
from app.autograd.diagnostics.nonfinite import NonFinite, name_of
from app.util.language import tr

if TYPE_CHECKING:
    from app.autograd.playback.playback import Playback
    from app.autograd.playback.steps import EdgeGrad, GradStats, StepRecord
    from app.autograd.tape import Tape, TapeNode

_SELECTING = (
    "WhereBackward",
    "MaskedFillBackward",
    "MaskedSelectBackward",
    "IndexBackward",
    "IndexPutBackward",
    "MaskedScatterBackward",
)
_NEAR = 4  # operations between one and the `where` that drops its results


def arising(playback: Playback) -> tuple[NonFinite, ...]:
    """Play on to the end; return one description for each node where a NaN or an Inf arises, in backward order.

    Each is at the node that `torch.autograd.detect_anomaly` names: the first one that returns a NaN. Where that one
    made it of an Inf, the description says where the Inf comes from; an Inf of which no NaN is made is at its own node.
    A node that raises ends the search with its StepError.
    """
    records: list[StepRecord] = []
    reasons: dict[int, nonfinite_reasons.Reason] = {}
    while (number := playback.next_node) is not None:
        node = playback.graph.nodes[number]
        arriving = [
            playback.gradient(number, output)
            for output in range(len(node._input_metadata))
        ]
        record = playback.step()
        assert record is not None
        if not _bad(record.arriving) and _leaves(record):
            reasons[number] = nonfinite_reasons.of_node(
                node, arriving, _behind_mask(playback.tape, number)
            )
        records.append(record)
    return tuple(_origins(playback.tape, records, reasons))


def _origins(
    tape: Tape, records: list[StepRecord], reasons: dict[int, nonfinite_reasons.Reason]
) -> Iterator[NonFinite]:
    by_node = {record.node: record for record in records}
    fed = {edge.target for record in records for edge in _leaves(record)}
    named: set[int] = set()
    for record in records:
        received = _bad(record.arriving)
        if not (_leaves(record) or received) or record.node in fed:
            continue
        spread = _spread(record, by_node)
        first = next(
            (
                step
                for step in spread
                if any(_is_nan(edge.stats) for edge in _leaves(step))
            ),
            record,
        )
        if first.node in named:
            continue
        named.add(first.node)
        yield _describe(tape, record, first, spread, by_node, reasons)


def _describe(
    tape: Tape,
    origin: StepRecord,
    first: StepRecord,
    spread: list[StepRecord],
    by_node: dict[int, StepRecord],
    reasons: dict[int, nonfinite_reasons.Reason],
) -> NonFinite:
    node, reason = (
        tape.nodes[first.node],
        reasons.get(origin.node, nonfinite_reasons.UNKNOWN),
    )
    received = _bad(origin.arriving)
    nan = any(
        _is_nan(stats)
        for stats in (*first.arriving, *(edge.stats for edge in first.leaving))
    )
    text, cure = reason
    if first is not origin:
        name = _where(tape.nodes[origin.node])
        text = f"{tr('It is made of an Inf of {name}.', name=name)} {text}"
    elif origin.hooked:
        text, cure = (
            tr("A hook of the tensor made it."),
            tr("Mend the hook: it is called with finite gradients."),
        )
    elif received and origin.fan_ins:
        text, cure = (
            tr("The gradients that meet there are finite, but their sum is not."),
            tr("Scale the loss down."),
        )
    return NonFinite(
        "backward",
        node.name,
        "NaN" if nan else "Inf",
        not received or first is not origin,
        node.layer,
        node.node,
        node.line,
        node.id,
        node.in_loss,
        node.file,
        reason=text.strip(),
        cure=cure,
        masked_by=_mask(tape, spread, by_node),
    )


def _spread(origin: StepRecord, by_node: dict[int, StepRecord]) -> list[StepRecord]:
    """Return the steps that a NaN or an Inf of `origin` goes through, itself included, in backward order."""
    met, waiting = {origin.node}, [origin]
    while waiting:
        for edge in _leaves(waiting.pop()):
            if edge.target not in met and edge.target in by_node:
                met.add(edge.target)
                waiting.append(by_node[edge.target])
    return sorted(
        (by_node[number] for number in met), key=lambda record: record.position
    )


def _mask(tape: Tape, spread: list[StepRecord], by_node: dict[int, StepRecord]) -> str:
    """Name the node that drops all of it; "" if it reaches a parameter or an input."""
    if any(tape.nodes[record.node].is_leaf or record.inside for record in spread):
        return ""
    ends = [record for record in spread if not _leaves(record)]
    return _where(tape.nodes[ends[0].node]) if ends else ""


def _where(node: TapeNode) -> str:
    return name_of(node.name, node.in_loss, node.layer, node.line, node.file)


def _behind_mask(tape: Tape, number: int) -> bool:
    """Return whether one of the few operations right after this one selects among its results."""
    met, waiting = {number}, [(number, 0)]
    while waiting:
        node, distance = waiting.pop()
        if tape.nodes[node].name.startswith(_SELECTING):
            return True
        if distance < _NEAR:
            sources = {edge.source for edge in tape.incoming.get(node, ())} - met
            met |= sources
            waiting += [(source, distance + 1) for source in sources]
    return False


def _leaves(record: StepRecord) -> list[EdgeGrad]:
    return [
        edge
        for edge in record.leaving
        if edge.stats is not None and edge.stats.nonfinite
    ]


def _bad(every: tuple[GradStats | None, ...]) -> bool:
    return any(stats is not None and stats.nonfinite for stats in every)


def _is_nan(stats: GradStats | None) -> bool:
    # With an Inf among the values the sum can be NaN, so `mean` is no evidence; `absmax` is NaN if there is a NaN.
    return stats is not None and stats.absmax != stats.absmax
