"""Differences between a live model and an imported net, from their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from msgspec import Struct
from torch import nn

from app.export import measure
from app.features.importing.compute.parity.subject import ModuleResult
from app.util import module_tree

CALL = "a call"  # what differs where a drawing does not run


class Difference(Struct, frozen=True):
    """`what` is outputs, gradients, buffers, parameters, trainable parameters, attributes or a call; `where` says which
    of them, `words` how it differs, and `stage` when."""

    what: str
    where: str
    words: str
    stage: str = ""
    size: float | None = None

    def __str__(self) -> str:
        stage = f" {self.stage}" if self.stage else ""
        if self.what == CALL:
            return f"{self.where} {self.words}{stage}"
        return f"{self.what}{stage} differ: {self.where} {self.words}".strip()


def static_differences(ours: nn.Module, theirs: nn.Module) -> Iterator[Difference]:
    """Yield static differences: names of parameters, which of them are trainable, and which are shared."""
    mine, others = (
        dict(module_tree.named_parameters(ours)),
        dict(module_tree.named_parameters(theirs)),
    )
    for name in others.keys() - mine.keys():
        yield Difference("parameters", name, "is not in the drawing")
    for name in mine.keys() - others.keys():
        yield Difference("parameters", name, "is only in the drawing")
    for name, parameter in others.items():
        if name in mine and mine[name].requires_grad != parameter.requires_grad:
            there, here = (
                ("learns", "is frozen")
                if parameter.requires_grad
                else ("is frozen", "learns")
            )
            yield Difference(
                "trainable parameters",
                name,
                f"{here} in the drawing and {there} in the model",
            )
    if one_tensor(ours) != one_tensor(theirs):
        names = next(iter(sorted({*one_tensor(theirs)} ^ {*one_tensor(ours)})), ())
        yield Difference(
            "parameters", " and ".join(names[:2]), "are tied in only one of the two"
        )


def one_tensor(net: nn.Module) -> frozenset[tuple[str, ...]]:
    """Return groups of names of shared parameters."""
    groups: dict[int, list[str]] = {}
    for name, parameter in module_tree.named_parameters(net, remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return frozenset(
        tuple(sorted(names)) for names in groups.values() if len(names) > 1
    )


def first_difference(
    ours: ModuleResult, theirs: ModuleResult, stage: str, allowed: float
) -> Difference | None:
    """Return the first difference between the results of two nets in one stage; outputs are compared by order.
    `allowed` is the tolerance for rounding, relative to the largest number of a tensor."""
    if ours.refused != theirs.refused and not (ours.refused and theirs.refused):
        return Difference("gradients", "backward", _refused(ours, theirs), stage)
    if len(ours.outputs) != len(theirs.outputs):
        description = (
            f"returns {len(ours.outputs)} tensors and not {len(theirs.outputs)}"
        )
        return Difference("outputs", "the drawing", description, stage)
    outputs = dict(zip(theirs.outputs, ours.outputs.values(), strict=True))
    shared = ours.state.keys() & theirs.state.keys()
    ours_state, other = (
        {key: net.state[key] for key in shared} for net in (ours, theirs)
    )
    pairs: tuple[
        tuple[
            str, Mapping[str, torch.Tensor | None], Mapping[str, torch.Tensor | None]
        ],
        ...,
    ] = (
        ("outputs", outputs, theirs.outputs),
        ("gradients", ours.gradients, theirs.gradients),
        ("values after two calls", ours_state, other),
    )
    for quantity, mine, expected in pairs:
        if (difference := _apart(mine, expected, allowed)) is not None:
            return Difference(
                quantity, difference[0], difference[1], stage, difference[2]
            )
    moved = next(
        (
            path
            for path, value in theirs.moving.items()
            if ours.moving.get(path, path) != value
        ),
        None,
    )
    if moved is not None:
        description = f"is {theirs.moving[moved]!r:.40} after two calls, which a drawing does not change"
        return Difference("attributes", moved, description, stage)
    return None


def _refused(ours: ModuleResult, theirs: ModuleResult) -> str:
    if ours.refused:
        return f"stops in the drawing: {ours.refused}"
    return f"runs in the drawing, and stops in the model: {theirs.refused}"


def _apart(
    mine: Mapping[str, torch.Tensor | None],
    expected: Mapping[str, torch.Tensor | None],
    allowed: float,
) -> tuple[str, str, float | None] | None:
    """Describe where two sets of tensors differ by more than rounding, and by which share of the largest number."""
    comparison = measure.compare(mine, expected)
    if comparison["equal"]:
        return None
    largest, worst = comparison["largest"], comparison["worst"]
    if largest is None:
        return worst, comparison["words"], None
    if largest <= allowed:
        return None
    return worst, f"differs by {largest:.2g} of its largest number", largest
