"""The text, word for word, as a careful person would write it."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
import torch

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.graph import Edge, Graph, Node
from app.source.compiled import make_module
from app.util.frozen import FrozenMap
from tests.support.builder_nets import INT64, measured, net, returned, run, wired

CNN = net(
    [
        ("input", "input1", {}),
        ("nn.Conv2d", "conv1", {"out_channels": 16, "padding": 1}),
        ("nn.BatchNorm2d", "bn1", {}),
        ("F.relu", "relu1", {}),
        ("F.max_pool2d", "pool1", {}),
        ("Tensor.view", "view1", {"size": (-1, 3136)}),
        ("nn.Dropout", "drop1", {}),
        ("nn.Linear", "fc1", {"out_features": 10}),
        ("F.log_softmax", "logp", {}),
        ("output", "output1", {}),
    ]
)
CNN_TEXT = '''
    import torch.nn.functional as F
    from torch import nn


    class Net(nn.Module):
        """Maps x (N, 1, 28, 28) to (N, 10)."""

        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
            self.bn1 = nn.BatchNorm2d(16)
            self.drop1 = nn.Dropout(0.5)
            self.fc1 = nn.Linear(3136, 10)

        def forward(self, x):
            x = self.conv1(x)  # (N, 16, 28, 28)
            x = self.bn1(x)
            x = F.relu(x)
            x = F.max_pool2d(x, 2)  # (N, 16, 14, 14)
            x = x.view(-1, 3136)  # (N, 3136)
            x = self.drop1(x)
            x = self.fc1(x)  # (N, 10)
            x = F.log_softmax(x, dim=1)
            return x
'''

RESIDUAL = net(
    [
        ("input", "input1", {"shape": (16, 8, 8)}),
        ("nn.Conv2d", "conv1", {"out_channels": 16, "padding": 1, "bias": False}),
        ("nn.BatchNorm2d", "bn1", {}),
        ("nn.ReLU", "relu", {"inplace": True}),
        ("nn.Conv2d", "conv2", {"out_channels": 16, "padding": "same"}),
        ("operator.add", "add", {}),
        ("nn.ReLU", "relu", {}),
        ("output", "output1", {}),
    ][:6]
    + [("nn.ReLU", "relu2", {}), ("output", "output1", {})],
    [
        ("input1", "conv1"),
        ("conv1", "bn1"),
        ("bn1", "relu"),
        ("relu", "conv2"),
        ("conv2", "add", "input"),
        ("input1", "add", "other"),
        ("add", "relu2"),
        ("relu2", "output1"),
    ],
)
RESIDUAL_TEXT = '''
    from torch import nn


    class Net(nn.Module):
        """Maps x (N, 16, 8, 8) to (N, 16, 8, 8)."""

        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(16, 16, 3, padding="same")
            self.relu2 = nn.ReLU()

        def forward(self, x):
            y = self.conv1(x)
            y = self.bn1(y)
            y = self.relu(y)
            y = self.conv2(y)
            x = y + x
            x = self.relu2(x)
            return x
'''

LSTM = net(
    [
        ("input", "tokens", {"shape": (20,), "dtype": INT64}),
        ("nn.Embedding", "embed", {}),
        (
            "nn.LSTM",
            "lstm",
            {
                "hidden_size": 128,
                "num_layers": 2,
                "dropout": 0.1,
                "bidirectional": True,
            },
        ),
        ("torch.mean", "mean", {"dim": (1,)}),
        ("nn.Linear", "fc", {"out_features": 2}),
        ("output", "logits", {}),
    ]
)
LSTM_TEXT = '''
    import torch
    from torch import nn


    class Net(nn.Module):
        """Maps tokens (N, 20) of int64 to (N, 2)."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(1000, 64)
            self.lstm = nn.LSTM(
                64, 128, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True
            )
            self.fc = nn.Linear(256, 2)

        def forward(self, tokens):
            x = self.embed(tokens)  # (N, 20, 64)
            x, _ = self.lstm(x)  # (N, 20, 256)
            x = torch.mean(x, dim=1)  # (N, 256)
            x = self.fc(x)  # (N, 2)
            return x
'''

DECODER = net(
    [
        ("input", "source", {"shape": (5, 8)}),
        ("input", "target", {"shape": (6, 8)}),
        ("nn.LSTM", "encoder", {"hidden_size": 16}),
        ("nn.LSTM", "decoder", {"hidden_size": 16}),
        ("output", "out", {}),
    ],
    [
        ("source", "encoder"),
        ("target", "decoder"),
        ("encoder", "decoder", "hx", 1),
        ("decoder", "out"),
    ],
)
DECODER_TEXT = '''
    from torch import nn


    class Net(nn.Module):
        """Maps source (N, 5, 8) and target (N, 6, 8) to (N, 6, 16)."""

        def __init__(self):
            super().__init__()
            self.encoder = nn.LSTM(8, 16, batch_first=True)
            self.decoder = nn.LSTM(8, 16, batch_first=True)

        def forward(self, source, target):
            _, state = self.encoder(source)
            x, _ = self.decoder(target, state)  # (N, 6, 16)
            return x
'''

ATTENTION = net(
    [
        ("input", "x", {"shape": (16, 64)}),
        ("input", "mask", {"shape": (16,), "dtype": INT64}),
        ("nn.LayerNorm", "norm", {}),
        ("nn.MultiheadAttention", "attn", {}),
        ("operator.add", "add", {}),
        ("output", "out", {}),
    ],
    [
        ("x", "norm"),
        ("norm", "attn", "query"),
        ("norm", "attn", "key"),
        ("norm", "attn", "value"),
        ("x", "add", "input"),
        ("attn", "add", "other"),
        ("add", "out"),
    ],
)
ATTENTION_TEXT = '''
    from torch import nn


    class Net(nn.Module):
        """Maps x (N, 16, 64) to (N, 16, 64)."""

        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(64)
            self.attn = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, x):
            y = self.norm(x)
            y, _ = self.attn(y, y, y)
            x = x + y
            return x
'''

TWO_AND_TWO = net(
    [
        ("input", "image", {}),
        ("input", "meta", {"shape": (7,)}),
        ("nn.Flatten", "flatten", {}),
        ("torch.cat", "cat", {}),
        ("nn.Linear", "fc", {}),
        ("nn.Linear", "head", {"out_features": 10}),
        ("nn.Linear", "aux", {"out_features": 1}),
        ("output", "logits", {}),
        ("output", "age", {}),
    ],
    [
        ("image", "flatten"),
        ("flatten", "cat"),
        ("meta", "cat"),
        ("cat", "fc"),
        ("fc", "head"),
        ("fc", "aux"),
        ("head", "logits"),
        ("aux", "age"),
    ],
)
TWO_AND_TWO_TEXT = '''
    import torch
    from torch import nn


    class Net(nn.Module):
        """Maps image (N, 1, 28, 28) and meta (N, 7) to logits (N, 10) and age (N, 1)."""

        def __init__(self):
            super().__init__()
            self.flatten = nn.Flatten()
            self.fc = nn.Linear(791, 64)
            self.head = nn.Linear(64, 10)
            self.aux = nn.Linear(64, 1)

        def forward(self, image, meta):
            x = self.flatten(image)  # (N, 784)
            x = torch.cat([x, meta], dim=1)  # (N, 791)
            x = self.fc(x)  # (N, 64)
            y = self.head(x)  # (N, 10)
            x = self.aux(x)  # (N, 1)
            return y, x
'''

LONG = net(
    [
        ("input", "input1", {"shape": (3, 32, 32)}),
        (
            "nn.Conv2d",
            "first convolution",
            {
                "kernel_size": (3, 5),
                "stride": 2,
                "padding": (1, 2),
                "dilation": (1, 1),
                "bias": False,
                "padding_mode": "circular",
            },
        ),
        (
            "nn.AvgPool2d",
            "pool",
            {
                "kernel_size": (2, 2),
                "stride": 1,
                "ceil_mode": True,
                "count_include_pad": False,
                "divisor_override": 3,
            },
        ),
        ("output", "output1", {}),
    ]
)
LONG_TEXT = '''
    from torch import nn


    class Net(nn.Module):
        """Maps x (N, 3, 32, 32) to (N, 32, 15, 15)."""

        def __init__(self):
            super().__init__()
            self.first_convolution = nn.Conv2d(
                3,
                32,
                (3, 5),
                stride=2,
                padding=(1, 2),
                dilation=(1, 1),
                bias=False,
                padding_mode="circular",
            )
            self.pool = nn.AvgPool2d(
                (2, 2), stride=1, ceil_mode=True, count_include_pad=False, divisor_override=3
            )

        def forward(self, x):
            x = self.first_convolution(x)  # (N, 32, 16, 16)
            x = self.pool(x)  # (N, 32, 15, 15)
            return x
'''

SHAPES = net(
    [
        ("input", "image", {"shape": (4, 6, 6)}),
        ("nn.Unflatten", "parts", {"unflattened_size": (2, 2)}),
        ("torch.reshape", "join", {"shape": (-1, 4, 36)}),
        ("torch.permute", "turn", {"dims": (0, 2, 1)}),
        ("torch.transpose", "back", {}),
        ("nn.Softmax", "softmax", {"dim": -1}),
        ("nn.LeakyReLU", "lrelu", {"negative_slope": 0.2}),
        ("torch.mean", "mean", {"dim": (1, 2), "keepdim": True}),
        ("output", "out", {}),
    ]
)
SHAPES_TEXT = '''
    import torch
    from torch import nn


    class Net(nn.Module):
        """Maps image (N, 4, 6, 6) to (N, 1, 1)."""

        def __init__(self):
            super().__init__()
            self.parts = nn.Unflatten(dim=1, unflattened_size=(2, 2))
            self.softmax = nn.Softmax(dim=-1)
            self.lrelu = nn.LeakyReLU(0.2)

        def forward(self, image):
            x = self.parts(image)  # (N, 2, 2, 6, 6)
            x = torch.reshape(x, (-1, 4, 36))  # (N, 4, 36)
            x = torch.permute(x, (0, 2, 1))  # (N, 36, 4)
            x = torch.transpose(x, 1, 2)  # (N, 4, 36)
            x = self.softmax(x)
            x = self.lrelu(x)
            x = torch.mean(x, dim=(1, 2), keepdim=True)  # (N, 1, 1)
            return x
'''

EMPTY_TEXT = '''
    from torch import nn


    class Net(nn.Module):
        """An incomplete network."""

        def __init__(self):
            super().__init__()

        def forward(self):
            ...  # connect an Output to return a value
'''

TEXTS = {
    "a classifier with functions": (CNN, CNN_TEXT),
    "a residual": (RESIDUAL, RESIDUAL_TEXT),
    "a recurrent net": (LSTM, LSTM_TEXT),
    "a state handed on": (DECODER, DECODER_TEXT),
    "self-attention": (ATTENTION, ATTENTION_TEXT),
    "two inputs and two outputs": (TWO_AND_TWO, TWO_AND_TWO_TEXT),
    "long constructors": (LONG, LONG_TEXT),
    "shapes": (SHAPES, SHAPES_TEXT),
    "nothing": (Graph(), EMPTY_TEXT),
}


@pytest.mark.parametrize(("graph", "text"), TEXTS.values(), ids=TEXTS.keys())
def test_text(graph: Graph, text: str) -> None:
    assert analyse(graph).source.text == dedent(text).lstrip()


@pytest.mark.parametrize(
    "graph", [graph for graph, _ in list(TEXTS.values())[:-1]], ids=list(TEXTS)[:-1]
)
def test_text_does_what_was_drawn(graph: Graph) -> None:
    analysis = analyse(graph)
    assert analysis.errors == ()
    assert measured(run(analysis.source, 3)) == returned(analysis, 3)


def test_lines_and_modules_lead_to_the_nodes() -> None:
    source = analyse(TWO_AND_TWO).source
    rows = source.text.splitlines()
    assert [rows[line - 1].strip() for line in source.lines["fc"]] == [
        "self.fc = nn.Linear(791, 64)",
        "x = self.fc(x)  # (N, 64)",
    ]
    assert rows[source.lines["meta"][0] - 1].startswith("    def forward(")
    assert rows[source.lines["age"][0] - 1] == "        return y, x"
    assert source.node_at(source.lines["cat"][0]) == "cat" and source.node_at(1) is None
    assert dict(source.modules) == {
        "flatten": "flatten",
        "fc": "fc",
        "head": "head",
        "aux": "aux",
    }
    assert {key.partition(".")[0] for key in make_module(source).state_dict()} == {
        "fc",
        "head",
        "aux",
    }


def test_every_line_of_a_long_constructor_is_its_nodes() -> None:
    source = analyse(LONG).source
    lines = source.lines["first convolution"]
    assert (
        len(lines) == 11
        and source.text.splitlines()[lines[4] - 1].strip() == "stride=2,"
    )


def test_outputs_are_returned_in_the_order_they_were_added() -> None:
    rows = [
        ("input", "x", {"shape": (4,)}),
        ("output", "long", {}),
        ("output", "short", {}),
    ]
    rows += [("nn.Linear", f"l{i}", {"out_features": 5 + i}) for i in range(3)]
    graph = net(
        rows, [("x", "l0"), ("l0", "l1"), ("l1", "l2"), ("l2", "long"), ("l0", "short")]
    )
    analysis = analyse(graph)
    assert analysis.source.outputs == ("long", "short")
    assert [tuple(t.shape) for t in run(analysis.source, 2)] == [(2, 7), (2, 5)]


def test_inputs_are_taken_in_the_order_they_were_added() -> None:
    rows = [
        ("input", "b", {"shape": (2,)}),
        ("input", "a", {"shape": (3,)}),
        ("torch.cat", "cat", {}),
        ("output", "y", {}),
    ]
    analysis = analyse(net(rows, [("a", "cat"), ("b", "cat"), ("cat", "y")]))
    assert [spec.name for spec in analysis.source.inputs] == ["b", "a"]
    assert "torch.cat([a, b], dim=1)" in analysis.source.text


def test_masks_reach_the_arguments_they_are_meant_for() -> None:
    rows = [
        ("input", "x", {"shape": (16, 64)}),
        ("input", "pad", {"shape": (16,)}),
        ("nn.MultiheadAttention", "attn", {}),
        ("output", "y", {}),
        ("output", "w", {}),
    ]
    wires = [
        ("x", "attn", "query"),
        ("x", "attn", "key"),
        ("x", "attn", "value"),
        ("attn", "y"),
        ("attn", "w", "input", 1),
    ]
    graph = net(rows, wires)
    assert "x, attn_weights = self.attn(x, x, x)" in analyse(graph).source.text
    masked = wired(graph, "pad", "attn", "attn_mask")
    assert "self.attn(x, x, x, attn_mask=pad)" in analyse(masked).source.text
    padded = wired(graph, "pad", "attn", "key_padding_mask")
    assert "self.attn(x, x, x, key_padding_mask=pad)" in analyse(padded).source.text
    assert measured(run(analyse(padded).source, 3)) == (
        ((3, 16, 64), "float32"),
        ((3, 16, 16), "float32"),
    )


def test_many_wires_break_into_lines_of_at_most_a_hundred() -> None:
    rows = [("input", f"measurement_{i}", {"shape": (2,)}) for i in range(30)]
    rows += [
        ("torch.cat", "cat", {}),
        *(("output", f"result_{i}", {}) for i in range(30)),
    ]
    wires = [(f"measurement_{i}", "cat") for i in range(30)] + [("cat", "result_0")]
    wires += [(f"measurement_{i}", f"result_{i}") for i in range(1, 30)]
    source = analyse(net(rows, wires)).source
    assert max(map(len, source.text.splitlines())) <= 100
    assert len(run(source, 2)) == 30
    assert (
        source.text.count("            measurement_7,\n") == 2
        and "                measurement_7,\n" in source.text
    )


def test_a_value_used_twice_keeps_its_name_until_the_last() -> None:
    rows = [
        ("input", "input1", {"shape": (4,)}),
        ("nn.Tanh", "t", {}),
        ("operator.mul", "square", {}),
        ("output", "y", {}),
    ]
    source = analyse(
        net(
            rows,
            [
                ("input1", "t"),
                ("t", "square"),
                ("t", "square", "other"),
                ("square", "y"),
            ],
        )
    ).source
    assert "        x = self.t(x)\n        x = x * x\n        return x\n" in source.text


def test_the_same_value_may_be_returned_twice() -> None:
    rows = [
        ("input", "input1", {"shape": (4,)}),
        ("nn.Tanh", "t", {}),
        ("output", "y", {}),
        ("output", "z", {}),
    ]
    source = analyse(net(rows, [("input1", "t"), ("t", "y"), ("t", "z")])).source
    assert source.text.endswith("return x, x\n") and source.outputs == ("y", "z")


def test_an_input_may_go_straight_out() -> None:
    source = analyse(
        net([("input", "input1", {"shape": (4,)}), ("output", "y", {})])
    ).source
    assert source.text.endswith("    def forward(self, x):\n        return x\n")
    assert [tuple(t.shape) for t in run(source, 2)] == [(2, 4)]


def test_outputs_of_one_name_are_told_apart() -> None:
    graph = net(
        [
            ("input", "input1", {"shape": (4,)}),
            ("output", "a", {}),
            ("output", "b", {}),
        ],
        [("input1", "a"), ("input1", "b")],
    )
    graph = graph.with_name("a", "y").with_name("b", "y")
    assert analyse(graph).source.outputs == ("y", "y_2")


def test_what_is_missing_stands_as_an_ellipsis() -> None:
    text = analyse(
        net([("nn.Conv2d", "conv", {}), ("operator.add", "add", {})], [("conv", "add")])
    ).source.text
    assert "self.conv = nn.Conv2d(..., 32, 3)" in text
    assert "        x = self.conv(...)\n        x = x + ...\n" in text
    assert text.endswith("        ...  # connect an Output to return a value\n")


def test_equal_drawings_give_equal_text() -> None:
    assert analyse(CNN).source == analyse(CNN).source
    assert analyse(CNN).source.filename == analyse(CNN).source.filename


def two_ends(first: dict[str, str], second: dict[str, str]) -> Graph:
    rows = [
        ("input", "x", {"shape": (4,)}),
        ("output", "out", first),
        ("output", "aux", second),
    ]
    rows += [
        ("nn.Linear", "fc", {"out_features": 3}),
        ("nn.Linear", "side", {"out_features": 2}),
    ]
    return net(rows, [("x", "fc"), ("x", "side"), ("fc", "out"), ("side", "aux")])


@pytest.mark.parametrize(
    ("first", "second", "ending", "outputs"),
    [
        (
            {"key": "out"},
            {"key": "it's\n"},
            """return {"out": y, "it's\\n": x}""",
            ("out", "aux"),
        ),
        ({"key": "out"}, {"key": "out"}, "return y, x", ("out", "aux")),
        ({"key": "out"}, {}, "return y, x", ("out", "aux")),
        (
            {},
            {"when": "training"},
            "if self.training:\n    return y, x\nreturn y",
            ("out", "aux"),
        ),
        (
            {"when": "eval"},
            {"key": "aux", "when": "training"},
            'if self.training:\n    return {"aux": x}\nreturn y',
            ("aux",),
        ),
        (
            {"when": "eval"},
            {"when": "eval"},
            "if self.training:\n    return None\nreturn y, x",
            (),
        ),
    ],
)
def test_outputs_under_keys_and_in_one_mode(
    first: dict[str, str], second: dict[str, str], ending: str, outputs: tuple[str, ...]
) -> None:
    analysis = analyse(two_ends(first, second))
    assert not analysis.errors and analysis.source.outputs == outputs
    assert analysis.source.text.endswith(f"\n{indent(ending, ' ' * 8)}\n")
    module = make_module(analysis.source)
    assert len(module(torch.zeros(2, 4)) or ()) == len(outputs)
    rows = analysis.source.text.splitlines()
    assert all(
        "return" in rows[analysis.source.lines[node][-1] - 1] for node in ("out", "aux")
    )


def test_a_block_gives_back_all_that_it_has() -> None:
    inner = Block("Two", two_ends({"key": "a"}, {"key": "b", "when": "training"}))
    graph = net([("input", "x", {"shape": (4,)})])
    nodes = [
        *graph.nodes.values(),
        Node("two", "block.Two", "two"),
        *(Node(n, "output", n) for n in ("p", "q")),
    ]
    edges = (
        Edge("x", 0, "two", "x"),
        Edge("two", 0, "p", "input"),
        Edge("two", 1, "q", "input"),
    )
    graph = Graph(FrozenMap({node.id: node for node in nodes}), edges)
    source = analyse(graph, with_blocks(catalog(), FrozenMap({"Two": inner}))).source
    assert [tuple(t.shape) for t in make_module(source).eval()(torch.zeros(2, 4))] == [
        (2, 3),
        (2, 2),
    ]


@pytest.mark.parametrize("pair", ["xx", "xy", "yx"])
def test_a_loop_gives_its_result_to_the_first_argument_alone(pair: str) -> None:
    from tests.support.builder_sheets import sheet

    rows = [
        ("x", "input", "x", {"shape": (4,)}),
        ("y", "input", "y", {"shape": (4,)}),
        ("b", "nn.Bilinear", "both", {"out_features": 6}, {"repeat": 3}),
        ("o", "output", "out"),
    ]
    answer = analyse(sheet(rows, f"{pair[0]}>b.input1 {pair[1]}>b.input2 b>o"))
    assert not answer.errors
    assert [tuple(tensor.shape) for tensor in run(answer.source, 2)] == [(2, 6)]
