"""The graph in a `.pt2` file, read as JSON from its archive.

`torch.export.load` unpickles parts of the archive, which runs whatever code they name, so it is not used here.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.observe.observation import Observation, TensorFacts
from app.sources.spec import SourceError
from app.sources.structure import OPEN, Structure, facts

LARGEST = 1 << 29  # bytes of a graph's description
# By the numbers of torch's export schema: the name of a dtype and the bytes of an element.
_DTYPES = {
    1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8), 6: ("float16", 2),
    7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4), 10: ("complex64", 8), 11: ("complex128", 16),
    12: ("bool", 1), 13: ("bfloat16", 2), 28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1),
}  # fmt: skip
_PLAIN = ("as_int", "as_float", "as_bool", "as_string", "as_ints", "as_floats", "as_bools")
_KEPT = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
REMARK = "The graph is drawn as the file describes it; nothing was run."


def read(path: Path) -> Observation:
    """Return the graph of a file. Raises SourceError for one that is no exported program."""
    try:
        program = _program(path)
        return _observation(path.stem, program["graph_module"])
    except SourceError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{path.name} is not an exported program of torch.export: {_message(error)}") from error


def _message(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def _program(path: Path) -> Any:
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    with zipfile.ZipFile(path) as archive:
        parts = [
            one for one in archive.infolist()
            if one.filename.endswith(".json") and "/models/" in f"/{one.filename}"
            or one.filename.endswith("serialized_exported_program.json")
        ]  # fmt: skip
        if not parts:
            raise SourceError(f"{path.name} contains no exported program; write it with torch.export.save")
        if parts[0].file_size > LARGEST:
            raise SourceError(f"the graph of {path.name} takes {parts[0].file_size >> 20} MiB, which exceeds the limit")
        return json.loads(archive.read(parts[0]))


def _observation(name: str, module: Any) -> Observation:
    graph, built = module["graph"], Structure(name)
    for tensor, meta in graph["tensor_values"].items():
        built.know(tensor, _facts(meta))
    kept: dict[str, str] = {}
    for spec in module["signature"]["input_specs"]:
        ((kind, held),) = spec.items()
        if kind == "user_input":
            for tensor in _tensors(held["arg"]):
                built.add_input(tensor, tensor)
        elif kind in _KEPT:
            kept[held["arg"]["name"]] = held[_KEPT[kind]]
    for node in graph["nodes"]:
        given = [tensor for one in node["inputs"] for tensor in _tensors(one["arg"])]
        made = [tensor for one in node["outputs"] for tensor in _tensors(one)]
        metadata = node.get("metadata") or {}
        built.add_operation(
            _op(node["target"]), _scopes(metadata.get("nn_module_stack", "")), given, made,
            _settings(node["inputs"]), [kept[one] for one in given if one in kept], metadata.get("stack_trace", ""),
        )  # fmt: skip
    for number, spec in enumerate(module["signature"]["output_specs"]):
        ((kind, held),) = spec.items()
        if kind == "user_output":
            for tensor in _tensors(held["arg"]):
                built.add_output(f"output{number}", tensor)
    return built.observation([REMARK])


def _op(target: str) -> str:
    """Return an op without its overload: aten.mul of torch.ops.aten.mul.Tensor."""
    name = target.removeprefix("torch.ops.")
    return name.rpartition(".")[0] if name.count(".") > 1 else name


def _facts(meta: Any) -> TensorFacts:
    name, size = _DTYPES.get(meta["dtype"], ("unknown", 0))
    sizes = (one["as_int"] if "as_int" in one else _hint(one) for one in meta["sizes"])
    return facts(sizes, name, size, bool(meta.get("requires_grad")))


def _hint(size: Any) -> int:
    """Return the size that an open one had in the example."""
    hint = ((size.get("as_expr") or {}).get("hint") or {}).get("as_int")
    return hint if isinstance(hint, int) else OPEN


def _tensors(argument: Any) -> Iterator[str]:
    """Yield the names of the tensors of an argument; those of a subgraph are its own."""
    for kind, held in argument.items() if isinstance(argument, dict) else ():
        if kind == "as_tensor":
            yield held["name"]
        elif kind in ("as_tensors", "as_nested_tensors", "as_optional_tensors"):
            for one in held:
                yield from _tensors(one if "name" not in one else {"as_tensor": one})


def _settings(inputs: Any) -> Iterator[str]:
    for one in inputs:
        kind, held = next(iter(one["arg"].items()), ("", None))
        if kind in _PLAIN:
            yield f"{one['name']}={held}" if one.get("kind") == 2 else str(held)


def _scopes(stack: str) -> list[tuple[str, str]]:
    """Return paths and classes of the modules of a stack: "key,path,class;key,path,class"."""
    found = []
    for one in filter(None, stack.split(";")):
        _, _, rest = one.partition(",")
        path, _, kind = rest.rpartition(",")
        found.append((path.partition("@")[0], kind))
    return found
