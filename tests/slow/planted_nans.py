"""NaN and Inf planted in the backward pass of nets, against what `torch.autograd.detect_anomaly` names; and sound nets.

    python -m tests.slow.planted_nans

Prints a line for each net, and ends with 1 where a planted one is missed or misnamed, or a sound one reported.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.results import Finding

INF = float("inf")
Operation = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """A linear layer, an operation in a module of its own (`spot`) and another layer."""

    def __init__(self, operation: Operation | nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.spot, self.last = (
            nn.Linear(6, 6),
            _Spot(operation),
            nn.LazyLinear(2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.spot(self.first(x)))


class _Spot(nn.Module):
    def __init__(self, operation: Operation | nn.Module) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, h: Tensor) -> Tensor:
        return self.operation(h)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        return gradient / 0 * 0


OF_BROKEN = Broken.forward.__code__.co_firstlineno + 2


def dead(h: Tensor) -> Tensor:
    """Return zeros, behind a ReLU that drops every gradient."""
    return torch.relu(h - 100)


def clamped(h: Tensor) -> Tensor:
    """Return zeros, behind a clamp that drops every gradient."""
    return (h - 100).clamp(min=0)


def one(h: Tensor) -> Tensor:
    """Return ones, behind a clamp that drops every gradient."""
    return (h + 100).clamp(max=1)


def zero(h: Tensor) -> Tensor:
    """Return zeros that pass gradients on."""
    return h - h.detach()


def square(h: Tensor) -> Tensor:
    """Return the unit matrix, whose eigenvalues are all equal."""
    return torch.eye(6) + zero(h).sum()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1) / (a.pow(2).sum(-1).sqrt() * b.pow(2).sum(-1).sqrt() + 1e-8)


def no_keys(h: Tensor) -> Tensor:
    """Return scores of which two rows have no key, masked by a fill."""
    return h.masked_fill(torch.arange(len(h))[:, None] < 2, -INF)


def hooked(h: Tensor) -> Tensor:
    h = torch.relu(h)
    h.register_hook(lambda gradient: gradient / 0 * 0)
    return h.clamp(max=-1)


PLANTED: dict[str, Operation] = {
    "sqrt, ReLU": lambda h: dead(h).sqrt(),
    "sqrt, clamp": lambda h: clamped(h).sqrt(),
    "sqrt of a sum, ReLU": lambda h: dead(h).pow(2).sum(-1, keepdim=True).sqrt() * h,
    "sqrt, unmasked": lambda h: zero(h).sqrt() * zero(h),
    "sqrt, where": lambda h: torch.where(h > INF, zero(h).sqrt(), h),
    "log, where": lambda h: torch.where(h > INF, zero(h).log(), h),
    "log, masked_fill": lambda h: dead(h).log().masked_fill(h > -INF, 0) + h,
    "division, where": lambda h: torch.where(h > INF, h / zero(h), h),
    "reciprocal, where": lambda h: torch.where(h > INF, zero(h).reciprocal(), h),
    "rsqrt, where": lambda h: torch.where(h > INF, dead(h).rsqrt(), h),
    "power 0.5, threshold": lambda h: F.threshold(h - 100, 0, 0).pow(0.5),
    "power by an exponent, where": lambda h: torch.where(
        h > INF, dead(h) ** (h * 0 + 0.5), h
    ),
    "power 0.5, maximum": lambda h: torch.maximum(h - 100, h.detach() * 0).pow(0.5),
    "acos, clamp": lambda h: one(h).acos() * zero(h) * 0,
    "asin, hardtanh": lambda h: F.hardtanh(h + 100).asin() * zero(h),
    "atanh, where": lambda h: torch.where(h > INF, one(h).atanh(), h),
    "acosh, clamp": lambda h: one(h).acosh() * zero(h),
    "erfinv, where": lambda h: torch.where(h > INF, one(h).erfinv(), h),
    "logit, where": lambda h: torch.where(h > INF, clamped(h).logit(), h),
    "log1p, where": lambda h: torch.where(h > INF, (dead(h) - 1).log1p(), h),
    "std of one value, index": lambda h: torch.where(h > INF, h[:1].std(0), h),
    "hypot of zeros, ReLU6": lambda h: torch.hypot(F.relu6(h - 100), F.relu6(h - 100)),
    "softmax without keys, masked_fill": lambda h: no_keys(h).softmax(-1).nan_to_num(),
    "softmax without keys, where": lambda h: torch.where(
        h > INF, no_keys(h).softmax(-1), h
    ),
    "log_softmax without keys": lambda h: torch.where(
        h > INF, no_keys(h).log_softmax(-1), h
    ),
    "logsumexp without keys": lambda h: (
        no_keys(h).logsumexp(-1, keepdim=True).clamp(min=-9) * 0 + h
    ),
    "exp too large, where": lambda h: torch.where(h > INF, (h + 1000).exp(), h),
    "0 times infinity, where": lambda h: torch.where(
        h > INF, zero(h) * torch.full_like(h, INF), h
    ),
    "entropy of zeros, clamp": lambda h: (
        -(clamped(h) * clamped(h).log()).nan_to_num() + h
    ),
    "xlogy of zeros, where": lambda h: torch.where(h > INF, torch.xlogy(h, dead(h)), h),
    # Its own line is named; torch's traceback ends at the line that calls it.
    "a custom Function, clamp": lambda h: Broken.apply(h.clamp(max=-9)),
    "a hook, clamp": hooked,
    "cosine of zeros by hand, ReLU": lambda h: (
        (1 - cosine(dead(h), dead(h).roll(1, 0)))[:, None] + h
    ),
    "eigh of equal values, where": lambda h: torch.where(
        h > INF, torch.linalg.eigh(square(h))[1][:5], h
    ),
    "svd of equal values, where": lambda h: torch.where(
        h > INF, torch.linalg.svd(square(h))[0][:5], h
    ),
    "digamma of 0, where": lambda h: torch.where(h > INF, zero(h).lgamma(), h),
    "tan of infinity, where": lambda h: torch.where(h > INF, (h * INF).sin(), h),
    "log2 of 0, masked_scatter": lambda h: (
        h.masked_scatter(h > INF, dead(h).log2()) + h
    ),
    "sqrt, gather": lambda h: (
        dead(h).gather(1, torch.zeros(5, 1, dtype=torch.long)).sqrt() * zero(h)
    ),
    "sqrt, LeakyReLU before a clamp": lambda h: (
        F.leaky_relu(clamped(h)).sqrt() * zero(h)
    ),
    "log10 of 0, dropout": lambda h: torch.where(
        h > INF, F.dropout(dead(h), 0.5).log10(), h
    ),
    "sqrt, max over rows": lambda h: dead(h).amax(0, keepdim=True).sqrt() + h,
    "sqrt, an index": lambda h: torch.cat(
        [zero(h).sqrt()[:0], zero(h)[1:].sqrt(), h[:1]]
    ),
    "logaddexp of -inf, where": lambda h: torch.where(
        h > INF, torch.logaddexp(h * 0 - INF, h * 0 - INF), h
    ),
}


class Attention(nn.Module):
    def __init__(self, weights: bool, **masks: Tensor) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.weights, self.masks = weights, masks

    def forward(self, h: Tensor) -> Tensor:
        rows = h[None].expand(2, -1, -1)
        return self.attention(
            rows, rows, rows, need_weights=self.weights, **self.masks
        )[0][0]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(6, 6, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        return self.layer(h[None])[0][0]


def causal() -> Tensor:
    return torch.full((5, 5), -INF).triu(1)


def padded() -> Tensor:
    return torch.tensor([[False, False, False, True, True], [False] * 5])


SOUND: dict[str, Callable[[], Operation | nn.Module]] = {
    "linear": lambda: lambda h: h,
    "ReLU": lambda: nn.ReLU(),
    "dead ReLU": lambda: dead,
    "GELU of large values": lambda: lambda h: F.gelu(h * 1e4),
    "softplus of large values": lambda: lambda h: F.softplus(h * 1e4),
    "logsigmoid of large values": lambda: lambda h: F.logsigmoid(h * 1e4),
    "sigmoid of large values": lambda: lambda h: torch.sigmoid(h * 1e6),
    "gradients of 1e25": lambda: lambda h: h * 1e25,
    "gradients of 1e-30": lambda: lambda h: h * 1e-30,
    "gradients near the largest float": lambda: lambda h: h * 1e37,
    "denormal values": lambda: lambda h: h * 1e-42,
    "sqrt with epsilon": lambda: lambda h: (dead(h) + 1e-8).sqrt(),
    "norm of zeros": lambda: lambda h: dead(h).norm(dim=-1, keepdim=True) + h,
    "normalize of zeros": lambda: lambda h: F.normalize(dead(h), dim=-1) + h,
    "cosine_similarity of zeros": lambda: (
        lambda h: F.cosine_similarity(dead(h), h)[:, None] + h
    ),
    "double where around log": lambda: (
        lambda h: torch.where(h > 0, torch.where(h > 0, h, 1.0).log(), h)
    ),
    "log of a clamp": lambda: lambda h: dead(h).clamp(min=1e-12).log(),
    "abs, sign and squares at 0": lambda: (
        lambda h: zero(h).abs() + zero(h).sign() + zero(h) ** 2 + zero(h) ** 1.0
    ),
    "prod and cumprod with zeros": lambda: (
        lambda h: dead(h).prod(-1, keepdim=True) + dead(h).cumprod(-1) + h
    ),
    "layer_norm of constant rows": lambda: (
        lambda h: F.layer_norm(dead(h) + 1, (6,)) + h
    ),
    "BatchNorm of constant columns": lambda: nn.Sequential(
        nn.Hardtanh(5, 6), nn.BatchNorm1d(6)
    ),
    "GroupNorm": lambda: nn.GroupNorm(2, 6),
    "RMSNorm of zeros": lambda: nn.Sequential(
        nn.Hardtanh(0, 1e-9), nn.RMSNorm(6, eps=1e-6)
    ),
    "causal attention": lambda: Attention(False, attn_mask=causal()),
    "causal attention with weights": lambda: Attention(True, attn_mask=causal()),
    "padded attention": lambda: Attention(False, key_padding_mask=padded()),
    "padded attention with weights": lambda: Attention(True, key_padding_mask=padded()),
    "scaled_dot_product_attention": lambda: (
        lambda h: F.scaled_dot_product_attention(
            h[None], h[None], h[None], is_causal=True
        )[0]
    ),
    "softmax with some keys masked": lambda: (
        lambda h: h.masked_fill(torch.eye(6)[:5] > 0, -INF).softmax(-1)
    ),
    "log_softmax with some keys masked": lambda: (
        lambda h: (
            h.masked_fill(torch.eye(6)[:5] > 0, -INF)
            .log_softmax(-1)
            .masked_fill(torch.eye(6)[:5] > 0, 0)
        )
    ),
    "masked with the least float": lambda: (
        lambda h: h.masked_fill(h > -INF, torch.finfo(h.dtype).min).softmax(-1) + h
    ),
    "logsumexp with some keys masked": lambda: (
        lambda h: h.masked_fill(torch.eye(6)[:5] > 0, -INF).logsumexp(-1, True) + h
    ),
    "greatest of some masked keys": lambda: (
        lambda h: h.masked_fill(torch.eye(6)[:5] > 0, -INF).amax(-1, True) + h
    ),
    "max pooling, padded": lambda: lambda h: F.max_pool1d(h[None], 3, 1, 1)[0],
    "top 2 of masked": lambda: (
        lambda h: (
            h.masked_fill(torch.eye(6)[:5] > 0, -INF).topk(2, -1)[0].sum(-1, True) + h
        )
    ),
    "a NaN constant that is not taken": lambda: (
        lambda h: torch.where(h > INF, torch.tensor(float("nan")), h)
    ),
    "a NaN without gradients": lambda: (
        lambda h: h + dead(h.detach()).log().nan_to_num(0, 0, 0)
    ),
    "GRU": lambda: Recurrent(nn.GRU),
    "LSTM": lambda: Recurrent(nn.LSTM),
    "huber and smooth losses at 0": lambda: (
        lambda h: F.huber_loss(h, h.detach(), reduction="none") + h
    ),
    "transformer layer": lambda: nn.TransformerEncoderLayer(
        6, 2, 8, dropout=0.1, batch_first=True
    ),
    "std of equal values": lambda: lambda h: dead(h).std(-1, keepdim=True) + h,
    "atan2 of zeros": lambda: lambda h: torch.atan2(dead(h), dead(h)) + h,
    "half the precision": lambda: lambda h: (h.bfloat16() * 3).float(),
}


class Named(NamedTuple):
    """The node that first returned a NaN, its layer by the tape, and the line; "" and None without any."""

    node: str
    line: int | None


def batch_of(operation: Operation | nn.Module) -> TrainingBatch:
    model = Net(operation)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    model.eval()(x)  # the lazy layer's size
    return TrainingBatch(
        model, (x,), lambda output, _target: output.mean(), own_lines=True
    )


def by_torch(batch: TrainingBatch) -> Named:
    """Return what `detect_anomaly` names in this very batch, and the line of this file in its traceback."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        try:
            with torch.autograd.detect_anomaly():
                torch.stack([end.sum() for end in batch.forward()]).sum().backward()
        except RuntimeError as error:
            node = re.match(r"Function '(\w+)' returned nan values", str(error))
            assert node is not None, error
            texts = [
                str(one.message)
                for one in caught
                if "Error detected" in str(one.message)
            ]
            lines = (
                re.findall(rf'File "{re.escape(__file__)}", line (\d+)', texts[-1])
                if texts
                else []
            )
            return Named(node[1], int(lines[-1]) if lines else None)
        finally:
            batch.model.zero_grad()
    return Named("", None)


def by_findings(batch: TrainingBatch) -> list[Finding]:
    return [one for one in find_all(batch).found if one.kind == "non-finite"]


def of_planted(name: str) -> tuple[str, str]:
    """Return a line of the table for a planted net, and what is wrong with it, "" if nothing is."""
    batch = batch_of(PLANTED[name])
    torchs = by_torch(batch)
    backward = [
        one for one in by_findings(batch) if "In the backward pass" in one.sentence
    ]
    if not backward:
        return f"{name:36} {torchs.node:26} nothing", "missed"
    one = next(
        (each for each in backward if f"pass, {torchs.node} of" in each.sentence),
        backward[0],
    )
    place = one.line if one.line is not None else 0
    node = one.sentence.removeprefix("In the backward pass, ").partition(" of ")[0]
    text = (
        f"{name:36} {torchs.node or '(only Inf)':26} {node:26} line {place} "
        f"({torchs.line})  {one.layer:6} {one.cure}"
    )
    if torchs.node and node != torchs.node:
        return text, f"torch names {torchs.node}"
    if torchs.line is not None and one.line not in (torchs.line, OF_BROKEN):
        return text, f"torch names line {torchs.line}"
    return (
        text,
        "" if one.layer == "spot" and one.line is not None else "no layer or line",
    )


def of_sound(name: str) -> tuple[str, str]:
    """Return a line of the table for a sound net, and what is wrong with it, "" if nothing is."""
    found = by_findings(batch_of(SOUND[name]()))
    return f"{name:36} {len(found)} findings of NaN", "; ".join(
        one.sentence for one in found
    )


def main() -> int:
    wrong = 0
    for title, names, check in (
        ("Planted", PLANTED, of_planted),
        ("Sound", SOUND, of_sound),
    ):
        print(f"{title}: {len(names)}")
        for name in names:
            text, fault = check(name)
            wrong += bool(fault)
            print(
                f"  {'WRONG' if fault else 'ok   '} {text}{f'  <- {fault}' if fault else ''}"
            )
    print(f"{len(PLANTED)} planted, {len(SOUND)} sound, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
