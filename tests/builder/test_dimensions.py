"""Explain this dimension: the formula gives the very size that torch computes, in words and back to the input."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import OpSpec, catalog
from app.builder.dimensions.dimensions import (
    DimensionSource,
    DimensionStory,
    aligned,
    chain,
    explain_output,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.graph import Edge, Graph, Node
from app.builder.results import Analysis
from app.builder.value_types import Dim, TensorType
from app.project.file import read
from app.source.compiled import load_class
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.builder_nets import around, net, run
from tests.support.every import every
from tests.support.pseudo_language import speak_pseudo

BATCH = 3


def told(
    graph: Graph, node: str, output: int = 0, analysis: Analysis | None = None
) -> tuple[DimensionStory, ...]:
    return explain_output(graph, catalog(), analysis or analyse(graph), node, output)


def in_a_row(
    shape: tuple[int, ...], op: str, **params: Any
) -> tuple[DimensionStory, ...]:
    """The stories of one op behind an input."""
    return told(
        net(
            [
                ("input", "in", {"shape": shape}),
                (op, "it", params),
                ("output", "out", {}),
            ]
        ),
        "it",
    )


def by_torch(label: str) -> str:
    """What is said of a size that no formula explains."""
    return f"torch computed this size: {label} was run on tensors without values."


def lines(story: DimensionStory) -> list[str]:
    assert story.formula is not None
    return [
        "".join(piece.text for piece in line)
        for line in story.formula.lines(story.name)
    ]


# --- The contract

ints = st.integers
SIDES = st.tuples(ints(1, 12), ints(1, 12))


def pairs(least: int, most: int) -> st.SearchStrategy[Any]:
    return ints(least, most) | st.tuples(ints(least, most), ints(least, most))


WINDOW = {"kernel_size": pairs(1, 4), "stride": pairs(1, 3), "dilation": pairs(1, 2)}
POOL = {**WINDOW, "ceil_mode": st.booleans(), "padding": pairs(0, 2)}
WINDOWS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "nn.Conv2d": {
        **WINDOW,
        "out_channels": ints(1, 5),
        "padding": pairs(0, 3) | st.sampled_from(["same", "valid"]),
    },
    "nn.ConvTranspose2d": {
        **WINDOW,
        "out_channels": ints(1, 5),
        "padding": pairs(0, 2),
        "output_padding": pairs(0, 1),
    },
    "nn.MaxPool2d": POOL,
    "F.max_pool2d": POOL,
    "nn.AvgPool2d": {name: POOL[name] for name in POOL if name != "dilation"},
    "nn.AdaptiveAvgPool2d": {"output_size": pairs(1, 9)},
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("op", WINDOWS)
@settings(max_examples=20)
@given(data=st.data())
def test_formulas_of_windows_give_the_size_of_torch(
    op: str, data: st.DataObject
) -> None:
    params = {
        name: data.draw(values, label=name) for name, values in WINDOWS[op].items()
    }
    graph = net(
        [
            ("input", "in", {"shape": (2, *data.draw(SIDES))}),
            (op, "it", params),
            ("output", "out", {}),
        ]
    )
    analysis = analyse(graph)
    assume(analysis.runnable)
    stories = told(graph, "it", analysis=analysis)
    assert _at(stories) == tuple(run(analysis.source, BATCH)[0].shape)
    assert all(story.formula is not None for story in stories), [
        story.words for story in stories
    ]


def _at(stories: tuple[DimensionStory, ...]) -> tuple[int, ...]:
    """The results of the formulas, or of torch where there is none, for a batch."""
    sizes = (
        story.formula.result if story.formula else story.result for story in stories
    )
    return tuple(
        size.with_batch(BATCH) if isinstance(size, Dim) else size
        for size in sizes
        if size is not None
    )


@every(catalog())
def test_every_dimension_of_every_op_has_a_formula_that_agrees_with_torch_or_is_said_to_be_torchs(
    spec: OpSpec,
) -> None:
    graph = around(spec)
    analysis = analyse(graph)
    for number in range(len(spec.outputs)):
        value = analysis.values.get(("it", number))
        if not isinstance(value, TensorType):
            continue
        stories = told(graph, "it", number, analysis)
        assert tuple(story.result for story in stories) == value.shape
        for story in stories:
            if story.formula is not None:
                assert story.words and story.formula.result == story.result
            else:
                assert story.words == by_torch(spec.label)


def changed_by(
    spec: OpSpec, train: bool
) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of places, of an element of the input and of one of the output that changes with it, by real torch."""
    analysis = analyse(around(spec))
    torch.manual_seed(0)
    model = load_class(analysis.source)().train(train)
    inputs = analysis.source.inputs
    first, *others = (
        torch.rand(BATCH, *each.shape).mul(0.8).add(0.1).to(getattr(torch, each.dtype))
        for each in inputs
    )
    if spec.key == "torch.acosh":
        first += 1
    if not first.is_floating_point():
        first = torch.arange(first.numel()).view(first.shape).to(first.dtype)
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def answer(tensor: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        model.load_state_dict(state)
        with torch.no_grad():
            result = model(tensor.clone(), *others)
        return (result[0] if isinstance(result, tuple) else result).clone()

    before, pairs = answer(first), set()
    for place in [
        (0,) * first.ndim,
        tuple(size // 2 for size in first.shape),
        tuple(size - 1 for size in first.shape),
    ]:
        moved = first.clone()
        moved[place] = (
            ~moved[place] if first.dtype is torch.bool else moved[place] * 0.5 + 0.04
        )
        pairs |= {
            (place, tuple(at)) for at in (answer(moved) != before).nonzero().tolist()
        }
    return pairs


SHAPE_KEEPERS = {
    key: spec
    for key, spec in catalog().items()
    if spec.category in ("act", "norm", "drop")
}


@every(SHAPE_KEEPERS)
@pytest.mark.filterwarnings("ignore")
def test_what_is_called_elementwise_changes_only_the_element_that_changed(
    spec: OpSpec,
) -> None:
    texts = " ".join(story.words for story in told(around(spec), "it"))
    for train in (True, False):
        apart = {(start, end) for start, end in changed_by(spec, train) if start != end}
        assert not ("elementwise" in texts and apart), (
            f"{spec.key} mixes values, train={train}: {texts}"
        )


_MIXING = (
    "nn.Softmax nn.Softmax2d nn.Softmin nn.LogSoftmax F.softmax F.log_softmax "
    "nn.BatchNorm1d nn.BatchNorm2d nn.BatchNorm3d nn.LayerNorm nn.RMSNorm nn.GroupNorm F.layer_norm "
    "nn.InstanceNorm1d nn.InstanceNorm2d F.rms_norm F.group_norm F.instance_norm"
)
MIXING = {key: SHAPE_KEEPERS[key] for key in _MIXING.split()}


@every(MIXING)
@pytest.mark.filterwarnings("ignore")
def test_an_op_that_mixes_values_names_the_dimensions_along_which_torch_mixes_them(
    spec: OpSpec,
) -> None:
    words = told(around(spec), "it")[1].words
    apart = {(start, end) for start, end in changed_by(spec, True) if start != end}
    along = {
        place
        for start, end in apart
        for place, (a, b) in enumerate(zip(start, end, strict=True))
        if a != b
    }
    listed = re.findall(r"dims? ([\d, and]+)", words.partition(" at each")[0])
    named = {int(number) for dims in listed for number in re.findall(r"\d+", dims)}
    if "of a group of a sample" in words:
        named = {1, 2, 3}
    if "over the batch" in words:
        named.add(0)
    assert apart and along <= named, f"{words}: {along}"
    assert re.search(r"\d+ values", words), words


def test_the_numbers_of_a_sample_stand_in_the_sentence() -> None:
    assert (
        "over dim 1: the 10 values of a sample"
        in in_a_row((10,), "nn.Softmax", dim=1)[1].words
    )
    story = in_a_row((4, 6, 6), "nn.BatchNorm2d")[1].words
    assert (
        "4 channels: in training over the batch and dims 2 and 3: the N × 36 values of a channel"
        in story
    )


@given(
    a=st.lists(st.sampled_from([1, 1, 4]), min_size=1, max_size=3),
    b=st.lists(st.sampled_from([1, 4, 4]), min_size=1, max_size=3),
    op=st.sampled_from(["operator.add", "operator.mul", "operator.sub"]),
)
def test_broadcasting_tells_the_shape_of_torch(
    a: list[int], b: list[int], op: str
) -> None:
    graph = net(
        [
            ("input", "a", {"shape": tuple(a)}),
            ("input", "b", {"shape": tuple(b)}),
            (op, "it", {}),
            ("output", "o", {}),
        ],
        [("a", "it", "input"), ("b", "it", "other"), ("it", "o")],
    )
    analysis = analyse(graph)
    assume(analysis.runnable)
    stories = told(graph, "it", analysis=analysis)
    assert _at(stories) == tuple(
        (torch.zeros(BATCH, *a) + torch.zeros(BATCH, *b)).shape
    )
    assert all(story.formula is not None for story in stories)


@settings(max_examples=30)
@given(data=st.data())
def test_rearranging_and_reducing_tell_the_shape_of_torch(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(ints(1, 5), min_size=2, max_size=3)))
    rank = len(shape) + 1
    dim = ints(-rank, rank - 1)
    drawn: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "nn.Flatten": st.fixed_dictionaries({"start_dim": dim, "end_dim": dim}),
        "torch.permute": st.fixed_dictionaries(
            {"dims": st.permutations(range(rank)).map(tuple)}
        ),
        "torch.transpose": st.fixed_dictionaries({"dim0": dim, "dim1": dim}),
        "torch.mean": st.fixed_dictionaries(
            {
                "dim": st.lists(ints(0, rank - 1), min_size=1, unique=True).map(tuple),
                "keepdim": st.booleans(),
            }
        ),
        "nn.LayerNorm": st.just({}),
        "nn.Linear": st.fixed_dictionaries({"out_features": ints(1, 9)}),
    }
    op = data.draw(st.sampled_from(sorted(drawn)))
    graph = net(
        [
            ("input", "in", {"shape": shape}),
            (op, "it", data.draw(drawn[op])),
            ("output", "out", {}),
        ]
    )
    analysis = analyse(graph)
    assume(analysis.runnable)
    stories = told(graph, "it", analysis=analysis)
    assert _at(stories) == tuple(run(analysis.source, BATCH)[0].shape)
    assert all(story.formula is not None for story in stories), stories


@given(data=st.data())
def test_squeezing_and_its_opposite_tell_the_shape_of_torch(
    data: st.DataObject,
) -> None:
    size = ints(1, 6)
    drawn: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "torch.squeeze": st.fixed_dictionaries({"dim": ints(-2, 2)}),
        "torch.unsqueeze": st.fixed_dictionaries({"dim": ints(-4, 3)}),
    }
    op = data.draw(st.sampled_from(sorted(drawn)))
    shape = data.draw(st.tuples(size, size))
    graph = net(
        [
            ("input", "in", {"shape": shape}),
            (op, "it", data.draw(drawn[op])),
            ("output", "out", {}),
        ]
    )
    analysis = analyse(graph)
    numbers = [number for node, number in analysis.values if node == "it"]
    for number in numbers:
        stories = told(graph, "it", number, analysis)
        value = analysis.values["it", number]
        assert isinstance(value, TensorType) and _at(stories) == value.with_batch(BATCH)
        assert all(story.formula is not None for story in stories), stories


# --- The words


def test_a_convolution_tells_the_formula_with_the_real_numbers() -> None:
    batch, channels, height, width = in_a_row(
        (1, 28, 28), "nn.Conv2d", out_channels=64, kernel_size=3
    )
    assert lines(height) == [
        "H = ⌊(h + 2p − d·(k−1) − 1)/s⌋ + 1",
        "  = ⌊(28 + 2·0 − 1·(3−1) − 1)/1⌋ + 1",
        "  = ⌊25/1⌋ + 1 = 26",
    ]
    assert (
        height.words == "A 3×3 kernel without padding trims one pixel from each side."
    )
    assert (channels.words, lines(channels)) == (
        "out_channels sets the 64.",
        ["C = out_channels = 64"],
    )
    assert batch.result == Dim(1) and "batch" in batch.words
    assert (batch.name, width.name) == ("N", "W")


@pytest.mark.parametrize(
    ("params", "size", "words"),
    [
        ({"padding": 1}, 28, "A 3×3 kernel with padding 1 keeps the size."),
        (
            {"padding": 3},
            32,
            "A 3×3 kernel with padding 3 adds two pixels to each side.",
        ),
        (
            {"padding": "same"},
            28,
            "padding='same' pads so that a 3×3 kernel keeps the size.",
        ),
        (
            {"padding": "valid"},
            26,
            "A 3×3 kernel without padding trims one pixel from each side.",
        ),
        ({"stride": 2}, 13, "A 3×3 kernel at stride 2 fits 13 times into 28 pixels."),
        (
            {"dilation": 2},
            24,
            "A 3×3 kernel with dilation 2 without padding trims two pixels from each side.",
        ),
        (
            {"kernel_size": (2, 3)},
            27,
            "A 2×3 kernel without padding trims one pixel in all.",
        ),
    ],
)
def test_words_of_a_convolution(params: dict[str, Any], size: int, words: str) -> None:
    height = in_a_row((1, 28, 28), "nn.Conv2d", **params)[2]
    assert (height.result, height.words) == (size, words)


def test_a_pooling_window_that_would_start_in_the_padding_is_said_to_be_left_out() -> (
    None
):
    height = in_a_row(
        (1, 5, 5), "nn.MaxPool2d", kernel_size=2, stride=3, padding=1, ceil_mode=True
    )[2]
    assert height.formula is not None and height.formula.result == height.result == 2
    assert "it is dropped" in height.words
    cut = in_a_row((1, 4, 4), "nn.MaxPool2d", kernel_size=3, stride=2, ceil_mode=True)[
        2
    ]
    assert (cut.result, lines(cut)[-1]) == (2, "  = ⌈1/2⌉ + 1 = 2")
    assert "ceil_mode counts the last one, which is cut off." in cut.words
    whole = in_a_row(
        (1, 5, 5), "nn.MaxPool2d", kernel_size=3, stride=2, ceil_mode=True
    )[2]
    assert "ceil_mode" not in whole.words


def test_flatten_multiplies_and_view_divides() -> None:
    flat = in_a_row((64, 12, 12), "nn.Flatten")[1]
    assert flat.numbers == "64·12·12 = 9216"
    assert flat.source is not None and flat.source.dimension == 3
    pooled = in_a_row((64, 1, 1), "nn.Flatten")[1]
    assert pooled.source is not None and pooled.source.dimension == 1
    rest = in_a_row((4, 16), "Tensor.view", size=(-1, 8))
    assert rest[0].numbers == "N·4·16 / 8 = 8N"
    assert rest[0].words == "−1 is inferred: all values divided by 8."


def test_one_that_stretches_and_one_that_is_missing() -> None:
    graph = net(
        [
            ("input", "a", {"shape": (32, 26, 26)}),
            ("torch.mean", "m", {"dim": (2, 3), "keepdim": True}),
            ("operator.mul", "it", {}),
            ("output", "out", {}),
        ],
        [("a", "m"), ("a", "it", "input"), ("m", "it", "other"), ("it", "out")],
    )
    stories = told(graph, "it")
    assert stories[2].words == "m stretches from 1 to 26."
    assert stories[1].words == "a and m agree."
    assert [row.cells for row in aligned(graph, catalog(), analyse(graph), "it")] == [
        (("N", "same"), ("32", "same"), ("26", "same"), ("26", "same")),
        (("N", "same"), ("32", "same"), ("1", "stretched"), ("1", "stretched")),
    ]
    rows = [
        ("input", "a", {"shape": (5, 4)}),
        ("input", "b", {"shape": (4,)}),
        ("torch.mean", "m", {"dim": (0,)}),
        ("operator.add", "it", {}),
        ("output", "out", {}),
    ]
    missing = net(
        rows, [("b", "m"), ("a", "it", "input"), ("m", "it", "other"), ("it", "out")]
    )
    assert (
        told(missing, "it")[1].words
        == "m has no such dimension: it is repeated 5 times."
    )
    assert aligned(missing, catalog(), analyse(missing), "it")[1].cells[:2] == (
        ("", "missing"),
        ("", "missing"),
    )


def test_shapes_that_clash_are_lined_up_too() -> None:
    rows = [
        ("input", "a", {"shape": (32, 26, 26)}),
        ("input", "b", {"shape": (32, 1, 28)}),
        ("operator.add", "it", {}),
        ("output", "out", {}),
    ]
    graph = net(rows, [("a", "it", "input"), ("b", "it", "other"), ("it", "out")])
    first, second = aligned(graph, catalog(), analyse(graph), "it")
    assert first.cells == (
        ("N", "same"),
        ("32", "same"),
        ("26", "same"),
        ("26", "clash"),
    )
    assert second.cells == (
        ("N", "same"),
        ("32", "same"),
        ("1", "stretched"),
        ("28", "clash"),
    )
    similar = net(
        [*rows[:2], ("nn.CosineSimilarity", "it", {}), rows[3]],
        [("a", "it", "x1"), ("b", "it", "x2")],
    )
    assert len(aligned(similar, catalog(), analyse(similar), "it")) == 2


def test_tensors_laid_one_behind_the_other_add_up() -> None:
    graph = net(
        [
            ("input", "a", {"shape": (3, 8)}),
            ("input", "b", {"shape": (5, 8)}),
            ("torch.cat", "it", {"dim": 1}),
            ("output", "out", {}),
        ],
        [("a", "it"), ("b", "it"), ("it", "out")],
    )
    joined = told(graph, "it")[1]
    assert (joined.numbers, joined.words) == (
        "3 + 5 = 8",
        "Concatenated: 3 of a, 5 of b.",
    )


def test_rows_meet_columns_in_a_product() -> None:
    graph = net(
        [
            ("input", "a", {"shape": (6, 4)}),
            ("input", "b", {"shape": (4, 7)}),
            ("torch.matmul", "it", {}),
            ("output", "out", {}),
        ],
        [("a", "it", "input"), ("b", "it", "other"), ("it", "out")],
    )
    rows, columns = told(graph, "it")[1:]
    assert rows.source is not None and columns.source is not None
    assert (rows.source.node, columns.source.node) == ("a", "b")
    assert (
        "The 4 columns of a are multiplied with the rows of b and summed."
        in columns.words
    )


def test_what_torch_alone_knows_has_no_formula() -> None:
    graph = net(
        [
            ("input", "in", {"shape": (8,)}),
            ("nn.Linear", "it", {}),
            ("output", "out", {}),
        ]
    )
    analysis = analyse(graph)
    lying = Analysis(
        graph, analysis.source, analysis.values.set(("it", 0), TensorType((Dim(1), 5)))
    )
    stories = told(graph, "it", analysis=lying)
    assert (stories[1].formula, stories[1].source) == (None, None)
    assert stories[1].words == by_torch("Linear")
    assert stories[0].formula is not None


def widening() -> Block:
    """A shortcut past a convolution, then another that halves."""
    conv = {"out_channels": 6, "padding": 1}
    rows = [
        ("input", "x", {}),
        ("nn.Conv2d", "conv", conv),
        ("nn.ReLU", "relu", {}),
        ("nn.Conv2d", "side", conv),
        ("operator.add", "add", {}),
        ("nn.MaxPool2d", "pool", {}),
        ("output", "y", {}),
        ("output", "same", {}),
    ]
    wires = [
        ("x", "conv"),
        ("conv", "relu"),
        ("x", "side"),
        ("relu", "add", "input"),
        ("side", "add", "other"),
        ("add", "pool"),
        ("pool", "y"),
        ("x", "same"),
    ]
    return Block("Widen", net(rows, wires))


def test_a_block_tells_of_the_call_inside_that_decides_and_the_way_goes_on_before_it() -> (
    None
):
    blocks = FrozenMap({"Widen": widening()})
    ops = with_blocks(catalog(), blocks)
    graph = net(
        [
            ("input", "in", {"shape": (3, 16, 16)}),
            ("nn.Conv2d", "stem", {"out_channels": 6, "padding": 1}),
        ]
    )
    graph = graph.with_node(Node("block", "block.Widen", "block")).with_edge(
        Edge("stem", 0, "block", "x")
    )
    graph = graph.with_node(Node("out", "output", "out")).with_edge(
        Edge("block", 0, "out", "input")
    )
    analysis = analyse(graph, ops)
    assert analysis.errors == ()
    batch, channels, height, _ = explain_output(graph, ops, analysis, "block")
    assert (channels.words, channels.numbers) == (
        "conv in Widen: out_channels sets the 6.",
        "6 = 6",
    )
    assert (
        height.words.startswith("pool in Widen: A 2×2 window")
        and height.formula is not None
    )
    assert height.formula.result == height.result == 8
    assert batch.words == "Unchanged by Widen."
    assert channels.source is None and height.source == DimensionSource("stem", 0, 2)
    way = chain(graph, ops, analysis, "out", 0, 2)
    assert [step.node for step in way] == ["out", "block", "stem", "in"]
    kept = explain_output(graph, ops, analysis, "block", 1)
    assert {story.words for story in kept} == {"Unchanged by Widen."}


def test_a_repeated_block_is_followed_back_through_each_repetition() -> None:
    inner = net([("input", "x", {}), ("nn.MaxPool2d", "pool", {}), ("output", "y", {})])
    ops = with_blocks(catalog(), FrozenMap({"Half": Block("Half", inner)}))
    graph = net([("input", "in", {"shape": (3, 32, 32)})])
    graph = graph.with_node(Node("it", "block.Half", "it", repeat=3)).with_edge(
        Edge("in", 0, "it", "x")
    )
    graph = graph.with_node(Node("out", "output", "out")).with_edge(
        Edge("it", 0, "out", "input")
    )
    analysis = analyse(graph, ops)
    height = explain_output(graph, ops, analysis, "it")[2]
    assert (
        height.result == 4
        and height.numbers.startswith("⌊(8 +")
        and height.source == DimensionSource("in", 0, 2)
    )


def test_an_input_of_a_block_is_told_by_what_arrives() -> None:
    ops = with_blocks(catalog(), FrozenMap({"Widen": widening()}))
    graph = net([("input", "in", {"shape": (3, 16, 16)})])
    graph = graph.with_node(Node("it", "block.Widen", "it")).with_edge(
        Edge("in", 0, "it", "x")
    )
    graph = graph.with_node(Node("out", "output", "out")).with_edge(
        Edge("it", 0, "out", "input")
    )
    inside = analyse(graph, ops, (("it", 0),)).sheet
    stories = explain_output(inside.graph, ops, inside, "x")
    assert tuple(story.result for story in stories) == (Dim(1), 3, 16, 16)
    assert {story.words for story in stories} == {"The input x of the block."}


def test_layers_one_behind_the_other_are_told_by_the_last_of_them() -> None:
    rows = [
        ("input", "in", {"shape": (8, 28, 28)}),
        ("nn.Conv2d", "it", {"out_channels": 8}),
        ("output", "o", {}),
    ]
    graph = net(rows)
    graph = graph.with_node(replace(graph.nodes["it"], repeat=3))
    analysis = analyse(graph)
    thrice = replace(
        analysis, values=analysis.values.set(("it", 0), TensorType((Dim(1), 8, 22, 22)))
    )
    height = told(graph, "it", analysis=thrice)[2]
    assert lines(height)[-1] == "  = ⌊21/1⌋ + 1 = 22"
    assert height.words.endswith("This is the last of 3 in sequence.")
    assert height.source is not None and (
        height.source.node,
        height.source.dimension,
    ) == ("in", 2)


def test_nothing_is_told_of_what_is_not_known() -> None:
    graph = net(
        [
            ("input", "in", {"shape": (1, 2, 2)}),
            ("nn.Conv2d", "it", {}),
            ("output", "out", {}),
        ]
    )
    assert told(graph, "it") == told(graph, "out") == ()
    assert chain(graph, catalog(), analyse(graph), "it", 0, 2) == ()


def test_a_muted_node_hands_on_what_arrives() -> None:
    graph = net(
        [
            ("input", "in", {"shape": (1, 8, 8)}),
            ("nn.Conv2d", "it", {}),
            ("output", "out", {}),
        ]
    )
    graph = graph.with_node(replace(graph.nodes["it"], muted=True))
    stories = told(graph, "it")
    assert [story.words for story in stories[2:]] == [
        "it is muted: its input passes through unchanged."
    ] * 2
    assert stories[2].result == 8


def test_the_batch_is_followed_through_an_op_without_a_formula() -> None:
    graph = net(
        [
            ("input", "in", {"shape": (8,)}),
            ("torch.fft.rfft", "it", {}),
            ("output", "out", {}),
        ]
    )
    analysis = analyse(graph)
    batch, frequencies = told(graph, "it", analysis=analysis)
    assert batch.source == DimensionSource("in", 0, 0) and "batch" in batch.words
    assert frequencies.result == 5
    assert [frequencies.formula, frequencies.words] == [None, by_torch("rfft")]
    assert len(chain(graph, catalog(), analysis, "out", 0, 1)) == 2


def test_half_of_the_batch_has_no_value() -> None:
    assert Formula("n//2", (Symbol("n", "batch size", Dim(1)),)).result is None
    assert Formula("2*n/2", (Symbol("n", "batch size", Dim(1)),)).result == Dim(1)


# --- The chain


def test_the_digits_net_from_logits_back_to_the_input() -> None:
    graph = read(resource_path("examples/digits.tape")).graph
    analysis = analyse(graph)
    end = next(node for node in graph.nodes.values() if node.op == "output")
    steps = chain(graph, catalog(), analysis, end.id, 0, 0)
    assert (
        graph.nodes[steps[0].node].op == "output"
        and graph.nodes[steps[-1].node].op == "input"
    )
    assert {str(step.size) for step in steps} == {"N"}
    assert len(steps) == len(graph.nodes)
    classes = chain(graph, catalog(), analysis, end.id, 0, 1)
    assert (graph.nodes[classes[-1].node].op, classes[-1].words) == (
        "nn.Linear",
        "out_features",
    )


def test_all_of_the_digits_net_is_told_in_another_language(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = read(resource_path("examples", "digits.tape")).graph
    analysis = analyse(graph)
    speak_pseudo(monkeypatch)
    for node in graph.nodes:
        for story in told(graph, node, analysis=analysis):
            assert "lörém" in story.words, story.words


def test_a_side_of_the_picture_is_followed_through_flatten_to_the_input() -> None:
    graph = net(
        [
            ("input", "in", {"shape": (1, 28, 28)}),
            ("nn.Conv2d", "conv", {"out_channels": 8}),
            ("nn.ReLU", "relu", {}),
            ("nn.MaxPool2d", "pool", {}),
            ("nn.Flatten", "flat", {}),
            ("output", "out", {}),
        ]
    )
    steps = chain(graph, catalog(), analyse(graph), "flat", 0, 1)
    assert [(step.node, step.size) for step in steps] == [
        ("flat", 1352),
        ("pool", 13),
        ("relu", 26),
        ("conv", 26),
        ("in", 28),
    ]
    assert [step.words for step in steps][0] == "8·13·13"
    assert [step.words for step in steps][2] == "passes through"
    assert (
        steps[3].words == "⌊25/1⌋ + 1"
        and "⌊(28 + 2·0 − 1·(3−1) − 1)/1⌋ + 1 = 26" in steps[3].full
    )
