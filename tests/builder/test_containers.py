"""The name of a node is the attribute path of its module: the containers that come of it, and the state_dict's keys."""

from __future__ import annotations

import ast
import builtins
import re
from textwrap import dedent
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.builder.graph import Graph, Init
from app.builder.names import Paths, container_attributes, module_attributes
from app.source.compiled import make_module
from app.util.frozen import FrozenMap
from tests.builder.test_names import NASTY
from tests.support.builder_sheets import Row, analysed, row_of, sheet

CONV = {"out_channels": 8, "kernel_size": 3}
FEATURES = row_of(
    [
        ("a", "nn.Conv2d", "features.0", CONV),
        ("b", "nn.ReLU", "features.1"),
        ("c", "nn.Conv2d", "backbone.conv1", CONV),
        ("d", "nn.BatchNorm2d", "backbone.norms.0"),
        ("e", "nn.ReLU", "backbone.type"),
        ("f", "nn.Conv2d", "head.3", CONV),
    ],
    (3, 8, 8),
)
FEATURES_TEXT = '''
    class Net(nn.Module):
        """Maps x (N, 3, 8, 8) to (N, 8, 2, 2)."""

        def __init__(self):
            super().__init__()
            self.features = nn.ModuleList([nn.Conv2d(3, 8, 3), nn.ReLU()])
            self.backbone = nn.ModuleDict(
                {
                    "conv1": nn.Conv2d(8, 8, 3),
                    "norms": nn.ModuleList([nn.BatchNorm2d(8)]),
                    "type_": nn.ReLU(),
                }
            )
            self.head = nn.ModuleDict({"3": nn.Conv2d(8, 8, 3)})

        def forward(self, x):
            x = self.features[0](x)  # (N, 8, 6, 6)
            x = self.features[1](x)
            x = self.backbone["conv1"](x)  # (N, 8, 4, 4)
            x = self.backbone["norms"][0](x)
            x = self.backbone["type_"](x)
            x = self.head["3"](x)  # (N, 8, 2, 2)
            return x
'''
ZEROS = FrozenMap(weight=Init("zeros_"))
LAYERS = row_of(
    [
        *((f"n{k}", "nn.Linear", f"layers.{k}", {"out_features": 4}) for k in range(3)),
        *((f"m{k}", "nn.ReLU", f"blocks.{k}") for k in range(4)),
        (
            "l",
            "nn.Linear",
            "blocks.4",
            {"out_features": 4},
            {"frozen": True, "inits": ZEROS},
        ),
        ("s", "nn.ReLU", "again", {}, {"shares": "m1"}),
        ("r", "nn.Linear", "blocks.5", {"out_features": 4}, {"repeat": 2}),
    ],
    (4,),
)
LAYERS_TEXT = '''
    class Net(nn.Module):
        """Maps x (N, 4) to (N, 4)."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.blocks = nn.ModuleList(
                [
                    *[nn.ReLU() for _ in range(4)],
                    nn.Linear(4, 4).requires_grad_(False),
                    nn.Sequential(*[nn.Linear(4, 4) for _ in range(2)]),
                ]
            )
            nn.init.zeros_(self.blocks[4].weight)

        def forward(self, x):
            x = self.layers[0](x)
            x = self.layers[1](x)
            x = self.layers[2](x)
            x = self.blocks[0](x)
            x = self.blocks[1](x)
            x = self.blocks[2](x)
            x = self.blocks[3](x)
            x = self.blocks[4](x)
            x = self.blocks[1](x)
            x = self.blocks[5](x)
            return x
'''
TOKENS = sheet(
    [
        ("x", "input", "x", {"shape": (6, 4)}),
        ("p", "parameter", "pos.embed", {"shape": (6, 4)}),
        ("q", "parameter", "mixed.weight", {"shape": (4,)}),
        ("b", "buffer", "mixed.mask", {"shape": (4,), "persistent": False}),
        ("l", "nn.Linear", "mixed.0", {"out_features": 4}),
        ("k", "nn.Linear", "words.keys", {"out_features": 4}),
        ("n", "nn.ReLU", "words.deep.0"),
        *((f"a{i}", "operator.add", f"add{i}") for i in range(3)),
        ("y", "output", "y"),
    ],
    "x>a0 p>a0.other a0>a1 q>a1.other a1>a2 b>a2.other a2>l l>k k>n n>y",
)
TOKENS_TEXT = '''
    class Net(nn.Module):
        """Maps x (N, 6, 4) to (N, 6, 4)."""

        def __init__(self):
            super().__init__()
            self.pos = nn.ParameterDict({"embed": nn.Parameter(torch.zeros(6, 4))})
            self.mixed = nn.Module()
            self.mixed.register_parameter("weight", nn.Parameter(torch.zeros(4)))
            self.mixed.register_buffer("mask", torch.zeros(4), persistent=False)
            self.mixed.add_module("0", nn.Linear(4, 4))
            self.words = nn.Module()
            self.words.add_module("keys", nn.Linear(4, 4))
            self.words.add_module("deep", nn.ModuleList([nn.ReLU()]))

        def forward(self, x):
            x = x + self.pos["embed"]
            x = x + self.mixed.weight
            x = x + self.mixed.mask
            x = getattr(self.mixed, "0")(x)
            x = self.words.keys(x)
            x = self.words.deep[0](x)
            return x
'''


def text_of(graph: Graph) -> str:
    """The text from the first class on."""
    text = analysed(graph).source.text
    return text[text.index("class ") :]


@pytest.mark.parametrize(
    ("graph", "text"),
    [(FEATURES, FEATURES_TEXT), (LAYERS, LAYERS_TEXT), (TOKENS, TOKENS_TEXT)],
    ids=["list and dictionary", "equal neighbours", "parameters and buffers"],
)
def test_text(graph: Graph, text: str) -> None:
    assert text_of(graph) == dedent(text).lstrip()
    source = analysed(graph).source
    make_module(source)(torch.zeros(2, *source.inputs[0].shape))


def test_lines_and_modules_of_what_stands_in_a_container() -> None:
    source = analysed(LAYERS).source
    rows = [row.strip() for row in source.text.splitlines()]
    assert [rows[line - 1] for line in source.lines["l"]] == [
        "nn.Linear(4, 4).requires_grad_(False),",
        "nn.init.zeros_(self.blocks[4].weight)",
        "x = self.blocks[4](x)",
    ]
    assert [rows[line - 1] for line in source.lines["m2"]] == [
        "*[nn.ReLU() for _ in range(4)],",
        "x = self.blocks[2](x)",
    ]
    assert (
        source.modules["l"] == "blocks.4"
        and source.modules["s"] == source.modules["m1"] == "blocks.1"
    )
    net = make_module(source)
    assert (
        not net.blocks[4].weight.requires_grad and net.blocks[4].weight.abs().sum() == 0
    )


# --- Paths


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["layers.0", "layers.1", "layers"], ["layers.0", "layers.1", "layers_2"]),
        (["conv", "conv.1", "conv.2.a"], ["conv", "conv_2.1", "conv_2.2.a"]),
        (["a.0", "a.0", "a.1"], ["a.0", "a.2", "a.1"]),
        (["a.0", "a.0.b", "a.0.c"], ["a.0", "a.1.b", "a.1.c"]),
        (["a.w", "a.w", "a.w.x"], ["a.w", "a.w_2", "a.w_3.x"]),
        (
            ["a.type", "a.class", "a.torch", "a.b__c_", "a.__x", "a.01"],
            ["a.type_", "a.class_", "a.torch", "a.b__c_", "a._x", "a._01"],
        ),
        (["torch.a", "training.a", "0.a", "7"], ["torch.a", "training_.a", "0.a", "7"]),
        (
            ["conv 1.5", "a..b", ".a", "a.", "a. b", "a.b-c"],
            ["conv_1_5", "a_b", "a", "a_2", "a_b_2", "a_3.b-c"],
        ),
        (["größe.ﬁ", "größe.fi"], ["größe.fi", "größe.fi_2"]),
        (
            [".".join("a" * 16), ".".join("a" * 17)],
            [".".join("a" * 16), "a_" * 16 + "a"],
        ),
    ],
)
def test_a_path_is_as_near_to_the_name_as_may_be(
    names: list[str], paths: list[str]
) -> None:
    taken = Paths(module_attributes(), names)
    assert [taken.take(name) for name in names] == paths


parts = st.sampled_from(
    (
        "a",
        "b",
        "conv",
        "0",
        "1",
        "2",
        "keys",
        "weight",
        "type",
        "class",
        "__x",
        "größe",
        "a b",
        "",
    )
)
names_with_dots = st.one_of(
    st.lists(parts, min_size=1, max_size=4).map(".".join),
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=3).map(".".join),
)


@given(st.lists(names_with_dots, max_size=25))
def test_paths_are_each_once_and_none_is_the_beginning_of_another(
    names: list[str],
) -> None:
    taken = Paths(module_attributes(), names)
    paths = [taken.take(name) for name in names]
    assert len(set(paths)) == len(paths)
    for path in paths:
        first, *others = path.split(".")
        assert first not in module_attributes()
        exact = re.compile("0|[1-9][0-9]*|[A-Za-z0-9]\\w*(-\\w+)+")
        assert all(
            part.isidentifier() or exact.fullmatch(part) for part in (first, *others)
        )
        assert not container_attributes() & set(others)
        assert not any(other.startswith(f"{path}.") for other in paths)


# --- Any tree of modules

KINDS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "linear": ("nn.Linear", {"out_features": 4}, ("weight", "bias")),
    "norm": (
        "nn.BatchNorm1d",
        {},
        ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
    ),
    "relu": ("nn.ReLU", {}, ()),
    "parameter": ("parameter", {"shape": (4,), "fill": "normal"}, ("",)),
    "buffer": ("buffer", {"shape": (4,), "fill": "normal"}, ("",)),
}
children = st.sampled_from(
    ("0", "1", "2", "a", "conv1", "keys", "pop", "weight", "größe", "F", "items")
)
trees = st.recursive(
    st.sampled_from(tuple(KINDS)),
    lambda inner: st.dictionaries(children, inner, min_size=1, max_size=3),
    max_leaves=8,
)
roots = st.dictionaries(
    st.sampled_from(("a", "b", "layers", "x")), trees, min_size=1, max_size=3
)


def leaves(tree: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(tree, str):
        return [(path, tree)]
    return [
        leaf
        for key, inner in tree.items()
        for leaf in leaves(inner, f"{path}.{key}" if path else key)
    ]


def drawn(found: list[tuple[str, str]]) -> Graph:
    """All of them one behind the other; free tensors are added."""
    rows: list[Row] = [("in", "input", "x", {"shape": (4,)})]
    wires, last = [], "in"
    for number, (path, kind) in enumerate(found):
        op, params, _ = KINDS[kind]
        rows.append((f"n{number}", op, path, params))
        if kind in ("parameter", "buffer"):
            rows.append((f"add{number}", "operator.add", f"add{number}"))
            wires += [f"{last}>add{number}", f"n{number}>add{number}.other"]
            last = f"add{number}"
        else:
            wires.append(f"{last}>n{number}")
            last = f"n{number}"
    rows.append(("out", "output", "y"))
    return sheet(rows, " ".join([*wires, f"{last}>out"]))


@given(roots, st.randoms(use_true_random=False))
def test_keys_are_the_paths_and_the_net_is_its_modules(tree: Any, random: Any) -> None:
    found = leaves(tree)
    random.shuffle(found)
    source = analysed(drawn(found)).source
    module = make_module(source).eval()
    wanted = {
        f"{path}.{name}".rstrip(".") for path, kind in found for name in KINDS[kind][2]
    }
    assert set(module.state_dict()) == wanted
    assert [source.modules[f"n{number}"] for number in range(len(found))] == [
        path for path, _ in found
    ]
    x = y = torch.randn(3, 4)
    for path, kind in found:
        if kind in ("parameter", "buffer"):
            y = y + module.state_dict()[path]
        else:
            y = module.get_submodule(path)(y)
    assert torch.equal(module(x), y)


# --- Hostile names

_NAMES_USED = set(
    "nn torch super self getattr setattr range _ layer x y z u v w".split()
)


def assert_only_what_is_expected(text: str) -> None:
    """Imports, one class of two methods, and in them nothing but modules that are made and called."""
    tree = ast.parse(text)
    *imports, net = tree.body
    assert all(isinstance(node, ast.Import | ast.ImportFrom) for node in imports)
    assert isinstance(net, ast.ClassDef) and [type(node) for node in net.body] == [
        ast.Expr,
        *[ast.FunctionDef] * 2,
    ]
    init, forward = net.body[1:]
    assert isinstance(init, ast.FunctionDef) and isinstance(forward, ast.FunctionDef)
    for statement in init.body:
        value = (
            statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
        )
        assert isinstance(value, ast.Call), ast.unparse(statement)
    assert all(
        isinstance(statement, ast.Assign | ast.Return) for statement in forward.body
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            assert node.id in _NAMES_USED
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and not node.value.startswith("Maps ")
        ):
            assert node.value.replace("-", "_").isidentifier() or node.value.isdecimal()


CANARIES = (
    "'); __import__('canary').sing(); ('",
    'a"]; __import__("canary").sing(); x["b',
    "a\\",
    'a"',
    "a\nimport canary",
    "{__import__('canary')}",
    "{0.__class__}",
    "%(canary)s",
    "__class__",
    "__init__",
    "lambda",
    "None",
    "keys",
    "0",
    "1",
    "a",
    "ﬁ",
    "数",
    "\u202e",
    "\ud800",
    "\x00",
)
hostile = st.one_of(
    st.lists(st.sampled_from(CANARIES), min_size=1, max_size=3).map(".".join),
    st.sampled_from(NASTY),
    st.text(alphabet="ab01._'\"\n\\({[", max_size=10),
)


@given(
    st.lists(st.tuples(hostile, st.sampled_from(tuple(KINDS))), min_size=1, max_size=6)
)
def test_names_are_never_more_than_names(found: list[tuple[str, str]]) -> None:
    real, sung = builtins.__import__, []

    def guarded(name: str, *args: Any, **kwargs: Any) -> Any:
        if "canary" in name:
            sung.append(name)
        return real(name, *args, **kwargs)

    source = analysed(drawn(found)).source
    assert_only_what_is_expected(source.text)
    builtins.__import__ = guarded
    try:
        make_module(source)(torch.zeros(2, 4))
    finally:
        builtins.__import__ = real
    assert not sung
    assert len(set(source.modules.values())) == len(found)


def test_thousands_of_layers_with_dots() -> None:
    rows: list[Row] = [(f"n{k}", "nn.ReLU", f"layers.{k}") for k in range(5000)]
    source = analysed(row_of(rows, (4,))).source
    assert source.modules["n4999"] == "layers.4999"
    assert (
        "self.layers = nn.ModuleList([nn.ReLU() for _ in range(5000)])" in source.text
    )
    assert len(make_module(source).layers) == 5000
