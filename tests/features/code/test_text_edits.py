"""A statement of the text typed anew is an edit of the drawing, after which the text reads as it was typed."""

from __future__ import annotations

import ast

import pytest

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import OpSpec, Param, catalog
from app.builder.expressions import Expr
from app.builder.graph import Init
from app.features.code.editing.edits import edited
from app.features.code.editing.lines import statement_at
from app.features.code.editing.values import CodeEditError
from app.project.project import Project
from app.source.generated import Source
from app.util.frozen import FrozenMap
from tests.support.builder_nets import around, net
from tests.support.builder_sheets import row_of, sheet
from tests.support.every import every

OPS = [spec for spec in catalog().values() if spec.kind not in ("input", "output")]


def source_of(project: Project) -> Source:
    return analyse(project.graph, with_blocks(catalog(), project.blocks)).source


def type_in(project: Project, old: str, new: str) -> Project:
    """The project after some words of its text were typed over; they stand there once."""
    source = source_of(project)
    assert source.text.count(old) == 1, source.text
    line = source.text[: source.text.index(old)].count("\n") + 1
    found = statement_at(source.text, line)
    assert found is not None
    typed = "\n".join(source.text.split("\n")[found.first - 1 : found.last]).replace(
        old, new
    )
    done = edited(project, with_blocks(catalog(), project.blocks), source, line, typed)
    return project if done is None else done.project


def refusal(project: Project, old: str, new: str) -> str:
    with pytest.raises(CodeEditError) as told:
        type_in(project, old, new)
    return str(told.value)


def other(value: object) -> str:
    return repr(
        not value
        if isinstance(value, bool)
        else value + 1
        if isinstance(value, int)
        else value + 0.125
    )


@every({spec.key: spec for spec in OPS})
def test_every_number_of_every_op_can_be_typed(spec: OpSpec) -> None:
    project = Project(graph=around(spec))
    source = source_of(project)
    for line in source.lines["it"]:
        found = statement_at(source.text, line)
        assert found is not None
        for part in ast.walk(found.tree):
            if not (
                isinstance(part, ast.Constant)
                and isinstance(part.value, int | float)
                and part.lineno == line
            ):
                continue
            text = source.text.split("\n")
            row = text[line - 1]
            text[line - 1] = (
                row[: part.col_offset] + other(part.value) + row[part.end_col_offset :]
            )
            typed = "\n".join(text[found.first - 1 : found.last])
            done = edited(project, catalog(), source, line, typed)
            assert done is not None and done.words.startswith("Set ")
            after = source_of(done.project).text
            # A value that is the default is not written, another number of outputs has names of its own, and what
            # batch normalization takes by keyword stands behind its own parameters.
            other_way = "batch_first=False" in typed or spec.key in (
                "torch.chunk",
                "F.batch_norm",
            )
            assert typed.split("  #")[0] in after or other_way, (typed, after)


UNIT = Block(
    "Unit",
    sheet(
        [
            ("i", "input", "x"),
            (
                "c",
                "nn.Conv2d",
                "conv",
                {"out_channels": Expr("width * 2"), "kernel_size": 3},
            ),
            ("d", "F.dropout", "drop", {"p": Expr("rate")}),
            ("o", "output", "y"),
        ],
        "i>c c>d d>o",
    ),
    params=(Param("width", "int", 8), Param("rate", "float", 0.5)),
)
STEM = Block(
    "Stem",
    row_of(
        [
            ("a", "nn.Conv2d", "0", {"out_channels": 4, "kernel_size": 3}),
            ("b", "nn.ReLU", "1", {}, {"repeat": 3}),
        ]
    ),
)
NET = Project(
    graph=row_of(
        [
            ("s", "block.Stem", "stem"),
            ("u", "block.Unit", "unit", {"width": 4}, {"repeat": 2}),
            ("n", "nn.BatchNorm2d", "norms.last", {}, {"repeat": 2}),
            ("g", "operator.getitem", "part", {"index": (..., 0)}),
            ("f", "nn.Flatten", "flat"),
            (
                "l",
                "nn.Linear",
                "head",
                {"out_features": 10},
                {"inits": FrozenMap(weight=Init("normal_", FrozenMap(std=0.5)))},
            ),
        ],
        (1, 16, 16),
    ).with_param("y", "key", "logits"),
    blocks=FrozenMap(Unit=UNIT, Stem=STEM),
)


def test_the_net_reads_as_expected() -> None:
    text = source_of(NET).text
    for words in (
        "nn.Sequential(",
        "for _ in range(3)",
        "nn.ModuleDict",
        "width * 2",
        "self.rate",
        "std=0.5",
    ):
        assert words in text, text


def test_in_a_block_a_value_may_be_computed() -> None:
    after = (
        type_in(NET, "width * 2, 3)", "width * 3, (3, 5))")
        .blocks["Unit"]
        .graph.nodes["c"]
        .params
    )
    assert after["out_channels"] == Expr("width * 3") and after["kernel_size"] == (3, 5)
    assert type_in(NET, "self.rate,", "self.rate / 2,").blocks["Unit"].graph.nodes[
        "d"
    ].params["p"] == Expr("rate / 2")
    assert "There is no parameter depth" in refusal(NET, "width * 2", "depth * 2")
    assert "use names, numbers" in refusal(
        NET, "width * 2", "__import__('os').getpid()"
    )
    assert "no parameters to refer to" in refusal(NET, "std=0.5", "std=width")


def test_defaults_of_a_block() -> None:
    assert type_in(NET, "width=8", "width=16").blocks["Unit"].params[0].default == 16
    assert "expects an int" in refusal(NET, "width=8", "width='a'")
    assert "exposes" in refusal(
        NET, "in_channels=4, width=4)", "in_channels=5, width=4)"
    )
    assert "change them in the inspector" in refusal(NET, "width=8", "broad=8")


def test_repeats_freezing_and_names() -> None:
    assert (
        type_in(NET, "range(3)", "range(5)").blocks["Stem"].graph.nodes["b"].repeat == 5
    )
    assert "1 to 1000" in refusal(NET, "range(3)", "range(0)")
    assert type_in(NET, "nn.Flatten()", "nn.Flatten( )  # a comment") is NET
    head = next(
        line for line in source_of(NET).text.split("\n") if "self.head = " in line
    ).strip()
    assert type_in(NET, head, f"{head}.requires_grad_(False)").graph.nodes["l"].frozen
    assert type_in(NET, "self.head = ", "self.top = ").graph.nodes["l"].name == "top"
    for name, words in (
        ("stem", "in use"),
        ("forward", "Every nn.Module"),
        ("top.last", "remains"),
        ("_", "is valid"),
    ):
        assert words in refusal(NET, "self.head = ", f"self.{name} = "), name


def test_indices_keys_and_initialisation() -> None:
    assert type_in(NET, "[..., 0]", "[..., 1]").graph.nodes["g"].params["index"] == (
        ...,
        1,
    )
    assert (
        type_in(NET, '"logits": ', '"scores": ').graph.nodes["y"].params["key"]
        == "scores"
    )
    init = type_in(
        NET,
        "normal_(self.head.weight, std=0.5)",
        "uniform_(self.head.weight, a=-1, b=1)",
    )
    assert init.graph.nodes["l"].inits["weight"] == Init(
        "uniform_", FrozenMap(a=-1.0, b=1.0)
    )
    assert "torch.nn.init has no" in refusal(NET, "nn.init.normal_(", "nn.init.system(")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("nn.Flatten()", "nn.Identity()", "replace the node on the canvas"),
        ("x = self.flat(x)", "y = self.flat(x)", "Variable names are generated"),
        ("x = self.flat(x)", "x = self.head(x)", "is another layer"),
        ("x = self.flat(x)", "x = self.flat(y)", "set by a wire"),
        ("x = self.flat(x)", "x = self.flat(x); print(1)", "One statement per line"),
        ("x = self.flat(x)", "del x", "replace the node on the canvas"),
        ("x[..., 0]", "y[..., 0]", "set by a wire"),
        (
            "nn.Flatten()",
            "nn.Flatten(size=2)",
            "has no argument size here; it has start_dim",
        ),
        ("nn.Flatten()", "nn.Flatten(1, 2, 3)", "by keyword"),
        ("nn.Flatten()", "nn.Flatten(1, start_dim=2)", "given twice"),
        ("nn.Flatten()", "nn.Flatten(*[1])", "is not a value"),
        ("nn.Flatten()", "nn.Flatten(**{})", "by keyword"),
        ("nn.Flatten()", "nn.Flatten(", "Python cannot read this"),
        ("nn.Flatten()", "nn.Flatten(\0)", "Python cannot read this"),
        ("nn.Flatten()", "(" * 500, "Python cannot read this"),
        ('"last"', '"first"', "rename container layers in the inspector"),
        ("self.head = ", "print(self.head) ; self.head = ", "One statement per line"),
        ("super().__init__()", "super().__init__(1)", "begins with this line"),
    ],
)
def test_structure_is_refused_with_where_it_can_be_changed(
    old: str, new: str, reason: str
) -> None:
    text = source_of(NET).text
    if text.count(old) > 1:
        old_line = next(line for line in reversed(text.split("\n")) if old in line)
        project_text = type_refusal(old_line, old_line.replace(old, new))
    else:
        project_text = refusal(NET, old, new)
    assert reason in project_text


def type_refusal(old: str, new: str) -> str:
    source = source_of(NET)
    lines = source.text.split("\n")
    line = len(lines) - lines[::-1].index(old)
    with pytest.raises(CodeEditError) as told:
        edited(NET, with_blocks(catalog(), NET.blocks), source, line, new)
    return str(told.value)


def test_a_number_that_is_wired_is_edited_where_it_is() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("number", "two", {"value": 2.0}),
            ("operator.mul", "it", {}),
            ("output", "y", {}),
        ],
        [("x", "it"), ("two", "it", "other"), ("it", "y")],
    )
    assert (
        type_in(Project(graph=graph), "x * 2.0", "x * 3.5")
        .graph.nodes["two"]
        .params["value"]
        == 3.5
    )
