"""Whatever a project file says, it is refused with its place or its source has the structure of a harmless one.

Every text, number and key of a file is tried; a canary sits where anything that ran would have to call it.
"""

from __future__ import annotations

import ast
import builtins
import copy
import io
import json
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import Param, catalog
from app.builder.expressions import Expr
from app.builder.graph import Init
from app.builder.sheet import Comment
from app.export.train_script import training_script
from app.project import file
from app.project.project import Project
from app.source.generated import Source
from app.training.choices import ChoiceError
from app.training.config import Choice, TrainingConfig
from app.training.job import Job, JobError
from app.util.frozen import FrozenMap
from tests.slow import mutated_projects
from tests.support.builder_nets import skeleton
from tests.support.builder_sheets import Row, sheet

CALL = "__import__('os').system('canary')"
TEXTS = (
    "",
    " ",
    "'",
    '"',
    "'''",
    '"""',
    '"""\ncanary()\n"""',
    "\\",
    "\\'",
    "\\\n",
    "a\\",
    "\n",
    "\r",
    "\ncanary()\n#",
    "x\n        canary()",
    "'); canary(); ('",
    '"); canary(); ("',
    CALL,
    f"{CALL}, 1",
    f"0, {CALL}",
    f"1 if {CALL} else 2",
    "(lambda: canary())()",
    "{x!r}",
    "{",
    "}",
    "{{canary()}}",
    "{0.__class__}",
    "%s",
    "%(x)s",
    "$x",
    "${canary}",
    "# type: ignore",
    "# -*- coding: utf-7 -*-",
    "#",
    "*/",
    "-->",
    "\x00",
    "\x00canary()",
    "\u2028canary()",
    "\u2029",
    "\x85canary()",
    "\x0b",
    "\x0c",
    "\x1b[2J",
    "\u202ecanary\u202c",
    "\u2066)\u2069",
    "\ufeff",
    "\ud800",
    "\udfff x",
    "ﬁ",
    "𝐞𝐯𝐚𝐥",
    "ªº",
    "é" * 40,
    "x" * 5000,
    "(" * 300,
    "[" * 9999,
    "self",
    "forward",
    "F",
    "torch",
    "nn",
    "super",
    "class",
    "None",
    "True",
    "__init__",
    "__class__",
    "__import__",
    "training",
    "register_buffer",
    "T_destination",
    "exec",
    "eval",
    "canary",
    "canary()",
    "Net",
    "N",
    "x",
    "lambda: 0",
    "*args",
    "**kwargs",
    "a=1",
    "a, b",
    "a;b",
    "../../canary",
    "C:\\canary",
    "/dev/null",
    "-1",
    "1e999",
    "0x10",
    "1_0",
    "nan",
    "NaN",
    "inf",
    ":",
    "...",
    "~",
)
NUMBERS = (
    0,
    -1,
    1,
    2,
    True,
    1.5,
    -0.0,
    1e308,
    1e-320,
    2**31,
    2**53 + 1,
    2**63,
    10**30,
    10**300,
    None,
    [],
    {},
    [[]],
)
TAGGED = (
    {"$float": "nan"},
    {"$float": "inf"},
    {"$float": "-inf"},
    {"$float": "1"},
    {"$auto": True},
    {"$ellipsis": True},
    {"$dtype": "int64"},
    {"$dtype": CALL},
    {"$expr": "1"},
    {"$expr": "width * 2"},
    {"$expr": CALL},
    {"$expr": "a.b"},
    {"$expr": "width\n"},
    {"$expr": "-" * 150 + "1"},
    {"$expr": "9" * 200},
    {"$expr": "1e999"},
    {"$expr": "(width)"},
    {"$expr": "max(canary)"},
    {"$expr": "width #"},
    {"$tuple": []},
    {"$tuple": [1, {"$tuple": [CALL]}]},
    {"$slice": [1, None, 2]},
    {"$slice": [CALL, 0, 0]},
    {"$unknown": 1},
)
# What a harmless person would put there. A name with dots, a number or hyphens makes containers, and has a structure
# of its own.
HARMLESS = (
    "harmless",
    "harm.less",
    "0",
    "harm-less",
    "harm.0",
    "",
    2,
    3.5,
    -1,
    -1.5,
    {"$float": "nan"},
    {"$float": "-inf"},
    {"$expr": "width"},
    {"$expr": "width * 2"},
    {"$expr": "(width)"},
    {"$expr": "1"},
    {"$expr": "-" * 150 + "1"},
    {"$auto": True},
    {"$dtype": "int64"},
    {"$ellipsis": True},
    {"$tuple": []},
    {"$slice": [1, None, 2]},
    0,
    1,
    True,
    None,
    "nearest",
    "x",
    [],
    {},
    {"$expr": "1 / 0"},
    {"$expr": "5e200"},
    {"$expr": "max(width)"},
    {"$expr": "True"},
    -0.0,
    "True",
    "5e200",
    "max(width)",
    "-" * 150 + "1",
    "1",
    "width",
    "width * 2",
    "ij->ji",
    "bij,bjk->bik",
    "same",
)


@cache
def written() -> dict[str, Any]:
    """A project in which everything that a file can say has its place."""
    branch = sheet(
        [
            ("in", "input", "x"),
            (
                "conv",
                "nn.Conv2d",
                "conv",
                {"out_channels": Expr("width * 2"), "kernel_size": 3},
            ),
            ("act", "nn.LeakyReLU", "act", {"negative_slope": 0.25}),
            ("out", "output", "y"),
        ],
        "in>conv conv>act act>out",
    )
    made = (
        Param("width", "int", 4, minimum=1),
        Param("mode", "choice", "a", choices=("a", "b")),
    )
    block = Block(
        "Branch",
        branch,
        comments=FrozenMap(c=Comment("text", 0, 0, 9, 9)),
        params=made,
        note="note",
    )
    rows: list[Row] = [
        ("b", "block.Branch", "branch", {"width": 2}, {"repeat": 2}),
        ("d", "F.dropout", "drop", {"p": 0.25}),
        ("e", "torch.einsum", "mixed", {"equation": "bchw->bwch"}),
        ("s", "operator.getitem", "part", {"index": 0}),
        (
            "l",
            "nn.Linear",
            "head.last",
            {"out_features": 10},
            {"inits": FrozenMap(weight=Init("normal_", FrozenMap(std=0.5)))},
        ),
    ]
    graph = sheet(
        [("x", "input", "image"), *rows, ("y", "output", "y")],
        "x>b b>d d>e.tensors e>s s>l l>y",
    )
    for node, params in (
        ("x", {"shape": (1, 8, 8), "low": 0.0, "high": 1.0}),
        ("y", {"key": "logits"}),
    ):
        for name, value in params.items():
            graph = graph.with_param(node, name, value)
    project = Project(
        name="project",
        graph=graph,
        positions=FrozenMap(b=(1.0, 2.0)),
        comments=FrozenMap(c=Comment("text", 0, 0, 9, 9, color="blue")),
        bends=FrozenMap({graph.edges[1]: ((1.0, 2.0),)}),
        blocks=FrozenMap(Branch=block),
        training=TrainingConfig(optimizer=Choice("Adam", FrozenMap(lr=0.01))),
        notes="notes",
    )
    return json.loads(file.dumps(project))


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value, and to every key as ("key", name), of plain data."""
    items = (
        raw.items()
        if isinstance(raw, dict)
        else enumerate(raw)
        if isinstance(raw, list)
        else ()
    )
    for key, value in items:
        yield (*path, key)
        if isinstance(raw, dict):
            yield (*path, ("key", key))
        yield from places(value, (*path, key))


PLACES = list(places(written()))


def put(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    raw = copy.deepcopy(written())
    at: Any = raw
    for key in path[:-1]:
        at = at[key]
    if isinstance(path[-1], tuple):
        at[str(value)] = at.pop(path[-1][1])
    else:
        at[path[-1]] = value
    return raw


def opened(raw: dict[str, Any]) -> Project | None:
    """The project of plain data, None where it is refused; then the place is named."""
    try:
        return file.loads(json.dumps(raw).encode())
    except file.ProjectFileError as error:
        told = str(error)
        places_told = (
            "`$",
            "JSON",
            "version",
            "Object missing",
            "unknown field",
            '"tapedeck"',
        )
        assert (
            told and len(told) < 1500 and any(word in told for word in places_told)
        ), told
        return None


def source_of(project: Project) -> Source:
    return analyse(project.graph, with_blocks(catalog(), project.blocks)).source


@cache
def plain() -> str:
    """The structure of the source of the file as it is."""
    return skeleton(source_of(file.loads(json.dumps(written()).encode())).text)


@cache
def harmless(path: tuple[Any, ...]) -> frozenset[str]:
    """The other structures that a place can give to the source."""
    projects = (opened(put(path, value)) for value in HARMLESS)
    return frozenset(
        skeleton(source_of(project).text) for project in projects if project is not None
    )


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Sings when somebody calls `canary()`, imports it or asks the system for it."""
    sung: list[str] = []
    real = builtins.__import__

    def guarded(name: str, *args: Any, **kwargs: Any) -> Any:
        if "canary" in name:
            sung.append(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(
        builtins, "canary", lambda *_: sung.append("called"), raising=False
    )
    monkeypatch.setattr("os.system", lambda *_: sung.append("system"))
    monkeypatch.setattr(builtins, "__import__", guarded)
    yield sung
    assert not sung


def held(path: tuple[Any, ...], value: Any) -> bool:
    """Hold one value in one place against what it may do; False if it was refused."""
    project = opened(put(path, value))
    if project is None:
        return False
    structure = sound(source_of(project).text)
    assert structure == plain() or structure in harmless(path), (path, value)
    assert file.loads(file.dumps(project)) is not None
    return True


@cache
def sound(text: str) -> str:
    """The structure of a source that calls nothing else and says nothing that is no comment of ours; many values are in
    no source, so that theirs is one that was looked at."""
    tree = ast.parse(text)
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called <= {
        "super",
        "float",
        "range",
        "slice",
        "getattr",
        "setattr",
        "max",
        "min",
        "int",
        "round",
    } | {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    comments = [
        t.string
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type == tokenize.COMMENT
    ]
    assert all(
        comment.startswith(("# (", "# connect an Output")) for comment in comments
    ), comments
    assert text.isprintable() or all(c.isprintable() or c == "\n" for c in text)
    text.encode()
    return skeleton(text)


@given(
    st.sampled_from(PLACES),
    st.sampled_from((*TEXTS, *NUMBERS, *TAGGED)) | st.text(max_size=30),
)
def test_a_value_in_any_place_is_refused_or_changes_no_structure(
    path: tuple[Any, ...], value: Any
) -> None:
    held(path, value)


# Each with another fifth of the texts.
NAMES = [
    path
    for path in PLACES
    if path[-1]
    in ("name", "text", "note", "notes", "key", "color", "$expr", "equation")
]


@pytest.mark.parametrize(
    "number", range(len(NAMES)), ids=lambda number: ".".join(map(str, NAMES[number]))
)
def test_texts_in_the_place_of_a_name(number: int) -> None:
    path = NAMES[number]
    for value in TEXTS[number % 5 :: 5]:
        held(path, value)


def test_mutated_files_are_refused_in_a_sentence_or_can_be_checked_and_written(
    tmp_path: Path,
) -> None:
    """A tiny run of `tests.slow.mutated_projects`, which does thousands."""
    outcome = mutated_projects.campaign(30, 11, tmp_path)
    assert not outcome.wrong, outcome.wrong[0]
    assert outcome.files == 30 and outcome.refused > 5 and outcome.opened > 2


def test_the_harmless_project_is_sound() -> None:
    project = opened(written())
    assert project is not None
    assert not analyse(project.graph, with_blocks(catalog(), project.blocks)).errors


@pytest.mark.parametrize(
    "number",
    [
        "NaN",
        "Infinity",
        "1" + "0" * 5000,
        "-1" + "0" * 5000,
        "1e999",
        "0." + "9" * 9999,
    ],
)
def test_numbers_that_json_has_not_are_told(number: str) -> None:
    text = json.dumps(put(("graph", "nodes", 2, "params", "p"), 987654321)).replace(
        "987654321", number
    )
    try:
        project = file.loads(text.encode())
    except file.ProjectFileError as error:
        assert "JSON" in str(error) or "`$" in str(error)
    else:
        assert skeleton(source_of(project).text) in harmless(
            ("graph", "nodes", 2, "params", "p")
        ) | {plain()}


@cache
def harmless_script() -> str:
    plain = file.loads(json.dumps(written()).encode())
    return skeleton(
        training_script(Job(source_of(plain), plain.data, plain.training, ""))
    )


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_of_a_project_gets_into_the_script_that_trains_it(text: str) -> None:
    raw = put(("graph", "nodes", 1, "name"), text)
    project = opened(raw | {"name": text, "notes": text})
    if project is None:
        return
    source = source_of(project)
    job = Job(source, project.data, project.training, "")
    assert skeleton(training_script(job)) == harmless_script()
    for part in (("optimizer", "name"), ("optimizer", "params"), ("loss", "name")):
        choice = (
            Choice(text, FrozenMap())
            if part[1] == "name"
            else Choice("Adam", FrozenMap({text: text, "lr": text}))
        )
        with pytest.raises((ChoiceError, JobError)):
            training_script(
                Job(source, project.data, TrainingConfig(**{part[0]: choice}), "")
            )
