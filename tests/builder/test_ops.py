"""One contract for every op of the catalog: drawn as it comes from the palette, it does what its wires say it does."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog import introspect, ops, snapshot
from app.builder.catalog.catalog import (
    OpSpec,
    Param,
    UnknownOpError,
    catalog,
    dump,
    load,
)
from app.builder.catalog.introspect import documentation, read_catalog
from app.builder.catalog.snapshot import BUNDLED, installed_torch
from app.builder.codegen.tensor_literals import is_packed
from app.builder.literals import AUTO, DType, Slice
from app.builder.params import (
    LONGEST,
    ParamError,
    check_node,
    check_param,
    expectation,
    format_param,
    parse_param,
)
from app.builder.results import Analysis
from app.builder.shapes import meta_calls, shapes
from app.builder.value_types import Dim, TensorType
from app.project import file
from app.project.project import Project
from app.source.compiled import make_module
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.builder_nets import around, measured, net, returned, run
from tests.support.every import every

OPS = list(catalog().values())
LAYERS = {spec.key: spec for spec in OPS if spec.kind not in ("input", "output")}
PARAMS = {f"{spec.key}: {param.name}": param for spec in OPS for param in spec.params}


@cache
def analysed(spec: OpSpec) -> tuple[Analysis, bool]:
    """The analysis of an op as it comes from the palette, and whether a random number was drawn for it."""
    before = torch.get_rng_state()
    shapes._memo.clear()
    return analyse(around(spec)), not torch.equal(torch.get_rng_state(), before)


class TestEveryOp:
    @every(LAYERS)
    def test_runs_as_drawn_and_gives_the_shapes_it_said(self, spec: OpSpec) -> None:
        analysis, _ = analysed(spec)
        fitting = "give its inputs a shape or dtype that fits in tests/support/builder_nets.py"
        assert analysis.errors == () and analysis.runnable, fitting
        for batch in (2, 5):
            assert measured(run(analysis.source, batch)) == returned(analysis, batch)

    @every(LAYERS)
    def test_source_uses_what_it_imports_and_imports_what_it_uses(
        self, spec: OpSpec
    ) -> None:
        tree = ast.parse(analysed(spec)[0].source.text)
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used = names & {"torch", "nn", "F", "ops", "zlib", "base64"}
        assert imported == used

    @every(LAYERS)
    def test_counts_the_parameters_that_torch_counts(self, spec: OpSpec) -> None:
        analysis, _ = analysed(spec)
        assert analysis.total_parameters == sum(
            p.numel() for p in make_module(analysis.source).parameters()
        )

    @every(LAYERS)
    def test_shapes_are_found_without_a_random_number(self, spec: OpSpec) -> None:
        _, drew = analysed(spec)
        assert not drew

    @every(LAYERS)
    def test_survives_a_file(self, spec: OpSpec) -> None:
        project = Project(graph=around(spec))
        assert file.loads(file.dumps(project)) == project

    @every(LAYERS)
    def test_can_be_written_into_a_drawing_under_way(self, spec: OpSpec) -> None:
        analysis = analyse(net([(spec.key, "alone", {})]))
        ast.parse(analysis.source.text)
        needed = " and ".join(p.name for p in spec.inputs if p.required)
        assert [p.message for p in analysis.errors if p.node] == (
            [f"No input connected to {needed} of alone"] if needed else []
        )

    @every(LAYERS)
    def test_is_documented(self, spec: OpSpec) -> None:
        words = documentation(spec.key)
        assert words.summary.endswith(".") and len(words.summary) > 10
        assert all(words.arguments.values())

    @every(LAYERS)
    def test_refuses_a_parameter_it_does_not_have(self, spec: OpSpec) -> None:
        from app.builder.graph import Node
        from app.util.frozen import FrozenMap

        with pytest.raises(ParamError, match="has no parameter 'nonsense'"):
            check_node(spec, Node("a", spec.key, "a", FrozenMap(nonsense=1)))


WRONG = (
    object(),
    [3],
    {"a": 1},
    1j,
    b"x",
    "__import__('os')",
    (1.5,),
    ("a",),
    2**40,
    -(2**40),
    ((1,),),
)


class TestEveryParameter:
    def good_values(self, param: Param) -> list[Any]:
        found = [param.start] if param.start is not None else []
        if param.default is not None or param.optional:
            found.append(param.default)
        found += (
            [DType(c) for c in param.choices]
            if param.kind == "dtype"
            else list(param.choices)
        )
        found += {
            "int": [1, 2],
            "float": [0.5, 1.0],
            "bool": [True, False],
            "ints": [(1,) * (param.count or 3)],
            "number": [1, 0.5, True, -2],
            "index": [
                0,
                -1,
                Slice(),
                (Slice(1, None), 0),
                (Ellipsis, Slice(None, 3)),
                (None, 0),
                (2,),
                ((0, -1),),
                (Slice(), (0, 2)),
                ((0, 2), (1, 3)),
                (0, (1, 2)),
            ],
            "tensor": [1, (1, 2), (0.5,), ((1, 2), (3, 4)), (((True,),),)],
        }.get(param.kind, [])
        return found

    @every(PARAMS)
    def test_what_it_starts_with_and_its_default_are_allowed(
        self, param: Param
    ) -> None:
        for value in self.good_values(param):
            if param.required and value is param.default and param.start is not None:
                continue
            check_param(param, value)

    @every(PARAMS)
    def test_text_of_the_form_goes_both_ways(self, param: Param) -> None:
        for value in self.good_values(param):
            if value is None and not param.optional:
                continue
            again = parse_param(param, format_param(value))
            wanted = (
                (value,)
                if param.kind == "ints"
                and param.count == 0
                and param.required
                and type(value) is int
                else value
            )
            assert again == wanted and type(again) is type(wanted)

    @every(PARAMS)
    def test_wrong_values_are_refused_with_words(self, param: Param) -> None:
        for value in WRONG:
            if value in {"tensor": ((1.5,), ((1,),)), "index": (((1,),),)}.get(
                param.kind, ()
            ):
                continue
            if param.kind == "str" and type(value) is str:
                continue
            with pytest.raises(ParamError) as told:
                check_param(param, value)
            assert str(told.value).startswith(param.name) and len(str(told.value)) < 300
        for text in (
            "__import__('os').system('true')",
            "1 +",
            "lambda: 1",
            "'" * 3,
            "[" * 500,
            "9" * 5000,
        ):
            if (param.kind == "str" and len(text) <= LONGEST) or (
                param.kind == "packed" and is_packed(text)
            ):
                assert parse_param(param, text) == text
                continue
            with pytest.raises(ParamError, match=param.name):
                parse_param(param, text)

    @every(PARAMS)
    def test_bounds_hold(self, param: Param) -> None:
        for bound, beyond in ((param.minimum, -1), (param.maximum, 1)):
            if bound is not None:
                with pytest.raises(ParamError, match="must be at"):
                    value = int(bound) + beyond
                    check_param(
                        param,
                        (value,) * (param.count or 1)
                        if param.kind == "ints"
                        else value,
                    )

    @every(PARAMS)
    def test_says_what_it_wants(self, param: Param) -> None:
        assert expectation(param).startswith("expects ")

    @every(PARAMS)
    def test_auto_only_where_a_shape_tells(self, param: Param) -> None:
        if param.auto:
            assert parse_param(param, "") is AUTO and parse_param(param, "auto") is AUTO
        else:
            with pytest.raises(ParamError):
                check_param(param, AUTO)


def test_a_few_texts_as_people_type_them() -> None:
    conv, view = catalog()["nn.Conv2d"], catalog()["Tensor.view"]
    kernel, padding = conv.param("kernel_size"), conv.param("padding")
    assert parse_param(kernel, " 3 ") == 3
    assert parse_param(kernel, "3×5") == (3, 5)
    assert parse_param(kernel, "(3, 5)") == (3, 5)
    assert parse_param(kernel, "[3, 5]") == (3, 5)
    assert parse_param(padding, "same") == "same"
    assert parse_param(view.param("size"), "−1, 64") == (-1, 64)
    with pytest.raises(ParamError, match="expects an int or 2 ints, not 3 of them"):
        parse_param(kernel, "1, 2, 3")
    with pytest.raises(
        ParamError, match="kernel_size expects an int or 2 ints, not 2.5"
    ):
        parse_param(kernel, "2.5")


def test_snapshot_is_what_the_pinned_torch_says() -> None:
    import msgspec

    raw = msgspec.json.decode(resource_path(BUNDLED).read_bytes())
    if raw["torch"] != installed_torch():
        pytest.skip(
            f"the snapshot is of torch {raw['torch']}, installed is {installed_torch()}"
        )
    read = read_catalog()
    if dump(read) != raw:
        introspect.main()
        pytest.fail("resources/catalog.json was outdated, and is written anew")
    assert dict(load(raw)) == dict(read)


def test_another_torch_is_read_once_by_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    bundled = replace_version(tmp_path / BUNDLED, "0.9")
    monkeypatch.setattr(snapshot, "resource_path", lambda _name: bundled)
    assert dict(load(snapshot.of_installed_torch())) == dict(catalog())

    def unwanted() -> bytes:
        raise AssertionError("it was kept")

    monkeypatch.setattr(snapshot, "_read_off", unwanted)
    assert dict(load(snapshot.of_installed_torch())) == dict(catalog())


def test_a_torch_that_cannot_be_imported_is_said_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libcudart.so.12 is missing')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundled = replace_version(tmp_path / BUNDLED, "0.9")
    monkeypatch.setattr(snapshot, "resource_path", lambda _name: bundled)
    with pytest.raises(
        snapshot.TorchUnreadableError, match=r"libcudart\.so\.12 is missing"
    ):
        snapshot.of_installed_torch()


def replace_version(path: Path, version: str) -> Path:
    """Write the bundled snapshot to `path` as one of another torch."""
    path.write_bytes(
        resource_path(BUNDLED)
        .read_bytes()
        .replace(installed_torch().encode(), version.encode(), 1)
    )
    return path


def test_an_input_without_an_annotation_is_a_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some functions of torch have none, such as softsign."""
    monkeypatch.setattr(ops, "OPS", (("F.softsign", "act"),))
    (spec,) = read_catalog().values()
    assert [port.name for port in spec.inputs] == ["input"] and spec.params == ()


def test_what_torch_takes_by_name_alone_is_written_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ops, "OPS", (("torch.addcmul", "merge"),))
    (spec,) = read_catalog().values()
    assert [(param.name, param.positional) for param in spec.params] == [
        ("value", False)
    ]


def test_at_least_the_ops_that_were_promised() -> None:
    wanted = """
        nn.Linear nn.Conv1d nn.Conv2d nn.ConvTranspose2d nn.MaxPool2d nn.AvgPool2d nn.AdaptiveAvgPool2d nn.BatchNorm1d
        nn.BatchNorm2d nn.LayerNorm nn.Dropout nn.Dropout2d nn.ReLU nn.GELU nn.Sigmoid nn.Tanh nn.Flatten nn.Unflatten
        nn.Embedding nn.LSTM nn.GRU nn.MultiheadAttention operator.add operator.mul operator.sub torch.matmul torch.cat
        Tensor.view torch.reshape torch.permute torch.transpose torch.mean F.softmax F.log_softmax input output F.relu
        F.max_pool2d
    """.split()
    assert set(wanted) <= set(catalog()) and len(catalog()) >= 40


def test_every_public_class_of_torch_nn_is_drawn_or_left_out_with_a_reason() -> None:
    import inspect

    from torch import nn

    public = {
        name
        for name in dir(nn)
        if not name.startswith("_") and inspect.isclass(getattr(nn, name))
    }
    drawn = {key.removeprefix("nn.") for key in catalog() if key.startswith("nn.")}
    left_out = [name for names in ops.LEFT_OUT.values() for name in names.split()]
    assert len(left_out) == len(set(left_out)) and not drawn & set(left_out)
    assert drawn | set(left_out) == public


def test_every_correction_is_of_an_op_and_an_argument_that_are_there() -> None:
    found = catalog()
    assert set(found) == {key for key, _ in ops.OPS} and len(ops.OPS) == len(found)
    for table in (ops.PARAMS, ops.AUTO_RULES):
        for key, name in table:
            assert found[key].param(name), (key, name)
    for key, name in (*ops.PORT_KINDS, *ops.VARIADIC, *ops.NAMED):
        assert found[key].input(name), (key, name)
    for (key, _), (port, _) in ops.AUTO_RULES.items():
        assert found[key].input(port), (key, port)
    for key, names in ops.OPERANDS.items():
        assert all(found[key].operand(name) for name in names)
    by_op = (
        ops.SCHEMAS,
        ops.SIGNATURES,
        ops.OUTPUTS,
        ops.OUTPUTS_BY,
        ops.STEMS,
        ops.SUMMARIES,
        ops.LABELS,
        ops.MORE,
    )
    assert {key for table in by_op for key in table} <= set(found)
    sets = (
        ops.LENIENT,
        ops.SAME,
        ops.LIKE,
        ops.RANDOM,
        ops.LITERALS_FIRST,
        ops.WRITTEN,
        ops.HIDDEN,
    )
    assert {key for keys in sets for key in keys} - {"*"} <= set(found)


def test_indices_of_pooling_lead_into_unpooling() -> None:
    rows = [
        ("input", "x", {"shape": (3, 8, 8)}),
        ("nn.MaxPool2d", "pool", {"return_indices": True}),
        ("nn.MaxUnpool2d", "unpool", {}),
        ("output", "out", {}),
    ]
    wires = [
        ("x", "pool"),
        ("pool", "unpool"),
        ("pool", "unpool", "indices", 1),
        ("unpool", "out"),
    ]
    drawn = net(rows, wires)
    analysis = analyse(drawn)
    assert "x, indices = self.pool(x)" in analysis.source.text
    assert (
        measured(run(analysis.source, 3))
        == returned(analysis, 3)
        == (((3, 3, 8, 8), "float32"),)
    )
    pool = drawn.nodes["pool"]
    without = drawn.with_node(
        replace(pool, params=pool.params.set("return_indices", False))
    )
    (problem,) = analyse(without).errors
    assert problem.message == "pool has no output 1, which unpool is connected to"


@pytest.mark.parametrize(
    ("params", "first"),
    [({"chunks": 3}, 3), ({"chunks": 1}, 8), ({"chunks": 8, "dim": -1}, 8)],
)
def test_a_number_says_how_many_parts_there_are(
    params: dict[str, int], first: int
) -> None:
    drawn = around(catalog()["torch.chunk"], params)
    analysis = analyse(drawn)
    assert len(analysis.source.outputs) == params["chunks"] and not analysis.errors
    parts = run(analysis.source, 2)
    assert measured(parts) == returned(analysis, 2) and parts[0].shape[1] == first


def test_parts_that_do_not_come_are_an_error() -> None:
    analysis = analyse(around(catalog()["torch.chunk"], {"chunks": 5}))
    assert any(
        "chunks sets 5 outputs, but 4 are returned" in problem.message
        for problem in analysis.errors
    )


def test_cells_hand_their_state_on() -> None:
    rows = [
        ("input", "x", {"shape": (12,)}),
        ("nn.LSTMCell", "first", {}),
        ("nn.LSTMCell", "second", {}),
        ("output", "h", {}),
    ]
    wires = [
        ("x", "first"),
        ("x", "second"),
        ("first", "second", "hx"),
        ("first", "second", "hx", 1),
        ("second", "h"),
    ]
    analysis = analyse(net(rows, wires))
    assert not analysis.errors and measured(run(analysis.source, 4)) == (
        ((4, 64), "float32"),
    )


@pytest.mark.filterwarnings(
    "ignore:Mismatch dtype"
)  # torch's own words of what it takes all the same
@every(
    {
        key: spec
        for key, spec in LAYERS.items()
        if spec.kind == "module" and spec.param("dtype")
    }
)
def test_a_layer_computes_in_the_dtype_that_it_is_given(spec: OpSpec) -> None:
    graph = around(spec, {"dtype": DType("float64")})
    mixed = analyse(graph)
    for node in list(graph.nodes.values()):
        if node.op == "input" and "dtype" not in node.params:
            graph = graph.with_param(node.id, "dtype", DType("float64"))
    analysis = analyse(graph)
    assert not analysis.errors and "dtype=torch.float64" in analysis.source.text
    assert measured(run(analysis.source, 2)) == returned(analysis, 2)
    assert {str(p.dtype) for p in make_module(analysis.source).parameters()} <= {
        "torch.float64"
    }
    if not mixed.errors:  # then torch takes the mixture
        assert measured(run(mixed.source, 2)) == returned(mixed, 2)


def test_dropout_as_a_function_drops_while_training_alone() -> None:
    import torch

    from app.source.compiled import load_class

    module = load_class(analyse(around(catalog()["F.dropout"])).source)()
    x = torch.ones(4, 3, 8, 8)
    assert torch.equal(module.eval()(x), x) and (module.train()(x) == 0).any()


@pytest.mark.parametrize(
    "text", ["ij,jk->ik", "...ij,...jk->...ik", "ii->i", "bhqd,bhkd -> bhqk"]
)
def test_equations_as_people_type_them(text: str) -> None:
    param = catalog()["torch.einsum"].param("equation")
    assert parse_param(param, text) == text.replace(" ", "")


@pytest.mark.parametrize(
    "text", ["", "ij;jk", 'ij", x) #', "ij->jk->k", "i_j", "..ij", "i" * 300]
)
def test_equations_are_letters_alone(text: str) -> None:
    with pytest.raises(ParamError, match="equation expects letters for dimensions"):
        check_param(catalog()["torch.einsum"].param("equation"), text)


def test_unknown_op_is_said_by_name() -> None:
    with pytest.raises(
        UnknownOpError, match="there is no op 'nn.Nothing' in the catalog"
    ):
        catalog()["nn.Nothing"]
    with pytest.raises(KeyError):
        documentation("os.system")


def test_changing_a_spec_does_not_change_the_catalog() -> None:
    spec = catalog()["nn.Linear"]
    assert replace(spec, label="other") != spec and catalog()["nn.Linear"] is spec


@every({key: catalog()[key] for key in sorted(ops.SAME)})
def test_what_gives_what_it_takes_is_known_without_torch_and_is_what_torch_says(
    spec: OpSpec,
) -> None:
    for shape in ((Dim(1),), (Dim(1), 3), (Dim(1), 3, 8, 8), (4, 5), (Dim(7, 1), 2)):
        inputs = FrozenMap(input=(TensorType(shape),))
        theirs = meta_calls._ran(spec, FrozenMap(), inputs, meta_calls.BATCHES)
        assert meta_calls.run(spec, FrozenMap(), inputs) == theirs, shape
