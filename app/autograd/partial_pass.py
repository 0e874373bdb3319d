"""Cut the subgraph below one node out of a recorded backward pass."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace as with_values

from app.autograd.playback.memory_timeline import held_by_step, released_by_step
from app.autograd.playback.steps import FanIn, PassResult, Share, StepRecord
from app.autograd.tape import Tape


def part_of(passed: PassResult, number: Mapping[int, int], part: Tape) -> PassResult | None:
    """Extract the steps of `part`; `number` maps node ids to those in it. None if they ran in another order.

    Gradients at its first node are those of the whole pass; a gradient from outside counts as a seed.
    """
    held, released = held_by_step(part), released_by_step(part)
    records: list[StepRecord] = []
    for record in passed.records:
        if record.node not in number:
            continue
        place = len(records)
        leaving = tuple(
            with_values(edge, source=number[edge.source], target=number[edge.target]) for edge in record.leaving
        )
        records.append(
            with_values(
                record, position=place, node=number[record.node], leaving=leaving,
                fan_ins=tuple(_fan_in(one, number) for one in record.fan_ins), released=released[place],
                held=held[place + 1],
            )
        )  # fmt: skip
    ran = tuple(record.node for record in records)
    return PassResult(tuple(records)) if ran and ran == part.order[: len(ran)] else None


def _fan_in(fan_in: FanIn, number: Mapping[int, int]) -> FanIn:
    shares = tuple(_share(share, number) for share in fan_in.shares)
    return with_values(fan_in, node=number[fan_in.node], shares=shares)


def _share(share: Share, number: Mapping[int, int]) -> Share:
    if share.source in number:
        return with_values(share, source=number[share.source])
    return with_values(share, source=-1, slot=-1)
