"""Ways of writing a model that public code has, each found with a model that came out wrong or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.features.importing.importer.test_models import code_of, same


class Dense(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, features):
        return self.fc(torch.relu(self.norm(torch.cat(features, 1))))


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Dense(4 * (number + 1)) for number in range(4))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def test_a_layer_that_joins_ever_longer_lists_is_one_block() -> None:
    project = same(Growing(), torch.randn(3, 4))
    text = code_of(project).text
    assert text.count("class ") == 2 and text.count("Dense(") == 5


class NormAct(nn.BatchNorm2d):
    """A norm with its own forward, as timm writes it: F.batch_norm over its buffers, and a count that it keeps."""

    def forward(self, x):
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        batch = True if self.training else self.running_mean is None
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            batch,
            self.momentum,
            self.eps,
        ).relu()


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn1, self.bn2 = (
            nn.Conv2d(2, 4, 3, bias=False),
            NormAct(4),
            NormAct(4, eps=1e-3),
        )

    def forward(self, x):
        weight = self.conv.weight
        even = F.batch_norm(weight.reshape(1, 4, -1), None, None, training=True)
        return self.bn2(self.bn1(F.conv2d(x, even.reshape_as(weight))))


class Sizes(nn.Module):
    """Sizes that are computed, in every way that people hand them on."""

    def forward(self, x):
        b, t, c = x.shape
        state = torch.zeros(b, c, device=x.device)
        mask = torch.triu(torch.ones(t, t, device=x.device), diagonal=1).bool()
        grid = torch.stack(
            torch.meshgrid(torch.arange(t), torch.arange(c), indexing="xy"), -1
        ).to(x)
        padded = torch.cat(
            [
                torch.zeros((x.size(0), 1) + x.size()[2:]).to(x),
                x[:, 1:].transpose(1, 2)[:, :, 0:1].transpose(1, 2).expand_as(x[:, :1]),
            ],
            1,
        )
        a, *others = x.split(2, dim=2)
        return (
            a @ others[0].transpose(1, 2) * ~mask,
            state + x.sum(1),
            grid.sum() + x.mean(),
            padded,
        )


class Picked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, 5))
        self.register_buffer(
            "places", torch.tensor([[0, 3], [4, 4], [1, 0]]), persistent=False
        )

    def forward(self, x):
        best, chosen = x.topk(2, dim=-1)
        spread = torch.zeros_like(x).scatter(-1, chosen, best.softmax(-1))
        outer = torch.outer(x[0], x[1])
        far = torch.addcmul(x, x, spread, value=0.5).norm(dim=-1) + F.mse_loss(
            x, spread
        )
        counts = torch.cumsum(x > 0, -1, dtype=torch.float64)
        return self.table[:, self.places], spread, outer, far, counts, torch.erf(x)


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) * torch.rand_like(x)


class Changed(nn.Module):
    """Parts of a tensor changed in place, read where the whole is; swin's second version does so to its biases."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x):
        bias = self.bias.clone()
        bias[2:4].zero_()
        first = x.clone()
        same_one, part = first, first[:, 1]
        part += 3.0
        first[:, 2:][:, 0].mul_(2.0)
        first[:, 4] *= 5.0
        return same_one + bias, part


class Inside(nn.Module):
    """A module that calls a part of it `self`, as BERT does, and drops out of its attention in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.self, self.p = nn.Linear(8, 24), 0.3

    def forward(self, x):
        q, k, v = (part[:, None] for part in self.self(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True
        )
        return y[:, 0].to(self.self.weight.dtype)


class Told(nn.Module):
    """Dtypes and places read off other tensors, so that the code runs in double precision as the model does."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.other = Inside(), Inside()

    def forward(self, x):
        t = x.size(1)
        y = self.other(self.attention(x)).to(x.device)
        places = torch.arange(t, device=x.device, dtype=x.dtype)
        steps = torch.diff(places.to(device=x.device), dim=0)
        empty = torch.zeros(t, dtype=x.dtype)
        far = torch.where(y > 0, y, torch.finfo(x.dtype).min).softmax(-1)
        near = torch.where(y > 0, 0.5, y) + torch.min(y, far) + torch.max(y, x)
        return (
            near.to(x.device, x.dtype),
            steps.sum() + empty + y[..., 0],
            far,
            torch.diff(x, dim=1),
        )


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Norms, (3, 2, 6, 6)),
        (Sizes, (2, 4, 4)),
        (Picked, (3, 5)),
        (Noisy, (2, 3)),
        (Changed, (2, 6)),
        (Told, (2, 5, 8)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_is_the_same_net(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model = make()
    same(model, torch.randn(shape).requires_grad_())


def test_what_drops_out_in_training_says_so_in_the_code() -> None:
    text = code_of(same(Inside(), torch.randn(2, 5, 8))).text
    assert (
        "dropout_p=0.3 if self.training else 0.0" in text
        and "self.self = nn.Linear(8, 24)" in text
    )


class Windows(nn.Module):
    def forward(self, x):
        n, t, c = x.shape
        y = (
            x.view(n, t // 2, 2, c // 2, 2)
            .permute(0, 1, 3, 2, 4)
            .reshape(n, (t // 2) * (c // 2), 4)
        )
        return (
            y.softmax(-1)
            .view(n, t // 2, c // 2, 2, 2)
            .permute(0, 1, 3, 2, 4)
            .reshape(n, t, c)
        )


def test_a_number_is_computed_once() -> None:
    text = code_of(same(Windows(), torch.randn(2, 6, 4).requires_grad_())).text
    assert text.count("// 2") == 2
