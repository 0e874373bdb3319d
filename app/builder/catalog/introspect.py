"""Introspect the catalog from the installed torch.

`python -m app.builder.catalog.introspect` writes the bundled snapshot; with `--print` it prints the catalog, for
`snapshot`.
"""

from __future__ import annotations

import inspect
import operator
import re
import sys
import types
import typing
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from torch.nn.modules import transformer

from app.builder.catalog import custom, custom_calls, ops, ops_values
from app.builder.catalog.catalog import (
    Catalog,
    Documentation,
    OpSpec,
    Param,
    Port,
    dump,
)
from app.builder.catalog.snapshot import BUNDLED
from app.builder.literals import AUTO, DTYPES, DType
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from app.util.torchvision_import import import_torchvision

_ROOTS = {
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "torch": "torch",
    "Tensor": "torch.Tensor",
}
_KINDS = {
    "nn": "module",
    "F": "function",
    "torch": "function",
    "Tensor": "method",
    "operator": "operator",
}
_SCHEMA_KINDS = {
    "int": "int",
    "bool": "bool",
    "float": "float",
    "number": "float",
    "str": "str",
}
_MARKUP = re.compile(
    r"\s*(\.\.|[\w.]+\(.*\)|Args:|Keyword args:|\W)", re.S | re.I
)  # signatures, directives, headings
_OPERATORS = {
    "add": "a + b",
    "sub": "a − b",
    "mul": "a × b",
    "truediv": "a ÷ b",
    "floordiv": "a // b",
    "mod": "a % b",
    "pow": "a ** b",
    "neg": "−a",
}


def read_catalog() -> Catalog:
    """Read every op of the table that the installed torch has."""
    specs = tuple(_read(key, category) for key, category in ops.OPS if _is_there(key))
    return Catalog(specs, torch.__version__.partition("+")[0])


def _is_there(key: str) -> bool:
    """Return whether the installed torch, maybe another version than the tables are for, has the op."""
    if key in ("input", "output"):
        return True
    try:
        if key in ops_values.SPECS:
            target = ops_values.SPECS[key].target
            return not target or find(target) is not None
        schema_of(key, find(_target(key)))
    except AttributeError:
        return False
    return True


def schema_of(key: str, target: Any) -> Any:
    """Return the schema of an op that is read by it; None for one that is read by its signature in Python."""
    overload = ops.SCHEMAS.get(key)
    if overload is None:
        builtin = inspect.isbuiltin(target) or inspect.ismethoddescriptor(target)
        if not builtin or key in ops_values.SPECS:
            return None
        name = key.partition(".")[2].replace(".", "_")  # torch.fft.fft: fft_fft
        overload = f"{name}.default"
    name, _, kind = overload.partition(".")
    return getattr(getattr(torch.ops.aten, name), kind)._schema


def find(target: str) -> Any:
    """Return the object of a qualified name in the catalog ("torch.nn.Conv2d")."""
    if target.startswith(custom.TARGET):
        return custom_calls.resolve(target)
    root, *names = target.split(".")
    if root == "own":
        return ops_values.OWN[names[0]]
    if root == "torchvision":
        return getattr(import_torchvision(names[0]), names[1])
    if "Transformer" in target:
        use_meta_masks()
    target_object: Any = {"torch": torch, "operator": operator}[root]
    for name in names:
        target_object = getattr(target_object, name)
    return target_object


def _read(key: str, category: str) -> OpSpec:
    if key == "input":
        return _input_spec()
    if key == "output":
        return _output_spec()
    if key in ops_values.SPECS:
        return ops_values.SPECS[key]
    root, _, name = key.partition(".")
    name = name.rpartition(".")[2]
    target = _target(key)
    schema = schema_of(key, find(target))
    inputs, params = (
        _from_signature(key, find(target))
        if schema is None
        else _from_schema(key, schema)
    )
    inputs, params = _with_operands(key, inputs, params)
    return OpSpec(
        key=key,
        kind=_KINDS[root],
        target=target,
        label=ops.LABELS.get(key, name),
        category=category,
        stem=ops.STEMS.get(key, name.lower()),
        inputs=inputs,
        outputs=tuple(
            Port(n, kind) for n, kind in ops.OUTPUTS.get(key, (("output", "tensor"),))
        ),
        params=_with_positions(params, schema),
        outputs_by=ops.OUTPUTS_BY.get(key, ""),
    )


def _target(key: str) -> str:
    root, _, name = key.partition(".")
    return f"{_ROOTS.get(root, root)}.{name}"


def _input_spec() -> OpSpec:
    return OpSpec(
        key="input",
        kind="input",
        target="",
        label="Input",
        category="io",
        stem="input",
        params=(
            Param(
                "shape", "ints", required=True, count=0, minimum=1, start=(1, 28, 28)
            ),
            Param("dtype", "dtype", default=DType("float32"), choices=DTYPES),
            Param("low", "number", optional=True),
            Param("high", "number", optional=True),
            Param("batch", "int", default=0, optional=True, minimum=0),
        ),
    )


def _output_spec() -> OpSpec:
    return OpSpec(
        key="output",
        kind="output",
        target="",
        label="Output",
        category="io",
        stem="output",
        inputs=(Port("input"),),
        outputs=(),
        # The network's own outputs: a dictionary where all have a key, some in one mode alone.
        params=(
            Param("key", "str", None, optional=True),
            Param("when", "choice", "always", choices=("always", "training", "eval")),
        ),
    )


def _from_signature(
    key: str, target: Any
) -> tuple[tuple[Port, ...], tuple[Param, ...]]:
    """Read ports and parameters of an `nn.Module` (constructor and forward) or of a Python function."""
    documented = find(ops.SIGNATURES[key]) if key in ops.SIGNATURES else target
    if not inspect.isclass(target):
        return _split(key, inspect.signature(documented), call=False)
    constructor = documented if key in ops.SIGNATURES else target.__init__
    _, params = _split(key, inspect.signature(constructor), call=False)
    params += tuple(Param(**more) for more in ops.MORE.get(key, ()))
    ports, call_params = _split(
        key, inspect.signature(find(f"{_target(key)}.forward")), call=True
    )
    return ports, (*params, *call_params)


def _split(
    key: str, signature: inspect.Signature, call: bool
) -> tuple[tuple[Port, ...], tuple[Param, ...]]:
    ports, params = [], []
    hidden = ops.HIDDEN["*"] | ops.HIDDEN.get(key, frozenset())
    for name, argument in signature.parameters.items():
        variable = argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
        if name == "self" or name in hidden or variable:
            continue
        untyped = argument.annotation is inspect.Parameter.empty
        is_tensor = "Tensor" in str(argument.annotation) or (
            untyped and (call or name == "input")
        )
        if is_tensor and (key, name) not in ops.PARAMS:
            required = argument.default is inspect.Parameter.empty
            several = (key, name) in ops.VARIADIC
            ports.append(
                Port(name, ops.PORT_KINDS.get((key, name), "tensor"), required, several)
            )
        else:
            params.append(
                _param(key, name, argument.annotation, argument.default, call)
            )
    return tuple(ports), tuple(params)


def _param(key: str, name: str, annotation: Any, default: Any, call: bool) -> Param:
    required = default is inspect.Parameter.empty
    facts: dict[str, Any] = _facts(key, annotation, None if required else default)
    facts.update(
        default=None if required else default,
        required=required,
        minimum=ops.MINIMUM.get(name),
        maximum=ops.MAXIMUM.get(name),
        start=ops.STARTS.get(name),
        call=call,
    )
    if (key, name) in ops.AUTO_RULES:
        facts.update(auto=True, default=AUTO, required=False)
    facts["optional"] = facts["optional"] or (default is None and not required)
    if name == "dtype":
        facts.update(kind="dtype", optional=True)
    facts.update(ops.PARAMS.get((key, name), {}))
    if facts["kind"] == "float" and type(facts["default"]) is int:
        facts["default"] = float(facts["default"])
    if isinstance(facts["default"], list):
        facts["default"] = tuple(facts["default"])
    return Param(name, **facts)


def _facts(key: str, annotation: Any, default: Any) -> dict[str, Any]:
    """Kind, count, choices and whether None is allowed, from an annotation or, where there is none, the default."""
    members = _members(annotation)
    text = " ".join(str(member) for member in members)
    literal = [
        member for member in members if typing.get_origin(member) is typing.Literal
    ]
    if literal:
        return {
            "kind": "choice",
            "choices": typing.get_args(literal[0]),
            "optional": False,
        }
    several = [
        m
        for m in members
        if typing.get_origin(m) in (tuple, list) or m is torch.Size or "List" in str(m)
    ]
    if several:
        strings = ("same", "valid") if str in members else ()
        return {
            "kind": "ints",
            "count": _count(key, several[0]),
            "choices": strings,
            "optional": type(None) in members,
        }
    for kind, python in (("bool", bool), ("float", float), ("int", int), ("str", str)):
        if python in members:
            return {"kind": kind, "optional": type(None) in members}
    if annotation in (
        None,
        type(None),
    ):  # BroadcastingList2[int] is None outside of TorchScript
        return {
            "kind": "ints",
            "count": _count(key, None),
            "optional": annotation is not None,
        }
    if annotation is inspect.Parameter.empty:
        kind = (
            type(default).__name__ if isinstance(default, bool | int | float) else "int"
        )
        return {"kind": kind, "optional": default is None}
    raise TypeError(f"{key}: no editor for the annotation {text!r}")


def _members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(
            flattened
            for member in typing.get_args(annotation)
            for flattened in _members(member)
        )
    return (annotation,)


def _count(key: str, annotation: Any) -> int:
    """Return how many numbers a tuple takes; 0 for any number. `MaxPool2d` has `tuple[int, ...]` and means two."""
    arguments = typing.get_args(annotation)
    if (
        arguments
        and Ellipsis not in arguments
        and typing.get_origin(annotation) is tuple
    ):
        return len(arguments)
    dimension = re.search(r"(\d)d$", key)
    return int(dimension[1]) if dimension else 0


def _from_schema(key: str, schema: Any) -> tuple[tuple[Port, ...], tuple[Param, ...]]:
    ports, params = [], []
    for argument in schema.arguments:
        name, kind = argument.name, str(argument.type)
        if name in ops.HIDDEN.get(key, frozenset()):
            continue
        if "Tensor" in kind:
            port = "input" if name == "self" else name
            needed, several = not kind.startswith("Optional"), kind.startswith("List")
            ports.append(
                Port(
                    port,
                    required=needed,
                    variadic=several,
                    named=(key, name) in ops.NAMED,
                )
            )
        elif name != "dtype" or (key, name) in ops.PARAMS:
            params.append(_schema_param(key, argument))
    return tuple(ports), tuple(params)


def _with_operands(
    key: str, ports: tuple[Port, ...], params: tuple[Param, ...]
) -> tuple[tuple[Port, ...], tuple[Param, ...]]:
    """Mark the ports that accept a number instead, and add one for the tensor whose device a new one takes."""
    names = ops.OPERANDS.get(key, ())
    ports = tuple(
        replace(port, kind="tensor or number") if port.name in names else port
        for port in ports
    )
    if key in ops.LIKE:
        ports = (*ports, Port("like", named=True))
    return ports, (*(Param(name, "number", optional=True) for name in names), *params)


def _schema_param(key: str, argument: Any) -> Param:
    name, required = argument.name, not argument.has_default_value()
    optional = str(argument.type).startswith("Optional[")
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    default = None if required else argument.default_value
    facts: dict[str, Any] = {
        "kind": "ints" if kind.startswith("List[int") else _SCHEMA_KINDS[kind],
        "count": 0 if kind.startswith("List[int") else 1,
        "optional": bool(optional),
        "required": required,
        "default": tuple(default) if isinstance(default, list) else default,
        "minimum": ops.MINIMUM.get(name),
        "maximum": ops.MAXIMUM.get(name),
        "start": ops.STARTS.get(name),
    }
    facts.update(ops.PARAMS.get((key, name), {}))
    if facts["kind"] == "float" and type(facts["default"]) is int:
        facts["default"] = float(facts["default"])
    return Param(name, **facts)


def _with_positions(params: tuple[Param, ...], schema: Any) -> tuple[Param, ...]:
    """Mark leading arguments that are usually positional: without default, or a leading float (`Dropout(0.2)`).

    Those that the schema takes by name alone are not, such as `value` of `torch.addcmul`.
    """
    arguments = schema.arguments if schema is not None else ()
    by_name = {argument.name for argument in arguments if argument.kwarg_only}
    result = list(params)
    for i, param in enumerate(params):
        first_float = i == 0 and param.kind == "float"
        named = param.name in ("dim", "approximate", "dropout_p", *by_name)
        if param.call or not (param.required or param.auto or first_float) or named:
            break
        result[i] = replace(param, positional=True)
    return tuple(result)


_OWN: dict[str, Documentation] = {
    "input": Documentation(
        "A network input: an argument of forward, with the batch N first.",
        "The shape is that of one sample; the batch stays symbolic and is called N.",
        FrozenMap(
            shape="Sizes of one sample, without the batch.",
            dtype="Type of the values.",
            low="The smallest value of synthetic samples.",
            high="The largest value of synthetic samples; for integers exclusive, as in torch.randint.",
            batch="The batch dimension; None if there is none and the shape is complete.",
        ),
    ),
    "output": Documentation(
        "An output of the network: a value that forward returns.",
        "Several outputs are returned as a tuple, in the order they were added; as a dictionary where each has a key.",
        FrozenMap(
            key="Key in the dictionary that is returned if every output has one. A block's outputs have no keys.",
            when='Always returned, or only in training mode ("train") or only in evaluation mode ("eval").',
        ),
    ),
    **{
        key: Documentation(summary, text, FrozenMap(arguments))
        for key, (summary, text, arguments) in ops_values.WORDS.items()
    },
}


def documentation(key: str) -> Documentation:
    """Return the documentation of an op of the catalog; raises KeyError for others."""
    if key in _OWN:
        return _OWN[key]
    if custom.is_custom(key):
        return Documentation(*custom.documentation(key), FrozenMap())
    if key not in dict(ops.OPS):
        raise KeyError(key)
    root, _, name = key.partition(".")
    text = inspect.cleandoc(find(_target(key)).__doc__ or "")
    if root == "operator":
        summary = f"Elementwise {_OPERATORS[name]}, with broadcasting; of two numbers the number."
        return Documentation(summary, text, FrozenMap())
    arguments = _argument_docs(text).update(ops.ARGUMENTS.get(key, {}))
    return Documentation(ops.SUMMARIES.get(key) or _summary(text), text, arguments)


def _summary(text: str) -> str:
    """Return the first sentence, without signatures and markup."""
    paragraphs = [
        paragraph
        for paragraph in re.split(r"\n\s*\n", text)
        if not _MARKUP.match(paragraph)
    ]
    plain = _plain((paragraphs or [""])[0])
    sentence = re.match(r".*?[.](?=\s|$)", plain)
    return sentence[0] if sentence else f"{plain}."


def _argument_docs(text: str) -> FrozenMap[str, str]:
    """Return the description of each argument in the `Args:` section."""
    docs: dict[str, str] = {}
    for match in re.finditer(
        r"^\s{4,8}(\w+)(?: \([^)]*\))?: (.+(?:\n\s{8,}.+)*)", text, re.M
    ):
        docs.setdefault(match[1], _plain(match[2]))
    return FrozenMap(docs)


def _plain(markup: str) -> str:
    """Strip the markup of reStructuredText and LaTeX.

    >>> _plain("see :attr:`bias` and :ref:`notes <a>`, ``True``")
    'see bias and notes, True'
    """
    text = re.sub(r":\w+:`~?([^`<]+?)(?:\s*<[^>]+>)?`", r"\1", " ".join(markup.split()))
    return (
        re.sub(r"\\(?:text|mathrm|operatorname)\{([^}]*)\}", r"\1", text)
        .replace("``", "")
        .replace("\\", "")
    )


def use_meta_masks() -> None:
    """Patch torch to rely on `is_causal` for masks on meta tensors; masks with values are inspected as before."""
    detect = transformer._detect_is_causal_mask
    if getattr(detect, "_takes_meta", False):
        return

    def detected(
        mask: Any, is_causal: bool | None = None, size: int | None = None
    ) -> bool:
        example = getattr(mask, "known", mask)  # a traced mask holds its example
        if example is not None and example.is_meta:
            return bool(is_causal)
        return bool(detect(mask, is_causal, size))

    detected._takes_meta = True  # type: ignore[attr-defined]
    transformer._detect_is_causal_mask = detected


def main() -> None:
    """Write the snapshot of the installed torch; with `--print` to stdout."""
    raw = msgspec.json.encode(dump(read_catalog()))
    if sys.argv[1:] == ["--print"]:
        sys.stdout.buffer.write(raw)
        return
    target = resource_path() / BUNDLED
    target.write_bytes(msgspec.json.format(raw, indent=1) + b"\n")
    print(f"{target}: {len(ops.OPS)} ops of torch {torch.__version__}")


if __name__ == "__main__":
    main()
