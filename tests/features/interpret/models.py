"""Small models with attention of each kind, and their weights as a hand-written softmax gives them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def softmax_maps(
    q: Tensor, k: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """softmax(q k^T scale + mask) with True in a boolean mask for what may be looked at."""
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -math.inf)
            if mask.dtype == torch.bool
            else scores + mask
        )
    return scores.softmax(-1)


class OwnAttention(nn.Module):
    """Attention over (N, T, 24) with 4 heads, computed by `how(q, k, v)`; `reference(q, k)` are its weights."""

    def __init__(
        self,
        how: Callable[..., Tensor],
        reference: Callable[..., Tensor],
        keys: int = 4,
    ) -> None:
        super().__init__()
        self.q, self.k, self.v = (
            nn.Linear(24, 24),
            nn.Linear(24, 6 * keys),
            nn.Linear(24, 6 * keys),
        )
        self.out, self.how, self.reference = nn.Linear(24, 5), how, reference

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = (self.q(x), self.k(x), self.v(x))
        q, k, v = (one.unflatten(-1, (-1, 6)).transpose(1, 2) for one in parts)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.out(self.how(q, k, v).transpose(1, 2).flatten(2)).mean(1)

    @torch.no_grad()
    def expected(self, x: Tensor) -> Tensor:
        q, k, _ = self.heads(x)
        return self.reference(q, k.repeat_interleave(q.shape[1] // k.shape[1], 1))


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(
        torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf
    )
    return F.dropout(scores.float().softmax(-1).to(q.dtype), 0.1, training=False) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (torch.einsum("bhqd,bhkd->bhqk", q, k) * 6**-0.5).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


def values_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.mT * 6**-0.5).softmax(-1)
    return (v.mT @ weights.mT).mT


def causal(q: Tensor, k: Tensor) -> Tensor:
    return softmax_maps(
        q, k, torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    )


BIAS = torch.randn(4, 7, 7, generator=torch.Generator().manual_seed(3))
SEEN = torch.ones(7, 7, dtype=torch.bool).tril(2)

OWN: dict[str, Callable[[], OwnAttention]] = {
    "fused": lambda: OwnAttention(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v), softmax_maps
    ),
    "is_causal": lambda: OwnAttention(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), causal
    ),
    "boolean mask": lambda: OwnAttention(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, SEEN),
        lambda q, k: softmax_maps(q, k, SEEN),
    ),
    "additive mask, scale": lambda: OwnAttention(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=BIAS, scale=0.3
        ),
        lambda q, k: softmax_maps(q, k, BIAS, 0.3),
    ),
    "enable_gqa": lambda: OwnAttention(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        ),
        causal,
        keys=2,
    ),
    "written out": lambda: OwnAttention(written_out, causal),
    "einsum": lambda: OwnAttention(by_einsum, softmax_maps),
    "values first": lambda: OwnAttention(values_first, softmax_maps),
}
