"""What a model changes in place is drawn as a new value, and so is whatever shares its memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.features.importing.importer.test_models import code_of, same


class Given(nn.Module):
    """A linear layer, and a function that is `forward`."""

    def __init__(self, function: Callable[..., Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.function(self, x)


class Changing(nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


class Flat(nn.Module):
    def forward(self, x):
        return x.flatten(1)


class Same(nn.Module):
    def forward(self, x):
        return x


class Activated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return self.out(self.act(x))


def view(net, x):
    x = net.linear(x)
    y = x.view(-1, 2, 4)
    y.add_(1)
    return x * 2


def changed_later(net, x):
    x = net.linear(x)
    y, z = x.view(-1, 2, 4), x[:, :4]
    x.add_(1)
    return y.flatten(1)[:, 4:] * z


def cut(net, x):
    x = net.linear(x)
    x[:, 2:5].zero_()
    x[:, 0].fill_(2.0)
    x[:, 1] += 1
    x[:, 4:6] *= 2
    x[..., -1].neg_()
    x.view(-1, 2, 4)[:, 0].copy_(x[:, 4:])
    return x


def functions(net, x):
    x = net.linear(x)
    torch.relu_(x.view(-1, 2, 4))
    y = x - 0.5
    z = y * 3
    return F.elu(y, inplace=True) + y + z


def in_a_submodule(net, x):
    x = net.linear(x)
    return x + net.inner(x)


def of_what_comes_back(net, x):
    x = net.linear(x).view(-1, 2, 4)
    net.inner(x).add_(1)
    return x * 2


def read_before(net, x):
    x = net.linear(x)
    y = x * 3
    return net.act(x) + y


@pytest.mark.parametrize("function", [view, changed_later, cut, functions])
def test_what_shares_memory_with_a_tensor_changes_with_it(function) -> None:
    same(Given(function), torch.randn(4, 8))


@pytest.mark.parametrize("inner", [Changing(), Activated(), Same()])
def test_what_a_submodule_changes_of_its_input_is_changed_outside(inner) -> None:
    same(Given(in_a_submodule, inner=inner), torch.randn(4, 8))


@pytest.mark.parametrize("inner", [Flat(), Same()])
def test_what_a_submodule_gives_back_may_be_what_it_took(inner) -> None:
    same(Given(of_what_comes_back, inner=inner), torch.randn(4, 8))


def test_a_layer_works_in_place_only_where_nobody_reads_what_it_took() -> None:
    chain = same(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8)),
        torch.randn(4, 8),
    )
    assert "nn.ReLU(inplace=True)" in code_of(chain).text
    read = same(Given(read_before, act=nn.ReLU(inplace=True)), torch.randn(4, 8))
    assert "nn.ReLU()" in code_of(read).text
