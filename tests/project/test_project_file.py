"""A file comes back as it was written, a bad one is told with its place, and a write happens whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.graph import Edge, Graph, Init, Node
from app.builder.literals import AUTO, DTYPES, DType, LiteralError, decode, encode
from app.builder.params import ParamError, check_param
from app.builder.sheet import KINDS, Comment
from app.data.config import DataConfig, Transform
from app.project import file as project_file
from app.project import limits
from app.project.custom_layers import ops_of
from app.project.file import ProjectFileError, dumps, loads, read, write
from app.project.project import Project
from app.source.generated import Source
from app.training.config import (
    MOST_COUNT,
    MOST_PARAMETER,
    MOST_WEIGHT,
    Choice,
    OutputLoss,
    ParameterGroup,
    Schedule,
    TrainingConfig,
)
from app.training.job import Job, JobError, check_numbers
from app.training.settings import PARAMS
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.builder_nets import net

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
literals = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64),
        st.floats(allow_nan=False),
        texts,
        st.just(AUTO),
        st.sampled_from(DTYPES).map(DType),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)

settings_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.floats(-MOST_PARAMETER, MOST_PARAMETER),
        texts,
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)

ids = texts.map(lambda text: text.replace("/", "").replace("#", ""))


@st.composite
def projects(draw: st.DrawFn) -> Project:
    ops = list(catalog())
    nodes: dict[str, Node] = {}
    for name in draw(st.lists(ids, unique=True, max_size=6)):
        known = draw(st.booleans())
        op = draw(st.sampled_from(ops)) if known else "my." + draw(texts)
        params = (
            draw(st.dictionaries(texts, literals, max_size=3))
            if not known
            else dict(catalog()[op].starting_params())
        )
        inits = {
            "weight": Init("normal_", FrozenMap(std=draw(st.floats(0, 9)))),
            "bias": Init("zeros_"),
        }
        nodes[name] = Node(
            name,
            op,
            draw(texts),
            FrozenMap(params),
            draw(st.booleans()),
            draw(st.booleans()),
            repeat=draw(st.integers(1, 1000)),
            inits=FrozenMap(inits if draw(st.booleans()) else {}),
        )
    edges = []
    for target in nodes.values():
        for port in catalog()[target.op].inputs if target.op in catalog() else ():
            sources = [
                n
                for n in nodes.values()
                if n.op not in catalog() or catalog()[n.op].outputs
            ]
            if sources and draw(st.booleans()):
                edges.append(
                    Edge(draw(st.sampled_from(sources)).id, 0, target.id, port.name)
                )
    floats = st.floats(-1e9, 1e9)
    return Project(
        name=draw(texts),
        graph=Graph(FrozenMap(nodes), tuple(edges)),
        positions=FrozenMap(
            {
                node: (draw(floats), draw(floats))
                for node in nodes
                if draw(st.booleans())
            }
        ),
        comments=FrozenMap(
            {
                key: Comment(
                    draw(texts),
                    draw(floats),
                    draw(floats),
                    draw(floats),
                    draw(floats),
                    draw(st.sampled_from(KINDS)),
                    draw(texts),
                )
                for key in draw(st.lists(texts, unique=True, max_size=2))
            }
        ),
        bends=FrozenMap(
            {
                edge: ((draw(floats), draw(floats)),)
                for edge in edges
                if draw(st.booleans())
            }
        ),
        layer_files=tuple(draw(st.lists(texts, max_size=2))),
        data=DataConfig(
            draw(texts),
            draw(st.floats(0.01, 0.99)),
            split_seed=draw(st.integers(0, 2**63 - 1)),
        ),
        training=TrainingConfig(
            epochs=draw(st.integers(1, 10_000_000)),
            batch_size=draw(st.integers(1, 10_000_000)),
            seed=draw(st.integers(0, 2**63 - 1)),
            device=draw(texts),
            optimizer=Choice(
                draw(texts),
                FrozenMap(draw(st.dictionaries(texts, settings_values, max_size=3))),
            ),
            loss=Choice(
                draw(texts),
                FrozenMap(draw(st.dictionaries(texts, settings_values, max_size=3))),
            ),
        ),
        notes=draw(texts),
    )


@given(projects())
def test_comes_back_as_it_was(project: Project) -> None:
    data = dumps(project)
    assert loads(data) == project
    assert dumps(loads(data)) == data
    assert data.endswith(b"}\n")


@given(literals)
def test_literals_come_back_with_their_types(value: Any) -> None:
    again = decode(json.loads(json.dumps(encode(value))))
    assert again == value and repr(again) == repr(value)


OTHER_RUN = TrainingConfig(
    schedule=Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=40)), "step", 5),
    groups=(ParameterGroup("fc", FrozenMap(lr=0.1)),),
    no_decay=True,
    accumulate=4,
    clip_norm=1.0,
    clip_value=0.5,
    amp="bfloat16",
    ema=0.99,
    mixup=0.2,
    compile=True,
    channels_last=True,
    recompute=("block1", "block2"),
    save_on_cpu=True,
    max_steps=100,
    max_minutes=1.5,
    patience=3,
    one_batch=True,
    not_finite="skip",
    save_every=50,
    revisit_seconds=30.0,
    leave_out=(7, 12),
    deterministic=True,
    anomaly=True,
    cudnn_benchmark=True,
    threads=2,
    metrics=("f1", "auroc"),
    loss_by="model",
    losses=(
        OutputLoss("fc", Choice("MSELoss"), 0.5, "(input)"),
        OutputLoss("aux", Choice("L1Loss")),
    ),
    inputs=FrozenMap(x="a"),
)


OTHER_DATA = DataConfig(
    "made.moons",
    0.3,
    split_seed=5,
    shuffle=False,
    drop_last=True,
    test_fraction=0.1,
    class_weights=True,
    path="a/b.csv",
    options=FrozenMap(noise=0.3),
    bad="skip",
    train_transforms=(Transform("RandomCrop", FrozenMap(size=(8, 8))),),
    eval_transforms=(Transform("Grayscale"),),
)


def test_every_knob_of_a_run_comes_back() -> None:
    # What needs a file of its own, or is set in the project above.
    elsewhere = {"epochs", "batch_size", "seed", "device", "optimizer", "loss", "start"}
    names, plain = TrainingConfig.__struct_fields__, TrainingConfig()
    changed = {
        name for name in names if getattr(OTHER_RUN, name) != getattr(plain, name)
    }
    missing = set(names) - changed - elsewhere
    assert not missing, f"{missing}: give each another value in OTHER_RUN above"
    names, plain = set(DataConfig.__struct_fields__), DataConfig()
    told = {name for name in names if getattr(OTHER_DATA, name) != getattr(plain, name)}
    assert told == names, f"{names - told}: give each another value in OTHER_DATA above"
    project = Project(training=OTHER_RUN, data=OTHER_DATA)
    assert loads(dumps(project)) == project
    plain = json.loads(dumps(Project()))
    assert plain["training"].keys() == {*elsewhere} - {"start"}, (
        "what is the default stays out of the file"
    )


MOST = {
    name: param.maximum
    for name, param in PARAMS.items()
    if param.maximum is not None and name != "leave_out"
}
SETTINGS: list[
    tuple[str, Any, Any]
] = [  # the last value that a run takes, and one beyond it
    *((name, most, most * 2) for name, most in MOST.items()),
    ("leave_out", (MOST_COUNT,), (MOST_COUNT + 1,)),
    (
        "losses",
        (OutputLoss("out", Choice("MSELoss"), MOST_WEIGHT),),
        (OutputLoss("out", Choice("MSELoss"), MOST_WEIGHT * 2),),
    ),
    ("validation_fraction", 0.0, 1.0),
    ("test_fraction", 0.0, 1.0),
]


@pytest.mark.parametrize(("name", "last", "beyond"), SETTINGS)
def test_a_setting_that_a_run_takes_comes_back_and_one_beyond_is_refused(
    name: str, last: Any, beyond: Any
) -> None:
    def with_value(value: Any) -> Project:
        part = "training" if hasattr(TrainingConfig(), name) else "data"
        return replace(
            Project("net"),
            **{part: replace(getattr(Project("net"), part), **{name: value})},
        )

    good, bad = with_value(last), with_value(beyond)
    check_numbers(Job(Source(""), good.data, good.training))
    assert loads(dumps(good)) == good
    with pytest.raises(JobError, match=f"{name.removesuffix('es')}"):
        check_numbers(Job(Source(""), bad.data, bad.training))


def test_not_a_number_comes_back_too() -> None:
    assert repr(decode(encode((float("nan"), float("-inf"))))) == "(nan, -inf)"


UNKEPT = ([1], {"a": 1}, object(), b"x", 1j, {1}, ((((((((((1,),),),),),),),),),))


@pytest.mark.parametrize("value", UNKEPT, ids=lambda value: repr(value)[:7])
def test_what_is_not_in_the_list_cannot_be_kept(value: Any) -> None:
    with pytest.raises(LiteralError, match="cannot be stored"):
        encode(value)


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            texts,
            st.sampled_from(["$auto", "$tuple", "$float", "nan"]),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.one_of(
                    texts,
                    st.sampled_from(["$auto", "$tuple", "$dtype", "$float", "$code"]),
                ),
                inner,
                max_size=2,
            ),
        ),
        max_leaves=8,
    )
)
def test_any_json_in_a_parameter_is_read_or_refused(raw: Any) -> None:
    try:
        value = decode(raw)
    except LiteralError:
        return
    assert repr(decode(encode(value))) == repr(value)


# --- Bad files -----------------------------------------------------------------------------------------------------


def plain() -> dict[str, Any]:
    """The file of a small net, as plain data."""
    graph = net(
        [
            ("input", "x", {"shape": (8,)}),
            ("nn.Linear", "fc", {}),
            ("operator.add", "add", {}),
            ("output", "y", {}),
        ],
        [("x", "fc"), ("fc", "add"), ("fc", "add", "other"), ("add", "y")],
    )
    project = Project(graph=graph, positions=FrozenMap(x=(1.0, 2.0)))
    return json.loads(dumps(project))


def changed(*path: Any, to: Any) -> bytes:
    """The file with one place changed; the last part of the path may be new."""
    raw = plain()
    place = raw
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = to
    return json.dumps(raw).encode()


def without(*path: Any) -> bytes:
    raw = plain()
    place = raw
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    return json.dumps(raw).encode()


NODE = {"id": "x", "op": "nn.ReLU", "name": "r", "params": {}}
WIRE = {"source": "x", "output": 0, "target": "fc", "port": "input", "index": 0}
BAD = {
    "nothing": (b"", "its JSON cannot be read"),
    "not JSON": (b"hello", "its JSON cannot be read"),
    "cut off": (json.dumps(plain()).encode()[:-20], "its JSON cannot be read"),
    "binary": (bytes(range(256)), "its JSON cannot be read"),
    "a pickle": (
        b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtins\x94.",
        "its JSON cannot be read",
    ),
    "nested beyond reason": (b"[" * 200_000, "its JSON cannot be read"),
    "half a character": (
        b'{"tapedeck": 1, "name": "\\ud800"}',
        "its JSON cannot be read",
    ),
    "other JSON": (b'{"nbformat": 4}', "not a Tapedeck project"),
    "a list": (b"[1, 2]", "not a Tapedeck project"),
    "a version that is no number": (
        changed("tapedeck", to="1"),
        "not a Tapedeck project",
    ),
    "a version that is true": (changed("tapedeck", to=True), "not a Tapedeck project"),
    "a later version": (
        changed("tapedeck", to=99),
        "version 99, this program reads up to 2; update Tapedeck",
    ),
    "a version that never was": (changed("tapedeck", to=0), "there is no version 0"),
    "an unknown field": (changed("surprise", to=1), "unknown field `surprise`"),
    "an unknown field of a node": (
        changed("graph", "nodes", 1, "colour", to=1),
        r"`colour` - at `$.graph.nodes[1]`",
    ),
    "no name": (without("name"), "missing required field `name`"),
    "a name that is no text": (changed("name", to=5), "- at `$.name`"),
    "a name without end": (
        changed("graph", "nodes", 0, "name", to="a" * 10_001),
        "- at `$.graph.nodes[0].name`",
    ),
    "two nodes of one id": (
        changed("graph", "nodes", 1, to=NODE),
        "two nodes have the id 'x' - at `$.graph.nodes[1].id`",
    ),
    "a wire from nowhere": (
        changed("graph", "edges", 0, "source", to="gone"),
        "node 'gone', which does not exist - at `$.graph.edges[0].source`",
    ),
    "a wire to nowhere": (
        changed("graph", "edges", 0, "target", to="gone"),
        "at `$.graph.edges[0].target`",
    ),
    "a wire into no port": (
        changed("graph", "edges", 0, "port", to="inptu"),
        "fc has no input 'inptu', it has input - at `$.graph.edges[0].port`",
    ),
    "a wire into an input": (
        changed("graph", "edges", 0, "target", to="x"),
        "x has no input 'input', it has no inputs",
    ),
    "a wire from no output": (
        changed("graph", "edges", 0, "output", to=3),
        "x has 1 outputs, not number 3 - at `$.graph.edges[0].output`",
    ),
    "a wire from an output": (
        changed("graph", "edges", 0, "source", to="y"),
        "y has 0 outputs",
    ),
    "an output below zero": (
        changed("graph", "edges", 0, "output", to=-1),
        "- at `$.graph.edges[0].output`",
    ),
    "two wires in one port": (
        changed("graph", "edges", 1, to=WIRE),
        "two wires end at input of fc - at `$.graph.edges[1]`",
    ),
    "the same wire at another index": (
        changed("graph", "edges", 1, to=WIRE | {"index": 4}),
        "two wires end at input of fc",
    ),
    "a parameter of another type": (
        changed("graph", "nodes", 1, "params", "out_features", to="many"),
        "fc: out_features expects an int, not 'many' - at `$.graph.nodes[1].params`",
    ),
    "a float for a whole number": (
        changed("graph", "nodes", 1, "params", "out_features", to=3.0),
        "not 3.0",
    ),
    "true for a number": (
        changed("graph", "nodes", 1, "params", "out_features", to=True),
        "not True",
    ),
    "a number out of bounds": (
        changed("graph", "nodes", 1, "params", "out_features", to=0),
        "at least 1",
    ),
    "a number without end": (
        changed("graph", "nodes", 1, "params", "out_features", to=10**300),
        "out_features expects an int",
    ),
    "a parameter it does not have": (
        changed("graph", "nodes", 1, "params", "colour", to=1),
        "Linear has no parameter 'colour'",
    ),
    "a value of no kind": (
        changed("graph", "nodes", 1, "params", "bias", to={"$code": "1"}),
        "is not a value that a project can store - at `$.graph.nodes[1].params.bias`",
    ),
    "a list in the place of a tuple": (
        changed("graph", "nodes", 0, "params", "shape", to=[1, 2]),
        "a list is not a value that a project can store",
    ),
    "an unknown dtype": (
        changed("graph", "nodes", 0, "params", "dtype", to={"$dtype": "float7"}),
        "at `$.graph.nodes[0].params.dtype`",
    ),
    "parameters that are no map": (
        changed("graph", "nodes", 0, "params", to=[]),
        "- at `$.graph.nodes[0].params`",
    ),
    "a place that is no number": (
        b'{"tapedeck": 1, "name": "", "positions": {"x": [NaN, 0]}}',
        "its JSON cannot be read",
    ),
    "a place of null": (
        changed("positions", "x", to=[None, 0]),
        "- at `$.positions[...][0]`",
    ),
    "a place beyond the canvas": (
        changed("positions", "x", to=[1e10, 0]),
        "- at `$.positions[...][0]`",
    ),
    "a number beyond floats": (
        b'{"tapedeck": 1, "name": "", "positions": {"x": [1e999, 0]}}',
        "its JSON cannot be read",
    ),
    "no epochs": (changed("training", "epochs", to=0), "- at `$.training.epochs`"),
    "a fraction beyond one": (
        changed("data", "validation_fraction", to=1),
        "- at `$.data.validation_fraction`",
    ),
    "a wrong choice": (
        changed("training", "optimizer", "params", "lr", to={"$call": "f"}),
        "- at `$.training.optimizer.params.lr`",
    ),
}


def nested(depth: int) -> bytes:
    value: Any = 1
    for _ in range(depth):
        value = {"$tuple": [value]}
    return changed("graph", "nodes", 0, "params", "shape", to=value)


BAD["tuples nested beyond reason"] = (nested(400), "at `$.graph.nodes[0].params.shape`")
BAD["tuples nested a little too deep"] = (
    nested(9),
    "is not a value that a project can store",
)


@pytest.mark.parametrize(("data", "says"), BAD.values(), ids=BAD.keys())
class TestBadFiles:
    def test_is_told_with_the_place(self, data: bytes, says: str) -> None:
        with pytest.raises(ProjectFileError) as told:
            loads(data)
        assert says in str(told.value) and len(str(told.value)) < 500

    def test_is_told_with_the_file(
        self, data: bytes, says: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "net.tape"
        path.write_bytes(data)
        with pytest.raises(ProjectFileError, match="^net.tape: "):
            read(path)
        assert path.read_bytes() == data


@given(st.data())
def test_any_damage_is_read_or_told(data: st.DataObject) -> None:
    """A value anywhere in the file exchanged for another: a project or a ProjectFileError, never anything else."""
    raw = plain()
    place: Any = raw
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if (
            not isinstance(place[key], dict | list)
            or not place[key]
            or data.draw(st.booleans())
        ):
            break
        place = place[key]
    place[key] = data.draw(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            texts,
            st.just([]),
            st.just({}),
            st.just({"$tuple": [1]}),
            st.sampled_from(
                ["x", "fc", "add", "nn.Conv2d", "output", "input", "other"]
            ),
        )
    )
    try:
        project = loads(json.dumps(raw).encode())
    except ProjectFileError as error:
        assert str(error)
        return
    assert analyse(project.graph).source.text
    assert loads(dumps(project)) == project


@given(st.binary(max_size=300))
def test_any_bytes_are_told(data: bytes) -> None:
    with pytest.raises(ProjectFileError):
        loads(data)


def test_a_file_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGEST_FILE", 2**20)
    path = tmp_path / "net.tape"
    path.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(
        ProjectFileError,
        match="net.tape: it is larger than 1 MiB, the limit for a project",
    ):
        read(path)


def test_a_byte_order_mark_does_no_harm() -> None:
    assert loads(b"\xef\xbb\xbf" + dumps(Project(name="a"))).name == "a"


def test_what_is_no_file_is_an_os_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.tape"):
        with pytest.raises(OSError):
            read(path)


# --- What is unknown is kept -----------------------------------------------------------------------------------------


def test_an_unknown_op_keeps_all_its_data() -> None:
    raw = plain()
    raw["graph"]["nodes"].append(
        {
            "id": "z",
            "op": "nn.Later",
            "name": "later",
            "params": {"a": {"$tuple": [1, {"$auto": True}]}},
        }
    )
    raw["graph"]["edges"] += [
        {"source": "x", "output": 0, "target": "z", "port": "query", "index": 3},
        {"source": "z", "output": 7, "target": "y2", "port": "input", "index": 0},
    ]
    raw["graph"]["nodes"].append(
        {"id": "y2", "op": "output", "name": "y2", "params": {}}
    )
    project = loads(json.dumps(raw).encode())
    assert project.graph.nodes["z"] == Node(
        "z", "nn.Later", "later", FrozenMap(a=(1, AUTO))
    )
    assert json.loads(dumps(project))["graph"] == raw["graph"]
    spec = catalog().spec_of(project.graph, project.graph.nodes["z"])
    assert [port.name for port in spec.inputs] == ["query"] and len(spec.outputs) == 8
    errors = [
        problem for problem in analyse(project.graph).errors if problem.node == "z"
    ]
    assert "'nn.Later' is an unknown op" in errors[0].message


def test_a_loop_in_a_file_is_opened_and_shown() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("operator.add", "a", {}),
            ("nn.ReLU", "r", {}),
            ("output", "y", {}),
        ],
        [("x", "a"), ("a", "r"), ("r", "y")],
    ).with_edge(Edge("r", 0, "a", "other"))
    assert (
        loads(dumps(Project(graph=graph))).graph == graph
        and not analyse(graph).runnable
    )


@pytest.mark.parametrize(
    "name",
    ["\x00", "\x1b[31m", "a\nb", "\u202egnp.exe", "\u2028", "𝒳", "\x7f", "a" * 5000],
)
def test_names_of_any_characters_are_kept(name: str, tmp_path: Path) -> None:
    graph = net([("input", "x", {"shape": (4,)})]).with_name("x", name)
    project = Project(name=name, graph=graph, notes=name)
    write(project, tmp_path / "a.tape")
    assert read(tmp_path / "a.tape") == project
    assert not {c for c in (tmp_path / "a.tape").read_text("utf-8") if c < " "} - {"\n"}


def test_half_a_character_is_written_as_a_replacement(tmp_path: Path) -> None:
    """Qt hands over halves of surrogate pairs; a file cannot hold them, and the work must not be lost for it."""
    project = Project(
        name="a\ud83d",
        notes="\ude00",
        graph=net([("input", "x", {})]).with_name("x", "\ud83d\ude00\ud800"),
    )
    write(project, tmp_path / "a.tape")
    again = read(tmp_path / "a.tape")
    assert (again.name, again.notes, again.graph.nodes["x"].name) == (
        "a\ufffd",
        "\ufffd",
        "😀\ufffd",
    )


def test_places_that_no_canvas_reaches_are_brought_back() -> None:
    graph = net([("input", "x", {}), ("output", "y", {})])
    project = Project(
        graph=graph,
        positions=FrozenMap(
            x=(float("nan"), float("inf")), y=(-1e300, 5.0), gone=(1.0, 1.0)
        ),
    )
    assert loads(dumps(project)).positions == FrozenMap(x=(0.0, 1e9), y=(-1e9, 5.0))


# --- Writing ---------------------------------------------------------------------------------------------------------

OLD, NEW = (
    Project(name="old"),
    Project(name="new", graph=net([("input", "x", {"shape": (4,)})])),
)


@pytest.mark.parametrize("step", ["open", "write", "fsync", "chmod", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.tape"
    write(OLD, path)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    def tight(file: Path, data: bytes) -> None:
        with file.open("wb") as opened:
            opened.write(data[:10])
        full()

    if step == "write":
        monkeypatch.setattr(Path, "write_bytes", tight)
    elif step == "chmod":
        monkeypatch.setattr(Path, "chmod", full)
    else:
        monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left") as error:
        write(NEW, path)
    monkeypatch.undo()
    assert error.value.filename == str(path)
    assert read(path) == OLD and os.listdir(tmp_path) == ["net.tape"]


def test_what_could_not_be_opened_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "net.tape"
    write(OLD, path)
    broken = net([("input", "x", {"shape": (4,)})]).with_edge(
        Edge("x", 0, "x", "nonsense")
    )
    with pytest.raises(ProjectFileError):
        write(Project(graph=broken), path)
    assert read(path) == OLD and os.listdir(tmp_path) == ["net.tape"]


def first_version(project: Project) -> bytes:
    """The bytes of a file as the first version of the format wrote them."""
    return dumps(project).replace(b'"tapedeck": 2', b'"tapedeck": 1')


def test_a_file_of_an_older_version_is_backed_up_before_it_is_saved_over(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "net.tape", tmp_path / "net.v1.tape"
    old = first_version(OLD)
    path.write_bytes(old)
    assert write(NEW, path) == copy
    assert copy.read_bytes() == old and read(copy) == OLD and read(path) == NEW
    assert write(OLD, path) is None, "a file of this version needs no backup"
    path.write_bytes(old)
    assert write(NEW, path) == copy and len(os.listdir(tmp_path)) == 2, (
        "the same bytes are kept once"
    )
    path.write_bytes(first_version(NEW))
    assert write(NEW, path) == tmp_path / "net.v1-2.tape"
    assert copy.read_bytes() == old, "a backup is never overwritten"


def test_a_file_is_not_saved_over_when_its_backup_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.tape"
    path.write_bytes(first_version(OLD))

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(project_file.atomic, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write(NEW, path)
    assert path.read_bytes() == first_version(OLD) and os.listdir(tmp_path) == [
        "net.tape"
    ]


@pytest.mark.skipif(os.name == "nt", reason="links and modes are POSIX")
def test_a_link_stays_one_and_the_mode_stays_as_it_was(tmp_path: Path) -> None:
    target, link = tmp_path / "real.tape", tmp_path / "link.tape"
    write(OLD, target)
    target.chmod(0o640)
    link.symlink_to(target)
    write(NEW, link)
    assert (
        link.is_symlink()
        and read(target) == NEW
        and target.stat().st_mode & 0o777 == 0o640
    )


def test_the_longest_name_a_folder_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".tape")
    write(NEW, path)
    assert read(path) == NEW


def test_the_file_is_fit_for_version_control() -> None:
    text = dumps(NEW).decode()
    assert (
        text.startswith('{\n "tapedeck": 2,\n "name": "new"')
        and max(map(len, text.splitlines())) < 200
    )
    assert dumps(NEW) == dumps(loads(dumps(NEW)))


WRITTEN = {1: 68_170, 2: 68_682}  # by each version: the parameters of its net


@pytest.mark.parametrize("version", range(1, project_file.VERSION + 1))
def test_a_file_that_each_version_wrote_opens_as_the_same_net(
    version: int, tmp_path: Path
) -> None:
    """The transformer among the examples, as programs of that version saved it."""
    written = Path(__file__).parent / "versions" / f"{version}.tape"
    assert json.loads(written.read_text("utf-8"))["tapedeck"] == version
    project = read(written)
    analysis = analyse(project.graph, ops_of(project))
    assert analysis.problems == () and analysis.total_parameters == WRITTEN[version]
    write(project, tmp_path / "new.tape")
    assert read(tmp_path / "new.tape") == project
    assert f'"tapedeck": {project_file.VERSION}' in (tmp_path / "new.tape").read_text()


def test_migrations_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def lift(version: int):
        return lambda raw: {
            **raw,
            "tapedeck": version + 1,
            "notes": raw.get("notes", "") + str(version),
        }

    old = json.dumps({**plain(), "tapedeck": 1}).encode()
    monkeypatch.setattr(project_file, "VERSION", 3)
    monkeypatch.setattr(project_file, "MIGRATIONS", {1: lift(1), 2: lift(2)})
    assert loads(old).notes == "12"


def test_bundled_example_opens_and_runs() -> None:
    from app.util.resources import path as resource_path

    project = read(resource_path("examples") / "digits.tape")
    assert analyse(project.graph).problems == ()


def test_a_checked_file_is_checked_by_the_rules_of_the_form() -> None:
    """What the file refuses is what the inspector refuses: one rule, two faces."""
    param = catalog()["nn.Linear"].param("out_features")
    with pytest.raises(ParamError) as told:
        check_param(param, "many")
    with pytest.raises(ProjectFileError, match=str(told.value)):
        loads(changed("graph", "nodes", 1, "params", "out_features", to="many"))


READ_AT_ONCE = """
import sys, threading
sys.setswitchinterval(1e-5)
from pathlib import Path
from app.project import journal; from app.project import file as project_file
path, together = Path(sys.argv[1]), threading.Barrier(4)

def read():
    together.wait()
    project = project_file.read(path)
    project_file.version_of(path)
    journal.decode(journal.encode(journal.JournalEntry(project, None, None, journal.datetime.now())))

threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_that_read_their_first_project_at_once_do_not_end_the_process(
    tmp_path: Path,
) -> None:
    """A window opens a file while a worker reads journals; msgspec's tables of a type are made by one of them alone."""
    path = tmp_path / "p.tape"
    project_file.write(
        project_file.read(resource_path("examples", "digits.tape")), path
    )
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", READ_AT_ONCE, str(path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
