"""Whatever a person calls a layer, the source holds identifiers, each once, and nothing of what was typed runs."""

from __future__ import annotations

import ast
import builtins
import keyword
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from app.builder.analysis import analyse
from app.builder.names import (
    UniqueNames,
    identifier,
    module_attributes,
    path_parts,
    reserved_variables,
)
from app.project import file
from app.project.project import Project
from tests.support.builder_nets import net, run, skeleton

NASTY = (
    "",
    " ",
    "_",
    "__",
    "____",
    "class",
    "def",
    "None",
    "self",
    "super",
    "forward",
    "torch",
    "nn",
    "F",
    "Net",
    "N",
    "x",
    "training",
    "parameters",
    "_modules",
    "__init__",
    "__import__",
    "__class__",
    "type",
    "print",
    "match",
    "1",
    "3x3",
    "a b",
    "a-b",
    "a.b",
    "a\nb",
    "a\r\nimport os",
    "a\tb",
    "a\\",
    "'",
    '"',
    '"""',
    "'''",
    "#",
    "\x00",
    "\x1b[31m",
    "'); __import__('canary').sing(); ('",
    '"""\n__import__("canary").sing()\n"""',
    "x)\n        raise SystemExit  #",
    "größe",
    "ﬁ",
    "ª",
    "²",
    "½",
    "数",
    "變換",
    "слой",
    "é",
    "é",
    "🙂",
    "\u202e",
    "\u200b",
    "\ud800",
    "ᵢ",
    "٣",
    "a" * 500,
)

texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=30),
    st.text(alphabet="ab_1'\"\n\\({ ", max_size=12),
)


@given(texts)
def test_identifier_is_one_and_stays_one(text: str) -> None:
    word = identifier(text)
    assert (
        word.isidentifier()
        and not keyword.iskeyword(word)
        and not word.startswith("__")
        and len(word) <= 81
    )
    assert identifier(word) == word
    # Python reads identifiers in their normal form; if ours were in another, two could become one.
    assert ast.parse(word, mode="eval").body.id == word


@given(st.lists(texts, max_size=30), st.booleans())
def test_names_are_handed_out_once(wanted: list[str], modules: bool) -> None:
    reserved = module_attributes() if modules else reserved_variables()
    names = UniqueNames(reserved)
    given_out = [names.take(text) for text in wanted]
    assert len(set(given_out)) == len(given_out) and not reserved & set(given_out)


def test_names_read_as_a_person_would_write_them() -> None:
    names = UniqueNames(frozenset({"input", "forward"}))
    assert [names.take(t) for t in ("conv", "conv", "conv", "conv_2")] == [
        "conv",
        "conv_2",
        "conv_3",
        "conv_2_2",
    ]
    assert [names.take(t) for t in ("input", "input", "Layer 1", "lambda")] == [
        "input_",
        "input__2",
        "Layer_1",
        "lambda_",
    ]
    assert (
        names.first_free(("conv", "y")) == "y" and names.first_free(("conv",)) == "conv"
    )


def test_thousands_of_equal_names_are_no_burden() -> None:
    names = UniqueNames()
    assert [names.take("conv") for _ in range(20_000)][-1] == "conv_20000"


def test_what_a_module_has_already_is_not_hidden() -> None:
    assert {
        "training",
        "parameters",
        "_modules",
        "forward",
        "state_dict",
    } <= module_attributes()
    given = {
        name for name in dir(nn.Module()) if not name.startswith("___")
    }  # those torch.compile puts there
    assert given <= module_attributes()
    assert {"print", "torch", "self"} <= reserved_variables() and set(
        dir(builtins)
    ) <= reserved_variables()


def example(names: list[str], inputs: tuple[str, str] = ("a", "b")):
    """Two inputs, layers with and without a module, two outputs, under any names."""
    rows = [
        ("input", "i", {"shape": (4,)}),
        ("input", "j", {"shape": (4,)}),
        ("nn.Linear", "l", {"out_features": 4}),
        ("operator.add", "p", {}),
        ("nn.Linear", "k", {"out_features": 3}),
        ("nn.GELU", "g", {"approximate": "tanh"}),
        ("output", "o", {}),
        ("output", "q", {}),
    ]
    wires = [
        ("i", "l"),
        ("l", "p"),
        ("j", "p", "other"),
        ("p", "k"),
        ("k", "g"),
        ("g", "o"),
        ("p", "q"),
    ]
    graph = net(rows, wires)
    for node, name in zip(graph.nodes, [*inputs, *names], strict=False):
        graph = graph.with_name(node, name)
    return graph


@cache
def plain_skeleton() -> str:
    return skeleton(
        analyse(example(["fc", "add", "head", "act", "logits", "hidden"])).source.text
    )


@given(st.lists(texts, min_size=6, max_size=6), st.tuples(texts, texts))
def test_structure_of_the_source_knows_nothing_of_names(
    names: list[str], inputs: tuple[str, str]
) -> None:
    # A name that is an attribute path makes containers: tests/builder/test_containers.py.
    plain = [
        name
        if path_parts(name)[0].isidentifier() and len(path_parts(name)) == 1
        else "a b"
        for name in names
    ]
    graph = example(plain, inputs)  # a path has a structure of its own
    analysis = analyse(graph)
    tree = ast.parse(analysis.source.text)
    assert skeleton(analysis.source.text) == plain_skeleton()
    assert len(set(analysis.source.modules.values())) == 3
    assert (
        len(set(analysis.source.outputs)) == 2
        and len({spec.name for spec in analysis.source.inputs}) == 2
    )
    assert not {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & {
        "canary",
        "__import__",
        "os",
    }


def test_nothing_that_was_typed_ever_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary sits where `__import__` is looked up; every name goes through a file, source and forward."""
    real = builtins.__import__

    def guarded(name, *args, **kwargs):
        assert "canary" not in name, "the canary sang"
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", guarded)
    for text in NASTY:
        project = Project(
            name=text, graph=example([text] * 6, (text, text)), notes=text
        )
        opened = file.loads(file.dumps(project))
        analysis = analyse(opened.graph)
        assert analysis.errors == ()
        assert [tuple(t.shape) for t in run(analysis.source, 2)] == [(2, 3), (2, 4)]


@pytest.mark.parametrize("text", NASTY)
def test_texts_in_the_place_of_values_are_refused_and_reach_no_source(
    text: str,
) -> None:
    graph = example(["fc", "add", "head", "act", "logits", "hidden"])
    for node, param in (
        ("l", "out_features"),
        ("g", "approximate"),
        ("i", "dtype"),
        ("i", "shape"),
        ("l", text),
    ):
        broken = graph.with_param(node, param, text)
        analysis = analyse(broken)
        assert [problem.node for problem in analysis.errors] == [node]
        ast.parse(analysis.source.text)
        assert "canary" not in analysis.source.text and not (
            text.strip("_ ") and repr(text) in analysis.source.text
        )
        with pytest.raises(file.ProjectFileError, match=r"at `\$\.graph\.nodes\[\d\]"):
            file.loads(file.dumps(Project(graph=broken)))


@pytest.mark.parametrize(
    "value",
    [[1], {}, object(), 1j, (1, [2]), float("nan"), 10**400],
    ids=lambda it: repr(it)[:8],
)
def test_what_is_no_literal_is_told_and_not_raised(value: object) -> None:
    for node, param in (("l", "out_features"), ("i", "shape"), ("g", "approximate")):
        analysis = analyse(
            example(["fc", "add", "head", "act", "logits", "hidden"]).with_param(
                node, param, value
            )
        )
        assert [problem.node for problem in analysis.errors] == [node]


@pytest.mark.parametrize("text", NASTY)
def test_names_of_unknown_ops_and_ports_reach_no_source(text: str) -> None:
    from app.builder.graph import Edge

    graph = net([("input", "a", {"shape": (4,)}), ("output", "b", {})], [])
    op = text or "?"
    graph = net(
        [
            ("input", "a", {"shape": (4,)}),
            (f"my.{op}", "c", {text: text}),
            ("output", "b", {}),
        ],
        [("c", "b")],
    )
    graph = graph.with_edge(Edge("a", 0, "c", text, 3))
    tree = ast.parse(analyse(graph).source.text)
    assert "canary" not in ast.dump(tree)
    assert any(
        isinstance(n, ast.Assign)
        and isinstance(n.value, ast.Constant)
        and n.value.value is ...
        for n in ast.walk(tree)
    )
