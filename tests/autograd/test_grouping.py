"""Folded by layer: every node in one group, in forward order, with nothing counted twice; drawn as it is folded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.autograd.batch import TrainingBatch
from app.autograd.grouping import OPEN_TOTAL, fold, group_by_layer, make_group, opened
from app.autograd.pictures.diagram import summary, to_drawing
from app.diagram.layout import arrange
from app.util.formatting import bytes_text
from tests.support.autograd_tapes import small_tape


def test_groups_are_the_layers_in_forward_order() -> None:
    groups = group_by_layer(small_tape())
    assert [group.title for group in groups] == [
        "conv1",
        "relu1",
        "add1",
        "flatten1",
        "fc1",
        "loss",
    ]
    assert [group.link for group in groups] == ["n1", "n2", "n3", "n4", "n5", None]
    assert [group.category for group in groups] == [
        "conv",
        "act",
        "merge",
        "shape",
        "linear",
        "loss",
    ]
    assert groups[0].kind == "Conv2d" and groups[0].parameters == (
        "conv1.weight",
        "conv1.bias",
    )
    assert sorted(node for group in groups for node in group.nodes) == list(
        range(len(small_tape().nodes))
    )


def test_what_groups_free_adds_up_to_what_is_held() -> None:
    tape = small_tape()
    assert sum(group.freed for group in group_by_layer(tape)) == tape.held_bytes


def test_a_container_that_computes_around_its_children_makes_no_circle() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            x = self.inner(x) + x
            return self.inner(x).relu()

    tape = TrainingBatch(
        nn.Sequential(nn.Linear(4, 4), Block()), torch.randn(2, 4)
    ).capture()
    groups = group_by_layer(tape)
    assert [group.title for group in groups] == [
        "0",
        "1",
        "1.inner",
        "1",
        "1.inner (call 2)",
        "1",
    ]
    assert len({group.key for group in groups}) == len(groups)
    place = {
        node: number for number, group in enumerate(groups) for node in group.nodes
    }
    assert all(
        place[e.source] >= place[e.target]
        for e in tape.edges
        if not tape.nodes[e.target].is_leaf
    )


def test_folding_hides_inner_edges_and_counts_outer_ones() -> None:
    tape = small_tape()
    groups = group_by_layer(tape)
    closed = fold(tape, groups, frozenset())
    assert {(e.source, e.target): e.count for e in closed.edges} == {
        ("fold:loss", "fold:node:n5"): 1,
        ("fold:node:n5", "fold:node:n4"): 1,
        ("fold:node:n4", "fold:node:n3"): 1,
        ("fold:node:n3", "fold:node:n2"): 1,
        ("fold:node:n3", "fold:node:n1"): 1,
        ("fold:node:n2", "fold:node:n1"): 1,
    }
    one = fold(tape, groups, frozenset({"node:n1"}))
    assert {place for place in one.place if not place.startswith("fold:")} == {
        str(n) for n in groups[0].nodes
    }


def test_the_drawing_shows_what_is_folded() -> None:
    tape = small_tape()
    drawing = to_drawing(tape, frozenset({"node:n1"}))
    assert [group.title for group in drawing.groups] == ["conv1"]
    boxes = {box.title: box for box in drawing.boxes}
    assert (
        boxes["ConvolutionBackward0"].group == "node:n1"
        and boxes["ConvolutionBackward0"].link == "n1"
    )
    assert (
        boxes["conv1.weight"].shape == "leaf"
        and boxes["conv1.weight"].subtitle == "AccumulateGrad"
    )
    assert boxes["conv1.weight"].under == boxes["ConvolutionBackward0"].id
    assert boxes["fc1"].shape == "folded" and boxes["fc1"].lines[0] == "4 nodes"
    assert {arrow.label for arrow in drawing.arrows} >= {"3×10", "3×256", "3×4×8×8"}


def test_a_weights_transpose_hangs_with_its_weight() -> None:
    boxes = {box.title: box for box in to_drawing(small_tape()).boxes}
    assert boxes["TBackward0"].under == boxes["AddmmBackward0"].id
    assert boxes["fc1.weight"].under == boxes["TBackward0"].id
    assert boxes["fc1.bias"].under == boxes["AddmmBackward0"].id


def test_chips_tell_the_kind_and_size_of_what_is_saved() -> None:
    boxes = {box.title: box for box in to_drawing(small_tape()).boxes}
    assert [(chip.text, chip.kind) for chip in boxes["ConvolutionBackward0"].chips] == [
        ("input 768 B", "input"),
        ("weight 144 B", "parameter"),
    ]
    assert [(chip.text, chip.kind) for chip in boxes["ReluBackward0"].chips] == [
        ("result 3.00 KiB", "held")
    ]


def test_without_groups_every_operation_stands_for_itself() -> None:
    tape = small_tape()
    drawing = to_drawing(tape, grouped=False)
    assert not drawing.groups and len(drawing.boxes) == len(tape.nodes)
    assert all(box.group is None for box in drawing.boxes)


def test_the_line_above_the_picture() -> None:
    tape = small_tape()
    held = bytes_text(tape.held_bytes)
    assert (
        summary(tape)
        == f"{len(tape.nodes)} nodes · loss {tape.loss:.4g} · {held} held for backward"
    )


@pytest.mark.parametrize("layers", [3, 60])
def test_a_large_net_starts_closed(layers: int) -> None:
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)])
    tape = TrainingBatch(net, torch.randn(2, 4)).capture()
    keys = opened(group_by_layer(tape))
    assert bool(keys) == (len(tape.nodes) <= OPEN_TOTAL)


def test_layers_stand_from_left_to_right() -> None:
    drawing = to_drawing(small_tape())
    layout = arrange(drawing, width=100_000)
    order = sorted(layout.groups, key=lambda key: layout.groups[key].x)
    assert order == ["node:n1", "node:n2", "node:n3", "node:n4", "node:n5", "loss"]


def test_a_group_of_several_modules_is_of_the_class_that_holds_them() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))
    tape = TrainingBatch(net, torch.randn(2, 4)).capture()
    block = [node for node in tape.nodes if node.layer.startswith("0")]
    assert make_group(tape, "node:n1", block).kind == "Sequential"
    assert (
        make_group(
            tape, "node:n2", [node for node in tape.nodes if node.layer == "1"]
        ).kind
        == "Linear"
    )
