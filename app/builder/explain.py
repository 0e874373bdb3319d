"""Why a call does not run, in words with both shapes, and the clicks that mend it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from app.builder import ops
from app.builder.graph import Graph
from app.builder.literals import AUTO, DType
from app.builder.plan import Step
from app.builder.problems import Cure, InsertBefore, Problem, SetParam
from app.builder.shapes import Failed, StepResult
from app.builder.value_types import Size, TensorType
from app.frozen import FrozenMap

Told = tuple[str, str, tuple[Cure, ...]]
Explainer = Callable[[Step, StepResult, Graph], Told | None]


def explain(step: Step, result: StepResult, graph: Graph) -> Problem:
    """The problem of a step whose call failed."""
    assert isinstance(result.outcome, Failed)
    for explainer in _EXPLAINERS.get(step.spec.key, ()):
        told = explainer(step, result, graph)
        if told is not None:
            break
    else:
        told = (f"{step.node.name} does not fit: {result.outcome.error}", _arriving(step, result), ())
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


def _wrong_dtype(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """Layers that look up take whole numbers, all others take floating point ones."""
    shape = _first(result)
    wants_int = step.spec.key == "nn.Embedding"
    if shape is None or shape.dtype.startswith(("int", "uint")) == wants_int:
        return None
    wanted = "int64" if wants_int else "float32"
    edge = graph.into(step.id)[0]
    source = graph.nodes[edge.source]
    cures = ()
    if source.op == "input":
        cures = (Cure(f"Make {source.name} {wanted}", (SetParam(source.id, "dtype", DType(wanted)),)),)
    reason = "It looks rows up by number." if wants_int else "Its weights are float32, and both must agree."
    return f"{step.spec.label} expects {wanted}, gets {shape.dtype} from {source.name}", reason, cures


def _wrong_rank(*ranks: int) -> Explainer:
    """The input has too few or too many dimensions."""

    def explainer(step: Step, result: StepResult, graph: Graph) -> Told | None:
        shape = _first(result)
        if shape is None or len(shape.shape) in ranks:
            return None
        wanted = " or ".join(str(rank) for rank in ranks)
        message = f"{step.spec.label} expects {wanted} dimensions, gets {shape}"
        return message, f"{shape} has {len(shape.shape)}, with the batch counted.", _rank_cures(step, shape, ranks)

    return explainer


def _rank_cures(step: Step, shape: TensorType, ranks: tuple[int, ...]) -> tuple[Cure, ...]:
    port = next(iter(step.args))
    if len(shape.shape) == 3 and ranks == (4,):
        add = InsertBefore(step.id, port, "nn.Unflatten", FrozenMap(dim=0, unflattened_size=(-1, 1)))
        return (Cure("Add a channel dimension", (add,)),)
    if len(shape.shape) > max(ranks):
        return (Cure("Insert Flatten", (InsertBefore(step.id, port, "nn.Flatten"),)),)
    return ()


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
    message = f"{step.spec.label} has a window of {_kernel(kernel)}, larger than the {sides} that arrives"
    reason = f"{shape} leaves no place for the window; use a smaller kernel_size, more padding or less pooling before."
    cures = ()
    if step.spec.param("padding") is not None and isinstance(kernel, int) and kernel > 1:
        cures = (Cure(f"Set padding={kernel // 2}", (SetParam(step.id, "padding", kernel // 2),)),)
    return message, reason, cures


def _no_broadcast(step: Step, result: StepResult, graph: Graph) -> Told | None:
    """Two shapes that do not broadcast: the pair of dimensions that is in the way."""
    values = [values[0] for values in result.inputs.values()]
    if len(values) != 2 or not all(isinstance(value, TensorType) for value in values):
        return None
    left, right = (value.shape for value in values if isinstance(value, TensorType))
    names = [graph.nodes[edge.source].name for edge in graph.into(step.id)]
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
    names = [graph.nodes[edge.source].name for edge in graph.into(step.id)]
    for value, name in zip(shapes[1:], names[1:], strict=False):
        if len(value.shape) != len(shapes[0].shape):
            reason = f"{names[0]} gives {shapes[0]}, {name} gives {value}: the number of dimensions differs."
            return f"cat cannot join {shapes[0]} and {value}", reason, ()
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
    cures = ()
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
        if flat is None:
            return message, f"{given} values do not go into {shape}.", ()
        cure = Cure(f"Set {param}=(−1, {flat})", (SetParam(step.id, param, (-1, flat)),))
        return message, f"A sample of {shape} has {flat} values, {wanted} takes {given} in a row.", (cure,)

    return explainer


def _no_axes(step: Step, result: StepResult, graph: Graph) -> Told | None:
    shape, dims = _first(result), result.resolved.get("dims")
    if shape is None or not isinstance(dims, tuple) or len(dims) == len(shape.shape):
        return None
    rank = len(shape.shape)
    natural = (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))
    cure = Cure(f"Set dims={natural}", (SetParam(step.id, "dims", natural),))
    return f"permute names {len(dims)} dimensions, {shape} has {rank}", "Each dimension is named once.", (cure,)


def _words(result: StepResult) -> str:
    outcome = result.outcome
    return f"{outcome.error} {outcome.real_error}" if isinstance(outcome, Failed) else ""


def _times(sizes: tuple[Size, ...]) -> str:
    return "×".join(map(str, sizes))


def _kernel(kernel: Any) -> str:
    return "×".join(map(str, kernel)) if isinstance(kernel, tuple) else f"{kernel}×{kernel}"


_channels = _wrong_size("in_channels", "channels")
_features = _wrong_size("num_features", "features")
_EXPLAINERS: dict[str, tuple[Explainer, ...]] = {
    "nn.Conv1d": (_wrong_rank(3), _wrong_dtype, _channels, _too_small),
    "nn.Conv2d": (_wrong_rank(4), _wrong_dtype, _channels, _too_small),
    "nn.ConvTranspose2d": (_wrong_rank(4), _wrong_dtype, _channels),
    "nn.Linear": (_wrong_dtype, _wrong_size("in_features", "features")),
    "nn.BatchNorm1d": (_wrong_rank(2, 3), _features),
    "nn.BatchNorm2d": (_wrong_rank(4), _features),
    "nn.MaxPool2d": (_wrong_rank(4), _too_small),
    "nn.AvgPool2d": (_wrong_rank(4), _too_small),
    "nn.AdaptiveAvgPool2d": (_wrong_rank(4),),
    "F.max_pool2d": (_wrong_rank(4), _too_small),
    "nn.Embedding": (_wrong_dtype,),
    "nn.LSTM": (_wrong_rank(2, 3), _wrong_dtype, _wrong_size("input_size", "features")),
    "nn.GRU": (_wrong_rank(2, 3), _wrong_dtype, _wrong_size("input_size", "features")),
    "nn.MultiheadAttention": (_wrong_rank(2, 3), _wrong_dtype, _wrong_size("embed_dim", "features")),
    "operator.add": (_no_broadcast,),
    "operator.sub": (_no_broadcast,),
    "operator.mul": (_no_broadcast,),
    "torch.matmul": (_no_matmul,),
    "torch.cat": (_no_cat,),
    "Tensor.view": (_no_view("size"),),
    "torch.reshape": (_no_view("shape"),),
    "torch.permute": (_no_axes,),
}
