"""Attention maps of a forward pass: recomputed beside each attention in chunks, and checked against its output."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn

from app.features.interpret.compute.attention import Attention, AttentionFinder
from app.features.interpret.values import AttentionReading

REGISTERS = 9  # tokens before those of patches, at most
LARGEST = 1 << 26  # bytes of the maps of one attention; larger ones are pooled


def attentions(
    model: nn.Module,
    call: Callable[[], Any],
    batch: int = 1,
    sample: int = 0,
    keep: Collection[str] | None = None,
) -> tuple[tuple[AttentionReading, ...], tuple[str, ...]]:
    """Run `call()`, a forward pass of `model` on `batch` samples, and return every attention in it, for one sample.

    Maps are kept for the modules at the paths `keep`, for all with None. Also returns what could not be followed.
    """
    remarks: tuple[str, ...] = ()
    for kernels in (True, False):
        found: list[AttentionReading] = []

        def collect(one: Attention, found: list[AttentionReading] = found) -> None:
            found.append(read(one, batch, sample, keep is None or one.path in keep))

        try:
            with AttentionFinder(model, collect).watching(kernels):
                call()
        except NotImplementedError:  # tensors that have no kernels of torch's own
            if not kernels:
                raise
            remarks = (
                "Only calls of scaled_dot_product_attention are seen: the model does not run under torch's "
                "dispatch mode.",
            )
            continue
        return tuple(found), remarks
    raise AssertionError


def read(one: Attention, batch: int, sample: int, keep: bool) -> AttentionReading:
    """Return the weights of an attention for one sample, or a summary by head, and their error against its output."""
    groups, heads = dims(one.lead, batch)
    pooled = _pooling(groups * heads, one.queries, one.keys) if keep else 1
    parts: list[Tensor] = []
    entropy = torch.zeros(heads, dtype=torch.float64, device=one.output.device)
    difference = largest = top = 0.0
    for begin, end, weights, score in one.chunks(pooled):
        top = max(top, score)
        made = one.output[..., begin:end, :].double()
        difference = max(difference, _largest(weights @ one.values.double() - made))
        largest = max(largest, _largest(made))
        own = weights.reshape(-1, groups, heads, end - begin, one.keys)[
            sample if one.lead else 0
        ]
        entropy += torch.special.entr(own).sum((0, 2, 3))
        if keep:
            parts.append(_pool(own, pooled))
    error = difference / largest if largest else difference
    fair = error <= tolerance(one.output.dtype, top)
    remark = one.remark
    if not fair:
        why = f", since dropout of {one.dropout:g} is applied" if one.dropout else ""
        remark = (
            f"{remark}; " * bool(remark)
            + f"these weights do not reproduce the output of the call{why}"
        )
    return AttentionReading(
        one.path,
        one.call,
        one.kind,
        _format_line(one.place),
        groups,
        heads,
        one.queries,
        one.keys,
        error,
        fair,
        tuple((entropy / max(groups * one.queries, 1)).tolist()),
        pooled,
        grid_of(one.keys, one.pictures) if groups == pooled == 1 else None,
        torch.cat(parts, 2).numpy() if parts else None,
        remark,
    )


def dims(lead: tuple[int, ...], batch: int) -> tuple[int, int]:
    """Return groups and heads of one sample from the sizes before queries and keys.

    Heads are the last of several sizes; of one size those of a sample, where it is a multiple of the batch.

    >>> dims((8, 12), 8), dims((64, 3), 1), dims((24,), 2), dims((2, 4, 3), 2), dims((), 1)
    ((1, 12), (64, 3), (1, 12), (4, 3), (1, 1))
    """
    if not lead:
        return 1, 1
    if len(lead) == 1:
        return 1, lead[0] // batch if lead[0] % batch == 0 else lead[0]
    rest = math.prod(lead[:-1])
    return rest // batch if rest % batch == 0 else rest, lead[-1]


def grid_of(
    keys: int, pictures: Iterable[tuple[int, int]]
) -> tuple[int, int, int] | None:
    """Return how many keys come before those of patches, and rows and columns of patches; None without any.

    Before patches may be a class token, a distillation token, and registers.

    >>> grid_of(197, [(7, 7), (14, 14)]), grid_of(64, [(8, 8)]), grid_of(8, [(8, 8)])
    ((1, 14, 14), (0, 8, 8), None)
    """
    for rows, columns in pictures:
        if rows * columns > 1 and 0 <= keys - rows * columns <= REGISTERS:
            return keys - rows * columns, rows, columns
    return None


def tolerance(dtype: torch.dtype, score: float) -> float:
    """Return the relative difference that rounding in a dtype explains where scores are as large as `score`: an error
    of eps in a score is one of eps * score in its weight."""
    eps = torch.finfo(dtype).eps
    return eps * (8 if eps > 1e-4 else 64) + torch.finfo(torch.float32).eps * 8 * score


def _largest(values: Tensor) -> float:
    return float(values.abs().amax()) if values.numel() else 0.0


def _pooling(maps: int, queries: int, keys: int) -> int:
    factor = 1
    while 4 * maps * -(-queries // factor) * -(-keys // factor) > LARGEST:
        factor += 1
    return factor


def _pool(weights: Tensor, factor: int) -> Tensor:
    """Average `factor` queries, and sum `factor` keys, so that rows still sum to 1."""
    if factor > 1:
        padded = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % factor))
        weights = padded.reshape(*weights.shape[:-1], -1, factor).sum(-1)
        weights = torch.stack([part.mean(2) for part in weights.split(factor, 2)], 2)
    return weights.float().cpu()


def _format_line(place: tuple[str, int]) -> str:
    file, line = place
    return (
        f"{PurePath(file).name}:{line}"
        if line and not file.startswith("<")
        else f"line {line}"
        if line
        else ""
    )
