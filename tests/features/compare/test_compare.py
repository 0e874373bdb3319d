"""Of two models the first layer is named that adds more than rounding explains, and none of two equal ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from app.features.compare.compute.compare import Batch, compare_models, compare_modes
from app.features.compare.report import to_plain, to_text
from app.features.compare.values import Modes, parse_modes
from tests.slow import planted_bugs

# One of each sort: a value, a mask, a gradient alone, a buffer, a shape, weights, what is written in place.
KINDS = {
    ("epsilon", "Gpt"),
    ("mask off by one", "Gpt"),
    ("detach", "ResNet"),
    ("momentum of BatchNorm", "ResNet"),
    ("stride", "ResNet"),
    ("initial scale", "Wave"),
    ("in-place on a shared tensor", "UNet"),
    ("frozen parameter", "Wave"),
    ("a cast to float16", "Llama"),
    ("untied weights", "Gpt"),
    ("dropout left on", "Tagger"),
    ("label smoothing", "Mixer"),
    ("depth dropped by batch", "ConvNext"),
}


@pytest.fixture(scope="module")
def bugs() -> dict[tuple[str, str], planted_bugs.Bug]:
    return {
        (one.kind, one.net): one
        for one in (*planted_bugs.bugs(), *planted_bugs.held_out())
    }


@pytest.mark.parametrize("kind", sorted(KINDS), ids=" ".join)
def test_a_planted_bug_is_named_by_its_layer(
    bugs: dict[tuple[str, str], planted_bugs.Bug], kind: tuple[str, str]
):
    bug = bugs[kind]
    found = planted_bugs.compared(bug)
    assert found.first is not None and found.first.a in bug.paths, found.first
    assert found.first.line_a and found.first.line_b and found.differs


EQUAL = {
    "wrapped",
    "other formulas",
    "saved and loaded",
    "float32 and bfloat16",
    "folded batch norm",
}
PAIRS = [
    (kind, compare)
    for kind, net, compare in planted_bugs.equal_pairs()
    if kind in EQUAL and net == "ResNet"
]
PAIRS += [
    (kind, compare)
    for kind, _, compare in planted_bugs.equal_pairs(["Graphs"])
    if kind == "other weights, shared"
]


@pytest.mark.parametrize(("kind", "compare"), PAIRS, ids=[kind for kind, _ in PAIRS])
def test_equal_models_give_no_finding(kind: str, compare: object) -> None:
    found = compare()  # type: ignore[operator]
    assert found.first is None and not found.differs, found.first


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(4, 4), nn.Linear(4, 4), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)) * self.scale)


def test_inherited_error_is_kept_apart_from_added_error() -> None:
    found = compare_models(Scaled(1.0), Scaled(0.5), Batch((torch.randn(3, 4),)))
    layers = {one.a: one for one in found.layers}
    assert (
        found.first is not None
        and found.first.a == ""
        and found.first.operation_a == "mul(1.0)"
    )
    second = layers["second"]
    assert second.forward is not None and second.forward.relative > 0.01  # inherited
    assert second.added is not None and second.added.error == 0
    assert layers["first"].forward is not None and layers["first"].forward.relative == 0
    with open(found.first.file_b, encoding="utf-8") as file:
        assert "self.scale" in file.read().splitlines()[found.first.line_b - 1]


def test_weights_gradients_and_the_generator_are_left_as_they_were() -> None:
    a, b = Scaled(1.0), Scaled(1.0)
    state = torch.get_rng_state()
    compare_models(
        a,
        b,
        Batch((torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),)),
        share=False,
    )
    assert (
        torch.equal(state, torch.get_rng_state())
        and torch.get_default_dtype() == torch.float32
    )
    assert all(one.grad is None for one in (*a.parameters(), *b.parameters()))


def test_a_net_that_draws_numbers_equals_itself_in_double_precision() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            drawn = (
                torch.randn(x.shape),
                torch.rand_like(x),
                torch.empty_like(x).exponential_(),
            )
            return x + sum(one.to(x) for one in drawn) + torch.normal(x.detach(), 1.0)

    net = nn.Sequential(nn.Linear(32, 32), Noise(), nn.Linear(32, 8))
    found = compare_modes(
        net, Modes("float32", "float64"), Batch((torch.randn(4, 32),)), (True,)
    )
    assert found.first is None and found.mode == "train"


def test_train_and_eval_part_at_the_first_dropout() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    found = compare_modes(
        model, parse_modes("eval", "train"), Batch((torch.randn(8, 4),))
    )
    assert found.first is not None and found.first.a == "2"


def test_a_model_that_raises_is_named_where_it_does() -> None:
    a = nn.Sequential(nn.Linear(4, 4), nn.Flatten(1), nn.Linear(4, 2))
    b = nn.Sequential(nn.Linear(4, 4), nn.Flatten(0), nn.Linear(4, 2))
    found = compare_models(a, b, Batch((torch.randn(8, 4),)))
    assert (
        found.first is not None
        and found.first.a == "1"
        and "8×4 in A" in found.first.why
    )


def test_the_report_names_layer_line_and_operation() -> None:
    found = compare_models(Scaled(1.0), Scaled(0.5), Batch((torch.randn(3, 4),)))
    text = "\n".join(to_text(found))
    assert (
        "They first differ at the model, in the forward pass in eval mode: scale 1.0 → 0.5"
        in text
    )
    assert "B: test_compare.py:" in text and "mul(0.5)" in text
    plain = to_plain(found)
    assert (
        plain["first"]["a"] == ""
        and plain["first"]["pass"] == "forward"
        and plain["structure"]["changed"]
    )
    assert {"a", "b", "relative_error", "added", "cosine"} <= plain["layers"][0].keys()
