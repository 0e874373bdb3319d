"""ONNX files as exporters leave them: bodies of control flow and functions, weights elsewhere, files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.observe.observation import Observation
from app.sources import onnx_file
from app.sources.spec import SourceError
from app.sources.structure import DEEPEST

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64, BOOL = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
)


def value(name: str, shape: list[int] | None = None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def read(folder: Path, nodes: list[Any], inputs: list[Any], **more: Any) -> Observation:
    graph = helper.make_graph(
        nodes, "net", inputs, [value("y")], more.pop("weights", [])
    )
    file = folder / "net.onnx"
    onnx.save(helper.make_model(graph, **more), str(file))
    return onnx_file.read(file)


def wires(observation: Observation) -> set[tuple[str, str]]:
    """Pairs of names of operations, inputs and outputs that a tensor goes between."""

    def name(number: int) -> str:
        call = observation.calls[number]
        return call.name.rpartition(".")[2] if call.kind == "operation" else call.path

    return {(name(flow.source), name(flow.target)) for flow in observation.flows}


def test_both_branches_of_an_if_are_drawn_with_what_they_read(tmp_path: Path) -> None:
    first = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["o"])], "then", [], [value("o")]
    )
    second = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["o"])], "else", [], [value("o")]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=first, else_branch=second)
    between = wires(read(tmp_path, [node], [value("x", [2, 3]), value("c", [], BOOL)]))
    assert between == {
        ("x", "Identity"),
        ("x", "Neg"),
        ("Identity", "If"),
        ("Neg", "If"),
        ("c", "If"),
        ("If", "y"),
    }


def test_the_body_of_a_loop_reads_what_the_loop_gets(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Mul", ["v", "w"], ["next"]),
        ],
        "body",
        [value("i", [], INT64), value("go", [], BOOL), value("v")],
        [value("on", [], BOOL), value("next")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    between = wires(
        read(
            tmp_path, [node], [value("n", [], INT64), value("x", [2]), value("w", [2])]
        )
    )
    assert {
        ("x", "Mul"),
        ("w", "Mul"),
        ("Mul", "Loop"),
        ("n", "Loop"),
        ("Loop", "y"),
    } <= between


def test_a_function_is_a_part_of_its_own_at_each_call(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    add = [helper.make_node("Add", ["a", "a"], ["b"])]
    twice = helper.make_function("local", "Twice", ["a"], ["b"], add, opsets[:1])
    calls = [
        helper.make_node("Twice", [a], [b], domain="local")
        for a, b in (("x", "t"), ("t", "y"))
    ]
    drawn = read(
        tmp_path, calls, [value("x", [2, 3])], functions=[twice], opset_imports=opsets
    )
    assert [
        call.kind for call in drawn.calls if call.kind in ("module", "operation")
    ] == ["module", "operation"] * 2
    assert wires(drawn) == {("x", "Add"), ("Add", "Add"), ("Add", "y")}


def test_weights_that_are_missing_or_outside_the_folder_are_named_and_not_read(
    tmp_path: Path,
) -> None:
    for place, words in (
        ("gone.bin", "gone.bin with the values of w is not there"),
        ("../../secret", "../../secret with the values of w lies outside"),
    ):
        weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=place)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "net",
            [value("x", [2, 3])],
            [value("y")],
            [weight],
        )
        file = tmp_path / "net.onnx"
        file.write_bytes(helper.make_model(graph).SerializeToString())
        assert any(words in remark for remark in onnx_file.read(file).remarks)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"<html>404</html>", "not a valid ONNX model")],
)
def test_a_file_that_is_no_model_is_refused_with_its_cause(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(content)
    with pytest.raises(SourceError, match=words):
        onnx_file.read(file)


def test_an_open_size_has_the_name_that_the_file_gives_it(tmp_path: Path) -> None:
    observation = read(
        tmp_path,
        [helper.make_node("Relu", ["x"], ["y"])],
        [value("x", ["batch", None, 3])],
    )
    assert observation.calls[0].outputs[0].shape == ("batch", "?", 3)
    assert (
        "Open sizes are written as the file names them: ?, batch."
        in observation.remarks
    )


@pytest.mark.parametrize(
    "scopes", ["(" * 100_000, "[" * 100_000, "-" * 100_000 + "1", "7"]
)
def test_damaged_metadata_of_a_node_is_said_and_the_graph_is_drawn(
    tmp_path: Path, scopes: str
) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    for key in ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"):
        node.metadata_props.add(key=key, value=scopes)
    observation = read(tmp_path, [node], [value("x", [2])])
    assert ("x", "Relu") in wires(observation)
    assert (
        "The metadata of 1 node is damaged: modules are missing." in observation.remarks
    )


def test_a_name_of_very_many_modules_is_drawn_to_a_bound(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="/m" * 5000 + "/Relu")
    observation = read(tmp_path, [node], [value("x", [2])])
    assert sum(call.kind == "module" for call in observation.calls) == DEEPEST
