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
from tapedeck import devices

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
        readings: list[AttentionReading] = []

        def collect(
            attention: Attention, collected: list[AttentionReading] = readings
        ) -> None:
            collected.append(
                read(attention, batch, sample, keep is None or attention.path in keep)
            )

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
        return tuple(readings), remarks
    raise AssertionError


def read(attention: Attention, batch: int, sample: int, keep: bool) -> AttentionReading:
    """Return the weights of an attention for one sample, or a summary by head, and their error against its output."""
    groups, heads = dims(attention.lead, batch)
    pooled = _pooling(groups * heads, attention.queries, attention.keys) if keep else 1
    parts: list[Tensor] = []
    entropy = torch.zeros(heads, dtype=torch.float64)
    difference = largest = top = 0.0
    for begin, end, weights, score in attention.chunks(pooled):
        top = max(top, score)
        output_chunk = devices.doubled(attention.output[..., begin:end, :])
        product = weights @ devices.doubled(attention.values)
        difference = max(difference, _largest(product - output_chunk))
        largest = max(largest, _largest(output_chunk))
        sample_weights = weights.reshape(
            -1, groups, heads, end - begin, attention.keys
        )[sample if attention.lead else 0]
        entropy += torch.special.entr(sample_weights).sum((0, 2, 3)).cpu()
        if keep:
            parts.append(_pool(sample_weights, pooled))
    error = difference / largest if largest else difference
    fair = error <= tolerance(attention.output.dtype, top)
    remark = attention.remark
    if not fair:
        why = (
            f", since dropout of {attention.dropout:g} is applied"
            if attention.dropout
            else ""
        )
        remark = (
            f"{remark}; " * bool(remark)
            + f"these weights do not reproduce the output of the call{why}"
        )
    return AttentionReading(
        attention.path,
        attention.call,
        attention.kind,
        _format_line(attention.place),
        groups,
        heads,
        attention.queries,
        attention.keys,
        error,
        fair,
        tuple((entropy / max(groups * attention.queries, 1)).tolist()),
        pooled,
        grid_of(attention.keys, attention.pictures) if groups == pooled == 1 else None,
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
        weights = torch.stack([rows.mean(2) for rows in weights.split(factor, 2)], 2)
    return weights.float().cpu()


def _format_line(location: tuple[str, int]) -> str:
    file, line = location
    return (
        f"{PurePath(file).name}:{line}"
        if line and not file.startswith("<")
        else f"line {line}"
        if line
        else ""
    )
