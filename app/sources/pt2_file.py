"""The graph in a `.pt2` file, read as JSON from its archive.

`torch.export.load` unpickles parts of the archive, which runs whatever code they name, so it is not used here.
"""

from __future__ import annotations

import ast
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.observe.observation import Observation, TensorFacts
from app.sources.spec import SourceError
from app.sources.structure import (
    NAMELESS,
    NESTED,
    REMARK,
    Scopes,
    Size,
    Structure,
    facts,
)

LARGEST = 1 << 29  # bytes of a graph's description
# By the numbers of torch's export schema: the name of a dtype and the bytes of an element.
DTYPES = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    9: ("complex32", 4),
    10: ("complex64", 8),
    11: ("complex128", 16),
    12: ("bool", 1),
    13: ("bfloat16", 2),
    28: ("uint16", 2),
    29: ("float8_e4m3fn", 1),
    30: ("float8_e5m2", 1),
}
_PLAIN = (
    "as_int",
    "as_float",
    "as_bool",
    "as_string",
    "as_ints",
    "as_floats",
    "as_bools",
)
_KEPT = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}
SCHEMA = (8, 20)  # the newest version of torch's export schema that was tried
AGAIN = "Copy or download it again, or write it with torch.export.save"
_BODIES = {
    "cond": ("true_fn", "false_fn"),
    "while_loop": ("cond_fn", "body_fn"),
}  # torch's names, in order
_LISTS = (
    "as_tensors",
    "as_nested_tensors",
    "as_optional_tensors",
    "as_sym_ints",
    "as_sym_floats",
    "as_sym_bools",
)
_SINGLE = ("as_sym_int", "as_sym_float", "as_sym_bool", "as_optional_tensor")
_NO_MODULE = "_empty_nn_module_stack"
_LONGEST = 500  # letters of the expression of a size


def read(path: Path) -> Observation:
    """Return the graph of a file. Raises SourceError for one that is no exported program."""
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    try:
        program = _program(path)
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise SourceError(
            f"{path.name} is not readable: its archive is damaged ({error}). {AGAIN}"
        ) from error
    except ValueError as error:
        raise SourceError(
            f"{path.name} is not readable: its graph is not JSON ({error}). {AGAIN}"
        ) from error
    newer = _newer(program)
    try:
        return _Reader(path.stem).read(program["graph_module"], newer)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"{path.name} is no exported program that can be drawn: {_message(error)}. {newer or AGAIN}"
        raise SourceError(message) from error


def _message(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its graphs are nested without an end"
    return (
        f"its graph has no {error}"
        if isinstance(error, KeyError)
        else "its graph has another form than torch's"
    )


def _newer(program: Any) -> str:
    """Return what a newer schema means, with the cure; "" for one that was tried."""
    version = program.get("schema_version") if isinstance(program, dict) else None
    numbers = (
        tuple(version.get(key, 0) for key in ("major", "minor"))
        if isinstance(version, dict)
        else (0, 0)
    )
    if (
        not all(isinstance(number, int) for number in numbers)
        or numbers[0] <= SCHEMA[0]
    ):
        return ""
    return (
        f"It has version {numbers[0]}.{numbers[1]} of torch's export schema, newer than {SCHEMA[0]}.{SCHEMA[1]}, which "
        "this Tapedeck knows: what the newer one adds may be missing. Update Tapedeck, or export with an older torch."
    )


def _program(path: Path) -> Any:
    """Return the described program. Raises SourceError for another kind of file, and what zipfile and json raise."""
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise SourceError(
            f"{path.name} is not an exported program: it is empty. {AGAIN}"
        )
    if not zipfile.is_zipfile(path):
        if start.startswith(b"PK"):
            raise SourceError(
                f"{path.name} is not complete: the end of its archive is missing. {AGAIN}"
            )
        raise SourceError(
            f"{path.name} is not an exported program, which is a zip archive. Write it with torch.export.save"
        )
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        parts = [
            name
            for name in names
            if name.endswith(".json") and "/models/" in f"/{name}"
        ]
        parts += [
            name for name in names if name.endswith("serialized_exported_program.json")
        ]
        if not parts:
            raise SourceError(
                f"{path.name} contains no exported program{_instead(names)}"
            )
        size = archive.getinfo(parts[0]).file_size
        if size > LARGEST:
            raise SourceError(
                f"the graph of {path.name} takes {size >> 20} MiB, which exceeds the limit"
            )
        try:
            return json.loads(archive.read(parts[0]))
        except RecursionError as error:
            raise SourceError(
                f"{path.name} is not readable: its JSON is nested deeper than that of any program. {AGAIN}"
            ) from error


def _instead(names: Iterable[str]) -> str:
    """Return what an archive without a program is, by the names in it, and the cure."""
    if any("/aotinductor/" in f"/{name}" for name in names):
        return ", only compiled code: draw the .pt2 that torch.export.save wrote before it was compiled"
    if any(name.endswith("data.pkl") for name in names):
        return ": it is a file of torch.save or TorchScript. Write the model with torch.export.save"
    return ". Write it with torch.export.save"


class _Reader:
    """Builds the graph. Branches of cond, and bodies of other higher order operations, are parts of their own."""

    def __init__(self, name: str) -> None:
        self._built = Structure(name)
        self._stored: dict[
            str, str
        ] = {}  # weights and buffers by the names of their tensors
        self._model: Scopes = []  # the scope of what is in no other module

    def read(self, module: Any, newer: str) -> Observation:
        """Return the graph as it is drawn."""
        graph = module["graph"]
        self._describe(graph, {})
        for spec in module["signature"]["input_specs"]:
            ((kind, entry),) = spec.items()
            if kind == "user_input":
                for tensor in _tensors(entry["arg"]):
                    self._built.add_input(tensor, tensor)
            elif kind in _KEPT:
                self._stored[entry["arg"]["name"]] = entry[_KEPT[kind]]
        self._model = next(
            (around[:1] for node in graph["nodes"] if (around := _scopes(node))), []
        )
        self._add(graph["nodes"], {}, [], 0)
        for number, spec in enumerate(module["signature"]["output_specs"]):
            ((kind, entry),) = spec.items()
            if kind == "user_output":
                for tensor in _tensors(entry["arg"]):
                    self._built.add_output(f"output{number}", tensor)
        return self._built.observation([REMARK, newer] if newer else [REMARK])

    def _describe(self, graph: Any, names: Mapping[str, str]) -> None:
        for tensor, meta in graph["tensor_values"].items():
            self._built.know(names.get(tensor, tensor), _facts(meta))

    def _add(
        self, nodes: Iterable[Any], names: Mapping[str, str], scopes: Scopes, depth: int
    ) -> None:
        """Add nodes within a body: `names` are the values of the whole graph by the body's names for them."""
        for node in nodes:
            around = scopes or _scopes(node) or self._model
            if (
                any("as_graph" in argument["arg"] for argument in node["inputs"])
                and depth < NESTED
            ):
                inputs = self._with_bodies(node, names, around, depth)
            else:
                inputs = _renamed(_of_all(node["inputs"]), names)
            arriving = [name for name in inputs if name is not None]
            outputs = _renamed(
                (name for output in node["outputs"] for name in _values(output)), names
            )
            self._built.add_operation(
                _op(node["target"]),
                around,
                arriving,
                [name for name in outputs if name is not None],
                _settings(node["inputs"]),
                [self._stored[name] for name in arriving if name in self._stored],
                (node.get("metadata") or {}).get("stack_trace", ""),
            )

    def _with_bodies(
        self, node: Any, names: Mapping[str, str], scopes: Scopes, depth: int
    ) -> list[str | None]:
        """Add the bodies of a node; return what arrives at the node itself: what stands before them, and their ends."""
        body_positions = [
            index
            for index, argument in enumerate(node["inputs"])
            if "as_graph" in argument["arg"]
        ]
        arriving = _renamed(_of_all(node["inputs"][: body_positions[0]]), names)
        operands = _renamed(_of_all(node["inputs"][body_positions[-1] + 1 :]), names)
        operation = _op(node["target"]).rpartition(".")[2]
        labels = _BODIES.get(operation, ())
        for number, position in enumerate(body_positions):
            described = node["inputs"][position]["arg"]["as_graph"]
            label = labels[number] if number < len(labels) else described["name"]
            path = f"{node.get('name') or operation}.{label}"
            path = f"{scopes[-1][0]}.{path}" if scopes and scopes[-1][0] else path
            arriving += self._body(
                described["graph"],
                operands,
                [*scopes, (path, f"{operation}: {label}")],
                depth + 1,
            )
        return arriving

    def _body(
        self, graph: Any, operands: list[str | None], scopes: Scopes, depth: int
    ) -> list[str | None]:
        """Add a body as a part of its own; return the values that it ends with."""
        inputs = [
            name for graph_input in graph["inputs"] for name in _values(graph_input)
        ]
        body_names = [
            *inputs,
            *(
                name
                for node in graph["nodes"]
                for output in node["outputs"]
                for name in _values(output)
            ),
        ]
        outer_names = {
            name: value
            for name, value in zip(inputs, operands, strict=False)
            if name and value
        }
        names = self._built.names_of_body(body_names, outer_names)
        self._describe(graph, names)
        self._add(graph["nodes"], names, scopes, depth)
        return _renamed(
            (name for output in graph["outputs"] for name in _values(output)), names
        )


def _renamed(
    values: Iterable[str | None], names: Mapping[str, str]
) -> list[str | None]:
    return [None if name is None else names.get(name, name) for name in values]


def _of_all(inputs: Iterable[Any]) -> Iterator[str | None]:
    return (name for argument in inputs for name in _values(argument["arg"]))


def _values(argument: Any) -> Iterator[str | None]:
    """Yield the names of the tensors and the open numbers of an argument, None for each number that is not open."""
    for kind, entry in argument.items() if isinstance(argument, dict) else ():
        if kind in ("as_tensor", "as_name"):
            yield entry["name"] if kind == "as_tensor" else entry
        elif kind in _SINGLE:
            yield from _values(entry)
        elif kind in _LISTS:
            for element in entry:
                yield from _values(
                    element if "name" not in element else {"as_tensor": element}
                )
        elif kind in ("as_ints", "as_floats", "as_bools"):
            yield from (None for _ in entry)
        elif kind in ("as_int", "as_float", "as_bool", "as_none"):
            yield None


def _op(target: str) -> str:
    """Return an op without its overload: aten.mul of torch.ops.aten.mul.Tensor."""
    name = target.removeprefix("torch.ops.")
    return name.rpartition(".")[0] if name.count(".") > 1 else name


def _facts(meta: Any) -> TensorFacts:
    name, size = DTYPES.get(meta["dtype"], ("unknown", 0))
    return facts(map(_size, meta["sizes"]), name, size, bool(meta.get("requires_grad")))


def _size(size: Any) -> Size:
    """Return a size, as an expression of the file's symbols where it is open."""
    if "as_int" in size:
        return int(size["as_int"])
    expression = str((size.get("as_expr") or {}).get("expr_str") or "")
    if not 0 < len(expression) <= _LONGEST:
        return NAMELESS
    try:
        return _formula(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return NAMELESS


def _formula(node: ast.expr) -> str:
    """Return an expression as sympy writes it for programs as one for readers.

    >>> _formula(ast.parse("Mul(Integer(2), Add(Symbol('s0', integer=True), Integer(-1)))", mode="eval").body)
    '2*(s0 - 1)'
    """
    if not isinstance(node, ast.Call):
        return ast.unparse(node)
    name = ast.unparse(node.func).rpartition(".")[2]
    first = node.args[0] if node.args else None
    if name in ("Symbol", "Integer") and first is not None:
        return (
            str(first.value) if isinstance(first, ast.Constant) else ast.unparse(first)
        )
    terms = [_formula(argument) for argument in node.args]
    if name == "Add":
        terms.sort(key=lambda term: term.lstrip("-").isdigit())  # numbers last
        return " + ".join(terms).replace("+ -", "- ")
    between = {
        "Mul": "*",
        "Pow": "**",
        "FloorDiv": "//",
        "Mod": "%",
        "PythonMod": "%",
        "Rational": "/",
    }.get(name)
    if between is None:
        return f"{name}({', '.join(terms)})"
    return between.join(
        term if term.isidentifier() or term.isdigit() else f"({term})" for term in terms
    )


def _tensors(argument: Any) -> Iterator[str]:
    return (name for name in _values(argument) if name is not None)


def _settings(inputs: Any) -> Iterator[str]:
    for argument in inputs:
        kind, setting = next(iter(argument["arg"].items()), ("", None))
        if kind in _PLAIN:
            yield (
                f"{argument['name']}={setting}"
                if argument.get("kind") == 2
                else str(setting)
            )


def _scopes(node: Any) -> Scopes:
    """Return the modules around a node, noted as "key,path,class;key,path,class"; none for one that torch added."""
    scopes = []
    for scope in filter(
        None, (node.get("metadata") or {}).get("nn_module_stack", "").split(";")
    ):
        key, _, rest = scope.partition(",")
        path, _, kind = rest.rpartition(",")
        if not key.startswith(_NO_MODULE):
            scopes.append((path.partition("@")[0], kind))
    return scopes
