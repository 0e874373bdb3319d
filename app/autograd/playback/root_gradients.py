"""Gradients that a backward pass starts with: ones, or the vectors of a vector-Jacobian product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from app.autograd.walk import edge_of

if TYPE_CHECKING:
    from torch import Tensor

    from app.autograd.capture_options import CaptureOptions
    from app.autograd.playback.kept_graph import LiveGraph


def seeded(
    graph: LiveGraph, seeds: Sequence[Tensor | float | None] | None, scale: float
) -> list[tuple[tuple[int, int], Tensor]]:
    """Return ((node, output number), gradient), in the shape of the end, for each end of the graph that has one.

    Raises ValueError where `seeds` fit the ends neither in number nor in shape, and where there are none but an end of
    several elements needs one.
    """
    if seeds is not None and len(seeds) != len(graph.ends):
        raise ValueError(
            f"{len(graph.ends)} outputs need as many vectors, and {len(seeds)} were given."
        )
    node_indices = {node: index for index, node in enumerate(graph.nodes)}
    start_gradients = []
    for number, end in enumerate(graph.ends):
        if not end.requires_grad:
            continue
        seed = _seed(
            number, end, None if seeds is None else seeds[number], seeds is None
        )
        if seed is not None:
            node, output_nr = edge_of(end)
            start_gradients.append(
                (
                    (node_indices[node], output_nr),
                    seed * scale if scale != 1.0 else seed,
                )
            )
    if not start_gradients:
        raise ValueError(
            "No output has a vector, so there is no gradient to propagate. Give at least one."
        )
    return start_gradients


def chosen_vectors(
    options: CaptureOptions,
) -> Callable[[Sequence[Tensor]], list[Tensor | None]] | None:
    """Return what makes the vectors that backward starts with at the outputs; None where it starts at a scalar."""
    if options.loss or options.second_order:
        return None
    return lambda ends: [
        vector(end, options.vector, options.index, output_index)
        for output_index, end in enumerate(ends)
    ]


def vector(end: Tensor, kind: str, index: int, output_index: int) -> Tensor | None:
    """Return the vector for the vector-Jacobian product of an output: ones, random numbers, or 1 at `index` of the
    last dimension and 0 elsewhere. None for an output that does not require grad.

    Raises ValueError for an index out of range.
    """
    if not end.requires_grad:
        return None
    value = end.detach()
    if kind == "ones":
        return torch.ones_like(value)
    if kind == "random":
        drawn = torch.randn(
            value.shape,
            generator=torch.Generator().manual_seed(output_index),
            dtype=torch.float64,
        )
        return drawn.to(value.device, value.dtype)
    last = value.shape[-1] if value.ndim else 1
    if not 0 <= index < last:
        raise ValueError(
            f"Output {output_index + 1} has {last} elements in its last dimension; there is no index {index}."
        )
    basis_vector = torch.zeros_like(value)
    (basis_vector if value.ndim else basis_vector.view(1))[..., index] = 1
    return basis_vector


def _seed(
    number: int, end: Tensor, seed: Tensor | float | None, needed: bool
) -> Tensor | None:
    if seed is None and end.numel() == 1:
        seed = 1.0
    if seed is None:
        if needed:
            raise ValueError(
                f"Output {number} has shape {tuple(end.shape)}, and backward starts from a single number or from a "
                "vector of that shape: choose a loss, or give the vector."
            )
        return None
    if isinstance(seed, torch.Tensor):
        if seed.shape != end.shape:
            raise ValueError(
                f"Output {number} has shape {tuple(end.shape)}; its vector has {tuple(seed.shape)}."
            )
        return seed.detach().to(end.device, end.dtype)
    return torch.full_like(end.detach(), float(seed))
