"""Well-known architectures for sequences, sets and graphs, each written from its paper, for `import_public.py`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int, block: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.n_head, self.n_embd = heads, width
        self.register_buffer(
            "bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block)
        )

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (
            t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for t in (q, k, v)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int, block: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalAttention(width, heads, block)
        self.mlp = nn.ModuleDict(
            dict(
                c_fc=nn.Linear(width, 4 * width),
                c_proj=nn.Linear(4 * width, width),
                dropout=nn.Dropout(0.1),
            )
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.dropout(m.c_proj(F.gelu(m.c_fc(self.ln_2(x)), approximate="tanh")))


class GPT(nn.Module):
    """A decoder of Radford et al. with tied embeddings."""

    def __init__(
        self, vocab: int = 50, width: int = 32, depth: int = 3, block: int = 24
    ) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(vocab, width),
                wpe=nn.Embedding(block, width),
                drop=nn.Dropout(0.1),
                h=nn.ModuleList([GPTBlock(width, 4, block) for _ in range(depth)]),
                ln_f=nn.LayerNorm(width),
            )
        )
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, heads * self.size, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate, self.up = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, 3 * width, bias=False),
        )
        self.down = nn.Linear(3 * width, width, bias=False)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm1(x)
        q = self.q_proj(h).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(h).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        v = self.v_proj(h).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Touvron et al.: rotary positions, grouped queries, SwiGLU."""

    def __init__(self, vocab: int = 40, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(LlamaLayer(width, 4, 2) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocab, bias=False)
        inv = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("inv_freq", inv, persistent=False)

    def forward(self, ids):
        t = torch.arange(ids.shape[1], device=ids.device).type_as(self.inv_freq)
        freqs = torch.outer(t, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos(), emb.sin()
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class RelativeAttention(nn.Module):
    """Dai et al. (Transformer-XL): content and position scores, with the relative shift."""

    def __init__(self, d: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.h, self.d = heads, d // heads
        self.qkv, self.r, self.o = (
            nn.Linear(d, 3 * d, False),
            nn.Linear(d, d, False),
            nn.Linear(d, d, False),
        )
        self.u, self.v = (
            nn.Parameter(torch.randn(heads, d // heads)),
            nn.Parameter(torch.randn(heads, d // heads)),
        )
        self.norm = nn.LayerNorm(d)
        freq = 1 / (10000 ** (torch.arange(0.0, d, 2.0) / d))
        self.register_buffer("inv_freq", freq)

    @staticmethod
    def shift(x):
        zero = torch.zeros(
            (x.size(0), 1) + x.size()[2:], device=x.device, dtype=x.dtype
        )
        padded = torch.cat([zero, x], dim=1)
        return padded.view(x.size(1) + 1, x.size(0), *x.size()[2:])[1:].view_as(x)

    def forward(self, x):
        t, b, _ = x.shape
        pos = torch.arange(t - 1, -1, -1.0, device=x.device)
        sinusoid = torch.einsum("i,j->ij", pos.to(self.inv_freq.dtype), self.inv_freq)
        r = self.r(torch.cat([sinusoid.sin(), sinusoid.cos()], dim=-1)).view(
            t, self.h, self.d
        )
        q, k, v = torch.chunk(self.qkv(x), 3, dim=-1)
        q, k, v = (
            q.view(t, b, self.h, self.d),
            k.view(t, b, self.h, self.d),
            v.view(t, b, self.h, self.d),
        )
        ac = torch.einsum("ibnd,jbnd->ijbn", (q + self.u, k))
        bd = self.shift(torch.einsum("ibnd,jnd->ijbn", (q + self.v, r)))
        mask = torch.triu(torch.ones(t, t, device=x.device), diagonal=1).bool()[
            :, :, None, None
        ]
        score = ((ac + bd) / self.d**0.5).masked_fill(mask, -1e30)
        y = (
            torch.einsum("ijbn,jbnd->ibnd", (torch.softmax(score, dim=1), v))
            .contiguous()
            .view(t, b, -1)
        )
        return self.norm(x + self.o(y))


class TimeMix(nn.Module):
    """Peng et al. (RWKV-4): the weighted key-value recurrence, step by step."""

    def __init__(self, d: int = 12) -> None:
        super().__init__()
        self.decay, self.first = (
            nn.Parameter(torch.rand(d)),
            nn.Parameter(torch.rand(d)),
        )
        self.mix_k, self.mix_v = (
            nn.Parameter(torch.rand(1, 1, d)),
            nn.Parameter(torch.rand(1, 1, d)),
        )
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key, self.value = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.receptance, self.output = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, d, bias=False),
        )

    def forward(self, x):
        last = self.time_shift(x)
        k = self.key(x * self.mix_k + last * (1 - self.mix_k))
        v = self.value(x * self.mix_v + last * (1 - self.mix_v))
        r = torch.sigmoid(self.receptance(x))
        w, a, b, out = (
            -torch.exp(self.decay),
            torch.zeros_like(k[:, 0]),
            torch.zeros_like(k[:, 0]),
            [],
        )
        for t in range(x.shape[1]):
            e = torch.exp(self.first + k[:, t])
            out.append((a + e * v[:, t]) / (b + e))
            a = torch.exp(w) * a + torch.exp(k[:, t]) * v[:, t]
            b = torch.exp(w) * b + torch.exp(k[:, t])
        return self.output(r * torch.stack(out, dim=1))


class Mamba(nn.Module):
    """Gu and Dao: a selective scan, written as the loop that it is."""

    def __init__(self, d: int = 8, n: int = 4, rank: int = 2) -> None:
        super().__init__()
        self.n, self.rank, inner = n, rank, 2 * d
        self.in_proj, self.out_proj = (
            nn.Linear(d, 2 * inner, bias=False),
            nn.Linear(inner, d, bias=False),
        )
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj, self.dt_proj = (
            nn.Linear(inner, rank + 2 * n, bias=False),
            nn.Linear(rank, inner),
        )
        self.A_log = nn.Parameter(
            torch.log(torch.arange(1, n + 1, dtype=torch.float32).repeat(inner, 1))
        )
        self.D = nn.Parameter(torch.ones(inner))

    def forward(self, x):
        b, steps, d = x.shape
        u, res = self.in_proj(x).split([2 * d, 2 * d], dim=-1)
        u = self.conv1d(u.transpose(1, 2))[:, :, :steps].transpose(1, 2)
        u = F.silu(u)
        delta, B, C = self.x_proj(u).split(
            split_size=[self.rank, self.n, self.n], dim=-1
        )
        delta = F.softplus(self.dt_proj(delta))
        deltaA = torch.exp(
            torch.einsum("bli,in->blin", delta, -torch.exp(self.A_log.float()))
        )
        deltaBu = torch.einsum("bli,bln,bli->blin", delta, B, u)
        h, ys = torch.zeros((b, u.shape[2], self.n), device=x.device, dtype=x.dtype), []
        for i in range(steps):
            h = deltaA[:, i] * h + deltaBu[:, i]
            ys.append(torch.einsum("bin,bn->bi", h, C[:, i, :]))
        return self.out_proj((torch.stack(ys, dim=1) + u * self.D) * F.silu(res))


class WaveNet(nn.Module):
    """van den Oord et al.: dilated gated convolutions whose skips are summed."""

    def __init__(self, channels: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.first, self.dilations = (
            nn.Conv1d(1, channels, 1),
            [2**i for i in range(layers)],
        )
        self.gates = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 2, dilation=d) for d in self.dilations
        )
        self.skips = nn.ModuleList(
            nn.Conv1d(channels, channels, 1) for _ in self.dilations
        )
        self.residuals = nn.ModuleList(
            nn.Conv1d(channels, channels, 1) for _ in self.dilations
        )
        self.end = nn.Sequential(
            nn.ReLU(),
            nn.Conv1d(channels, channels, 1),
            nn.ReLU(),
            nn.Conv1d(channels, 16, 1),
        )

    def forward(self, x):
        x, skip = self.first(x), 0
        for d, gate, s, r in zip(
            self.dilations, self.gates, self.skips, self.residuals, strict=True
        ):
            a, g = gate(F.pad(x, (d, 0))).chunk(2, dim=1)
            h = torch.tanh(a) * torch.sigmoid(g)
            skip = skip + s(h)
            x = x + r(h)
        return self.end(skip)


class Chomp(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, given: int, width: int, dilation: int) -> None:
        super().__init__()
        norm = torch.nn.utils.parametrizations.weight_norm
        self.conv1 = norm(
            nn.Conv1d(given, width, 3, padding=2 * dilation, dilation=dilation)
        )
        self.conv2 = norm(
            nn.Conv1d(width, width, 3, padding=2 * dilation, dilation=dilation)
        )
        self.net = nn.Sequential(
            self.conv1,
            Chomp(2 * dilation),
            nn.ReLU(),
            nn.Dropout(0.2),
            self.conv2,
            Chomp(2 * dilation),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        self.downsample = nn.Conv1d(given, width, 1) if given != width else None

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(self.net(x) + res)


class TCN(nn.Module):
    """Bai et al.: causal convolutions with weight normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            *[TemporalBlock(2 if not i else 6, 6, 2**i) for i in range(3)]
        )
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(self.network(x)[:, :, -1])


class Seq2Seq(nn.Module):
    """Bahdanau et al.: a decoder that attends to the encoder's states, a word at a time."""

    def __init__(self, vocab: int = 30, d: int = 12) -> None:
        super().__init__()
        self.embed, self.encoder = (
            nn.Embedding(vocab, d),
            nn.GRU(d, d, batch_first=True, bidirectional=True),
        )
        self.bridge, self.cell = nn.Linear(2 * d, d), nn.GRUCell(3 * d, d)
        self.w, self.v, self.out = (
            nn.Linear(3 * d, d),
            nn.Linear(d, 1, bias=False),
            nn.Linear(d, vocab),
        )

    def forward(self, source, target):
        memory, last = self.encoder(self.embed(source))
        h = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        steps = []
        for word in self.embed(target).unbind(1):
            wide = h.unsqueeze(1).expand(-1, memory.size(1), -1)
            weights = torch.softmax(
                self.v(torch.tanh(self.w(torch.cat([memory, wide], dim=2)))).squeeze(2),
                dim=1,
            )
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([word, context], dim=1), h)
            steps.append(self.out(h))
        return torch.stack(steps, dim=1)


class SetTransformer(nn.Module):
    """Lee et al.: induced attention and pooling by attention."""

    def __init__(self, d: int = 8) -> None:
        super().__init__()
        self.inducing, self.seed = (
            nn.Parameter(torch.randn(1, 3, d)),
            nn.Parameter(torch.randn(1, 1, d)),
        )
        self.a, self.b, self.c = (
            nn.MultiheadAttention(d, 2, batch_first=True) for _ in range(3)
        )
        self.ff = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU())

    def forward(self, x):
        h = self.a(self.inducing.repeat(x.size(0), 1, 1), x, x, need_weights=False)[0]
        x = x + self.ff(self.b(x, h, h, need_weights=False)[0])
        return self.c(self.seed.expand(x.size(0), -1, -1), x, x, need_weights=False)[
            0
        ].squeeze(1)


class GCN(nn.Module):
    """Kipf and Welling, over a dense adjacency matrix."""

    def __init__(self, d: int = 6) -> None:
        super().__init__()
        self.w1, self.w2 = (
            nn.Parameter(torch.randn(d, 16)),
            nn.Parameter(torch.randn(16, 3)),
        )

    def forward(self, x, adjacency):
        a = adjacency + torch.eye(adjacency.size(0), device=x.device)
        d = a.sum(1).clamp(min=1e-6).pow(-0.5)
        a = d.unsqueeze(1) * a * d[None, :]
        x = F.dropout(F.relu(a @ (x @ self.w1)), 0.5, training=self.training)
        return F.log_softmax(a @ (x @ self.w2), dim=1)


class GAT(nn.Module):
    """Veličković et al., over a dense adjacency matrix."""

    def __init__(self, d: int = 6, out: int = 4, heads: int = 3) -> None:
        super().__init__()
        self.w, self.heads = nn.Linear(d, out * heads, bias=False), heads
        self.source, self.target = (
            nn.Parameter(torch.randn(heads, out)),
            nn.Parameter(torch.randn(heads, out)),
        )

    def forward(self, x, adjacency):
        h = self.w(x).view(x.size(0), self.heads, -1)
        e = (h * self.source).sum(-1)[:, None] + (h * self.target).sum(-1)[None]
        e = F.leaky_relu(e, 0.2).masked_fill(adjacency.abs().unsqueeze(-1) < 0.3, -1e9)
        return F.elu(torch.einsum("ijh,jhd->ihd", e.softmax(dim=1), h).flatten(1))


class DeepFM(nn.Module):
    """Guo et al.: a factorisation machine beside a deep net."""

    def __init__(self, fields: int = 5, size: int = 20, d: int = 4) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * size)
        self.embedding, self.linear = (
            nn.Embedding(fields * size, d),
            nn.Embedding(fields * size, 1),
        )
        self.bias = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(
            nn.Linear(fields * d, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
        )

    def forward(self, x):
        x = x + self.offsets.unsqueeze(0)
        e = self.embedding(x)
        square = torch.sum(e, dim=1) ** 2 - torch.sum(e**2, dim=1)
        fm = self.linear(x).sum(1) + self.bias + 0.5 * square.sum(1, keepdim=True)
        return torch.sigmoid((fm + self.mlp(e.view(e.size(0), -1))).squeeze(1))


class MixtureOfExperts(nn.Module):
    """Shazeer et al.: the best two of four experts, weighted."""

    def __init__(self, d: int = 8, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(d, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Linear(16, d))
            for _ in range(experts)
        )

    def forward(self, x):
        scores, chosen = self.gate(x).topk(2, dim=-1)
        weights = torch.zeros_like(self.gate(x)).scatter(
            -1, chosen, scores.softmax(dim=-1)
        )
        return sum(
            weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts)
        )
