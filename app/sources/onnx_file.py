"""Read the graph of an ONNX file. External weights are not read, and nothing is run."""

from __future__ import annotations

import ast
import importlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.observe.observation import Observation, TensorFacts
from app.sources.spec import SourceError
from app.sources.structure import (
    DEEPEST,
    NAMELESS,
    NESTED,
    REMARK,
    Scopes,
    Size,
    Structure,
    facts,
)
from app.util.formatting import counted

_GRAPH, _GRAPHS = 5, 10  # ONNX's numbers of types of attributes
_SMALL = 1 << 30  # bytes of a file whose missing shapes are inferred
FEW = 8  # values of a constant that are all said
_INFERRED = "unk__"  # begins a name that ONNX's shape inference makes up
_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
# By ONNX's numbers of element types: torch's name and the bytes of an element.
DTYPES = {
    1: ("float32", 4),
    2: ("uint8", 1),
    3: ("int8", 1),
    4: ("uint16", 2),
    5: ("int16", 2),
    6: ("int32", 4),
    7: ("int64", 8),
    8: ("string", 0),
    9: ("bool", 1),
    10: ("float16", 2),
    11: ("float64", 8),
    12: ("uint32", 4),
    13: ("uint64", 8),
    14: ("complex64", 8),
    15: ("complex128", 16),
    16: ("bfloat16", 2),
}


def read(path: Path) -> Observation:
    """Return the graph of a file. Raises SourceError for one that is none, or without the package `onnx`."""
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise SourceError(
            "to read ONNX files, install the package onnx: pip install tapedeck-torch[onnx]"
        ) from error
    if not path.stat().st_size:
        raise SourceError(
            f"{path.name} is empty: it has 0 bytes. Export or download it again"
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
        if not model.ir_version or not model.HasField("graph"):
            raise SourceError(
                f"{path.name} is not a valid ONNX model: it has no graph. Export or download it again"
            )
        if path.stat().st_size < _SMALL:
            model = onnx.shape_inference.infer_shapes(model)
        functions = {
            (function.domain, function.name): function for function in model.functions
        }
        return _Reader(path.stem, functions).read(
            model.graph, _external(path, model.graph)
        )
    except SourceError:
        raise
    except RecursionError as error:
        raise SourceError(
            f"{path.name} is not a valid ONNX model: its parts are nested without an end"
        ) from error
    except Exception as error:  # the reader's own kinds
        message = str(error).strip().partition("\n")[0] or type(error).__name__
        raise SourceError(
            f"{path.name} is not a valid ONNX model: {message.rstrip('.')}. Export or download it again"
        ) from error


class _Reader:
    """Builds the graph. Bodies of If, Loop and Scan are parts of their node, as those of a function that is called."""

    def __init__(self, name: str, functions: Mapping[tuple[str, str], Any]) -> None:
        self._built, self._functions = Structure(name), functions
        self._weights: set[str] = set()
        self._unreadable = 0  # nodes whose metadata does not say their modules

    def read(self, graph: Any, remarks: list[str]) -> Observation:
        """Return the graph as it is drawn."""
        self._describe(graph, {})
        for value in graph.input:
            if value.name not in self._weights:
                self._built.add_input(value.name, value.name)
        self._add(graph.node, {}, [], 0)
        for value in graph.output:
            self._built.add_output(value.name, value.name)
        if self._unreadable:
            remarks = [
                *remarks,
                f"The metadata of {counted(self._unreadable, 'node')} is damaged: modules are missing.",
            ]
        return self._built.observation([REMARK, *remarks])

    def _describe(self, graph: Any, names: Mapping[str, str]) -> None:
        for value in (*graph.value_info, *graph.input, *graph.output):
            if (described := _facts(value)) is not None:
                self._built.know(names.get(value.name, value.name), described)
        for initializer in graph.initializer:
            name = names.get(initializer.name, initializer.name)
            self._weights.add(name)
            self._built.know(
                name,
                facts(
                    initializer.dims,
                    *DTYPES.get(initializer.data_type, ("unknown", 0)),
                ),
            )

    def _add(
        self, nodes: Iterable[Any], names: Mapping[str, str], scopes: Scopes, depth: int
    ) -> None:
        """Add nodes within a body: `names` are the values of the whole graph by the body's names for them."""
        for node in nodes:
            metadata = {entry.key: entry.value for entry in node.metadata_props}
            inputs = [names.get(name, name) for name in node.input]
            outputs = [names.get(name, name) for name in node.output]
            around = scopes or self._around(node.name, metadata)
            function = self._functions.get((node.domain, node.op_type))
            if function is not None and depth < NESTED:
                self._call(function, node, inputs, outputs, around, depth)
                continue
            for label, body in _bodies(node):
                if depth < NESTED:
                    inputs += self._body(body, label, node, inputs, around, depth)
            arriving = [*filter(None, inputs)]
            self._built.add_operation(
                f"{node.domain or 'onnx'}.{node.op_type}",
                around,
                arriving,
                [*filter(None, outputs)],
                _settings(node.attribute),
                [name for name in arriving if name in self._weights],
                metadata.get("pkg.torch.onnx.stack_trace", ""),
            )

    def _around(self, name: str, metadata: dict[str, str]) -> Scopes:
        """Return the modules around a node: as torch notes them, else from a name of `/a/b/Op`."""
        if _SCOPES not in metadata:
            return _scopes_of_name(name)
        try:
            paths, kinds = (
                ast.literal_eval(metadata[_SCOPES]),
                ast.literal_eval(metadata[_CLASSES]),
            )
            return [
                (str(path), str(kind))
                for path, kind in zip(paths[:-1], kinds[:-1], strict=True)
            ]
        except (
            KeyError,
            ValueError,
            SyntaxError,
            TypeError,
            MemoryError,
            RecursionError,
        ):  # the last two: too deep
            self._unreadable += 1
            return _scopes_of_name(name)

    def _call(
        self,
        function: Any,
        node: Any,
        inputs: list[str],
        outputs: list[str],
        scopes: Scopes,
        depth: int,
    ) -> None:
        """Add the nodes of a function that is called, as a part of its own."""
        names = dict(zip(function.output, outputs, strict=False)) | dict(
            zip(function.input, inputs, strict=False)
        )
        around = self._scope(scopes, node.name or node.op_type, node.op_type)
        self._add(
            function.node,
            self._built.names_of_body(_made_by(function.node), names),
            around,
            depth + 1,
        )

    def _body(
        self,
        body: Any,
        label: str,
        node: Any,
        inputs: list[str],
        scopes: Scopes,
        depth: int,
    ) -> list[str]:
        """Add a body of If, Loop or Scan as a part of its own; return the values that it ends with."""
        names = {
            value.name: outer_name
            for value, outer_name in zip(body.input, inputs, strict=False)
            if outer_name
        }
        body_names = [
            *(entry.name for entry in (*body.input, *body.initializer)),
            *_made_by(body.node),
        ]
        names = self._built.names_of_body(body_names, names)
        around = self._scope(
            scopes, f"{node.name or node.op_type}.{label}", f"{node.op_type}: {label}"
        )
        self._describe(body, names)
        self._add(body.node, names, around, depth + 1)
        return [names.get(value.name, value.name) for value in body.output]

    def _scope(self, scopes: Scopes, name: str, kind: str) -> Scopes:
        path = f"{name.strip('/').replace('/', '.')}_{self._built.bodies + 1}"
        return [*scopes, (f"{scopes[-1][0]}.{path}" if scopes else path, kind)]


def _made_by(nodes: Iterable[Any]) -> Iterator[str]:
    return (name for node in nodes for name in node.output)


def _bodies(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the graphs among the attributes of a node: the branches of If, the body of Loop and Scan."""
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == _GRAPHS:
            yield from (
                (f"{attribute.name} {number}", graph)
                for number, graph in enumerate(attribute.graphs)
            )


def _external(path: Path, graph: Any) -> list[str]:
    """Say which files of weights are missing, or lie where they are not looked for. None of them is read."""
    files: dict[str, list[str]] = {}
    for tensor in graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                files.setdefault(entry.value, []).append(tensor.name)
    remarks = []
    folder = path.parent.resolve()
    for name, tensors in files.items():
        values = f"the values of {', '.join(tensors[:3])}{' and others' if len(tensors) > 3 else ''}"
        where = (folder / name).resolve()
        if not where.is_relative_to(folder):
            remarks.append(
                f"{name} with {values} lies outside the folder of {path.name}: it is not read."
            )
        elif not where.is_file():
            remarks.append(
                f"{name} with {values} is not there: put it beside {path.name} to run the model."
            )
    return remarks


def _facts(value: Any) -> TensorFacts | None:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    return facts(
        map(_size, kind.shape.dim), *DTYPES.get(kind.elem_type, ("unknown", 0))
    )


def _size(size: Any) -> Size:
    if size.HasField("dim_value"):
        return int(size.dim_value)
    return (
        NAMELESS if size.dim_param.startswith(_INFERRED) else size.dim_param or NAMELESS
    )


def _scopes_of_name(name: str) -> Scopes:
    """Return the modules that a name of `/a/b/Op` says, without their classes."""
    parts = (
        [piece for piece in name.split("/")[:-1] if piece]
        if name.startswith("/")
        else []
    )
    scopes: Scopes = []
    for component in parts[: DEEPEST + 1]:
        before = scopes[-1][0] if scopes else ""
        scopes.append(
            (
                component
                if component.startswith(f"{before}.") or not before
                else f"{before}.{component}",
                "module",
            )
        )
    return scopes


def _constant(tensor: Any) -> str:
    """Return the values of a tensor among the attributes, or of a large one its size and a checksum."""
    numpy_helper: Any = importlib.import_module("onnx.numpy_helper")
    try:
        values = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):  # its values are in another file
        return "×".join(map(str, tensor.dims))
    if values.size <= FEW:
        return str(values.tolist())
    checksum = zlib.crc32(values.tobytes())
    return f"{'×'.join(map(str, tensor.dims))}, checksum {checksum:08x}"


def _settings(attributes: Iterable[Any]) -> list[str]:
    """Return numbers, texts and short lists of a node as text."""
    settings = []
    for attribute in attributes:
        values = {
            1: lambda a: a.f,
            2: lambda a: a.i,
            3: lambda a: a.s.decode("utf-8", "replace"),
            4: lambda a: _constant(a.t),
            6: lambda a: [*a.floats],
            7: lambda a: [*a.ints],
        }
        if attribute.type in values:
            settings.append(
                f"{attribute.name}={values[attribute.type](attribute)}"[:60]
            )
    return settings
