"""Why a parameter gets no gradient: its kind, its line, the way to it; torch's own `.grad` is the witness."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.diagnostics.detached_paths import CutWatcher, _is_write
from app.autograd.diagnostics.gradient_paths import find_paths
from app.autograd.diagnostics.results import GradAnswer, GradientPaths
from app.source.generated import InputSpec, Source
from app.util.frozen import FrozenMap
from tests.support.autograd_tapes import SOURCE

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 1])


class Net(nn.Module):
    """`a`, then what is tried, then `b`."""

    def __init__(self, middle: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.middle = nn.Linear(4, 4), nn.Linear(4, 2), middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.middle(self.a(x)))


def answers(
    model: nn.Module, x: torch.Tensor = X, y: torch.Tensor | None = Y, **more: Any
) -> GradientPaths:
    return find_paths(
        TrainingBatch(
            model, (x,), nn.CrossEntropyLoss() if y is not None else None, y, **more
        )
    )


def a_weight(middle: Callable[..., Any]) -> GradAnswer:
    return answers(Net(middle)).answers["a.weight"]


class Straight(torch.autograd.Function):
    """Rounds forward, and passes the gradient on as if it had not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.detach().round() + 0.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def no_grad(h: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return h * 2


def written(h: torch.Tensor) -> torch.Tensor:
    kept = torch.zeros_like(h)
    with torch.no_grad():
        kept.copy_(h)
    return kept


def inference(h: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        h = h * 2
    return h.clone()


CUTS = [
    (
        "detach",
        lambda h: h.detach(),
        "detach() returns a tensor that is not part of the graph",
    ),
    ("data", lambda h: h.data * 2, ".data returns the bare values"),
    (
        "item",
        lambda h: torch.full((3, 4), h.sum().item()),
        "item turns the tensor into a Python number",
    ),
    ("detach", lambda h: torch.from_numpy(h.detach().numpy() * 2), "detach() returns"),
    ("no_grad", no_grad, "mul runs under torch.no_grad()"),
    ("no_grad", written, "copy_ writes into a tensor under torch.no_grad()"),
    ("inference_mode", inference, "torch.inference_mode()"),
    (
        "argmax",
        lambda h: F.one_hot(h.argmax(1), 4).float(),
        "argmax returns integers (torch.int64)",
    ),
    ("comparison", lambda h: (h > 0).float(), "gt returns booleans (torch.bool)"),
    ("dtype", lambda h: (h * 9).long().float(), "long converts it to torch.int64"),
    (
        "dtype",
        lambda h: (h * 9).to(torch.int32).float(),
        "to converts it to torch.int32",
    ),
]


@pytest.mark.parametrize(("kind", "middle", "words"), CUTS)
def test_each_cut_is_named_with_its_line_and_the_way_to_it(
    kind: str, middle: Any, words: str
) -> None:
    found = answers(Net(middle))
    answer = found.answers["a.weight"]
    assert (answer.state, answer.kind) == ("none", kind)
    assert words in answer.sentence and answer.cure
    assert answer.sentence.startswith("The gradient path of a.weight is cut at line ")
    assert answer.place is not None and answer.place.file == __file__
    source = open(__file__, encoding="utf-8").read().splitlines()
    assert answer.place.code == source[answer.place.line - 1].strip()
    assert [link.node for link in answer.chain][:2] == ["TBackward0", "AddmmBackward0"]
    assert answer.chain[0].place.layer == "a" and answer.chain[0].place.op == "linear"
    assert found.answers["b.weight"].state == "flows"
    assert {answer.parameter for answer in found.without} == {"a.weight", "a.bias"}


@pytest.mark.parametrize(
    "middle",
    [
        lambda h: h,
        Straight.apply,
        lambda h: checkpoint(F.relu, h, use_reentrant=False),
        lambda h: checkpoint(F.relu, h, use_reentrant=True),
        lambda h: h * (h > 0),
        lambda h: h.clone().add_(1),
        lambda h: F.gumbel_softmax(h, hard=True),
        lambda h: h + h.detach(),
        lambda h: h * h.detach().norm().item(),
    ],
)
def test_a_cut_beside_the_path_does_not_count(middle: Any) -> None:
    found = answers(Net(middle))
    assert {answer.state for answer in found.answers.values()} == {
        "flows"
    } and not found.without


def test_what_a_layer_computes_is_said_to_require_a_gradient_or_not() -> None:
    found = answers(Net(no_grad))
    assert found.layer_requires == FrozenMap({"a": True, "b": True})
    model = Net(no_grad)
    model.a.requires_grad_(False)
    assert answers(model).layer_requires["a"] is False


def test_frozen_unused_and_left_out_of_the_loss() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(4, 2) for _ in range(4))
            self.a.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.d(x).exp()
            return self.a(x) + self.b(x), self.c(x)

    model = Two()
    model.other = nn.Linear(2, 2)
    found = answers(model)
    frozen, unused = found.answers["a.weight"], found.answers["other.bias"]
    assert frozen.kind == "frozen" and "its requires_grad is False" in frozen.sentence
    assert frozen.place is not None and "self.a(x)" in frozen.place.code
    assert (
        unused.kind == "unused"
        and "no operation of this forward pass takes it" in unused.sentence
    )
    second, dropped = found.answers["c.weight"], found.answers["d.weight"]
    assert second.kind == dropped.kind == "not in the loss"
    assert "as output 2, and the loss is computed from another one" in second.sentence
    assert (
        "ExpBackward0" in dropped.sentence
        and dropped.place is not None
        and "self.d(x)" in dropped.place.code
    )


def test_a_net_without_any_graph_is_answered_too() -> None:
    class Shut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return self.fc(x)

    found = answers(Shut())
    assert found.tape is None
    assert (
        found.answers["fc.weight"].kind == "no_grad" and found.answers["fc.weight"].cure
    )


def test_the_place_is_that_of_the_drawing() -> None:
    text = SOURCE.text.replace("x = x + y", "x = x.detach() + y.detach()")
    source = Source(
        text, (InputSpec("x", (1, 8, 8)),), ("out",), SOURCE.lines, SOURCE.modules
    )
    subject = compile_batch(
        source,
        torch.ones(3, 1, 8, 8),
        torch.tensor([1, 2, 3]),
        nn.CrossEntropyLoss(),
        0,
    )
    found = find_paths(subject)
    answer = found.answers["conv1.weight"]
    assert answer.place is not None and (answer.place.node, answer.place.line) == (
        "n3",
        14,
    )
    assert (
        answer.place.code == "x = x.detach() + y.detach()" and answer.place.file == ""
    )
    assert answer.sentence.startswith(
        "The gradient path of conv1.weight is cut at line 14: detach()"
    )
    assert [link.place.node for link in answer.chain] == ["n1", "n2"]
    assert [
        [link.place.node for link in cut.chains["conv1.weight"]]
        for cut in answer.others
    ] == [["n1"]]
    assert found.requires["n1"] is True and found.requires["n4"] is False


def test_a_gradient_of_exactly_zero_is_traced_to_what_stopped_it() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        model[0].bias.fill_(-100)
    found = answers(model)
    answer = found.answers["0.weight"]
    assert (
        answer.state == "zero"
        and answer.norm == 0
        and answer.place is not None
        and answer.place.layer == "1"
    )
    assert (
        "ReluBackward0 in 1 passes no gradient" in answer.sentence
        and "dead ReLU" in answer.sentence
    )
    assert "AddmmBackward0 in 2" in found.answers["2.weight"].sentence
    assert found.answers["2.bias"].state == "flows"
    rounded = answers(Net(torch.round)).answers["a.bias"]
    assert rounded.state == "zero" and "derivative 0 everywhere" in rounded.sentence


@pytest.mark.parametrize("train", [True, False])
def test_a_bias_before_a_batch_norm_cancels_while_it_trains(train: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2)
    )
    found = answers(model, torch.randn(3, 1, 8, 8), train=train)
    answer = found.answers["0.bias"]
    assert answer.state == ("cancelled" if train else "flows")
    if train:
        assert (
            answer.sentence
            == "The bias gets no gradient: 1 subtracts the channel mean, so any bias cancels."
        )
        assert answer.norm is not None and answer.norm < 1e-4 * (
            found.answers["0.weight"].norm or 0
        )
    assert found.answers["1.bias"].state == "flows"


def test_tied_parameters_have_one_answer_by_both_names() -> None:
    model = Net(lambda h: h.detach())
    model.c = model.a
    found = answers(model)
    assert found.answers["c.weight"] is found.answers["a.weight"]


def test_the_net_is_left_as_it_was_and_nothing_is_kept() -> None:
    model = Net(lambda h: h.detach().relu())
    kept = model.b.weight.grad = torch.ones(2, 4)
    found, seen = [], []
    model.b.register_forward_pre_hook(
        lambda module, args: seen.append(weakref.ref(args[0]))
    )
    found.append(answers(model))
    gc.collect()
    assert seen[0]() is None
    assert (
        model.b.weight.grad is kept
        and model.a.weight.grad is None
        and bool((kept == 1).all())
    )


@given(
    st.lists(
        st.sampled_from(["none", "detach", "data", "no_grad", "relu", "residual"]),
        min_size=1,
        max_size=7,
    )
)
def test_the_answers_agree_with_torch(joints: list[str]) -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in joints)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer, joint in zip(self.layers, joints, strict=True):
                before, x = x, layer(x)
                if joint == "residual":
                    x = x.detach() + before
                elif joint == "no_grad":
                    x = no_grad(x)
                elif joint != "none":
                    x = {
                        "detach": x.detach,
                        "relu": x.relu,
                        "data": lambda x=x: x.data,
                    }[joint]()
            return x

    model = Chain()
    found = answers(model)
    end = F.cross_entropy(model(X), Y)
    if end.requires_grad:
        end.backward()
    for name, parameter in model.named_parameters():
        answer = found.answers[name]
        if parameter.grad is None:
            assert answer.state == "none" and answer.kind in (
                "detach",
                "data",
                "no_grad",
            ), answer
        else:
            assert answer.norm == pytest.approx(float(parameter.grad.norm()), rel=1e-4)
            assert answer.state in ("flows", "zero")


def test_writes_are_told_by_name() -> None:
    assert [
        _is_write(name)
        for name in ("add_", "__iadd__", "__setitem__", "__add__", "detach_", "__int__")
    ] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_watcher_stands_around_any_lines() -> None:
    w = torch.ones(3, requires_grad=True)
    with CutWatcher() as watcher:
        y = (w * 2).detach() + w
    cuts = watcher.find_cuts({id(w): ("w",)}, [y])
    assert [(cut.kind, cut.parameters, cut.reaches_end) for cut in cuts] == [
        ("detach", ("w",), True)
    ]
    assert cuts[0].place.code == "y = (w * 2).detach() + w"
