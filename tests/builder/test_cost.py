"""What a network costs: counts against formulas by hand, and what is not counted said as such."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.utils.flop_counter import FlopCounterMode

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.literals import DType
from app.builder.shapes import cost as costs
from app.builder.shapes.cost import cost
from app.builder.shapes.network_cost import NetworkCost, NodeCost
from app.project import file
from app.source.compiled import load_class
from app.util.resources import path
from tests.support.builder_nets import around, net


def one(
    op: str, shape: tuple[int, ...], dtype: str = "float32", **params: Any
) -> NodeCost:
    """The cost of a layer behind an input."""
    return chain(shape, [(op, params)], dtype).nodes["n0"]


def chain(
    shape: tuple[int, ...],
    layers: list[tuple[str, dict[str, Any]]],
    dtype: str = "float32",
) -> NetworkCost:
    rows: list[Any] = [("input", "in", {"shape": shape, "dtype": DType(dtype)})]
    rows += [(op, f"n{i}", params) for i, (op, params) in enumerate(layers)]
    return cost(net([*rows, ("output", "out", {})]))


def test_a_convolution_costs_its_taps_at_every_place() -> None:
    """H'·W'·C_out·C_in·k·k multiply-adds (Goodfellow et al., Deep Learning, eq. 9.7: the sum has C_in·k·k terms)."""
    conv = one("nn.Conv2d", (3, 32, 32), out_channels=16, kernel_size=5)
    assert conv.multiply_adds == 28 * 28 * 16 * 3 * 5 * 5
    assert conv.flops == 2 * 28 * 28 * 16 * 3 * 5 * 5
    assert conv.parameters == 16 * 3 * 5 * 5 + 16


def test_a_depthwise_convolution_sees_one_channel_each() -> None:
    """With groups = C_in each output has k·k terms (Howard et al., MobileNets, 2017, eq. 4)."""
    conv = one(
        "nn.Conv2d", (16, 14, 14), out_channels=16, kernel_size=3, padding=1, groups=16
    )
    assert conv.multiply_adds == 14 * 14 * 16 * 3 * 3


def test_a_transposed_convolution_spreads_every_place_of_its_input() -> None:
    """Each of H·W input values is multiplied with C_out·k·k weights (Dumoulin and Visin, 2016, chapter 4)."""
    deconv = one(
        "nn.ConvTranspose2d", (8, 7, 7), out_channels=4, kernel_size=3, stride=2
    )
    assert deconv.multiply_adds == 7 * 7 * 8 * 4 * 3 * 3


def test_a_linear_layer_costs_its_weights_for_every_row() -> None:
    """y = x Aᵀ + b has in·out products a row (torch.nn.Linear); the addition of b has no formula."""
    assert one("nn.Linear", (9,), out_features=4).multiply_adds == 9 * 4
    assert one("nn.Linear", (5, 9), out_features=4).multiply_adds == 5 * 9 * 4


@pytest.mark.parametrize("time", [1, 7])
def test_an_lstm_costs_four_gates_at_every_step(time: int) -> None:
    """Four gates of W_ih x and W_hh h each (the equations of torch.nn.LSTM): T·4·H·(I + H), a layer and direction."""
    lstm = one("nn.LSTM", (time, 12), hidden_size=16)
    assert lstm.multiply_adds == time * 4 * 16 * (12 + 16)
    both = one("nn.LSTM", (time, 12), hidden_size=16, bidirectional=True)
    assert both.multiply_adds == 2 * time * 4 * 16 * (12 + 16)
    deep = one("nn.LSTM", (time, 12), hidden_size=16, num_layers=2)
    assert deep.multiply_adds == time * 4 * 16 * (12 + 16) + time * 4 * 16 * (16 + 16)
    assert {"aten.sigmoid_", "aten.tanh_"} <= set(lstm.call.gaps)


def test_a_gru_costs_three_gates_at_every_step() -> None:
    """The equations of torch.nn.GRU."""
    assert one("nn.GRU", (5, 12), hidden_size=16).multiply_adds == 5 * 3 * 16 * (
        12 + 16
    )


@pytest.mark.parametrize("weights", [True, False])
def test_attention_costs_four_projections_and_two_products(weights: bool) -> None:
    """4·L·E² for q, k, v and the output, 2·L²·E for QKᵀ and its product with V (Vaswani et al., 2017, table 1)."""
    rows = [
        ("input", "in", {"shape": (5, 64)}),
        ("nn.MultiheadAttention", "it", {"need_weights": weights}),
    ]
    wires = [
        ("in", "it", "query"),
        ("in", "it", "key"),
        ("in", "it", "value"),
        ("it", "out"),
    ]
    graph = net([*rows, ("output", "out", {})], wires)
    assert cost(graph).nodes["it"].multiply_adds == 4 * 5 * 64 * 64 + 2 * 5 * 5 * 64


@pytest.mark.parametrize(
    ("op", "gap"),
    [
        ("nn.ReLU", "aten.relu"),
        ("nn.BatchNorm2d", "aten._native_batch_norm_legit"),
        ("nn.MaxPool2d", "aten.max_pool2d_with_indices"),
        ("nn.Dropout", "aten.bernoulli_"),
    ],
)
def test_what_torch_has_no_formula_for_is_not_counted_rather_than_free(
    op: str, gap: str
) -> None:
    layer = one(op, (3, 8, 8))
    assert (layer.state, layer.flops, layer.multiply_adds) == (
        "not counted",
        None,
        None,
    )
    assert gap in layer.call.gaps


def test_counts_are_those_of_the_flop_counter_on_the_code_that_is_run() -> None:
    graph = file.read(path("examples/digits.tape")).graph
    module = load_class(analyse(graph).source)().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, 1, 8, 8))
    assert cost(graph).flops == counter.get_total_flops()


@pytest.mark.parametrize(
    "key", ["nn.Conv2d", "nn.Linear", "nn.MultiheadAttention", "torch.matmul", "nn.GRU"]
)
def test_counts_of_single_ops_are_those_of_the_flop_counter(key: str) -> None:
    """On the CPU the counter misses an LSTM, which runs there as one fused operation; here its products are seen."""
    graph = around(catalog()[key])
    source = analyse(graph).source
    module = load_class(source)()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*(torch.zeros(1, *one.shape) for one in source.inputs))
    assert cost(graph).nodes["it"].flops == counter.get_total_flops() > 0


def test_every_op_is_counted_or_says_why_not() -> None:
    silent = []
    for key, spec in catalog().items():
        if spec.kind not in ("input", "output"):
            layer = cost(around(spec)).nodes["it"]
            if (
                layer.state == "counted"
                and not layer.flops
                or layer.state == "not counted"
                and not layer.call.tried
            ):
                silent.append(key)
    assert not silent


def test_totals_of_the_digits_example() -> None:
    """conv1 8·8·32·9, conv2 8·8·64·32·9, fc1 1024·64 and fc2 64·10 multiply-adds."""
    found = cost(file.read(path("examples/digits.tape")).graph)
    assert found.multiply_adds == 18_432 + 1_179_648 + 65_536 + 640
    assert found.parameters == 320 + 18_496 + 65_600 + 650
    assert (
        found.not_counted == 5
    )  # three ReLU, a pooling and a dropout; Flatten computes nothing
    values = 64 + 2 * 32 * 64 + 2 * 64 * 64 + 64 * 16 + 1024 + 2 * 64 + 10
    assert found.activation == 4 * values


def test_a_flatten_adds_no_bytes_and_a_dropout_does() -> None:
    found = chain((4, 6), [("nn.Flatten", {}), ("nn.Dropout", {})])
    assert found.nodes["n0"].shares and found.nodes["n0"].activation == 96
    assert not found.nodes["n1"].shares
    assert found.activation == 96 + 96
    assert found.flops is None


def test_bytes_follow_the_dtype() -> None:
    found = chain(
        (7,), [("nn.Embedding", {"num_embeddings": 10, "embedding_dim": 3})], "int64"
    )
    assert found.nodes["in"].activation == 7 * 8
    assert found.nodes["n0"].activation == 7 * 3 * 4


def test_a_batch_that_is_written_into_a_view_is_divided_by() -> None:
    found = chain(
        (6,), [("Tensor.view", {"size": (32, 6)}), ("nn.Linear", {"out_features": 5})]
    )
    assert found.nodes["n0"].activation == 6 * 4


def test_a_batch_read_as_a_sequence_is_said_not_to_grow_in_step() -> None:
    graph = net(
        [
            ("input", "in", {"shape": (5, 64)}),
            ("nn.MultiheadAttention", "it", {"batch_first": False}),
            ("output", "out", {}),
        ],
        [
            ("in", "it", "query"),
            ("in", "it", "key"),
            ("in", "it", "value"),
            ("it", "out"),
        ],
    )
    assert not cost(graph).nodes["it"].call.in_step
    assert one("nn.Linear", (9,)).call.in_step


def test_batchnorm_of_single_values_is_costed_although_it_refuses_one_sample() -> None:
    layer = one("nn.BatchNorm1d", (9,))
    assert layer.state == "not counted" and layer.call.gaps


def test_nothing_is_said_of_nodes_whose_shapes_are_unknown() -> None:
    rows = [
        ("input", "in", {"shape": (3, 8, 8)}),
        ("nn.Linear", "fc", {"in_features": 5}),
        ("output", "out", {}),
    ]
    found = cost(net(rows))
    assert (found.nodes["fc"].state, found.nodes["fc"].parameters, found.unknown) == (
        "unknown",
        None,
        1,
    )
    assert found.flops is None


def test_totals_leave_out_what_no_output_needs() -> None:
    rows = [
        ("input", "in", {"shape": (9,)}),
        ("nn.Linear", "a", {}),
        ("nn.Linear", "b", {}),
        ("output", "out", {}),
    ]
    found = cost(net(rows, [("in", "a"), ("in", "b"), ("a", "out")]))
    assert found.nodes["b"].flops == found.flops == found.nodes["a"].flops


def test_frozen_parameters_are_told_apart_and_a_muted_layer_costs_nothing() -> None:
    graph = chain(
        (9,), [("nn.Linear", {"out_features": 9}), ("nn.Linear", {"out_features": 4})]
    ).graph
    graph = graph.with_node(replace(graph.nodes["n0"], frozen=True))
    found = cost(graph)
    assert (found.parameters, found.frozen) == (90 + 40, 90)
    muted = cost(graph.with_node(replace(graph.nodes["n0"], muted=True)))
    assert muted.nodes["n0"].state == "muted" and muted.unknown == 0
    assert (muted.parameters, muted.multiply_adds) == (40, 36)


def test_no_call_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(
        (11, 13), [("nn.Linear", {"out_features": 17}), ("nn.ReLU", {})]
    ).graph
    monkeypatch.setattr(
        costs, "_counted", lambda *arguments: pytest.fail("it was known already")
    )
    assert cost(graph).nodes["n0"].multiply_adds == 11 * 13 * 17


# --- The field of view


def fields(
    shape: tuple[int, ...], layers: list[tuple[str, dict[str, Any]]]
) -> list[str | None]:
    found = chain(shape, layers)
    return [
        str(field) if (field := found.nodes[f"n{i}"].receptive) else None
        for i in range(len(layers))
    ]


def conv(size: int = 3, **params: Any) -> tuple[str, dict[str, Any]]:
    return "nn.Conv2d", {"out_channels": 4, "kernel_size": size, **params}


POOL = ("nn.MaxPool2d", {"kernel_size": 2})
RELU: tuple[str, dict[str, Any]] = ("nn.ReLU", {})


def test_two_convolutions_of_three_see_five_and_three_see_seven() -> None:
    """Simonyan and Zisserman, 2014, section 2.3."""
    seen = fields((3, 32, 32), [conv(), RELU, conv(), RELU, conv()])
    assert seen == ["3×3, jump 1"] * 2 + ["5×5, jump 1"] * 2 + ["7×7, jump 1"]


def test_the_blocks_of_a_vgg_see_what_is_known_of_them() -> None:
    """Poolings of VGG-16 see 6, 16 and 44 places (Araujo et al., Distill 2019: r' = r + (k − 1) j)."""
    block = [conv(padding=1), RELU, conv(padding=1), POOL]
    seen = fields(
        (3, 32, 32),
        [*block, *block, conv(padding=1), conv(padding=1), conv(padding=1), POOL],
    )
    assert (seen[3], seen[7], seen[11]) == (
        "6×6, jump 2",
        "16×16, jump 4",
        "44×44, jump 8",
    )


def test_dilation_spreads_the_taps_and_stride_lengthens_the_jump() -> None:
    assert fields(
        (3, 32, 32),
        [conv(7, stride=2), ("nn.MaxPool2d", {"kernel_size": 3, "stride": 2})],
    ) == [
        "7×7, jump 2",
        "11×11, jump 4",
    ]
    assert fields((3, 32, 32), [conv(dilation=4)]) == ["9×9, jump 1"]


def test_a_window_that_is_not_square_has_two_numbers() -> None:
    assert fields(
        (3, 32, 32), [("nn.Conv2d", {"kernel_size": (1, 5), "stride": (1, 2)})]
    ) == ["1×5, jump 1×2"]


def test_behind_a_flatten_there_is_no_field() -> None:
    assert fields((3, 8, 8), [conv(), ("nn.Flatten", {}), ("nn.Linear", {})]) == [
        "3×3, jump 1",
        None,
        None,
    ]
    assert fields((9,), [("nn.Linear", {})]) == [None]


def test_a_skip_sees_what_the_longer_path_sees() -> None:
    rows = [
        ("input", "in", {"shape": (4, 8, 8)}),
        ("nn.Conv2d", "a", {"out_channels": 4, "padding": 1}),
        ("nn.Conv2d", "b", {"out_channels": 4, "padding": 1}),
        ("operator.add", "sum", {}),
        ("output", "out", {}),
    ]
    graph = net(
        rows,
        [
            ("in", "a"),
            ("a", "b"),
            ("a", "sum", "input"),
            ("b", "sum", "other"),
            ("sum", "out"),
        ],
    )
    assert str(cost(graph).nodes["sum"].receptive) == "5×5, jump 1"
