"""Broken networks as people make them: each is told with names and shapes, and the first cure offered mends it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Problem, apply_cure
from app.builder.graph import Graph
from app.builder.literals import DType
from app.builder.rules import ConnectError
from tests.support.builder_nets import INT64, net, run

Shape = tuple[int, ...]
BOOL, FLOAT64 = DType("bool"), DType("float64")


def after(
    shape: Shape,
    op: str,
    params: dict[str, Any] | None = None,
    dtype: DType | None = None,
) -> Graph:
    """x -> it -> y."""
    given = {"shape": shape, **({"dtype": dtype} if dtype else {})}
    return net([("input", "x", given), (op, "it", params or {}), ("output", "y", {})])


def of_two(
    left: Shape,
    right: Shape,
    op: str,
    params: dict[str, Any] | None = None,
    **dtypes: DType,
) -> Graph:
    """a and b into the first two ports of it."""
    ports = [port.name for port in catalog()[op].inputs]
    ports = [ports[0], ports[0]] if catalog()[op].inputs[0].variadic else ports[:2]
    rows = [
        (
            ("input"),
            name,
            {"shape": shape, **({"dtype": dtypes[name]} if name in dtypes else {})},
        )
        for name, shape in (("a", left), ("b", right))
    ]
    rows += [(op, "it", params or {}), ("output", "y", {})]
    return net(rows, [("a", "it", ports[0]), ("b", "it", ports[1]), ("it", "y")])


def attention(
    query: Shape, key: Shape, op: str = "nn.MultiheadAttention", **params: Any
) -> Graph:
    rows = [
        ("input", "q", {"shape": query}),
        ("input", "k", {"shape": key}),
        (op, "it", params),
        ("output", "y", {}),
    ]
    return net(
        rows,
        [("q", "it", "query"), ("k", "it", "key"), ("k", "it", "value"), ("it", "y")],
    )


def residual(stride: int) -> Graph:
    """A shortcut past a convolution that widens, and shrinks where it strides."""
    conv = {"out_channels": 32, "padding": 1, "stride": stride}
    rows = [
        ("input", "x", {"shape": (16, 8, 8)}),
        ("nn.Conv2d", "conv", conv),
        ("nn.ReLU", "relu", {}),
        ("operator.add", "it", {}),
        ("output", "y", {}),
    ]
    return net(
        rows,
        [
            ("x", "conv"),
            ("conv", "relu"),
            ("relu", "it", "input"),
            ("x", "it", "other"),
            ("it", "y"),
        ],
    )


def squeeze_and_excite() -> Graph:
    rows = [
        ("input", "x", {"shape": (8, 6, 6)}),
        ("torch.mean", "mean", {}),
        ("nn.Linear", "gate", {"out_features": 8}),
        ("operator.mul", "it", {}),
        ("output", "y", {}),
    ]
    return net(
        rows,
        [
            ("x", "mean"),
            ("mean", "gate"),
            ("x", "it", "input"),
            ("gate", "it", "other"),
            ("it", "y"),
        ],
    )


def unet_of_odd_size() -> Graph:
    rows = [
        ("input", "x", {"shape": (4, 9, 9)}),
        ("nn.MaxPool2d", "pool", {}),
        (
            "nn.ConvTranspose2d",
            "up",
            {"out_channels": 4, "kernel_size": 2, "stride": 2},
        ),
        ("torch.cat", "it", {}),
        ("output", "y", {}),
    ]
    return net(
        rows, [("x", "pool"), ("pool", "up"), ("x", "it"), ("up", "it"), ("it", "y")]
    )


def unpooling(pools: int = 1, wired: bool = False) -> Graph:
    rows = [("input", "x", {"shape": (4, 16, 16)})]
    rows += [
        ("nn.MaxPool2d", f"pool{i}", {"return_indices": wired}) for i in range(pools)
    ]
    rows += [("nn.ReLU", "relu", {}), ("nn.MaxUnpool2d", "it", {}), ("output", "y", {})]
    return net(rows)


def alone(op: str, port: str, shape: Shape = (5, 64), **params: Any) -> Graph:
    """An op of several inputs of which only one is wired."""
    rows = [("input", "x", {"shape": shape}), (op, "it", params), ("output", "y", {})]
    return net(rows, [("x", "it", port), ("it", "y")])


BROKEN: dict[str, Graph] = {
    "channels last into Conv2d": after((32, 32, 3), "nn.Conv2d", {"in_channels": 3}),
    "channels last into Conv1d": after((100, 12), "nn.Conv1d", {"in_channels": 12}),
    "channels last, taken from the input": after(
        (32, 32, 3), "nn.Conv2d", {"kernel_size": 5}
    ),
    "channels last into BatchNorm2d": after(
        (8, 8, 16), "nn.BatchNorm2d", {"num_features": 16}
    ),
    "channels last into GroupNorm": after(
        (8, 8, 16), "nn.GroupNorm", {"num_channels": 16, "num_groups": 4}
    ),
    "other channels": after((3, 8, 8), "nn.Conv2d", {"in_channels": 1}),
    "other channels in three dimensions": after(
        (3, 8, 8, 8), "nn.Conv3d", {"in_channels": 1}
    ),
    "no channel dimension": after((28, 28), "nn.Conv2d"),
    "no channel dimension in three": after((8, 8, 8), "nn.Conv3d"),
    "no channel dimension before a transposed convolution": after(
        (8, 8), "nn.ConvTranspose2d"
    ),
    "a row into Conv1d": after((100,), "nn.Conv1d"),
    "a flat picture into Conv2d": after((784,), "nn.Conv2d"),
    "a picture into Linear": after((1, 28, 28), "nn.Linear", {"in_features": 784}),
    "a picture into BatchNorm1d": after((3, 8, 8), "nn.BatchNorm1d"),
    "a row into BatchNorm2d": after((64,), "nn.BatchNorm2d"),
    "a picture into LSTM": after((3, 8, 8), "nn.LSTM"),
    "a sequence into LSTMCell": after((5, 12), "nn.LSTMCell"),
    "features of a Linear": after((784,), "nn.Linear", {"in_features": 128}),
    "features of Bilinear": of_two((6,), (7,), "nn.Bilinear", {"in2_features": 8}),
    "features of InstanceNorm": after(
        (3, 8, 8), "nn.InstanceNorm2d", {"num_features": 8, "affine": True}
    ),
    "groups of a convolution": after(
        (12, 8, 8), "nn.Conv2d", {"groups": 5, "out_channels": 12}
    ),
    "groups and out_channels": after(
        (12, 8, 8), "nn.Conv2d", {"groups": 4, "out_channels": 10}
    ),
    "groups of GroupNorm": after((12, 8, 8), "nn.GroupNorm"),
    "groups of ChannelShuffle": after((9, 8, 8), "nn.ChannelShuffle"),
    "channels of PixelShuffle": after((6, 8, 8), "nn.PixelShuffle"),
    "sides of PixelUnshuffle": after((3, 9, 9), "nn.PixelUnshuffle"),
    "a kernel larger than the picture": after(
        (3, 4, 4), "nn.Conv2d", {"kernel_size": 7}
    ),
    "a dilated kernel larger than the picture": after(
        (3, 4, 4), "nn.Conv2d", {"kernel_size": 3, "dilation": 4}
    ),
    "a window larger than the picture": after((3, 1, 1), "nn.MaxPool2d"),
    "padding beyond half of the window": after(
        (3, 8, 8), "nn.MaxPool2d", {"padding": 3}
    ),
    "reflection beyond the picture": after(
        (3, 4, 4), "nn.ReflectionPad2d", {"padding": 6}
    ),
    "heads of attention": attention((5, 30), (5, 30), num_heads=4),
    "heads of an encoder layer": after((5, 30), "nn.TransformerEncoderLayer"),
    "width of an encoder layer": after(
        (5, 32), "nn.TransformerEncoderLayer", {"d_model": 64}
    ),
    "width of a decoder's memory": of_two(
        (5, 64), (7, 32), "nn.TransformerDecoderLayer"
    ),
    "width of keys": attention((5, 32), (7, 16)),
    "attention over the batch": attention((5, 64), (7, 64), batch_first=False),
    "a transformer over the batch": of_two(
        (5, 64), (7, 64), "nn.Transformer", {"batch_first": False}
    ),
    "unpooling without indices": unpooling(),
    "unpooling with indices that nobody took": unpooling(wired=True),
    "attention with a query alone": alone("nn.MultiheadAttention", "query"),
    "add: wider on one side": of_two((64,), (32,), "operator.add"),
    "add: a shortcut of other channels": residual(1),
    "add: a shortcut of other channels and size": residual(2),
    "add: channels last": of_two((16, 8, 8), (8, 8, 16), "operator.add"),
    "add: other size": of_two((16, 28, 28), (16, 26, 26), "operator.add"),
    "mul: a gate for each channel": squeeze_and_excite(),
    "mul: one vector for a sequence": of_two((10, 64), (64,), "operator.mul"),
    "maximum: other widths": of_two((4,), (5,), "torch.maximum"),
    "cat: other dimension": of_two((3, 8), (4, 8), "torch.cat", {"dim": 2}),
    "cat: pictures of other size": unet_of_odd_size(),
    "cat: a picture and a row": of_two((3, 8, 8), (10,), "torch.cat"),
    "stack: of other shapes": of_two((3, 8), (4, 8), "torch.stack"),
    "matmul: second to be turned": of_two((4, 6), (5, 6), "torch.matmul"),
    "matmul: first to be turned": of_two((6, 4), (6, 5), "torch.matmul"),
    "matmul: nothing fits": of_two((4, 6), (5, 7), "torch.matmul"),
    "bmm: a vector": of_two((4, 6), (6,), "torch.bmm"),
    "dtype: bytes into a convolution": after(
        (3, 8, 8), "nn.Conv2d", dtype=DType("uint8")
    ),
    "dtype: ids into Linear": after((8,), "nn.Linear", dtype=INT64),
    "dtype: floats into Embedding": after((7,), "nn.Embedding"),
    "dtype: floats into one_hot": after((7,), "F.one_hot"),
    "dtype: a mask that is no mask": of_two((4, 4), (4, 4), "torch.masked_fill"),
    "dtype: doubles times floats": of_two((4, 6), (6, 5), "torch.matmul", a=FLOAT64),
    "view: other product": after((3, 8, 8), "Tensor.view", {"size": (-1, 100)}),
    "split: other sum": after(
        (9, 8, 8), "torch.split", {"split_size_or_sections": (4, 4)}
    ),
    "narrow: too long": after((3, 8), "torch.narrow", {"length": 9}),
    "select: out of range": after((3, 8), "torch.select", {"index": 5}),
    "topk: more than there are": after((3, 8), "torch.topk", {"k": 7}),
    "expand: of what is not 1": after((5,), "Tensor.expand", {"size": (-1, 64)}),
    "expand: too few sizes": after((8, 1), "Tensor.expand", {"size": (-1, 64)}),
    "upsample: a row": after((16,), "nn.Upsample"),
    "response norm: a row": after((8,), "nn.LocalResponseNorm"),
    "glu: an odd half": after((7, 4), "F.glu", {"dim": 1}),
    "interpolate: bilinear of a sequence": after(
        (3, 8), "F.interpolate", {"mode": "bilinear"}
    ),
    "upsample: linear of a picture": after(
        (3, 8, 8), "nn.Upsample", {"mode": "linear"}
    ),
    "layernorm: other shape": after(
        (5, 16), "nn.LayerNorm", {"normalized_shape": (8,)}
    ),
    "layernorm over channels": after(
        (16, 8, 8), "nn.LayerNorm", {"normalized_shape": (16,)}
    ),
    "softmax: no such dimension": after((5,), "F.softmax", {"dim": 3}),
}


def told(graph: Graph) -> Problem:
    (problem,) = [problem for problem in analyse(graph).errors if problem.node == "it"]
    return problem


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("name", BROKEN)
def test_the_first_cure_makes_the_call_run_and_only_cures_that_do_are_offered(
    name: str,
) -> None:
    graph = BROKEN[name]
    cures = told(graph).cures
    assert cures
    for number, cure in enumerate(cures):
        mended = analyse(apply_cure(graph, catalog(), cure))
        assert not [problem for problem in mended.errors if problem.node == "it"], (
            cure.label
        )
        assert "it" in {node for node, _ in mended.values}
        if number == 0:
            assert mended.errors == ()
            run(mended.source, 3)


@pytest.mark.parametrize("name", BROKEN)
def test_names_and_shapes_of_all_that_arrives_are_told(name: str) -> None:
    graph = BROKEN[name]
    problem = told(graph)
    words = f"{problem.message} {problem.reason}"
    if (
        problem.port is not None
    ):  # nothing arrives there, so there is nothing to name but the port
        assert problem.port in words
        return
    for edge in graph.into("it"):
        assert graph.nodes[edge.source].name in words
    assert not problem.message.startswith("it does not fit")
    assert problem.torch_message and "1009" not in problem.torch_message


FIRST = {
    "channels last into Conv2d": "Insert permute(0, 3, 1, 2)",
    "no channel dimension": "Add a channel dimension",
    "a picture into Linear": "Insert Flatten",
    "features of a Linear": "Infer in_features from the input",
    "add: a shortcut of other channels": "Insert Conv2d 1×1 after x",
    "add: wider on one side": "Insert Linear to 64 after b",
    "add: channels last": "Insert permute(0, 3, 1, 2) after b",
    "mul: one vector for a sequence": "Insert unsqueeze(1)",
    "mul: a gate for each channel": "Reshape to N×8×1×1",
    "cat: pictures of other size": "Resize up to 9×9",
    "unpooling without indices": "Take the indices from pool0",
    "attention over the batch": "Set batch_first=True",
    "groups of a convolution": "Set groups=4",
    "a kernel larger than the picture": "Set padding=3",
    "heads of an encoder layer": "Set nhead=3",
}


@pytest.mark.parametrize("name", FIRST)
def test_the_cure_that_people_would_look_for_comes_first(name: str) -> None:
    assert told(BROKEN[name]).cures[0].label == FIRST[name]


def test_the_layer_that_gives_too_few_channels_is_offered_beside_the_projection() -> (
    None
):
    def conv(inputs: int, outputs: int) -> dict[str, Any]:
        return {"in_channels": inputs, "out_channels": outputs, "padding": 1}

    rows = [
        ("input", "x", {"shape": (1, 8, 8)}),
        ("nn.Conv2d", "conv2", conv(1, 16)),
        ("nn.Conv2d", "conv3", conv(16, 8)),
        ("operator.add", "it", {}),
        ("output", "y", {}),
    ]
    wires = [
        ("x", "conv2"),
        ("conv2", "conv3"),
        ("conv3", "it", "input"),
        ("conv2", "it", "other"),
        ("it", "y"),
    ]
    assert [cure.label for cure in told(net(rows, wires)).cures] == [
        "Insert Conv2d 1×1 after conv2",
        "Set conv3.out_channels to 16 instead of 8",
    ]


def test_a_shortcut_is_projected_with_the_stride_of_the_way_beside_it() -> None:
    graph = residual(2)
    mended = apply_cure(graph, catalog(), told(graph).cures[0])
    (new,) = [node for node in mended.nodes.values() if node.id not in graph.nodes]
    assert (
        new.op == "nn.Conv2d"
        and new.params["stride"] == 2
        and new.params["out_channels"] == 32
    )
    assert mended.into(new.id)[0].source == "x"


def test_each_unpooling_is_offered_the_pool_that_nobody_takes_from() -> None:
    """The nearest pool goes with the first unpooling, the one before it with the next, as in SegNet."""
    graph = net(
        [
            ("input", "x", {"shape": (4, 16, 16)}),
            ("nn.MaxPool2d", "pool1", {}),
            ("nn.MaxPool2d", "pool2", {}),
            ("nn.MaxUnpool2d", "up2", {}),
            ("nn.MaxUnpool2d", "it", {}),
            ("output", "y", {}),
        ]
    )
    (first,) = [problem for problem in analyse(graph).errors if problem.node == "up2"]
    assert first.cures[0].label == "Take the indices from pool2"
    half = apply_cure(graph, catalog(), first.cures[0])
    assert half.nodes["pool2"].params["return_indices"] is True
    assert [cure.label for cure in told(half).cures] == ["Take the indices from pool1"]
    assert analyse(apply_cure(half, catalog(), told(half).cures[0])).problems == ()


def test_a_wire_of_several_is_mended_where_it_is_amiss() -> None:
    graph = unet_of_odd_size()
    mended = apply_cure(graph, catalog(), told(graph).cures[0])
    (resize,) = [node.id for node in mended.nodes.values() if node.op == "nn.Upsample"]
    assert [edge.source for edge in mended.into("it")] == ["x", resize]
    assert [edge.index for edge in mended.into("it")] == [0, 1]


def test_a_cure_that_draws_a_wire_leaves_a_port_that_was_taken_meanwhile() -> None:
    graph = unpooling(wired=True)
    cure = told(graph).cures[0]
    once = apply_cure(graph, catalog(), cure)
    assert apply_cure(once, catalog(), cure) == once


def test_who_shared_a_module_keeps_it_when_a_cure_makes_another_op_of_the_first() -> (
    None
):
    graph = net(
        [
            ("input", "x", {"shape": (16,)}),
            ("input", "z", {"shape": (3, 8, 8)}),
            ("nn.BatchNorm2d", "it", {}),
            ("nn.BatchNorm2d", "other", {}),
            ("output", "y", {}),
            ("output", "w", {}),
        ],
        [("x", "it"), ("it", "y"), ("z", "other"), ("other", "w")],
    )
    graph = graph.with_node(replace(graph.nodes["other"], shares="it"))
    cure = next(cure for cure in told(graph).cures if cure.label == "Use BatchNorm1d")
    mended = apply_cure(graph, catalog(), cure)
    assert (
        mended.nodes["it"].op,
        mended.nodes["other"].op,
        mended.nodes["other"].shares,
    ) == ("nn.BatchNorm1d", "nn.BatchNorm2d", "")
    assert analyse(mended).errors == ()


SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 9, 16]), max_size=4).map(tuple)
KINDS = st.sampled_from([None, None, None, INT64, BOOL, FLOAT64])


@pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # torch's, of what it will refuse in time
@given(data=st.data())
def test_whatever_arrives_anywhere_analysis_and_cures_raise_nothing(
    data: st.DataObject,
) -> None:
    spec = catalog()[
        data.draw(
            st.sampled_from([key for key, spec in catalog().items() if spec.inputs])
        )
    ]
    rows: list[Any] = [(spec.key, "it", {}), ("output", "y", {})]
    wires: list[Any] = [("it", "y")] if spec.outputs else []
    for port in spec.inputs:
        for number in range(
            2 if port.variadic else int(port.required and port.kind != "tuple")
        ):
            dtype = data.draw(KINDS)
            given = {"shape": data.draw(SIZES), **({"dtype": dtype} if dtype else {})}
            rows.append(("input", f"{port.name}{number}", given))
            wires.append((f"{port.name}{number}", "it", port.name))
    try:
        graph = net(rows, wires)
    except ConnectError:
        return
    for problem in analyse(graph).errors:
        for cure in problem.cures:
            analyse(apply_cure(graph, catalog(), cure))
