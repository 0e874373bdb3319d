"""Read the graph of an ONNX file. External weights are not read, and nothing is run."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.observe.observation import Observation, TensorFacts
from app.sources.spec import SourceError
from app.sources.structure import OPEN, Structure, facts

REMARK = "The graph is drawn as the file describes it; nothing was run."
_SMALL = 1 << 30  # bytes of a file whose missing shapes are inferred
_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
# By ONNX's numbers of element types: torch's name and the bytes of an element.
_DTYPES = {
    1: ("float32", 4), 2: ("uint8", 1), 3: ("int8", 1), 4: ("uint16", 2), 5: ("int16", 2), 6: ("int32", 4),
    7: ("int64", 8), 8: ("string", 0), 9: ("bool", 1), 10: ("float16", 2), 11: ("float64", 8), 12: ("uint32", 4),
    13: ("uint64", 8), 14: ("complex64", 8), 15: ("complex128", 16), 16: ("bfloat16", 2),
}  # fmt: skip


def read(path: Path) -> Observation:
    """Return the graph of a file. Raises SourceError for one that is none, or without the package `onnx`."""
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise SourceError("to read ONNX files, install the package onnx: pip install tapedeck-torch[onnx]") from error
    try:
        model = onnx.load(str(path), load_external_data=False)
        if path.stat().st_size < _SMALL:
            model = onnx.shape_inference.infer_shapes(model)
        return _observation(path.stem, model.graph)
    except Exception as error:  # the reader's own kinds
        words = str(error).strip().partition("\n")[0] or type(error).__name__
        raise SourceError(f"{path.name} is not a valid ONNX model: {words}") from error


def _observation(name: str, graph: Any) -> Observation:
    built = Structure(name)
    kept = {one.name: facts(one.dims, *_DTYPES.get(one.data_type, ("unknown", 0))) for one in graph.initializer}
    for value in (*graph.value_info, *graph.input, *graph.output):
        if (described := _facts(value)) is not None:
            built.know(value.name, described)
    for tensor, described in kept.items():
        built.know(tensor, described)
    for value in graph.input:
        if value.name not in kept:
            built.add_input(value.name, value.name)
    for node in graph.node:
        metadata = {one.key: one.value for one in node.metadata_props}
        given, made = [*filter(None, node.input)], [*filter(None, node.output)]
        built.add_operation(
            f"{node.domain or 'onnx'}.{node.op_type}", _scopes(node.name, metadata), given, made,
            _settings(node.attribute), [one for one in given if one in kept],
            metadata.get("pkg.torch.onnx.stack_trace", ""),
        )  # fmt: skip
    for value in graph.output:
        built.add_output(value.name, value.name)
    return built.observation([REMARK])


def _facts(value: Any) -> TensorFacts | None:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    sizes = (size.dim_value if size.HasField("dim_value") else OPEN for size in kind.shape.dim)
    return facts(sizes, *_DTYPES.get(kind.elem_type, ("unknown", 0)))


def _scopes(name: str, metadata: dict[str, str]) -> list[tuple[str, str]]:
    """Return paths and classes of the modules around a node: as torch notes them, else from a name of `/a/b/Op`."""
    try:
        paths, kinds = ast.literal_eval(metadata[_SCOPES]), ast.literal_eval(metadata[_CLASSES])
        return [(str(path), str(kind)) for path, kind in zip(paths[:-1], kinds[:-1], strict=True)]
    except (KeyError, ValueError, SyntaxError, TypeError):
        parts = [part for part in name.split("/")[:-1] if part] if name.startswith("/") else []
        found: list[tuple[str, str]] = []
        for part in parts:
            before = found[-1][0] if found else ""
            found.append((part if part.startswith(f"{before}.") or not before else f"{before}.{part}", "module"))
        return found


def _settings(attributes: Iterable[Any]) -> list[str]:
    """Return numbers, texts and short lists of a node as text."""
    found = []
    for one in attributes:
        values = {1: lambda a: a.f, 2: lambda a: a.i, 3: lambda a: a.s.decode("utf-8", "replace"),
                  6: lambda a: [*a.floats], 7: lambda a: [*a.ints]}  # fmt: skip
        if one.type in values:
            found.append(f"{one.name}={values[one.type](one)}"[:60])
    return found
