"""Why a call does not run, in words with both shapes, and the clicks that mend it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from app.builder import ops
from app.builder.calls import BATCHES, Failed
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO, DType
from app.builder.plan import Step
from app.builder.problems import Cure, InsertBefore, Problem, ReplaceOp, SetParam
from app.builder.shapes import StepResult
from app.builder.value_types import Size, TensorType
from app.frozen import FrozenMap

Told = tuple[str, str, tuple[Cure, ...]]
Explainer = Callable[[Step, StepResult, Graph], Told | None]


def explain(step: Step, result: StepResult, graph: Graph) -> Problem:
    """The problem of a step whose call failed."""
    assert isinstance(result.outcome, Failed)
    explainers = (_wrong_dtype,) if result.outcome.dtype else (*_EXPLAINERS.get(step.spec.key, ()), _out_of_range)
    for explainer in explainers:
        told = explainer(step, result, graph)
        if told is not None:
            break
    else:
        words = re.sub(rf"\b{BATCHES[0]}\b", "N", result.outcome.error)
        told = (f"{step.node.name} does not fit: {words}", _arriving(step, result), ())
    message, reason, cures = told
    torch_message = result.outcome.real_error or result.outcome.error
    return Problem("error", step.id, message, reason, torch_message, cures=cures)


def _arriving(step: Step, result: StepResult) -> str:
    """What arrives at each port, as a sentence."""
    parts = [f"{port} is {', '.join(map(str, values))}" for port, values in result.inputs.items()]
    return f"{step.spec.label}: {'; '.join(parts)}." if parts else ""


def _first(result: StepResult) -> TensorType | None:
    value = next((values[0] for values in result.inputs.values()), None)
    return value if isinstance(value, TensorType) else None


def _sources(step: Step, graph: Graph) -> list[Node]:
    """The nodes whose values arrive, in the order of the ports."""
    return [graph.nodes[ref.node] for ref in step.refs()]


def _wrong_dtype(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """Layers that look up take whole numbers, most others floating point ones of the dtype of their weights."""
    wants_int = step.spec.key == "nn.Embedding"
    own = result.resolved.get("dtype")  # of a layer that computes in another
    wanted = "int64" if wants_int else own.name if step.spec.kind == "module" and own is not None else "float32"
    wires = [(port, ref, i) for port in step.spec.inputs for i, ref in enumerate(step.args.get(port.name, ()))]
    for port, ref, i in wires:
        value, source = result.inputs[port.name][i], graph.nodes[ref.node]
        if not isinstance(value, TensorType) or not port.required or (port.name == "index" and value.dtype == "int64"):
            continue
        if value.dtype.startswith(("int", "uint")) if wants_int else value.dtype == wanted:
            continue
        cures: tuple[Cure, ...] = ()
        if source.op == "input":
            cures = (Cure(f"Make {source.name} {wanted}", (SetParam(source.id, "dtype", DType(wanted)),)),)
        message = f"{step.spec.label} expects {wanted}, gets {value.dtype} in {value} from {source.name}"
        reason = f"It computes in {wanted}; change the dtype of what arrives."
        return message, "It looks rows up by number." if wants_int else reason, cures
    return None


def _wrong_rank(*ranks: int) -> Explainer:
    """The input has too few or too many dimensions."""

    def explainer(step: Step, result: StepResult, graph: Graph) -> Told | None:
        shape = _first(result)
        if shape is None or len(shape.shape) in ranks:
            return None
        wanted = " or ".join(str(rank) for rank in ranks)
        message = f"{step.spec.label} expects {wanted} dimensions, gets {shape}"
        count = len(shape.shape)
        return message, f"{shape} has {count}, with the batch counted.", _rank_cures(step, shape, max(ranks))

    return explainer


def _rank_cures(step: Step, shape: TensorType, wanted: int) -> tuple[Cure, ...]:
    """A Flatten of what is too much, a channel where one is missing, a square picture of what was flattened."""
    port, rank = next(iter(step.args)), len(shape.shape)
    if rank > wanted >= 2:
        params: FrozenMap[str, Any] = FrozenMap(start_dim=wanted - 1) if wanted > 2 else FrozenMap()
        return (Cure("Insert Flatten", (InsertBefore(step.id, port, "nn.Flatten", params),)),)
    if rank + 1 == wanted:
        return (Cure("Add a channel dimension", (_unflatten(step, port, (1, -1)),)),)
    flat = shape.per_sample()
    side = math.isqrt(flat) if flat else 0
    if wanted == 4 and rank == 2 and flat and side * side == flat:
        return (Cure(f"Make it 1×{side}×{side}", (_unflatten(step, port, (1, side, side)),)),)
    return ()


def _unflatten(step: Step, port: str, sizes: tuple[int, ...]) -> InsertBefore:
    return InsertBefore(step.id, port, "nn.Unflatten", FrozenMap(dim=1, unflattened_size=sizes))


def _wrong_size(param: str, what: str) -> Explainer:
    """A size given in the constructor that is not the one that arrives."""

    def explainer(step: Step, result: StepResult, graph: Graph) -> Told | None:
        shape, declared = _first(result), result.resolved.get(param)
        _, index = ops.AUTO_RULES[step.spec.key, param]
        if shape is None or not isinstance(index, int) or not -len(shape.shape) <= index < len(shape.shape):
            return None
        arriving = shape.shape[index]
        if declared == arriving:
            return None
        return _size_told(step, shape, param, what, declared, arriving)

    return explainer


def _size_told(step: Step, shape: TensorType, param: str, what: str, declared: Any, arriving: Size) -> Told:
    sample = shape.shape[1:]
    flat = shape.per_sample()
    port = next(iter(step.args))
    follow = Cure(f"Take {param} from the input", (SetParam(step.id, param, AUTO),))
    if step.spec.key == "nn.Linear" and len(shape.shape) > 2 and flat == declared:
        message = f"{step.spec.label} expects {declared} features, gets {_times(sample)} — insert Flatten"
        reason = f"{' · '.join(map(str, sample))} = {flat}, so a Flatten before {step.node.name} fits exactly."
        return message, reason, (Cure("Insert Flatten", (InsertBefore(step.id, port, "nn.Flatten"),)),)
    message = f"{step.spec.label} expects {declared} {what}, gets {arriving} in {shape}"
    reason = f"{param} is {declared}; {_times(shape.shape)} brings {arriving}."
    if step.spec.key == "nn.Linear" and len(shape.shape) > 2:
        flatten = InsertBefore(step.id, port, "nn.Flatten")
        both = Cure("Insert Flatten and follow", (flatten, SetParam(step.id, param, AUTO)))
        return message, reason, (both, follow)
    return message, reason, (follow,)


def _too_small(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """A window that is larger than the padded picture."""
    shape = _first(result)
    if shape is None or "greater than actual input" not in _words(result) and "too small" not in _words(result):
        return None
    kernel = result.resolved.get("kernel_size")
    sides = _times(shape.shape[2:])
    window = _kernel(kernel, len(shape.shape) - 2)
    message = f"{step.spec.label} has a window of {window}, larger than the {sides} that arrives"
    reason = f"{shape} leaves no place for the window; use a smaller kernel_size, more padding or less pooling before."
    cures: tuple[Cure, ...] = ()
    if step.spec.param("padding") is not None and kernel not in (None, 1):
        half = tuple(side // 2 for side in kernel) if isinstance(kernel, tuple) else kernel // 2
        cures = (Cure(f"Set padding={half}", (SetParam(step.id, "padding", half),)),)
    return message, reason, cures


def _no_broadcast(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """Two shapes that do not broadcast: the pair of dimensions that is in the way."""
    values = [values[0] for values in result.inputs.values()]
    if len(values) != 2 or not all(isinstance(value, TensorType) for value in values):
        return None
    left, right = (value.shape for value in values if isinstance(value, TensorType))
    names = [node.name for node in _sources(step, graph)]
    for back in range(1, min(len(left), len(right)) + 1):
        a, b = left[-back], right[-back]
        if a != b and 1 not in (a, b):
            message = f"{step.spec.label} cannot join {values[0]} and {values[1]}"
            reason = (
                f"Counted from the right, dimension {back} is {a} from {names[0]} and {b} from {names[1]}; "
                "they must be equal, or one of them 1."
            )
            return message, reason, ()
    return None


def _no_cat(step: Step, result: StepResult, graph: Graph) -> Told | None:
    shapes = [value for value in result.inputs.get("tensors", ()) if isinstance(value, TensorType)]
    dim = result.resolved.get("dim", 0)
    names = [node.name for node in _sources(step, graph)]
    for value, name in zip(shapes[1:], names[1:], strict=True):
        if len(value.shape) != len(shapes[0].shape):
            reason = f"{names[0]} gives {shapes[0]}, {name} gives {value}: the number of dimensions differs."
            return f"cat cannot join {shapes[0]} and {value}", reason, ()
        if not value.shape:
            return "cat cannot join scalars", f"{names[0]} and {name} have no dimension to join along.", ()
        unlike = [i for i, (a, b) in enumerate(zip(shapes[0].shape, value.shape, strict=True)) if a != b]
        others = [i for i in unlike if i != dim % len(value.shape)]
        if others:
            reason = f"Along dim={dim} all other dimensions must agree; dimension {others[0]} is "
            reason += f"{shapes[0].shape[others[0]]} from {names[0]} and {value.shape[others[0]]} from {name}."
            cure = Cure(f"Set dim={unlike[0]}", (SetParam(step.id, "dim", unlike[0]),))
            return f"cat cannot join {shapes[0]} and {value}", reason, (cure,) if len(unlike) == 1 else ()
    return None


def _no_matmul(step: Step, result: StepResult, graph: Graph) -> Told | None:
    values = [values[0] for values in result.inputs.values()]
    if len(values) != 2 or not all(isinstance(value, TensorType) and value.shape for value in values):
        return None
    left, right = (value.shape for value in values if isinstance(value, TensorType))
    inner = right[-2] if len(right) > 1 else right[-1]
    if left[-1] == inner:
        return None
    cures: tuple[Cure, ...] = ()
    if len(right) > 1 and left[-1] == right[-1]:
        turn = InsertBefore(step.id, "other", "torch.transpose", FrozenMap(dim0=-2, dim1=-1))
        cures = (Cure("Transpose the second", (turn,)),)
    reason = f"The last dimension of the first, {left[-1]}, must equal the last but one of the second, {inner}."
    return f"matmul cannot multiply {values[0]} and {values[1]}", reason, cures


def _no_view(param: str) -> Explainer:
    def explainer(step: Step, result: StepResult, graph: Graph) -> Told | None:
        shape, wanted = _first(result), result.resolved.get(param)
        if shape is None or not isinstance(wanted, tuple):
            return None
        flat = shape.per_sample()
        given = math.prod(size for size in wanted if size > 0)
        message = f"{step.spec.label} to {wanted} does not fit {shape}"
        if shape.strides is not None and "stride" in _words(result):
            turned = f"{step.spec.label} cannot lay {shape} out as {wanted}: its values do not lie in a row in memory"
            instead = Cure("Use torch.reshape instead", (ReplaceOp(step.id, "torch.reshape", FrozenMap(shape=wanted)),))
            return turned, "A transposed tensor shares the memory of the one before; reshape copies it.", (instead,)
        if flat is None:
            return message, f"{given} values do not go into {shape}.", ()
        cure = Cure(f"Set {param}=(-1, {flat})", (SetParam(step.id, param, (-1, flat)),))
        return message, f"A sample of {shape} has {flat} values, {wanted} takes {given} in a row.", (cure,)

    return explainer


def _no_unflatten(step: Step, result: StepResult, graph: Graph) -> Told | None:
    shape, dim = _first(result), result.resolved.get("dim")
    sizes = result.resolved.get("unflattened_size")
    if shape is None or type(dim) is not int or not isinstance(sizes, tuple) or not sizes:
        return None
    if not -len(shape.shape) <= dim < len(shape.shape):
        return None
    size = shape.shape[dim]
    message = f"Unflatten cannot make {sizes} of dimension {dim} of {shape}"
    options = ((*sizes[:-1], -1), (-1, *sizes[1:]), (1, -1))
    cures = tuple(
        Cure(f"Set unflattened_size={new}", (SetParam(step.id, "unflattened_size", new),))
        for new in options
        if new.count(-1) == 1 and isinstance(size, int) and size % abs(math.prod(new) or size + 1) == 0
    )
    return message, f"It holds {size} values, and the product of the sizes must be as many.", cures[:1]


def _no_axes(step: Step, result: StepResult, graph: Graph) -> Told | None:
    shape, dims = _first(result), result.resolved.get("dims")
    if shape is None or not isinstance(dims, tuple):
        return None
    rank = len(shape.shape)
    natural = (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))
    cure = Cure(f"Set dims={natural}", (SetParam(step.id, "dims", natural),))
    if len(dims) == rank:
        return f"permute to {dims} does not fit {shape}", f"Each of 0 to {rank - 1} is named once.", (cure,)
    return f"permute names {len(dims)} dimensions, {shape} has {rank}", "Each dimension is named once.", (cure,)


def _out_of_range(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """A parameter that names a dimension which the input has not."""
    shape = _first(result)
    if shape is None or "Dimension out of range" not in _words(result):
        return None
    rank = len(shape.shape)
    for param in step.spec.params:
        value = result.resolved.get(param.name, param.default)
        dims = value if isinstance(value, tuple) else (value,)
        if "dim" not in param.name or all(type(dim) is int and -rank <= dim < rank for dim in dims):
            continue
        message = f"{step.node.name} has {param.name}={value}, which {shape} has not"
        reason = f"{shape} has the dimensions 0 to {rank - 1}; -1 is the last."
        new: Any = tuple(dim for dim in dims if type(dim) is int and -rank <= dim < rank) or (-1,)
        new = new if isinstance(value, tuple) else -1
        return message, reason, (Cure(f"Set {param.name}={new}", (SetParam(step.id, param.name, new),)),)
    return None


def _no_heads(step: Step, result: StepResult, graph: Graph) -> Told | None:
    width, heads = result.resolved.get("embed_dim"), result.resolved.get("num_heads")
    if type(width) is not int or type(heads) is not int or width % heads == 0:
        return None
    fitting = max(number for number in range(1, min(heads, width) + 1) if width % number == 0)
    cure = Cure(f"Set num_heads={fitting}", (SetParam(step.id, "num_heads", fitting),))
    message = f"{step.spec.label} cannot part {width} features among {heads} heads"
    return message, f"embed_dim={width} must be divisible by num_heads={heads}; {_arriving(step, result)}", (cure,)


def _no_attention(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """Keys or values of another width than the queries."""
    width = result.resolved.get("embed_dim")
    for port, param in (("key", "kdim"), ("value", "vdim")):
        value = result.inputs[port][0] if port in result.inputs else None
        if not isinstance(value, TensorType) or not value.shape:
            continue
        wanted = result.resolved.get(param) or width
        if value.shape[-1] != wanted:
            message = f"{step.spec.label} expects {wanted} features as {port}, gets {value.shape[-1]} in {value}"
            cure = Cure(f"Set {param}={value.shape[-1]}", (SetParam(step.id, param, value.shape[-1]),))
            return message, f"{param} is {wanted}; it says how many features each {port} has.", (cure,)
    return None


def _no_groups(step: Step, result: StepResult, graph: Graph) -> Told | None:
    groups = result.resolved.get("groups", 1)
    for param in ("in_channels", "out_channels"):
        channels = result.resolved.get(param)
        if type(channels) is int and channels % groups:
            cure = Cure("Set groups=1", (SetParam(step.id, "groups", 1),))
            message = f"{step.spec.label} cannot part {channels} channels into {groups} groups"
            reason = f"{param}={channels} must be divisible by groups={groups}; {_arriving(step, result)}"
            return message, reason, (cure,)
    return None


def _no_norm(step: Step, result: StepResult, graph: Graph) -> Told | None:
    shape, wanted = _first(result), result.resolved.get("normalized_shape")
    sizes = wanted if isinstance(wanted, tuple) else (wanted,)
    if shape is None or shape.shape[-len(sizes) :] == sizes:
        return None
    message = f"LayerNorm expects {_times(sizes)} last, gets {shape}"
    follow = Cure("Take normalized_shape from the input", (SetParam(step.id, "normalized_shape", AUTO),))
    return message, f"normalized_shape is {wanted}; {shape} does not end so.", (follow,)


def _words(result: StepResult) -> str:
    outcome = result.outcome
    return f"{outcome.error} {outcome.real_error}" if isinstance(outcome, Failed) else ""


def _times(sizes: tuple[Size, ...]) -> str:
    return "×".join(map(str, sizes))


def _kernel(kernel: Any, sides: int) -> str:
    return _times(kernel if isinstance(kernel, tuple) else (kernel,) * sides)


_channels = _wrong_size("in_channels", "channels")
_features = _wrong_size("num_features", "features")
_window = (_wrong_rank(4), _too_small)
_recurrent = (_wrong_rank(2, 3), _wrong_dtype, _wrong_size("input_size", "features"))
_EXPLAINERS: dict[str, tuple[Explainer, ...]] = {
    "nn.Conv1d": (_wrong_rank(3), _no_groups, _wrong_dtype, _channels, _too_small),
    "nn.Conv2d": (_wrong_rank(4), _no_groups, _wrong_dtype, _channels, _too_small),
    "nn.ConvTranspose2d": (_wrong_rank(4), _no_groups, _wrong_dtype, _channels),
    "nn.Linear": (_wrong_dtype, _wrong_size("in_features", "features")),
    "nn.BatchNorm1d": (_wrong_rank(2, 3), _features),
    "nn.BatchNorm2d": (_wrong_rank(4), _features),
    "nn.LayerNorm": (_no_norm,),
    "nn.MaxPool2d": _window,
    "nn.AvgPool2d": _window,
    "nn.AdaptiveAvgPool2d": (_wrong_rank(4),),
    "nn.Unflatten": (_no_unflatten,),
    "F.max_pool2d": _window,
    "nn.Embedding": (_wrong_dtype,),
    "nn.LSTM": _recurrent,
    "nn.GRU": _recurrent,
    "nn.MultiheadAttention": (
        _wrong_rank(2, 3), _wrong_dtype, _no_heads, _wrong_size("embed_dim", "features"), _no_attention,
    ),
    "operator.add": (_no_broadcast,),
    "operator.sub": (_no_broadcast,),
    "operator.mul": (_no_broadcast,),
    "torch.matmul": (_no_matmul,),
    "torch.cat": (_no_cat,),
    "Tensor.view": (_no_view("size"),),
    "torch.reshape": (_no_view("shape"),),
    "torch.permute": (_no_axes,),
}  # fmt: skip
