"""Transforms, complex numbers and sliding blocks are drawn like everything else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.features.importing.importer.test_models import code_of, same


class Spectral1d(nn.Module):
    """Weights of frequencies as real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 4, 2))
        self.beside = nn.Conv1d(3, 3, 1)

    def forward(self, x):
        found = torch.fft.rfft(x, norm="ortho")
        mixed = torch.einsum(
            "bik,iok->bok", found[..., :4], torch.view_as_complex(self.weight)
        )
        back = torch.fft.irfft(
            F.pad(mixed, (0, found.size(-1) - 4)), n=x.size(-1), norm="ortho"
        )
        return (
            back
            + self.beside(x)
            + found.imag.mean()
            + found.abs().sum()
            + torch.angle(found).mT.mean()
        )


class Spectral2d(nn.Module):
    """Weights of frequencies as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 4, 4, dtype=torch.cfloat))
        self.beside = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        found = torch.fft.rfft2(x)
        mixed = torch.zeros(
            x.shape[0],
            3,
            found.size(-2),
            found.size(-1),
            dtype=torch.cfloat,
            device=x.device,
        )
        mixed[:, :, :4, :4] = torch.einsum(
            "bixy,ioxy->boxy", found[..., :4, :4].to(torch.cfloat), self.weight
        )
        return torch.fft.irfft2(mixed, s=(x.size(-2), x.size(-1))).to(
            x.dtype
        ) + self.beside(x)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        both = torch.fft.fft(torch.fft.fft(self.linear(x), dim=-1), dim=-2)
        turned = both * torch.polar(torch.ones_like(x), x) * torch.complex(x, x).conj()
        return (
            torch.view_as_real(torch.fft.fftshift(turned, dim=-1)).flatten(1)
            + both.real.mean()
        )


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        found = F.unfold(self.conv(x), 3, padding=1)
        return F.fold(found * found.mean(1, keepdim=True), x.shape[-2:], 3, padding=1)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Spectral1d(), (2, 3, 16)),
        (Spectral2d(), (2, 3, 12, 12)),
        (Mixed(), (2, 5, 8)),
        (Blocks(), (2, 3, 6, 6)),
    ],
)
def test_transforms_and_sliding_blocks_are_drawn(model, shape) -> None:
    same(model, torch.randn(shape))


def test_a_complex_weight_is_one_in_the_code() -> None:
    assert (
        "dtype=torch.complex64"
        in code_of(same(Spectral2d(), torch.randn(2, 3, 12, 12))).text
    )
