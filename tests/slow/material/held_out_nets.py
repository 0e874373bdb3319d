"""Small nets of families that `diff_nets` has not, for planted bugs that the program was not made with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GroupedAttention(nn.Module):
    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, shared * self.size)
        self.v, self.out = nn.Linear(width, shared * self.size), nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.zeros(heads, 1, 1))
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, heads + 1))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = (
            self.k(x)
            .view(b, t, self.shared, self.size)
            .transpose(1, 2)
            .repeat_interleave(self.heads // self.shared, 1)
        )
        v = (
            self.v(x)
            .view(b, t, self.shared, self.size)
            .transpose(1, 2)
            .repeat_interleave(self.heads // self.shared, 1)
        )
        places = torch.arange(t)
        distance = (places[:, None] - places[None]).clamp(min=0)
        scores = (
            q @ k.mT / math.sqrt(self.size) * self.temperature.exp()
            - self.slopes[:, None, None] * distance
        )
        scores = 5.0 * torch.tanh(scores / 5.0)
        scores = scores.masked_fill(places[None] > places[:, None], -torch.inf)
        scores = scores.masked_fill(~keep[:, None, None, :], -1e4)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class GroupedBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = GroupedAttention(width, 4, 2)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), keep)
        value, gate = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.gelu(gate) * value)


class GroupedGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList(GroupedBlock(32) for _ in range(3))
        self.norm, self.head = nn.RMSNorm(32), nn.Linear(32, 64, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        keep = ids != 0
        x = self.tokens(ids) + self.places(keep.cumsum(1) - 1)
        for block in self.blocks:
            x = block(x, keep)
        return self.head(self.norm(x))


class NormedAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = (
            nn.LayerNorm(width // heads),
            nn.LayerNorm(width // heads),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).unbind(2)
        q, k, v = (
            self.q_norm(q).transpose(1, 2),
            self.k_norm(k).transpose(1, 2),
            v.transpose(1, 2),
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, c))


class ScaledBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = NormedAttention(width, 4)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.scale1, self.scale2 = (
            nn.Parameter(torch.rand(width)),
            nn.Parameter(torch.rand(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.scale1 * self.attention(self.norm1(x))
        return x + self.scale2 * self.mlp(self.norm2(x))


class RegisterVit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.first, self.registers = (
            nn.Parameter(torch.randn(1, 1, 32)),
            nn.Parameter(torch.randn(1, 3, 32)),
        )
        self.blocks = nn.ModuleList(ScaledBlock(32) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(64, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)
        rows, columns = x.shape[2:]
        y, z = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        rates = 10.0 ** -(torch.arange(8) / 8)
        angles = torch.cat(
            (y.flatten()[:, None] * rates, z.flatten()[:, None] * rates), 1
        )
        x = x.flatten(2).transpose(1, 2) + torch.cat((angles.sin(), angles.cos()), 1)
        x = torch.cat(
            (
                self.first.expand(len(x), -1, -1),
                self.registers.expand(len(x), -1, -1),
                x,
            ),
            1,
        )
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(torch.cat((x[:, 0], x[:, 4:].mean(1)), 1))


class ResponseNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma, self.beta = (
            nn.Parameter(torch.rand(width)),
            nn.Parameter(torch.rand(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        size = x.norm(2, (1, 2), keepdim=True)
        size = size / (size.mean(-1, keepdim=True) + 1e-6)
        return self.gamma * (x * size) + self.beta + x


class ConvNextBlock(nn.Module):
    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm, self.response = nn.LayerNorm(width), ResponseNorm(4 * width)
        self.up, self.down, self.drop = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            drop,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.down(self.response(F.gelu(self.up(self.norm(y))))).permute(0, 3, 1, 2)
        if self.training:
            keep = (torch.rand(len(x), 1, 1, 1) >= self.drop).to(x)
            y = y * keep / (1 - self.drop)
        return x + y


class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 2, 2)
        self.stages = nn.Sequential(
            ConvNextBlock(16, 0.2), nn.Conv2d(16, 24, 2, 2), ConvNextBlock(24, 0.3)
        )
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stages(self.stem(image))
        return self.head(self.norm(x.mean((-2, -1))))


class AdditiveAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_state, self.of_memory, self.score = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, 1, bias=False),
        )

    def forward(self, state: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        scores = self.score(
            torch.tanh(self.of_state(state)[:, None] + self.of_memory(memory))
        ).squeeze(-1)
        weights = scores.masked_fill(~keep, -1e9).softmax(1)
        return torch.einsum("bt,btc->bc", weights, memory)


class Decoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens, self.attention = nn.Embedding(40, width), AdditiveAttention(width)
        self.cell, self.out = nn.GRUCell(2 * width, width), nn.Linear(2 * width, 40)

    def forward(
        self, ids: Tensor, state: Tensor, memory: Tensor, keep: Tensor
    ) -> Tensor:
        given = self.tokens(ids)
        found = []
        for step in range(ids.shape[1]):
            context = self.attention(state, memory, keep)
            state = self.cell(torch.cat((given[:, step], context), 1), state)
            found.append(self.out(torch.cat((state, context), 1)))
        return torch.stack(found, 1)


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(40, 16)
        self.encoder = nn.GRU(16, 8, batch_first=True, bidirectional=True)
        self.bridge, self.decoder = nn.Linear(16, 16), Decoder(16)

    def forward(self, ids: Tensor) -> Tensor:
        source, target = ids.chunk(2, 1)
        memory, last = self.encoder(self.tokens(source))
        state = torch.tanh(self.bridge(torch.cat((last[0], last[1]), 1)))
        shifted = F.pad(target[:, :-1], (1, 0), value=1)
        return self.decoder(shifted, state, memory, source != 0)


class Quantizer(nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(count, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        far = (
            x.pow(2).sum(-1, keepdim=True)
            - 2 * x @ self.codes.t()
            + self.codes.pow(2).sum(-1)
        )
        chosen = self.codes[far.argmin(-1)]
        loss = F.mse_loss(chosen, x.detach()) + 0.25 * F.mse_loss(x, chosen.detach())
        return x + (chosen - x).detach(), loss


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU()
        )
        self.moments, self.quantizer, self.spread = (
            nn.Linear(256, 32),
            Quantizer(12, 16),
            nn.Linear(16, 256),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        mean, log_variance = self.moments(self.encoder(image).flatten(1)).chunk(2, 1)
        z = mean
        if self.training:
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        z, commitment = self.quantizer(z)
        drawn = torch.sigmoid(self.decoder(self.spread(z).view(-1, 16, 4, 4)))
        divergence = (
            0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(1).mean()
        )
        return (
            F.binary_cross_entropy(drawn, image, reduction="sum") / len(image)
            + divergence
            + commitment
        )


class Messages(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.gate = (
            nn.Linear(2 * width + 1, width),
            nn.Linear(2 * width, 1),
        )
        self.update = nn.GRUCell(width, width)

    def forward(self, x: Tensor, edges: Tensor, lengths: Tensor) -> Tensor:
        source, target = edges
        sent = torch.relu(
            self.message(torch.cat((x[source], x[target], lengths[:, None]), 1))
        )
        scores = F.leaky_relu(
            self.gate(torch.cat((x[source], x[target]), 1)), 0.2
        ).exp()
        total = torch.zeros(len(x), 1).to(x).index_add(0, target, scores)
        weights = scores / (total[target] + 1e-9)
        gathered = torch.zeros_like(x).index_add(0, target, weights * sent)
        return self.update(gathered, x)


class Graphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 12)
        self.layers, self.norms = (
            nn.ModuleList(Messages(12) for _ in range(2)),
            nn.ModuleList(nn.BatchNorm1d(12) for _ in range(2)),
        )
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        x = self.embed(x)
        degree = (
            torch.zeros(len(x))
            .to(x)
            .index_add(0, edges[1], torch.ones(edges.shape[1]).to(x))
        )
        lengths = degree[edges[0]].rsqrt() * degree[edges[1]].clamp(min=1).rsqrt()
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + layer(x, edges, lengths))
        count = int(graph.max()) + 1
        sums = torch.zeros(count, x.shape[1]).to(x).index_add(0, graph, x)
        most = torch.full((count, x.shape[1]), -torch.inf).to(x)
        most = most.scatter_reduce(0, graph[:, None].expand_as(x), x, "amax")
        return self.head(torch.cat((sums, most), 1))


class Experts(nn.Module):
    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
            )
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        share = self.gate(x).softmax(-1)
        best, chosen = share.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            mixed = mixed.index_add(0, rows, best[rows, place, None] * expert(x[rows]))
        used = F.one_hot(chosen, len(self.experts)).sum(1).float().mean(0)
        return mixed, (used.to(x) * share.mean(0)).sum() * len(self.experts)


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(50, 16, mode="mean", padding_idx=0)
        self.experts, self.norm, self.head = (
            Experts(16, 4),
            nn.LayerNorm(16),
            nn.Linear(17, 4),
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.bags(ids)
        mixed, balance = self.experts(x)
        x = self.norm(x + mixed)
        pairs = 0.5 * (x.sum(1, keepdim=True).pow(2) - x.pow(2).sum(1, keepdim=True))
        return self.head(torch.cat((x, pairs / 16), 1)) + 0.01 * balance


class Modulated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = (
            nn.GroupNorm(4, width),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.film = nn.Linear(16, 2 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.film(F.silu(time))[:, :, None, None].chunk(2, 1)
        y = self.norm(x) * (1 + scale) + shift
        return x + self.conv(F.silu(y))


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.begin, self.time = (
            nn.Conv2d(3, 16, 3, padding=1),
            nn.Sequential(nn.Linear(16, 16), nn.SiLU()),
        )
        self.down, self.middle, self.up = Modulated(16), Modulated(16), Modulated(16)
        self.shrink, self.grow = (
            nn.Conv2d(16, 16, 3, 2, 1),
            nn.Conv2d(32, 16, 3, padding=1),
        )
        self.end = nn.Conv2d(16, 3, 3, padding=1)
        self.register_buffer("betas", torch.linspace(1e-3, 0.05, 20))

    def forward(self, image: Tensor) -> Tensor:
        steps = torch.arange(len(image)) * 5 % 20
        kept = (1 - self.betas).cumprod(0)[steps][:, None, None, None]
        noise = torch.randn_like(image)
        noisy = kept.sqrt() * image + (1 - kept).sqrt() * noise
        rates = torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        angles = steps[:, None] * rates
        time = self.time(torch.cat((angles.sin(), angles.cos()), 1).to(image))
        one = self.down(self.begin(noisy), time)
        two = self.middle(self.shrink(one), time)
        back = F.interpolate(two, scale_factor=2, mode="bilinear")
        guess = self.end(self.up(self.grow(torch.cat((back, one), 1)), time))
        return F.mse_loss(guess, noise) + F.l1_loss(
            guess.mean((2, 3)), noise.mean((2, 3))
        )


NETS = (
    "GroupedGpt",
    "RegisterVit",
    "ConvNext",
    "Translator",
    "Vae",
    "Graphs",
    "Mixture",
    "Denoiser",
)


def batch_of(name: str, size: int = 4) -> tuple[Tensor, ...]:
    """Make the arguments of a net."""
    generator = torch.Generator().manual_seed(1)
    if name == "Graphs":
        edges = torch.stack((torch.arange(12), (torch.arange(12) * 5 + 3) % 12))
        edges = torch.cat(
            (edges, edges.flip(0)[:, ::2], torch.arange(12).expand(2, -1)), 1
        )
        return torch.randn(12, 5, generator=generator), edges, torch.arange(12) // 4
    if name in ("GroupedGpt", "Translator", "Mixture"):
        ids = torch.randint(1, 40, (size, 12), generator=generator)
        ids[:, 5 if name == "Translator" else 10 :][:1] = 0
        return (ids,)
    return (torch.rand(size, 3, 16, 16, generator=generator),)
