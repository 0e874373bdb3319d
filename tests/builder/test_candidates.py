"""Other sizes for an input: what runs and what it gives then, and where the others fail first."""

from __future__ import annotations

import pytest
import torch

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.shapes.input_sizes import PICTURES, ShapeError, read_shape, usual
from app.engine.tasks.layer import tried
from app.source.compiled import load_class
from tests.support.builder_nets import net


def small() -> Graph:
    return net(
        [
            ("input", "x", {"shape": (1, 28, 28)}),
            ("nn.Conv2d", "conv", {"out_channels": 4}),
            ("nn.MaxPool2d", "pool", {}),
            ("nn.Flatten", "flat", {}),
            ("nn.Linear", "fc", {"out_features": 10}),
            ("output", "logits", {}),
        ]
    )


def test_a_size_that_runs_says_what_comes_out_and_what_it_costs() -> None:
    graph = small()
    for one in tried(graph, catalog(), "x", [(1, 28, 28), (3, 32, 32)]):
        assert one.runs and one.came_out == "N×10" and one.words == ""
        model = load_class(analyse(graph.with_param("x", "shape", one.shape)).source)()
        assert one.parameters == sum(
            parameter.numel() for parameter in model.parameters()
        )
        assert tuple(model(torch.zeros(2, *one.shape)).shape) == (2, 10)
    channels, height = 3, 30
    conv, fc = 9 * channels * 4 * height * height, 4 * 15 * 15 * 10
    assert one.multiply_adds == conv + fc


def test_a_size_that_fails_names_the_first_call_that_does() -> None:
    graph = small().with_param("fc", "in_features", 676)
    fits, wide, tiny, flat = tried(
        graph, catalog(), "x", [(1, 28, 28), (3, 224, 224), (1, 2, 2), (784,)]
    )
    assert fits.runs
    assert (wide.runs, wide.node, wide.name) == (
        False,
        "fc",
        "fc",
    ) and "676" in wide.words
    assert wide.parameters is None and wide.multiply_adds is None
    assert tiny.node == "conv" and "window" in tiny.words
    assert flat.node == "conv" and "N×784" in flat.words


def test_what_is_wrong_with_the_drawing_itself_is_said_too() -> None:
    (one,) = tried(net([("input", "x", {"shape": (4,)})], []), catalog(), "x", [(5,)])
    assert (
        not one.runs and one.node is None and one.words == "The network has no Output"
    )


def test_several_outputs_are_named() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("nn.Linear", "a", {"out_features": 2}),
            ("output", "y", {}),
            ("output", "z", {}),
        ],
        [("x", "a"), ("a", "y"), ("x", "z")],
    )
    (one,) = tried(graph, catalog(), "x", [(6,)])
    assert one.came_out == "y N×2, z N×6"


def test_the_graph_is_left_as_it_is() -> None:
    graph = small()
    tried(graph, catalog(), "x", [(3, 64, 64)])
    assert graph == small()


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("3×224×224", (3, 224, 224)),
        (" 1 x 28x28 ", (1, 28, 28)),
        ("(16, 64)", (16, 64)),
        ("N×3×8×8", (3, 8, 8)),
        ("[5,]", (5,)),
        ("3 32 32", (3, 32, 32)),
        ("784", (784,)),
    ],
)
def test_shapes_are_read_as_people_write_them(
    text: str, shape: tuple[int, ...]
) -> None:
    assert read_shape(text) == shape


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "abc",
        "3×-1",
        "0×2",
        "1×2×3×4×5×6×7",
        "1e9",
        "99999999999",
        "2000000",
        "3.5",
    ],
)
def test_what_is_no_shape_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ShapeError, match=r"\.$"):
        read_shape(text)


def test_usual_sizes_are_other_than_the_one_there_is() -> None:
    assert usual(PICTURES[0]) == PICTURES[1:]
    assert (
        usual((16, 64)) == ((8, 64), (32, 64))
        and usual((1,)) == ((2,),)
        and usual(()) == ()
    )
