"""Small nets of several families, written as people write them; `planted_bugs` plants bugs into copies of this text."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            self.qkv(x)
            .view(b, t, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(c // self.heads)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        weights = self.drop(scores.softmax(dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class Gpt(nn.Module):
    """A decoder with learned positions and a tied head."""

    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(60, width), nn.Embedding(24, width)
        self.blocks = nn.ModuleList(GptBlock(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 60, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Rotary(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        frequencies = 10000.0 ** (-torch.arange(0, self.width, 2) / self.width)
        angles = torch.arange(0, x.shape[-2])[:, None] * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, other = x[..., ::2], x[..., 1::2]
        return torch.stack(
            (one * cos - other * sin, one * sin + other * cos), -1
        ).flatten(-2)


class LlamaAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.rotary = heads, Rotary(width // heads)
        self.q_proj, self.k_proj = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.v_proj, self.o_proj = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in (q, k, v))
        mixed = F.scaled_dot_product_attention(
            self.rotary(q), self.rotary(k), v, is_causal=True
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(b, t, c))


class SwiGlu(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = (
            nn.Linear(width, 2 * width, bias=False),
            nn.Linear(width, 2 * width, bias=False),
        )
        self.down, self.act = nn.Linear(2 * width, width, bias=False), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.attention, self.mlp = LlamaAttention(width, heads), SwiGlu(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class Llama(nn.Module):
    """A decoder with rotary positions and gated layers."""

    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.tokens = nn.Embedding(60, width)
        self.scale = math.sqrt(width)
        self.blocks = nn.ModuleList(LlamaBlock(width, 4) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, 60, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.output, self.norm1 = (
            nn.Linear(width, width),
            nn.LayerNorm(width, eps=1e-12),
        )
        self.up, self.act, self.down = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.norm2, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            one(x).view(b, t, self.heads, -1).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5
        scores = scores + mask
        weights = F.softmax(scores, dim=-1)
        x = self.norm1(
            x + self.drop(self.output((weights @ v).transpose(1, 2).reshape(b, t, c)))
        )
        return self.norm2(x + self.drop(self.down(self.act(self.up(x)))))


class Bert(nn.Module):
    """An encoder with a padding mask and a pooler."""

    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.words, self.positions, self.types = (
            nn.Embedding(size, width) for size in (60, 24, 2)
        )
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, 4) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = (
            self.words(ids)
            + self.types(torch.zeros_like(ids))
            + self.positions(torch.arange(ids.shape[1]))
        )
        x = self.norm(x)
        mask = (ids == 0)[:, None, None, :].to(x.dtype) * -1e9
        for layer in self.layers:
            x = layer(x, mask)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.classifier(pooled)


class VitBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (
            nn.LayerNorm(width, eps=1e-6),
            nn.LayerNorm(width, eps=1e-6),
        )
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(2 * width, width),
        )
        self.gamma = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.gamma * self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return x


class Vit(nn.Module):
    """A vision transformer with a class token."""

    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.cls, self.positions = (
            nn.Parameter(torch.randn(1, 1, width)),
            nn.Parameter(torch.randn(1, 40, width)),
        )
        self.blocks = nn.Sequential(*(VitBlock(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 7)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1)
        x = x + self.positions[:, : x.shape[1]]
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


class ResidualBlock(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = (
            nn.Conv2d(inside, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.conv2, self.bn2 = (
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride > 1 or inside != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y = y + self.shortcut(x)
        return F.relu(y)


class ResNet(nn.Module):
    """A residual net for small images."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.40]).view(1, 3, 1, 1))
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.layer1, self.layer2 = ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2)
        self.layer3, self.fc = ResidualBlock(16, 16, 1), nn.Linear(16, 7)

    def forward(self, image: Tensor) -> Tensor:
        x = image - self.mean
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        x = x.mean((2, 3))
        return self.fc(x)


class DoubleConv(nn.Module):
    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = (
            nn.Conv2d(inside, out, 3, padding=1),
            nn.GroupNorm(2, out),
        )
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(2, out)
        self.act = nn.LeakyReLU(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm1(self.conv1(x)))
        return self.act(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    """An encoder and decoder with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = (
            DoubleConv(3, 8),
            DoubleConv(8, 16),
            DoubleConv(16, 16),
        )
        self.pool1, self.pool2 = nn.MaxPool2d(3, 2), nn.AvgPool2d(3, 2, 1)
        self.up2, self.up1 = DoubleConv(32, 8), DoubleConv(16, 8)
        self.upsample, self.last = (
            nn.Upsample(size=(13, 13), mode="bilinear"),
            nn.Conv2d(8, 2, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        one = self.down1(image)
        two = self.down2(self.pool1(one))
        x = self.bottom(self.pool2(two))
        x = F.interpolate(x, size=two.shape[2:], mode="bilinear", align_corners=False)
        x = self.up2(torch.cat((x, two), 1))
        x = F.interpolate(self.upsample(x), size=one.shape[2:], mode="nearest")
        x = self.up1(torch.cat((x, one), 1))
        return self.last(x)


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, 4, 1), nn.Conv2d(4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = F.hardsigmoid(self.expand(F.relu(self.reduce(scale))))
        return x * scale


class InvertedResidual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand, self.bn1 = (
            nn.Conv2d(width, 2 * width, 1, bias=False),
            nn.BatchNorm2d(2 * width),
        )
        self.depthwise = nn.Conv2d(
            2 * width, 2 * width, 5, 1, 2, groups=2 * width, bias=False
        )
        self.bn2, self.act, self.squeeze = (
            nn.BatchNorm2d(2 * width),
            nn.Hardswish(),
            SqueezeExcite(2 * width),
        )
        self.project, self.bn3 = (
            nn.Conv2d(2 * width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.expand(x)))
        y = self.squeeze(self.act(self.bn2(self.depthwise(y))))
        return x + self.bn3(self.project(y))


class MobileNet(nn.Module):
    """Depthwise convolutions with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(*(InvertedResidual(8) for _ in range(3)))
        self.classifier = nn.Sequential(
            nn.Linear(8, 16), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(16, 7)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = F.hardswish(self.bn(self.stem(image)))
        x = self.blocks(x)
        x = x.mean((2, 3))
        return self.classifier(x)


class Tagger(nn.Module):
    """An LSTM over words, with a tag for each."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.drop = nn.Embedding(60, 16), nn.Dropout(0.2)
        self.lstm = nn.LSTM(16, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.norm, self.hidden, self.tags = (
            nn.LayerNorm(24),
            nn.Linear(24, 24),
            nn.Linear(24, 5),
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.words(ids))
        x, (state, _) = self.lstm(x)
        x = self.norm(x) + state[-1].repeat(1, 2)[:, None, :]
        x = torch.tanh(self.hidden(x))
        return F.log_softmax(self.tags(x), dim=-1)


class GatedConv(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.filter = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))
        return x + self.mix(y)


class Wave(nn.Module):
    """Gated dilated convolutions over a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 8, 5, padding=2)
        self.layers = nn.ModuleList(GatedConv(8, 2**power) for power in range(4))
        self.norm, self.last = nn.BatchNorm1d(8), nn.Conv1d(8, 4, 1)
        self.gain, self.shift = (
            nn.Parameter(torch.rand(8, 1) + 0.5),
            nn.Parameter(torch.randn(8, 1)),
        )

    def forward(self, signal: Tensor) -> Tensor:
        x = self.first(signal)
        total = torch.zeros_like(x)
        for layer in self.layers:
            x = layer(x)
            total = total + x
        total = self.norm(total) * self.gain + self.shift
        return self.last(F.relu(total))


class MixerBlock(nn.Module):
    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places = nn.Sequential(
            nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places)
        )
        self.channels = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return x


class Mixer(nn.Module):
    """An MLP-Mixer that returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.loss = nn.Conv2d(3, 16, 4, 4), nn.CrossEntropyLoss()
        self.blocks = nn.Sequential(*(MixerBlock(16, 16) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)
        self.register_buffer("target", torch.arange(4) % 5)

    def forward(self, image: Tensor) -> Tensor:
        x = (image - 0.5) / 2
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = self.norm(self.blocks(x)).mean(1)
        return self.loss(self.head(x), self.target[: len(x)])
