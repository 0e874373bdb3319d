"""Modules that are called more than once with other arguments, and older ways to write a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.catalog.introspect import find
from app.builder.expressions import Expr
from app.builder.params import ParamError, format_param, parse_expression, parse_param
from app.features.importing.compute.pipeline import project_of
from app.features.importing.values import ModelImportError
from app.project import file
from app.source.compiled import make_module
from app.sources.spec import InputSpec


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(
        self, x: torch.Tensor, scale: float = 1.0, bent: bool = False
    ) -> torch.Tensor:
        y = x + scale * self.fc(x)
        return y.relu() if bent else y


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = Step()

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return self.step(x, scale)


class Calls(nn.Module):
    """`way` says what a net does with a module that it has once."""

    def __init__(
        self, module: nn.Module, way: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    ) -> None:
        super().__init__()
        self.inner = module
        self.way = (way,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.way[0](self.inner, x)


def same(model: nn.Module, shape: tuple[int, ...]) -> str:
    """The text of a model's drawing, opened from a file, which gives the same outputs and gradients."""
    project = file.loads(file.dumps(project_of(model, (InputSpec(shape),), "Net")))
    source = analyse(project.graph, with_blocks(catalog(), project.blocks)).source
    ours = make_module(source)
    ours.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for net in (ours, model):
        net.double().eval()
        net(x.double()).square().sum().backward()
    torch.testing.assert_close(
        ours(x.double()), model(x.double()), rtol=1e-12, atol=1e-12
    )
    theirs = dict(model.named_parameters())
    for name, one in ours.named_parameters():
        torch.testing.assert_close(one.grad, theirs[name].grad, rtol=1e-10, atol=1e-10)
    return source.text


@pytest.mark.parametrize(
    ("module", "way"),
    [
        (Step, lambda f, x: f(f(x, 0.5), 0.25)),
        (Step, lambda f, x: f(f(x, 2.0, True), 2.0)),
        (Around, lambda f, x: f(x, 2.0) + f(x, 5.0)),
    ],
    ids=["numbers", "branches", "numbers further inside"],
)
def test_a_module_that_does_other_things_from_call_to_call_is_drawn_call_by_call(
    module: Callable[[], nn.Module],
    way: Callable[[nn.Module, torch.Tensor], torch.Tensor],
) -> None:
    same(Calls(module(), way), (3, 4))


def test_a_module_that_does_the_same_at_every_call_stays_one_block() -> None:
    assert (
        same(Calls(Step(), lambda f, x: f(f(x, 0.5), 0.5)), (3, 4)).count("self.inner(")
        == 2
    )


def test_a_layer_with_other_arguments_from_call_to_call_is_not_drawn_with_those_of_the_first() -> (
    None
):
    up = nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1)
    model = Calls(
        up,
        lambda f, x: (
            f(x, output_size=(8, 8)).sum((2, 3)) + f(x, output_size=(7, 7)).sum((2, 3))
        ),
    )
    with pytest.raises(ModelImportError):
        project_of(model, (InputSpec((2, 2, 4, 4)),), "Net")


@pytest.mark.parametrize(
    "way",
    [
        lambda f, x: torch.add(f(x), x, alpha=0.5) - x.sub(f(x), alpha=3),
        lambda f, x: (
            f(x) * x.var(1, unbiased=False, keepdim=True) + f(x).std(1, False, True)
        ),
        lambda f, x: (
            f(x).unflatten(-1, (2, -1)).transpose(1, 2).flatten(1)
            + x.unflatten(1, (2, 2)).flatten(1)
        ),
    ],
    ids=["alpha", "unbiased", "unflatten"],
)
def test_older_and_shorter_ways_to_write_a_call(
    way: Callable[[nn.Module, torch.Tensor], torch.Tensor],
) -> None:
    same(Calls(nn.Linear(4, 4), way), (3, 4))


def test_a_transformer_layer_with_an_activation_of_ones_own_is_followed_inside() -> (
    None
):
    layer = nn.TransformerEncoderLayer(
        4, 2, 8, activation=F.silu, batch_first=True, norm_first=True
    )
    assert "F.silu(" in same(Calls(layer, lambda f, x: f(x)), (2, 3, 4))


class Masked(nn.Module):
    """A transformer whose masks are made of sizes, and whose flags say nothing of them."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Transformer(4, 2, 1, 1, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        later = torch.triu(torch.full((3, 3), float("-inf")), 1)
        return self.whole(x, x * 2, src_mask=later, tgt_mask=later)


def test_masks_of_a_transformer_without_values_are_taken_as_they_are() -> None:
    same(Masked(), (2, 3, 4))


def test_a_transformer_with_a_mask_has_a_shape() -> None:
    target = find("torch.nn.Transformer")
    with torch.device("meta"):
        whole, x = target(4, 2, 1, 1, 8, batch_first=True), torch.zeros(2, 3, 4)
        assert whole(x, x, tgt_mask=torch.zeros(3, 3)).shape == (2, 3, 4)


@pytest.mark.parametrize(
    "module",
    [
        nn.AdaptiveMaxPool2d((2, None)),
        nn.AdaptiveAvgPool2d((None, 3)),
        nn.AdaptiveMaxPool3d((None, 2, None)),
    ],
    ids=repr,
)
def test_a_pool_keeps_the_sizes_that_are_none(module: nn.Module) -> None:
    shape = (2, 3, 4, 6, 5)[: 5 if "3d" in repr(module) else 4]
    text = same(nn.Sequential(nn.PReLU(), module), shape)
    assert f"nn.{module}".replace("output_size=", "") in text.replace(
        "output_size=", ""
    )


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize(
    ("count", "sizes"), [(1, 2), (2, (None, 2)), (3, (2, None, 3))]
)
def test_a_pool_that_is_called_keeps_the_sizes_that_are_none(
    kind: str, count: int, sizes: object
) -> None:
    name = f"adaptive_{kind}_pool{count}d"
    text = same(
        Calls(nn.PReLU(), lambda one, x: getattr(F, name)(one(x), sizes)),
        (2, 3, 4, 6, 5)[: count + 2],
    )
    assert f"F.{name}(" in text and str(sizes) in text


def test_a_size_that_stays_is_typed_as_none_in_a_block_too() -> None:
    param = catalog()["nn.AdaptiveMaxPool2d"].param("output_size")
    assert param is not None
    assert parse_param(param, format_param((2, None))) == (2, None)
    assert parse_expression(param, "n*2, None") == (Expr("n*2"), None)
    with pytest.raises(ParamError, match="None for an unchanged size"):
        parse_param(param, "two")
