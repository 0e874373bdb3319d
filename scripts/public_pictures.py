"""Well-known architectures for pictures, points and functions, each written from its paper, for `import_public.py`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Sequential):
    def __init__(self, given: int, out: int) -> None:
        super().__init__(
            nn.Conv2d(given, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, given: int, out: int, bilinear: bool) -> None:
        super().__init__()
        self.up = (
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            if bilinear
            else nn.ConvTranspose2d(given // 2, given // 2, 2, stride=2)
        )
        self.conv = DoubleConv(given, out)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    """Ronneberger et al., with padding where sizes are odd."""

    def __init__(self, bilinear: bool = True, w: int = 4) -> None:
        super().__init__()
        self.inc, self.pool = DoubleConv(1, w), nn.MaxPool2d(2)
        self.downs = nn.ModuleList(
            [DoubleConv(w, 2 * w), DoubleConv(2 * w, 4 * w), DoubleConv(4 * w, 4 * w)]
        )
        self.ups = nn.ModuleList(
            [Up(8 * w, 2 * w, bilinear), Up(4 * w, w, bilinear), Up(2 * w, w, bilinear)]
        )
        self.outc = nn.Conv2d(w, 2, 1)

    def forward(self, x):
        features = [self.inc(x)]
        for down in self.downs:
            features.append(down(self.pool(features[-1])))
        x = features.pop()
        for up in self.ups:
            x = up(x, features.pop())
        return self.outc(x)


class AttentionGate(nn.Module):
    def __init__(self, g: int, x: int, inner: int) -> None:
        super().__init__()
        self.W_g = nn.Sequential(nn.Conv2d(g, inner, 1), nn.BatchNorm2d(inner))
        self.W_x = nn.Sequential(nn.Conv2d(x, inner, 1), nn.BatchNorm2d(inner))
        self.psi = nn.Sequential(
            nn.Conv2d(inner, 1, 1), nn.BatchNorm2d(1), nn.Sigmoid()
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, g, x):
        return x * self.psi(self.relu(self.W_g(g) + self.W_x(x)))


class AttentionUNet(nn.Module):
    """Oktay et al."""

    def __init__(self, w: int = 4) -> None:
        super().__init__()
        self.c1, self.c2, self.c3 = (
            DoubleConv(1, w),
            DoubleConv(w, 2 * w),
            DoubleConv(2 * w, 4 * w),
        )
        self.u2, self.u1 = (
            nn.ConvTranspose2d(4 * w, 2 * w, 2, 2),
            nn.ConvTranspose2d(2 * w, w, 2, 2),
        )
        self.a2, self.a1 = AttentionGate(2 * w, 2 * w, w), AttentionGate(w, w, w // 2)
        self.d2, self.d1, self.out = (
            DoubleConv(4 * w, 2 * w),
            DoubleConv(2 * w, w),
            nn.Conv2d(w, 1, 1),
        )

    def forward(self, x):
        x1 = self.c1(x)
        x2 = self.c2(F.max_pool2d(x1, 2))
        x3 = self.c3(F.max_pool2d(x2, 2))
        d2 = self.u2(x3)
        d2 = self.d2(torch.cat((self.a2(d2, x2), d2), dim=1))
        d1 = self.u1(d2)
        return self.out(self.d1(torch.cat((self.a1(d1, x1), d1), dim=1)))


class ConvLSTM(nn.Module):
    """Shi et al.: an LSTM whose products are convolutions, over (N, T, C, H, W)."""

    def __init__(self, given: int = 2, hidden: int = 4) -> None:
        super().__init__()
        self.hidden = hidden
        self.conv = nn.Conv2d(given + hidden, 4 * hidden, 3, padding=1)

    def forward(self, x):
        b, t, _, height, width = x.size()
        h = torch.zeros(b, self.hidden, height, width, device=x.device, dtype=x.dtype)
        c, outputs = torch.zeros_like(h), []
        for step in range(t):
            gates = self.conv(torch.cat([x[:, step, :, :, :], h], dim=1))
            i, f, o, g = torch.split(gates, self.hidden, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1), (h, c)


class TNet(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k, self.conv, self.fc = k, nn.Conv1d(k, 16, 1), nn.Linear(16, k * k)
        self.bn = nn.BatchNorm1d(16)

    def forward(self, x):
        batch = x.size(0)
        x = torch.max(F.relu(self.bn(self.conv(x))), 2, keepdim=True)[0].view(-1, 16)
        identity = (
            torch.eye(self.k, device=x.device).view(1, self.k * self.k).repeat(batch, 1)
        )
        return (self.fc(x) + identity).view(-1, self.k, self.k)


class PointNet(nn.Module):
    """Qi et al.: two aligned views of the points, and the largest of each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.stn, self.fstn, self.conv1 = TNet(3), TNet(8), nn.Conv1d(3, 8, 1)
        self.conv2, self.bn, self.fc = (
            nn.Conv1d(8, 16, 1),
            nn.BatchNorm1d(16),
            nn.Linear(16, 5),
        )

    def forward(self, x):
        trans = self.stn(x)
        x = F.relu(self.conv1(torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)))
        feature = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), feature).transpose(2, 1)
        x = torch.max(self.bn(self.conv2(x)), 2)[0]
        return F.log_softmax(self.fc(x), dim=1), trans, feature


class DCGAN(nn.Module):
    """Radford et al.: the generator."""

    def __init__(self, nz: int = 10, ngf: int = 4) -> None:
        super().__init__()
        rows: list[nn.Module] = []
        for given, out, stride, pad in (
            (nz, 8 * ngf, 1, 0),
            (8 * ngf, 4 * ngf, 2, 1),
            (4 * ngf, ngf, 2, 1),
        ):
            rows += [
                nn.ConvTranspose2d(given, out, 4, stride, pad, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(True),
            ]
        self.main = nn.Sequential(
            *rows, nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh()
        )

    def forward(self, z):
        return self.main(z)


class VAE(nn.Module):
    """Kingma and Welling: noise in training, the mean otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = (
            nn.Linear(64, 20),
            nn.Linear(20, 4),
            nn.Linear(20, 4),
        )
        self.fc3, self.fc4 = nn.Linear(4, 20), nn.Linear(20, 64)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


class VQVAE(nn.Module):
    """van den Oord et al.: the nearest code, with the gradient passed straight through."""

    def __init__(self, d: int = 4, codes: int = 8) -> None:
        super().__init__()
        self.encoder, self.decoder = (
            nn.Conv2d(1, d, 4, 2, 1),
            nn.ConvTranspose2d(d, 1, 4, 2, 1),
        )
        self.codebook = nn.Embedding(codes, d)

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, z.shape[-1])
        far = (
            flat.pow(2).sum(1, keepdim=True)
            + self.codebook.weight.pow(2).sum(1)
            - 2 * flat @ self.codebook.weight.t()
        )
        q = self.codebook(far.argmin(1)).view(z.shape)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
        q = z + (q - z).detach()
        return self.decoder(q.permute(0, 3, 1, 2)), loss


class CapsNet(nn.Module):
    """Sabour et al.: three rounds of routing by agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.primary = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5, stride=2)
        self.W = nn.Parameter(0.1 * torch.randn(1, 64, 5, 6, 4))

    @staticmethod
    def squash(x, dim=-1):
        n = (x**2).sum(dim=dim, keepdim=True)
        return n / (1 + n) * x / (n.sqrt() + 1e-8)

    def forward(self, x):
        u = self.squash(self.primary(F.relu(self.conv(x))).view(x.size(0), -1, 4))
        hat = torch.matmul(self.W, u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros(
            x.size(0), hat.size(1), hat.size(2), 1, device=x.device, dtype=x.dtype
        )
        for i in range(3):
            v = self.squash((F.softmax(b, dim=2) * hat).sum(dim=1))
            if i < 2:
                b = b + (hat * v.unsqueeze(1)).sum(-1, keepdim=True)
        return v.norm(dim=-1)


class Siamese(nn.Module):
    """Koch et al.: one net for both pictures, and how far apart its answers are."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 8),
        )
        self.out = nn.Linear(8, 1)

    def forward_once(self, x):
        return torch.sigmoid(self.cnn(x))

    def forward(self, a, b):
        return self.out(torch.abs(self.forward_once(a) - self.forward_once(b)))


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, d: int) -> None:
        super().__init__()

        def mlp(n: int, h: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(n, h), nn.GELU(), nn.Dropout(0.1), nn.Linear(h, n)
            )

        self.norm1, self.norm2, self.token, self.channel = (
            nn.LayerNorm(d),
            nn.LayerNorm(d),
            mlp(tokens, 8),
            mlp(d, 32),
        )

    def forward(self, x):
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.norm2(x))


class Mixer(nn.Module):
    """Tolstikhin et al."""

    def __init__(self, d: int = 16) -> None:
        super().__init__()
        self.stem, self.norm, self.head = (
            nn.Conv2d(3, d, 4, 4),
            nn.LayerNorm(d),
            nn.Linear(d, 5),
        )
        self.blocks = nn.Sequential(*[MixerBlock(16, d) for _ in range(3)])

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


class NeRF(nn.Module):
    """Mildenhall et al.: sines of the point, and a skip into the middle."""

    def __init__(self, L: int = 4, W: int = 16, D: int = 4) -> None:
        super().__init__()
        self.L, size = L, 3 + 6 * L
        self.pts = nn.ModuleList(
            [nn.Linear(size, W)]
            + [nn.Linear(W + (size if i == 2 else 0), W) for i in range(1, D)]
        )
        self.alpha, self.feature, self.views = (
            nn.Linear(W, 1),
            nn.Linear(W, W),
            nn.Linear(W + 3, W // 2),
        )
        self.rgb = nn.Linear(W // 2, 3)

    def forward(self, points, directions):
        rows = [points]
        for i in range(self.L):
            for fn in (torch.sin, torch.cos):
                rows.append(fn(2.0**i * math.pi * points))
        encoded = torch.cat(rows, -1)
        h = encoded
        for i, layer in enumerate(self.pts):
            if i == 2:
                h = torch.cat([encoded, h], -1)
            h = F.relu(layer(h))
        alpha = self.alpha(h)
        h = F.relu(self.views(torch.cat([self.feature(h), directions], -1)))
        return torch.cat([torch.sigmoid(self.rgb(h)), alpha], -1)


class Sine(nn.Module):
    def __init__(self, given: int, out: int, omega: float = 30.0) -> None:
        super().__init__()
        self.omega_0, self.linear = omega, nn.Linear(given, out)
        with torch.no_grad():
            self.linear.weight.uniform_(-1 / given, 1 / given)

    def forward(self, x):
        return torch.sin(self.omega_0 * self.linear(x))


class Siren(nn.Module):
    """Sitzmann et al."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            Sine(2, 16), Sine(16, 16), Sine(16, 16), nn.Linear(16, 1)
        )

    def forward(self, coords):
        coords = coords.clone().detach().requires_grad_(True)
        return self.net(coords), coords


class NeuralODE(nn.Module):
    """Chen et al., in steps of Euler's."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.steps = (
            nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 2)),
            6,
        )

    def forward(self, y):
        h = 1.0 / self.steps
        for i in range(self.steps):
            t = torch.full_like(y[:, :1], i * h)
            y = y + h * self.f(torch.cat([y, t], dim=-1))
        return y


class HyperNetwork(nn.Module):
    """Ha et al.: kernels that a smaller net makes out of an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.z, self.w1 = (
            nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)]),
            nn.Linear(4, 8),
        )
        self.w2, self.bn, self.fc = (
            nn.Linear(8, 3 * 3 * 3 * 3),
            nn.BatchNorm2d(3),
            nn.Linear(3, 4),
        )

    def forward(self, x):
        for z in self.z:
            kernel = self.w2(torch.relu(self.w1(z))).view(3, 3, 3, 3)
            x = F.relu(self.bn(F.conv2d(x, kernel, padding=1)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class KANLinear(nn.Module):
    def __init__(self, given: int, out: int, grid: int = 4, order: int = 3) -> None:
        super().__init__()
        self.order, self.given, self.out = order, given, out
        steps = torch.arange(-order, grid + order + 1) * (2.0 / grid) - 1
        self.register_buffer("grid", steps.expand(given, -1).contiguous())
        self.base_weight = nn.Parameter(torch.randn(out, given))
        self.spline_weight = nn.Parameter(torch.randn(out, given, grid + order))

    def b_splines(self, x):
        grid, x = self.grid, x.unsqueeze(-1)
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            bases = (
                (x - grid[:, : -(k + 1)])
                / (grid[:, k:-1] - grid[:, : -(k + 1)])
                * bases[:, :, :-1]
            ) + (
                (grid[:, k + 1 :] - x)
                / (grid[:, k + 1 :] - grid[:, 1:(-k)])
                * bases[:, :, 1:]
            )
        return bases.contiguous()

    def forward(self, x):
        base = F.linear(F.silu(x), self.base_weight)
        return base + F.linear(
            self.b_splines(x).view(x.size(0), -1), self.spline_weight.view(self.out, -1)
        )


class KAN(nn.Module):
    """Liu et al.: splines on the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([KANLinear(3, 5), KANLinear(5, 2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class SpectralConv(nn.Module):
    def __init__(self, c: int, modes: int) -> None:
        super().__init__()
        self.modes, self.weight = modes, nn.Parameter(torch.randn(c, c, modes, 2))

    def forward(self, x):
        ft = torch.fft.rfft(x)
        mixed = torch.einsum(
            "bix,iox->box", ft[:, :, : self.modes], torch.view_as_complex(self.weight)
        )
        return torch.fft.irfft(
            F.pad(mixed, (0, ft.size(-1) - self.modes)), n=x.size(-1)
        )


class FNO(nn.Module):
    """Li et al.: products in the space of frequencies."""

    def __init__(self, c: int = 4) -> None:
        super().__init__()
        self.p, self.q = nn.Linear(2, c), nn.Linear(c, 1)
        self.convs = nn.ModuleList(SpectralConv(c, 5) for _ in range(2))
        self.ws = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(2))

    def forward(self, x):
        x = self.p(x).permute(0, 2, 1)
        for conv, w in zip(self.convs, self.ws, strict=True):
            x = F.gelu(conv(x) + w(x))
        return self.q(x.permute(0, 2, 1))


class MaskedLinear(nn.Linear):
    def __init__(self, given: int, out: int, mask: torch.Tensor) -> None:
        super().__init__(given, out)
        self.register_buffer("mask", mask)

    def forward(self, x):
        return F.linear(x, self.mask * self.weight, self.bias)


class MADE(nn.Module):
    """Germain et al.: masks that let an output see only what comes before it."""

    def __init__(self, d: int = 6, h: int = 12) -> None:
        super().__init__()
        a, b = torch.arange(d), torch.arange(h) % (d - 1)
        self.net = nn.Sequential(
            MaskedLinear(d, h, (b[:, None] >= a[None, :]).float()),
            nn.ReLU(),
            MaskedLinear(h, d, (a[:, None] > b[None, :]).float()),
        )

    def forward(self, x):
        return self.net(x)


class YoloHead(nn.Module):
    """Redmon and Farhadi: boxes out of a map of features."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.no, self.na, self.stride = classes + 5, 2, 8
        self.register_buffer("anchors", torch.tensor([[10.0, 13.0], [33.0, 23.0]]))
        self.m = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(8, self.no * self.na, 1),
        )

    def forward(self, x):
        x = self.m(x)
        bs, _, ny, nx = x.shape
        x = x.view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
        yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
        grid = torch.stack((xv, yv), 2).view(1, 1, ny, nx, 2).to(x)
        xy = (x[..., 0:2].sigmoid() * 2 - 0.5 + grid) * self.stride
        wh = (x[..., 2:4].sigmoid() * 2) ** 2 * self.anchors.view(1, self.na, 1, 1, 2)
        return torch.cat((xy, wh, x[..., 4:].sigmoid()), -1).view(bs, -1, self.no)


class ESPCN(nn.Module):
    """Shi et al.: a larger picture out of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, 1, 2),
            nn.Tanh(),
            nn.Conv2d(8, 4, 3, 1, 1),
            nn.PixelShuffle(2),
        )

    def forward(self, x):
        return torch.clamp(
            self.body(x)
            + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False),
            0.0,
            1.0,
        )
