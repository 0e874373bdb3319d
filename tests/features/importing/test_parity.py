"""A drawing is held against the live model: each pair is a model, and a net that lost one thing of it in silence."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional as F

from app.features.importing import task
from app.features.importing.compute import pipeline
from app.features.importing.compute.parity import held
from app.features.importing.compute.parity.check import ParityCheck, ParityResult
from app.features.importing.compute.parity.differences import Difference
from app.features.importing.compute.parity.inputs import Inputs
from app.features.importing.compute.parity.subject import ComparedModule
from app.features.importing.compute.pipeline import Wish, imported
from app.features.importing.compute.tracing import grad_regions, patches
from app.features.importing.values import ImportModel, ModelImportError
from app.project.project import Project
from app.source import generated
from app.sources.spec import InputSpec, SourceSpec
from tests.support.own_code import trust

SHAPE = (2, 4)


class Two(nn.Module):
    """Two layers, and what is done with them."""

    def __init__(self, body: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.body, self.calls, self.frozen_norm = body, 0, False

    def train(self, mode: bool = True) -> Two:
        super().train(mode)
        self.norm.train(mode and not self.frozen_norm)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def checked(theirs: nn.Module, ours: nn.Module) -> ParityResult:
    ours.load_state_dict(theirs.state_dict())
    inputs = Inputs((generated.InputSpec("x", (4,)),), (SHAPE,), theirs)
    return ParityCheck(ComparedModule(ours), ComparedModule(theirs), inputs).run()


def without_gradient(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        hint = net.b(x)
    return net.a(x) + hint


def in_bfloat16(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.b(net.a(x)).to(x.dtype)


def hooked(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = net.a(x)
    y.register_hook(lambda gradient: gradient * 2)
    return net.b(y)


def counted(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    net.calls += 1
    return net.a(x) * (0.5 if net.calls == 1 else 1.0)


def quietly_counted(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    net.calls += 1
    return net.a(x) * (0.5 if net.calls > 1000 else 1.0)


def averaged(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        net.b.weight.data.mul_(0.9).add_(net.a.weight.data, alpha=0.1)
    return net.a(x)


NOISE = torch.randn(4, generator=torch.Generator().manual_seed(1))
LOST: dict[
    str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor], str]
] = {
    "no_grad": (
        without_gradient,
        lambda net, x: net.a(x) + net.b(x),
        "b.bias has a gradient and should have none",
    ),
    "autocast": (in_bfloat16, lambda net, x: net.b(net.a(x)), "own precision"),
    "a hook": (hooked, lambda net, x: net.b(net.a(x)), "gradients in eval mode"),
    "a counter": (counted, lambda net, x: net.a(x) * 0.5, "second call"),
    "a counter that shows late": (
        quietly_counted,
        lambda net, x: net.a(x),
        "calls is 2 after two calls",
    ),
    "a moving average": (averaged, lambda net, x: net.a(x), "values after two calls"),
    "a random constant": (
        lambda net, x: net.a(x) + torch.randn(4, dtype=x.dtype),
        lambda net, x: net.a(x) + NOISE.to(x.dtype),
        "outputs in eval mode",
    ),
    "a number of Python's": (
        lambda net, x: net.a(x) * random.random(),
        lambda net, x: net.a(x) * 0.4,
        "outputs",
    ),
    "the batch": (
        lambda net, x: net.a(x) * x.shape[0],
        lambda net, x: net.a(x) * 2,
        "batch 3",
    ),
    "a branch": (
        lambda net, x: net.a(x) * 2 if x.mean() > 0.05 else net.a(x),
        lambda net, x: net.a(x) * 2,
        "outputs",
    ),
    "dropout": (
        lambda net, x: F.dropout(net.a(x), 0.5, net.training),
        lambda net, x: net.a(x),
        "train mode",
    ),
    "an order": (
        lambda net, x: net.b(net.a(x).relu()),
        lambda net, x: net.b(net.a(x)).relu(),
        "outputs",
    ),
    "statistics": (
        lambda net, x: net.norm(net.a(x)),
        lambda net, x: F.batch_norm(
            net.a(x),
            net.norm.running_mean.clone(),
            net.norm.running_var.clone(),
            net.norm.weight,
            net.norm.bias,
            net.training,
        ),
        "values after two calls",
    ),
    "an output": (
        lambda net, x: (net.a(x), net.b(x)),
        lambda net, x: net.a(x),
        "returns 1 tensors and not 2",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_what_was_lost_in_silence_is_found(name: str) -> None:
    right, wrong, words = LOST[name]
    found = checked(Two(right), Two(wrong))
    assert [words in str(one) for one in found.differences] == [True], found
    same = checked(Two(right), Two(right))
    assert (
        not same.differences
        and "equal in eval and train mode, batch 2 and 3" in same.said
    ), same


def test_frozen_parameters_and_an_overridden_train_are_found() -> None:
    body = LOST["statistics"][0]
    frozen, norm = Two(body), Two(body)
    frozen.a.requires_grad_(False)
    norm.frozen_norm = True
    assert "a.weight learns in the drawing and is frozen" in str(
        checked(frozen, Two(body)).differences[0]
    )
    assert "in train mode" in str(checked(norm, Two(body)).differences[0])


def test_one_tensor_of_two_names_is_found() -> None:
    tied = Two(lambda net, x: net.b(net.a(x)))
    tied.b.weight = tied.a.weight
    assert checked(tied, Two(tied.body)).differences


def test_another_order_of_draws_is_said_and_chance_without_a_seed_too() -> None:
    def one(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        first = torch.rand(4, dtype=x.dtype)
        return net.a(x) * first + torch.rand(2, 2).sum()

    def other(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        last = torch.rand(2, 2).sum()
        return net.a(x) * torch.rand(4, dtype=x.dtype) + last

    found = checked(Two(one), Two(other))
    assert not found.differences and "drawn in another order" in " ".join(found.notes)
    wild = torch.Generator()

    def unseeded(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        wild.seed()
        return net.a(x) + torch.rand(4, generator=wild)

    found = checked(Two(unseeded), Two(lambda net, x: net.a(x)))
    assert not found.repeatable and "gives other results" in f"{found.differences[0]}"


def test_what_the_model_itself_does_is_no_difference_and_is_said() -> None:
    odd = checked(
        Two(lambda net, x: net.a(x).log()), Two(lambda net, x: net.a(x).log())
    )
    assert not odd.differences and "not finite" in " ".join(odd.notes)
    moved = checked(
        Two(lambda net, x: net.a(x).log()), Two(lambda net, x: net.a(x).abs().log())
    )
    assert "differs in which values are finite" in str(moved.differences[0])
    own = Two(lambda net, x: net.a(x) @ torch.eye(4))
    single = checked(own, Two(own.body))
    assert (
        not single.differences
        and "does not run in float64" in " ".join(single.notes)
        and "float32" in single.said
    )
    fixed = Two(lambda net, x: net.a(x).view(2, 4))
    found = checked(fixed, Two(fixed.body))
    assert not found.differences and "batch 3, where the model stops" in " ".join(
        found.notes
    )
    none = checked(
        Two(lambda net, x: net.a(x[:, :3])), Two(lambda net, x: net.a(x[:, :3]))
    )
    assert not none.said and "was not checked against the model" in none.notes[0]


INNER = """
import torch
from torch import nn

class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.fc(x)
        return y.to(x.dtype)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.part, self.last = nn.Linear(4, 4), Late(), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.part(self.first(x)).relu())
"""


@pytest.fixture
def overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that does not see regions of another precision, as it may not see what nobody thought of."""
    monkeypatch.setattr(
        grad_regions, "watched", lambda _tracer: contextlib.nullcontext()
    )
    monkeypatch.setattr(patches.torch._C, "_is_any_autocast_enabled", lambda: False)


@pytest.mark.usefixtures("overlooked")
def test_the_smallest_part_that_differs_is_kept_as_a_node_of_its_own_code(
    tmp_path: Path,
) -> None:
    file = tmp_path / "late.py"
    file.write_text(INNER)
    trust("late.py:Net", tmp_path)
    question = ImportModel(
        SourceSpec("file", str(file), "Net"), {}, (InputSpec((2, 4)),)
    )
    project = task.answer(question, tmp_path)
    assert (
        project.origin is not None
        and "equal in eval and train mode" in project.origin.checked
    )
    custom = [
        node.op
        for node in project.graph.nodes.values()
        if node.op.startswith("custom.")
    ]
    assert custom == ["custom.late:Late"] and "part (Late) is one node" in project.notes


def test_a_drawing_that_cannot_run_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = pipeline.project_of

    def wrong(*args: Any, **named: Any) -> Project:
        project = right(*args, **named)
        last = next(
            node
            for node in project.graph.nodes.values()
            if node.params.get("out_features") == 2
        )
        nodes = project.graph.nodes.set(
            last.id, replace(last, params=last.params.set("in_features", 5))
        )
        return replace(project, graph=replace(project.graph, nodes=nodes))

    monkeypatch.setattr(pipeline, "project_of", wrong)
    wish = Wish("it", "it", (InputSpec((2, 4)),))
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with pytest.raises(
        ModelImportError,
        match=r"the drawing cannot run: .*expects 5.*The difference is in Sequential",
    ):
        imported(model, wish, tmp_path, dict)


@pytest.mark.usefixtures("overlooked")
def test_a_part_that_cannot_be_kept_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text(
        INNER.replace("forward(self, x):", "forward(self, *xs):\n        (x,) = xs")
    )
    trust("late.py:Net", tmp_path)
    question = ImportModel(
        SourceSpec("file", str(file), "Net"), {}, (InputSpec((2, 4)),)
    )
    with pytest.raises(
        ModelImportError,
        match=r"would be a different net: .*part \(Late, late.py line 10\)",
    ):
        task.answer(question, tmp_path)


def test_what_cannot_be_one_node_hears_which_classes_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "smallest", lambda *_all: "0")
    found = ParityResult(differences=(Difference("outputs", "output", "is another"),))
    with pytest.raises(
        ModelImportError,
        match=r"The difference is in 0 \(Linear.*of your own file, or of an installed",
    ):
        held.part_to_keep(
            nn.Sequential(nn.Linear(4, 2)), found, {}, None, lambda _words: None
        )


class Cache:
    """What one module leaves for another beside its results."""

    held: torch.Tensor


class Fills(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        y: torch.Tensor = self.fc(x)
        cache.held = y.tanh()
        return y


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        return x + cache.held * self.w


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fills, self.reads = Fills(), Reads()

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        cache = Cache()
        y = self.fills(x, cache)
        return {"first": y, "cache": cache, "second": self.reads(y, cache)}


def test_a_cache_that_modules_share_is_drawn_as_values_between_them(
    tmp_path: Path,
) -> None:
    project = imported(Cached(), Wish("it", "it", (InputSpec((2, 4)),)), tmp_path, dict)
    assert (
        "outputs, gradients and buffers equal in eval and train mode" in project.notes
    )
    nodes = project.graph.nodes.values()
    assert sorted(node.op for node in nodes if node.op != "output") == [
        "block.Fills",
        "block.Reads",
        "input",
    ]
