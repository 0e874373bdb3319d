"""Example inputs: tensors of a described shape, inputs from a file, and proposals from what a model is made of."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from app.source import raised
from app.source.interface import LABELS
from app.sources.spec import (
    ARANGE,
    BATCH,
    EXAMPLES,
    ExampleSpec,
    InputSpec,
    ModelRaisedError,
    SourceError,
)
from app.util import module_tree, tensor_files

IDS = ("input_ids", "ids", "idx", "tokens", "token_ids", "decoder_input_ids")
_SINGLE = (
    "t",
    "timestep",
    "timesteps",
    "time",
    "step",
    "labels",
    "label",
    "class_labels",
    "y",
    "target",
    "targets",
)
_POSITIONS = ("position_ids", "positions", "pos", "pos_ids")
_RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

Call = tuple[
    tuple[Any, ...], dict[str, Any]
]  # the arguments by position, and those by name


def dtype_of(model: nn.Module) -> str:
    """Return the dtype of a model's weights; torch's default where they have several or there are none."""
    kinds = {
        parameter.dtype
        for parameter in module_tree.parameters(model)
        if parameter.dtype.is_floating_point
    }
    kind = kinds.pop() if len(kinds) == 1 else torch.get_default_dtype()
    return str(kind).removeprefix("torch.")


def example(spec: InputSpec, floats: str = "float32") -> Tensor:
    """Return a tensor of this description on the current default device: normal numbers, or of integers zeros and ones,
    which are indices of anything that has two entries. The generator is left as it was.

    `floats` is the dtype of one that is described without.
    """
    dtype = getattr(torch, spec.dtype or floats)
    if torch.get_default_device().type == "meta":
        return torch.empty(spec.shape, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    if spec.values == ARANGE:
        return (
            torch.arange(spec.shape[-1] if spec.shape else 1)
            .expand(spec.shape)
            .clone()
            .to(dtype)
        )
    low, high = spec.bounds or (0.0, 1.0)
    if low > high:
        return falling(low, high, spec.shape).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        wide = dtype if dtype.itemsize >= 4 else torch.float32
        if spec.bounds is None:
            return torch.randn(spec.shape, dtype=wide, generator=generator).to(dtype)
        return (torch.rand(spec.shape, generator=generator) * (high - low) + low).to(
            dtype
        )
    return torch.randint(int(low), int(high) + 1, spec.shape, generator=generator).to(
        dtype
    )


def falling(high: float, low: float, shape: Sequence[int]) -> Tensor:
    """Return whole numbers that fall from `high` to `low` along the first axis."""
    rows = torch.linspace(high, low, shape[0] if shape else 1).round()
    return (
        rows.reshape(-1, *((1,) * (len(shape) - 1))).expand(*shape).clone()
        if shape
        else rows[0]
    )


def called_with(inputs: Sequence[InputSpec], tensors: Sequence[Tensor]) -> Call:
    """Return the arguments that consist of these tensors, each in the place that its description names.

    Raises SourceError for places that contradict one another.
    """
    args, tree = [], dict[Any, Any]()
    for spec, tensor in zip(inputs, tensors, strict=True):
        if not spec.name:
            args.append(tensor)
            continue
        *way, last = spec.steps
        inner = tree
        for step in way:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise SourceError(
                    f"{spec.name}: {step} is a tensor already, which has no parts"
                )
        if last in inner:
            raise SourceError(f"{spec.name} is described twice")
        inner[last] = tensor
    return tuple(args), {name: _nested(name, value) for name, value in tree.items()}


def _nested(name: str, value: Any) -> Any:
    """Return what has these parts: a tuple or a list where they are numbered, else a dictionary."""
    if not isinstance(value, dict):
        return value
    kinds = {type(step) for step in value}
    if len(kinds) > 1:
        raise SourceError(
            f"{name} has both names and numbers below it; describe the parts of one in the same way"
        )
    parts = {step: _nested(name, child) for step, child in value.items()}
    if kinds == {str}:
        return parts
    numbered = {
        step[0] if isinstance(step, tuple) else step: child
        for step, child in parts.items()
    }
    if [*sorted(numbered)] != [*range(len(numbered))]:
        raise SourceError(f"the parts of {name} are numbered from 0, without a gap")
    ordered = [numbered[index] for index in range(len(numbered))]
    return ordered if kinds == {tuple} else tuple(ordered)


# --- Of a file


def from_file(
    spec: ExampleSpec, model: nn.Module, imported: Callable[[Path], Any]
) -> Call:
    """Return the inputs of a file; `imported` runs a Python file. Raises SourceError for one that has none, and
    ModelRaisedError for a function that raises."""
    path = Path(spec.file)
    if not path.is_file():
        raise SourceError(f"--example {spec}: there is no file {spec.file}")
    if path.name.endswith(BATCH):
        batch = _stored(path)
        return of_batch(batch["inputs"], batch["targets"], model)
    if not spec.function:
        return arranged(_stored(path), model)
    module = imported(path)
    function = getattr(module, spec.function, None)
    if not callable(function):
        raise SourceError(
            f"--example {spec}: {path.name} has no function {spec.function}"
        )
    try:
        return arranged(function(), model)
    except (Exception, SystemExit) as error:
        raise ModelRaisedError(
            f"--example {spec} failed: {raised.sentence(error)}"
        ) from error


def _stored(path: Path) -> Any:
    try:
        if path.suffix != ".npz":
            return tensor_files.load(path)
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # readers of damaged files raise anything
        why = (
            str(error).strip().splitlines()[0]
            if str(error).strip()
            else type(error).__name__
        )
        raise SourceError(
            f"--example {path} cannot be read as tensors ({' or '.join(EXAMPLES)}): {why}"
        ) from error


def arranged(value: Any, model: nn.Module) -> Call:
    """Return what is given as an example as the arguments of forward: a tuple by position, a dictionary by name where
    forward has these names, else as its one argument, as anything else.

    >>> arranged({"x": 1}, nn.Linear(1, 1))
    (({'x': 1},), {})
    >>> arranged({"input": 1}, nn.Linear(1, 1)), arranged((1, 2), nn.Linear(1, 1))
    (((), {'input': 1}), ((1, 2), {}))
    """
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], tuple)
        and isinstance(value[1], dict)
    ):
        return value
    if isinstance(value, tuple):
        return value, {}
    if not isinstance(value, Mapping):
        return (value,), {}
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    names = {parameter.name for parameter in parameters}
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
    if value.keys() <= names or (takes_any and not (names - {"kwargs"}) - value.keys()):
        return (), dict(value)
    return (dict(value),), {}


def of_batch(
    inputs: Mapping[str, Tensor], targets: Mapping[str, Tensor], model: nn.Module
) -> Call:
    """Return a batch of data as the arguments of forward: each field as the argument of its name, the target as one
    with a usual name of it, and the other inputs in the order of the arguments that are left. Raises SourceError for an
    argument that no field is left for.

    >>> of_batch({"": torch.ones(2)}, {"target": torch.zeros(2)}, nn.Linear(1, 1))
    ((tensor([1., 1.]),), {})
    """
    inputs = {name: _as_weights(tensor, model) for name, tensor in inputs.items()}
    needed = needed_arguments(model)
    if needed is None:
        return tuple(inputs.values()), {}
    fields = {**targets, **inputs}
    named = {
        name: fields[name]
        for name in inspect.signature(model.forward).parameters
        if name in fields
    }
    if len(needed) == 1 and len(inputs) > 1 and not named:
        return (fields,), {}
    free = [tensor for name, tensor in inputs.items() if name not in named]
    labels = [target for name, target in targets.items() if name not in named]
    for argument in needed:
        if argument.name in named:
            continue
        source = labels if argument.name in LABELS and labels else free
        if not source:
            names = ", ".join(filter(None, fields)) or "one input"
            raise SourceError(
                f"the data have nothing for {argument.name} of forward, only {names}; give --input"
            )
        named[argument.name] = source.pop(0)
    args, kwargs = by_position(model, named)
    return args, {
        **kwargs,
        **{
            name: tensor
            for name, tensor in named.items()
            if name not in {parameter.name for parameter in needed}
        },
    }


def _as_weights(value: Tensor, model: nn.Module) -> Tensor:
    """Return an input on the current default device, floating point numbers in the dtype of the weights."""
    value = value.to(torch.get_default_device())
    return (
        value.to(getattr(torch, dtype_of(model)))
        if value.is_floating_point()
        else value
    )


# --- Proposed


def needed_arguments(model: nn.Module) -> tuple[inspect.Parameter, ...] | None:
    """Return the arguments without which forward cannot be called; None if it does not say."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in various
    )


def by_position(model: nn.Module, kwargs: Mapping[str, Any]) -> Call:
    """Return needed arguments as most callers pass them: by position where forward takes them so."""
    needed = needed_arguments(model) or ()
    args = tuple(
        kwargs[parameter.name]
        for parameter in needed
        if parameter.kind != parameter.KEYWORD_ONLY
    )
    return args, {
        parameter.name: kwargs[parameter.name]
        for parameter in needed
        if parameter.kind == parameter.KEYWORD_ONLY
    }


def proposals(model: nn.Module) -> Iterator[tuple[InputSpec, ...]]:
    """Yield descriptions of all needed arguments of forward, the likeliest first; none if it does not say which, or if
    the sizes of its layers are to come from its first call."""
    needed = needed_arguments(model)
    if not needed or any(
        map(torch.nn.parameter.is_lazy, module_tree.parameters(model))
    ):
        return
    used, keys = _uses(model)
    paths = [
        path
        for parameter in needed
        for path in (keys.get(parameter.name) or (parameter.name,))
    ]
    usual = [*_layouts(model)] or [InputSpec((2, 3, 32, 32))]
    choices = [[*_choices(path, used.get(path), usual)] for path in paths]
    for number in range(max(map(len, choices))):
        yield tuple(options[min(number, len(options) - 1)] for options in choices)


def _choices(
    path: str, layer: nn.Module | None, usual: Sequence[InputSpec]
) -> Iterator[InputSpec]:
    """Yield descriptions of one argument: by the layer that it goes into, by its name, else those that are `usual`."""
    layouts = [*_layouts(layer)] if layer is not None else []
    name_spec = _by_name(path.rpartition(".")[2])
    if not layouts and name_spec is not None:
        yield InputSpec(name_spec.shape, name_spec.dtype, path, name_spec.values)
        return
    for spec in dict.fromkeys((*layouts, *usual)):
        yield InputSpec(spec.shape, spec.dtype, path, spec.values)


def _uses(model: nn.Module) -> tuple[dict[str, nn.Module], dict[str, tuple[str, ...]]]:
    """Return the layer that each argument of forward is passed to first, and the keys that forward reads from those
    that are dictionaries, as far as its text shows them: `self.text(batch["ids"])` passes `batch.ids` to `text`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(type(model).forward)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}, {}
    layers: dict[str, nn.Module] = {}
    keys: dict[str, tuple[str, ...]] = {}
    optional = {
        node.left.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.ops[0], ast.In)
    }
    nodes = sorted(
        ast.walk(tree),
        key=lambda ast_node: (
            getattr(ast_node, "lineno", 0),
            getattr(ast_node, "col_offset", 0),
        ),
    )
    assigned: dict[str, int] = {}  # the line from which on a name means something else
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.setdefault(node.id, node.lineno)

    def argument(node: ast.expr) -> str:
        path = _path_of(node)
        return (
            path
            if assigned.get(path.partition(".")[0], node.lineno) >= node.lineno
            else ""
        )

    for node in nodes:
        if (
            isinstance(node, ast.Subscript)
            and (path := argument(node))
            and path.partition(".")[2] not in optional
        ):
            name = path.partition(".")[0]
            keys[name] = tuple(dict.fromkeys((*keys.get(name, ()), path)))
        if (
            isinstance(node, ast.Call)
            and node.args
            and (layer := _layer_of(model, node.func)) is not None
        ):
            layers.setdefault(argument(node.args[0]), layer)
    return layers, keys


def _path_of(node: ast.AST) -> str:
    """Return the path of a name or of a key of a dictionary, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and isinstance(node.slice, ast.Constant)
    ):
        key = node.slice.value
        return (
            f"{node.value.id}.{key}"
            if isinstance(key, str) and key.isidentifier()
            else ""
        )
    return ""


def _layer_of(model: nn.Module, node: ast.AST) -> nn.Module | None:
    """Return the layer that an expression such as `self.text` stands for."""
    if not (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ):
        return None
    layer = getattr(model, node.attr, None)
    return layer if isinstance(layer, nn.Module) else None


def _by_name(name: str) -> InputSpec | None:
    """Return a description of an argument whose name says what it is."""
    if name in IDS or name.endswith("_ids") and name not in _POSITIONS:
        return InputSpec((2, 16), "int64", name)
    if name in _POSITIONS:
        return InputSpec((2, 16), "int64", name, ARANGE)
    if name in ("edge_index", "edges"):
        return InputSpec((2, 8), "int64", name)
    if "mask" in name:
        return InputSpec((2, 16), "bool", name)
    if "length" in name or name in ("lens", "seq_lens"):
        return InputSpec((2,), "int64", name, "16..1")
    if name in _SINGLE:
        return InputSpec((2,), "int64", name)
    return None


def _layouts(model: nn.Module) -> Iterator[InputSpec]:
    """Yield the usual inputs of the first layer with weights; of one whose sizes are not known yet, none."""
    for layer in module_tree.modules(model):
        if any(
            map(
                torch.nn.parameter.is_lazy, module_tree.parameters(layer, recurse=False)
            )
        ):
            return
        if isinstance(layer, nn.Linear):
            yield InputSpec((2, layer.in_features))
            yield InputSpec((2, 16, layer.in_features))
            yield from _pictures_of(layer.in_features)
            return
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            yield InputSpec((2, 16), "int64")
            return
        if isinstance(layer, _CONVOLUTIONS):
            dimensions = len(layer.kernel_size)
            for size in (64, 32, 28, 16, 224):
                yield InputSpec((2, layer.in_channels, *((size,) * dimensions)))
            yield InputSpec((2, *((64,) * dimensions), layer.in_channels))
            yield InputSpec((2, *((64,) * dimensions)))
            return
        if isinstance(layer, nn.BatchNorm1d):
            yield InputSpec((2, layer.num_features))
            yield InputSpec((2, layer.num_features, 16))
            return
        if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm3d):
            yield InputSpec(
                (
                    2,
                    layer.num_features,
                    *((32,) * (2 if isinstance(layer, nn.BatchNorm2d) else 3)),
                )
            )
            return
        if isinstance(layer, _RECURRENT):
            yield InputSpec((2, 16, layer.input_size))
            yield InputSpec((2, layer.input_size, 16))
            return
        if isinstance(layer, nn.MultiheadAttention):
            yield InputSpec((2, 16, layer.embed_dim))
            return


def _pictures_of(features: int) -> Iterator[InputSpec]:
    """Yield the square pictures that have so many values, for a model that flattens its input itself."""
    for channels in (1, 3):
        side = round((features / channels) ** 0.5)
        if channels * side * side == features:
            yield InputSpec((2, channels, side, side))
