"""Blocks that are chains named 0, 1, 2, ... are written as `nn.Sequential` where they stand, with its keys."""

from __future__ import annotations

import ast
from itertools import count
from textwrap import dedent
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import Param, catalog
from app.builder.codegen.class_args import in_words_of
from app.builder.codegen.codegen import generate
from app.builder.expressions import Expr
from app.builder.graph import Init
from app.builder.plan import plan
from app.builder.shapes.shapes import infer
from app.source.compiled import make_module
from app.source.generated import Source
from app.util.frozen import FrozenMap
from tests.support.builder_sheets import Row, analysed, row_of, sheet


def conv(name: str, channels: Any, **more: Any) -> Row:
    return (
        f"c{name}",
        "nn.Conv2d",
        name,
        {"out_channels": channels, "kernel_size": 3, "padding": 1},
        more,
    )


def block(name: str, rows: list[Row], *params: Param) -> Block:
    return Block(name, row_of(rows), params=params)


CHANNELS = Param("channels", "int", 8)
CONV_BN = block(
    "ConvBN",
    [
        conv("0", Expr("channels")),
        ("b", "nn.BatchNorm2d", "1", {}, {"inits": FrozenMap(weight=Init("zeros_"))}),
        ("r", "nn.ReLU", "2"),
    ],
    CHANNELS,
)
DOUBLE = block(
    "Double",
    [
        ("first", "block.ConvBN", "0", {"channels": Expr("width * 2")}),
        conv("1", Expr("width"), repeat=2, frozen=True),
        ("pool", "nn.MaxPool2d", "3", {"kernel_size": 2}),
    ],
    Param("width", "int", 4),
)
STAGE = Block(
    "Stage",
    sheet(
        [
            ("x", "input", "x"),
            ("body", "block.Double", "body", {"width": Expr("wide")}),
            ("d0", "block.ConvBN", "down.0", {"channels": 3}),
            ("d1", "nn.MaxPool2d", "down.1", {"kernel_size": 2}),
            ("cat", "torch.cat", "cat", {"dim": 1}),
            ("y", "output", "y"),
        ],
        "x>body x>d0 d0>d1 body>cat.tensors d1>cat.tensors cat>y",
    ),
    params=(Param("wide", "int", 4),),
)
NET = row_of(
    [
        ("a", "block.Stage", "stages.0"),
        ("b", "block.Stage", "stages.1", {"wide": 8}),
        ("tail", "block.ConvBN", "tail", {}, {"repeat": 3}),
    ],
    (3, 16, 16),
)
TEXT = '''
    class Stage(nn.Module):
        """Maps x (N, in_channels, *, *) to (N, *, *, *)."""

        def __init__(self, in_channels, in_channels_2, wide=4):
            super().__init__()
            self.body = nn.Sequential(
                nn.Sequential(
                    nn.Conv2d(in_channels, wide * 2, 3, padding=1),
                    nn.BatchNorm2d(wide * 2),
                    nn.ReLU(),
                ),
                nn.Conv2d(in_channels_2, wide, 3, padding=1).requires_grad_(False),
                nn.Conv2d(wide, wide, 3, padding=1).requires_grad_(False),
                nn.MaxPool2d(2),
            )
            nn.init.zeros_(self.body[0][1].weight)
            self.down = nn.ModuleList(
                [
                    nn.Sequential(
                        nn.Conv2d(in_channels, 3, 3, padding=1),
                        nn.BatchNorm2d(3),
                        nn.ReLU(),
                    ),
                    nn.MaxPool2d(2),
                ]
            )
            nn.init.zeros_(self.down[0][1].weight)

        def forward(self, x):
            y = self.body(x)  # (N, wide, *, *)
            x = self.down[0](x)
            x = self.down[1](x)  # (N, 3, *, *)
            x = torch.cat([y, x], dim=1)  # (N, *, *, *)
            return x


    class Net(nn.Module):
        """Maps x (N, 3, 16, 16) to (N, 8, 4, 4)."""

        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList(
                [Stage(in_channels=3, in_channels_2=8), Stage(in_channels=7, in_channels_2=16, wide=8)]
            )
            self.tail = nn.Sequential(
                nn.Sequential(nn.Conv2d(11, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
                *[
                    nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
                    for _ in range(2)
                ],
            )
            for layer in self.tail:
                nn.init.zeros_(layer[1].weight)

        def forward(self, x):
            x = self.stages[0](x)  # (N, 7, 8, 8)
            x = self.stages[1](x)  # (N, 11, 4, 4)
            x = self.tail(x)  # (N, 8, 4, 4)
            return x
'''
BLOCKS = (CONV_BN, DOUBLE, STAGE)


def rows_of(source: Source, node: str) -> list[str]:
    rows = source.text.splitlines()
    return [rows[line - 1].strip() for line in source.lines[node]]


def test_text() -> None:
    source = analysed(NET, *BLOCKS).source
    assert source.text[source.text.index("class ") :] == dedent(TEXT).lstrip()
    net = make_module(source)
    assert net(torch.zeros(2, 3, 16, 16)).shape == (2, 8, 4, 4)
    wanted = {
        "stages.0.body.0.1.running_var",
        "stages.1.body.2.bias",
        "stages.0.down.0.0.weight",
        "tail.2.1.weight",
    }
    assert wanted <= net.state_dict().keys()
    assert net.stages[1].body[0][1].weight.sum() == net.tail[2][1].weight.sum() == 0
    assert (
        not net.stages[0].body[2].weight.requires_grad
        and net.stages[0].body[0][0].weight.requires_grad
    )
    assert set(source.classes) == {"Stage", ""}


def test_the_way_in_leads_to_lines_and_modules() -> None:
    source = analysed(NET, *BLOCKS).source
    body = source.within((("a", 0), ("body", 0)))
    assert dict(body.modules) == {
        "first": "stages.0.body.0",
        "c1": "stages.0.body.1",
        "pool": "stages.0.body.3",
    }
    assert dict(body.further) == {"c1": ("stages.0.body.2",)}
    assert (
        rows_of(body, "pool") == ["nn.MaxPool2d(2),"] and len(rows_of(body, "c1")) == 2
    )
    inner = source.within((("b", 0), ("body", 0), ("first", 0)))
    assert dict(inner.modules) == {
        "c0": "stages.1.body.0.0",
        "b": "stages.1.body.0.1",
        "r": "stages.1.body.0.2",
    }
    assert rows_of(inner, "b") == [
        "nn.BatchNorm2d(wide * 2),",
        "nn.init.zeros_(self.body[0][1].weight)",
    ]
    first, last = (source.within((("tail", number),)) for number in (0, 2))
    assert first.modules["b"] == "tail.0.1" and last.modules["b"] == "tail.2.1"
    assert rows_of(first, "c0") == [
        "nn.Sequential(nn.Conv2d(11, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),"
    ]
    assert rows_of(last, "c0") == [
        "nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())"
    ]
    assert not source.within((("tail", 0), ("b", 0))).modules


def test_a_repeated_block_in_a_chain_takes_the_keys_that_follow() -> None:
    residual = Block(
        "Residual",
        sheet(
            [
                ("x", "input", "x"),
                conv("conv", 8),
                ("add", "operator.add", "add"),
                ("y", "output", "y"),
            ],
            "x>cconv cconv>add x>add.other add>y",
        ),
    )
    stage = block(
        "Layer",
        [
            conv("0", 8),
            ("r", "block.Residual", "1", {}, {"repeat": 2}),
            ("e", "nn.ReLU", "3"),
        ],
    )
    net = row_of([("l", "block.Layer", "layer1")], (3, 8, 8))
    source = analysed(net, residual, stage).source
    assert rows_of(source, "l")[:5] == [
        "self.layer1 = nn.Sequential(",
        "nn.Conv2d(3, 8, 3, padding=1),",
        "*[Residual() for _ in range(2)],",
        "nn.ReLU(),",
        ")",
    ]
    assert rows_of(source.within((("l", 0),)), "r") == [
        "*[Residual() for _ in range(2)],"
    ]
    assert {key.rpartition(".")[0] for key in make_module(source).state_dict()} == {
        "layer1.0",
        "layer1.1.conv",
        "layer1.2.conv",
    }
    inside = source.within((("l", 0), ("r", 1)))
    assert inside.modules["cconv"] == "layer1.2.conv" and rows_of(inside, "add") == [
        "x = y + x"
    ]


def test_a_muted_module_keeps_the_places_of_those_behind_it() -> None:
    chain = block(
        "Chain",
        [conv("0", 8), ("n", "nn.BatchNorm2d", "1", {}, {"muted": True}), conv("2", 4)],
    )
    source = analysed(row_of([("c", "block.Chain", "seq")], (3, 8, 8)), chain).source
    assert "nn.Identity()" in source.text
    assert set(make_module(source).state_dict()) == {
        f"seq.{n}.{p}" for n in (0, 2) for p in ("weight", "bias")
    }


@pytest.mark.parametrize(
    "rows",
    [
        [conv("0", 8), ("r", "nn.ReLU", "2")],
        [conv("1", 8), ("r", "nn.ReLU", "2")],
        [conv("0", 8), ("r", "nn.ReLU", "relu")],
        [conv("0", 8, repeat=2), ("r", "nn.ReLU", "1")],
        [conv("0", 8), ("r", "F.relu", "1")],
        [("r", "nn.ReLU", "0"), ("s", "nn.ReLU", "1", {}, {"shares": "r"})],
        [("p", "nn.MaxPool2d", "0", {"kernel_size": 2, "return_indices": True})],
        [],
    ],
    ids=[
        "gap",
        "from one",
        "word",
        "overlap",
        "function",
        "shared",
        "two outputs",
        "empty",
    ],
)
def test_anything_else_is_a_class(rows: list[Row]) -> None:
    chain = block("Chain", rows)
    source = analysed(row_of([("c", "block.Chain", "seq")], (3, 8, 8)), chain).source
    assert (
        "class Chain(nn.Module):" in source.text and "self.seq = Chain(" in source.text
    )
    make_module(source)(torch.zeros(2, 3, 8, 8))


def test_a_block_with_a_second_way_through_is_a_class() -> None:
    graph = sheet(
        [
            ("x", "input", "x"),
            conv("0", 3),
            ("r", "nn.ReLU", "1"),
            ("a", "operator.add", "2"),
            ("y", "output", "y"),
        ],
        "x>c0 c0>r r>a c0>a.other a>y",
    )
    source = analysed(
        row_of([("c", "block.Skip", "seq")], (3, 8, 8)), Block("Skip", graph)
    ).source
    assert (
        "self.seq = Skip()" in source.text
        and 'setattr(self, "0", nn.Conv2d(3, 3, 3, padding=1))' in source.text
    )


def test_an_instance_without_an_input_is_written_too() -> None:
    graph = sheet([("c", "block.Double", "seq"), ("y", "output", "y")], "c>y")
    ops = with_blocks(catalog(), FrozenMap({one.name: one for one in BLOCKS}))
    source = analyse(graph, ops, (("c", 0), ("first", 0))).source
    assert ast.parse(source.text)
    assert (
        "nn.Conv2d(..., 8, 3, padding=1)" in source.text
        and "class Double" not in source.text
    )
    assert source.within((("c", 0), ("first", 0))).modules["b"] == "seq.0.1"


def test_an_instance_may_be_called_twice() -> None:
    rows: list[Row] = [("a", "block.ConvBN", "seq", {"channels": 3})]
    rows.append(("b", "block.ConvBN", "more", {}, {"shares": "a"}))
    source = analysed(row_of(rows, (3, 8, 8)), CONV_BN).source
    assert (
        source.text.count("nn.Conv2d") == 1
        and source.text.count("x = self.seq(x)") == 2
    )
    assert source.within((("a", 0),)).modules["c0"] == "seq.0"


@pytest.mark.parametrize(
    ("text", "given_", "wanted"),
    [
        ("channels * 2", {"channels": Expr("width + 1")}, Expr("(width + 1) * 2")),
        ("channels", {"channels": (Expr("width"), 3)}, (Expr("width"), 3)),
        ("max(a, b)", {"a": 3, "b": Expr("w")}, Expr("max(3, w)")),
        ("a + b", {"a": -2, "b": Expr("b")}, Expr("-2 + b")),
        ("a * 2", {"a": 4}, 8),
        ("a * 2", {"a": (1, 2)}, None),
        ("a // 0", {"a": 4}, None),
        ("a + c", {"a": Expr("w")}, None),
    ],
)
def test_what_an_expression_says_further_out(
    text: str, given_: dict[str, Any], wanted: Any
) -> None:
    assert in_words_of(given_, Expr(text)) == wanted


# --- Any nesting of chains

layers = st.one_of(
    st.tuples(st.just("linear"), st.integers(1, 5), st.integers(1, 2)),
    st.tuples(st.just("norm"), st.just(0), st.integers(1, 2)),
    st.tuples(st.just("relu"), st.just(0), st.integers(1, 3)),
)
nested = st.recursive(
    st.lists(layers, min_size=1, max_size=3),
    lambda inner: st.lists(
        st.one_of(layers, st.tuples(st.just("chain"), inner, st.integers(1, 3))),
        min_size=1,
        max_size=3,
    ),
    max_leaves=6,
)


def blocks_of(items: list[Any], name: str, numbers: Any, found: list[Block]) -> Block:
    """The block of a chain, those in it found first."""
    rows: list[Row] = []
    key = 0
    for kind, what, repeat in items:
        op, params = (
            {"linear": "nn.Linear", "norm": "nn.BatchNorm1d", "relu": "nn.ReLU"}.get(
                kind, ""
            ),
            {},
        )
        if kind == "linear":
            params = {"out_features": what}
        if kind == "chain":
            op = blocks_of(what, f"Chain{next(numbers)}", numbers, found).key
        rows.append((f"n{key}", op, str(key), params, {"repeat": repeat}))
        key += repeat
    found.append(Block(name, row_of(rows)))
    return found[-1]


def plain(items: list[Any], width: int) -> tuple[nn.Sequential, int]:
    """The same by hand, and how many features come out."""
    modules: list[nn.Module] = []
    for kind, what, repeat in items:
        for _ in range(repeat):
            if kind == "linear":
                modules.append(nn.Linear(width, what))
                width = what
            elif kind == "chain":
                module, width = plain(what, width)
                modules.append(module)
            else:
                modules.append(nn.ReLU() if kind == "relu" else nn.BatchNorm1d(width))
    return nn.Sequential(*modules), width


class Outer(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.body(x))


@given(nested, st.booleans())
def test_any_nesting_is_what_a_person_would_write(
    items: list[Any], class_around: bool
) -> None:
    found: list[Block] = []
    key = blocks_of(items, "Body", count(), found).key
    if class_around:
        found.append(
            Block("Outer", row_of([("b", key, "body"), ("t", "torch.tanh", "tanh")]))
        )
        key = "block.Outer"
    rows: list[Row] = [("a", key, "parts.0"), ("b", key, "parts.1", {}, {"repeat": 2})]
    source = analysed(row_of(rows, (4,)), *found).source
    assert source.text.count("class ") == 1 + class_around
    bodies, width = [], 4
    for _ in range(3):
        body, width = plain(items, width)
        bodies.append(Outer(body) if class_around else body)
    by_hand = nn.ModuleDict(
        {"parts": nn.ModuleList([bodies[0], nn.Sequential(*bodies[1:])])}
    ).eval()
    made = make_module(source).eval()
    assert list(made.state_dict()) == list(by_hand.state_dict())
    by_hand.load_state_dict(made.state_dict())
    x = torch.randn(3, 4)
    assert torch.equal(made(x), by_hand["parts"][1](by_hand["parts"][0](x)))
    for number in range(2):
        way = (("b", number), *((("b", 0),) if class_around else ()))
        inside = source.within(way)
        for node, path in inside.modules.items():
            assert type(made.get_submodule(path)) is type(by_hand.get_submodule(path))
            assert inside.lines[node]


def test_a_long_chain_and_one_in_the_other() -> None:
    long = block(
        "Long",
        [
            (f"n{k}", "nn.Linear", str(k), {"out_features": 2 + k % 3})
            for k in range(1000)
        ],
    )
    source = analysed(row_of([("l", "block.Long", "body")], (4,)), long).source
    assert (
        len(make_module(source).body) == 1000
        and source.within((("l", 0),)).modules["n999"] == "body.999"
    )
    assert max(map(len, source.text.splitlines())) <= 100


def test_a_text_that_would_double_with_every_level_is_classes() -> None:
    blocks = [block("B0", [("r", "nn.ReLU", "0"), ("s", "nn.ReLU", "1")])]
    for level in range(1, 40):
        inner = blocks[-1].key
        blocks.append(block(f"B{level}", [("a", inner, "0"), ("b", inner, "1")]))
    graph = row_of([("l", blocks[-1].key, "body")], (4,))
    walk = plan(
        graph, with_blocks(catalog(), FrozenMap({one.name: one for one in blocks}))
    )
    source = generate(walk, infer(walk), graph)
    assert len(source.text) < 1_000_000 and ast.parse(source.text)


def test_deeply_nested_chains_are_read_by_python() -> None:
    blocks = [block("B0", [("r", "nn.ReLU", "0")])]
    for level in range(1, 60):
        blocks.append(
            block(
                f"B{level}",
                [
                    (
                        "a",
                        blocks[-1].key,
                        "0",
                        {},
                        {"repeat": 2 if level % 16 == 3 else 1},
                    )
                ],
            )
        )
    source: Source = analysed(
        row_of([("l", blocks[-1].key, "a.b.c.d.e.f")], (4,)), *blocks
    ).source
    assert make_module(source)(torch.ones(1, 4)).sum() == 4
