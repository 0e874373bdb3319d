"""Layers moved into another net: the same tensors where they stay, the same function where it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from app.training.surgery.transfer import transfer

PIXELS, ROW = (3, 2, 8, 8), (5, 6)


class Joined(nn.Module):
    """Two layers side by side, their outputs joined, and a head."""

    def __init__(self, one: int, other: int, norm: bool = False) -> None:
        super().__init__()
        self.one, self.other = (
            nn.Conv2d(2, one, 3, padding=1),
            nn.Conv2d(2, other, 3, padding=1),
        )
        self.norm = nn.BatchNorm2d(one + other) if norm else nn.Identity()
        self.head = nn.Linear((one + other) * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(
            self.norm(torch.cat([self.one(x), self.other(x).relu()], 1)).flatten(1)
        )


class Residual(nn.Module):
    """A trunk with or without `branch`, which is added, and a learned offset of it."""

    def __init__(self, branch: nn.Module | None = None, offset: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.branch = nn.Linear(6, 8), nn.Linear(8, 3), branch
        self.offset = nn.Parameter(torch.ones(8)) if offset else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x if self.branch is None else x + self.branch(x)
        return self.last(x if self.offset is None else x + self.offset)


class Attention(nn.Module):
    def __init__(self, inserted: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.attention = (
            nn.MultiheadAttention(8, 2, batch_first=True) if inserted else None
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).unsqueeze(1)
        x = x if self.attention is None else x + self.attention(x, x, x)[0]
        return self.last(x).squeeze(1)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], hidden: int, layers: int = 2) -> None:
        super().__init__()
        self.rnn, self.head = (
            kind(3, hidden, layers, batch_first=True),
            nn.Linear(hidden, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x.unflatten(1, (2, 3)))[0][:, -1])


class Tied(nn.Module):
    def __init__(self, tied: bool, width: int = 6) -> None:
        super().__init__()
        self.one, self.act, self.two = (
            nn.Linear(6, width),
            nn.ReLU(),
            nn.Linear(6, width),
        )
        if tied:
            self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.act(self.one(x)))


def conv_net(
    width: int = 4,
    hidden: int = 16,
    kernel: int = 3,
    classes: int = 3,
    norm: type | None = nn.BatchNorm2d,
    drop: float = 0.5,
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, width, kernel, padding=kernel // 2),
        norm(width) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(width * 16, hidden),
        nn.ReLU(),
        nn.Dropout(drop),
        nn.Linear(hidden, classes),
    )


def frozen(net: nn.Sequential, *places: int) -> nn.Sequential:
    for place in places:
        net[place].requires_grad_(False)
    return net


def dense(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))


Same = tuple[tuple[str, str], ...]


def same(count: int) -> Same:
    return tuple((str(place), str(place)) for place in range(count))


ENDS: Same = (("0", "0"), ("1", "2"))


@dataclass(frozen=True)
class Case:
    """One kind of surgery: nets before and after, what becomes of layers, and whether the function is the same."""

    before: Callable[[], nn.Module]
    after: Callable[[], nn.Module]
    layers: Same
    fates: dict[str, str]
    starts: Sequence[tuple[str, str, str]] = ()
    segments: Sequence[tuple[str, Sequence[tuple[int, int]]]] = ()
    preserved: bool = True
    inputs: tuple[int, ...] = field(default=PIXELS)


def inserted(
    layer: Callable[[], nn.Module], how: str, fate: str, preserved: bool = True
) -> Case:
    return Case(
        dense,
        lambda: dense(layer()),
        ENDS,
        {"1": fate},
        [("1", how, "")],
        preserved=preserved,
        inputs=ROW,
    )


def in_conv(layer: Callable[[], nn.Module], fate: str, preserved: bool = True) -> Case:
    after = lambda: nn.Sequential(*conv_net()[:3], layer(), *conv_net()[3:])  # noqa: E731
    layers = tuple((str(place), str(place + (place > 2))) for place in range(9))
    return Case(
        conv_net,
        after,
        layers,
        {"3": fate},
        [("3", "identity", "")],
        preserved=preserved,
    )


def branch(layer: Callable[[], nn.Module]) -> Case:
    made = lambda: Residual(nn.Sequential(nn.Linear(8, 8), nn.GELU(), layer()))  # noqa: E731
    starts = [("branch.0", "plain", ""), ("branch.2", "zero", "")]
    pairs = (("first", "first"), ("last", "last"))
    return Case(
        Residual,
        made,
        pairs,
        {"branch.0": "initialised", "branch.2": "zero"},
        starts,
        inputs=ROW,
    )


WIDE = {"0": "widened", "1": "widened", "5": "widened", "8": "kept"}
CASES = {
    "nothing": Case(
        conv_net, conv_net, same(9), {"0": "kept", "1": "kept", "5": "kept"}
    ),
    "channels widened, through norm, pooling and flatten": Case(
        conv_net, lambda: conv_net(7), same(9), WIDE
    ),
    "hidden units widened": Case(
        conv_net, lambda: conv_net(hidden=20), same(9), {"5": "widened", "8": "widened"}
    ),
    "both widened": Case(
        conv_net, lambda: conv_net(6, 24), same(9), WIDE | {"8": "widened"}
    ),
    "widened, behind it a layer norm": Case(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)),
        lambda: nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 3)),
        same(3),
        {"1": "widened"},
        preserved=False,
        inputs=ROW,
    ),
    "kernel enlarged": Case(
        conv_net, lambda: conv_net(kernel=5), same(9), {"0": "widened"}
    ),
    "a class more": Case(
        conv_net,
        lambda: conv_net(classes=5),
        same(9),
        {"8": "widened"},
        preserved=False,
    ),
    "narrowed": Case(
        conv_net,
        lambda: conv_net(hidden=9),
        same(9),
        {"5": "narrowed", "8": "narrowed"},
        preserved=False,
    ),
    "one part of a concatenation widened": Case(
        lambda: Joined(2, 3),
        lambda: Joined(4, 3),
        tuple((n, n) for n in ("one", "other", "norm", "head")),
        {"one": "widened", "other": "kept", "head": "widened"},
        segments=[("head", [(2, 4), (3, 3)])],
    ),
    "both parts widened, a norm behind": Case(
        lambda: Joined(2, 3, True),
        lambda: Joined(3, 5, True),
        tuple((n, n) for n in ("one", "other", "norm", "head")),
        {"norm": "widened"},
        segments=[("head", [(2, 3), (3, 5)]), ("norm", [(2, 3), (3, 5)])],
    ),
    "linear inserted": inserted(lambda: nn.Linear(8, 8), "identity", "identity"),
    "PReLU inserted": inserted(lambda: nn.PReLU(8), "identity", "identity"),
    "dropout inserted": inserted(lambda: nn.Dropout(0.3), "identity", "new"),
    "GELU inserted": inserted(nn.GELU, "identity", "new", preserved=False),
    "layer norm inserted": inserted(
        lambda: nn.LayerNorm(8), "identity", "initialised", preserved=False
    ),
    "transformer layer inserted": inserted(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, norm_first=True),
        "identity",
        "identity",
    ),
    "post-norm transformer layer inserted": inserted(
        lambda: nn.TransformerEncoderLayer(8, 2, 16),
        "identity",
        "initialised",
        preserved=False,
    ),
    "conv inserted": in_conv(lambda: nn.Conv2d(4, 4, 3, padding=1), "identity"),
    "depthwise conv inserted": in_conv(
        lambda: nn.Conv2d(4, 4, 5, padding="same", groups=4), "identity"
    ),
    "transposed conv inserted": in_conv(
        lambda: nn.ConvTranspose2d(4, 4, 3, padding=1), "identity"
    ),
    "ReLU after ReLU": in_conv(nn.ReLU, "new"),
    "batch norm inserted": in_conv(
        lambda: nn.BatchNorm2d(4), "initialised", preserved=False
    ),
    "residual branch": branch(lambda: nn.Linear(8, 8)),
    "residual branch with a norm at its end": branch(lambda: nn.LayerNorm(8)),
    "attention in a residual": Case(
        lambda: Attention(False),
        lambda: Attention(True),
        (("first", "first"), ("last", "last")),
        {"attention": "zero"},
        [("attention", "zero", "")],
        inputs=ROW,
    ),
    "free parameter added": Case(
        Residual,
        lambda: Residual(offset=True),
        (("first", "first"), ("last", "last")),
        {"offset": "zero"},
        [("offset", "zero", "")],
        inputs=ROW,
    ),
    "layer removed": Case(
        lambda: dense(nn.Linear(8, 8)),
        dense,
        (("0", "0"), ("2", "1")),
        {"1": "kept"},
        preserved=False,
        inputs=ROW,
    ),
    "dropout changed": Case(
        conv_net, lambda: conv_net(drop=0.1), same(9), {"7": "changed"}
    ),
    "frozen": Case(
        conv_net, lambda: frozen(conv_net(), 0), same(9), {"0": "frozen", "5": "kept"}
    ),
    "unfrozen": Case(
        lambda: frozen(conv_net(), 0, 1),
        conv_net,
        same(9),
        {"0": "unfrozen", "1": "unfrozen"},
    ),
    "tied": Case(
        lambda: Tied(True),
        lambda: Tied(True),
        (("one", "one"), ("two", "two")),
        {"one": "kept", "two": "kept"},
        inputs=ROW,
    ),
    "untied": Case(
        lambda: Tied(True),
        lambda: Tied(False),
        (("one", "one"), ("two", "two")),
        {"two": "copied"},
        inputs=ROW,
    ),
    "embedding widened": Case(
        lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 3)),
        lambda: nn.Sequential(nn.Embedding(12, 4), nn.Flatten(), nn.Linear(24, 3)),
        same(3),
        {"0": "widened"},
        inputs=(5, 6, 0),
    ),
    "LSTM widened": Case(
        lambda: Recurrent(nn.LSTM, 4),
        lambda: Recurrent(nn.LSTM, 7),
        (("rnn", "rnn"), ("head", "head")),
        {"rnn": "widened"},
        inputs=ROW,
    ),
    "GRU widened": Case(
        lambda: Recurrent(nn.GRU, 4),
        lambda: Recurrent(nn.GRU, 5),
        (("rnn", "rnn"), ("head", "head")),
        {"rnn": "widened"},
        inputs=ROW,
    ),
    "another kind of layer": Case(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8)),
        lambda: nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8)),
        same(2),
        {"0": "kept", "1": "initialised"},
        preserved=False,
        inputs=ROW,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_surgery_keeps_tensors_and_the_function_where_it_can(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    before, after = with_trained_statistics(case.before()), case.after()
    state = {key: value.clone() for key, value in before.state_dict().items()}
    flags = [one.requires_grad for one in before.parameters()]
    inputs = (
        torch.randint(9, case.inputs[:2])
        if case.inputs[-1] == 0
        else torch.randn(case.inputs)
    )
    with torch.no_grad():
        told = before.eval()(inputs)
    old = dict(before.named_parameters(remove_duplicate=False)) | dict(
        before.named_buffers()
    )
    shapes = [one.shape for one in after.parameters()]
    rows, changed = transfer(before, after, case.layers, case.starts, case.segments)
    fates = {new: what for _, new, what, _ in rows if new}
    assert fates | case.fates == fates
    assert [one.shape for one in after.parameters()] == shapes
    now = dict(after.named_parameters(remove_duplicate=False)) | dict(
        after.named_buffers()
    )
    for one, other in case.layers:
        if fates.get(other) in ("kept", "changed", "frozen", "unfrozen"):
            names = [
                key.removeprefix(f"{other}.")
                for key in now
                if key.startswith(f"{other}.")
            ]
            assert all(now[f"{other}.{key}"] is old[f"{one}.{key}"] for key in names)
    for was, new, resized in changed:
        moment = torch.randn_like(was)
        moved = resized(moment)
        assert moved.shape == new.shape and moved.count_nonzero() == min(
            moment.numel(), moved.count_nonzero()
        )
    with torch.no_grad():
        answer = after.eval()(inputs)
    difference = (
        (answer - told).abs().max() / told.abs().max()
        if answer.shape == told.shape
        else torch.tensor(1.0)
    )
    assert (difference <= 1e-6) == case.preserved, float(difference)
    assert all(
        torch.equal(value, state[key]) for key, value in before.state_dict().items()
    )
    assert [one.requires_grad for one in before.parameters()] == flags


def with_trained_statistics(net: nn.Module) -> nn.Module:
    """Give norms the statistics of a net that was trained."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean, module.running_var = (
                torch.randn(len(module.weight)),
                torch.rand(len(module.weight)) + 0.5,
            )
    return net


def test_every_new_unit_learns_within_two_steps() -> None:
    torch.manual_seed(0)
    before, after = conv_net(drop=0.0), conv_net(7, 20, drop=0.0)
    transfer(before, after, same(9))
    optimizer, inputs = (
        torch.optim.SGD(after.parameters(), 0.1),
        torch.randn(16, 2, 8, 8),
    )
    begun = [one.detach().clone() for one in after.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(after(inputs), torch.arange(16) % 3).backward()
        optimizer.step()
    assert (after[0].weight != begun[0])[4:].any(dim=(1, 2, 3)).all()  # new channels
    assert (after[5].weight != begun[4])[:, 64:].any(dim=0).float().mean() > 0.9
    new = after[8].weight[:, 16:].T
    assert len(torch.unique(new, dim=0)) == 4  # no two units are alike


def test_moments_of_new_entries_are_zero() -> None:
    before, after = nn.Linear(3, 2), nn.Linear(4, 3)
    _, changed = transfer(nn.Sequential(before), nn.Sequential(after), (("0", "0"),))
    weight = next(resized for old, _, resized in changed if old is before.weight)
    moved = weight(torch.ones(2, 3))
    assert moved.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
