"""Rewrites of calls that are not in the catalog as a few ops that are, with equal values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from app.builder.catalog.ops_functions import DROPOUTS
from app.features.importing.compute.tracing.proxies import (
    FACTORIES,
    PROXIES,
    Attribute,
    ValueProxy,
    dtype_source,
)


def _known(x: Any) -> Any:
    return x.known if type(x) in PROXIES else x


def _rank(x: Any) -> int:
    return int(_known(x).dim())


def _outer(a: Any, b: Any) -> Any:
    return a.unsqueeze(1) * b.unsqueeze(0)


def _expand_as(x: Any, other: Any) -> Any:
    return x.expand(*(other.size(dim) for dim in range(_rank(other))))


def _addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return input + (tensor1 * tensor2 if value == 1 else value * tensor1 * tensor2)


def _addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return input + (tensor1 / tensor2 if value == 1 else value * (tensor1 / tensor2))


def _product_added(input: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    product = torch.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (input if beta == 1 else input * beta) + product


def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _product_added(input, mat1, mat2, beta, alpha)


def _baddbmm(
    input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    return _product_added(input, batch1, batch2, beta, alpha)


def _filled(x: Any, value: Any) -> Any:
    """Rewrite `x.fill_(value)`. If x depends on parameters, their gradient must be zeros, not None."""
    if isinstance(value, torch.Tensor):
        return None
    if _is_new(x) or not x.known.is_floating_point():
        return torch.full_like(x, value)
    return x.masked_fill(torch.ones_like(x, dtype=torch.bool), value)


def _copied(x: Any, other: Any, non_blocking: bool = False) -> Any:
    """Rewrite `x.copy_(other)`."""
    same = isinstance(other, torch.Tensor) and other.dtype == x.dtype
    other = other if same else other.type_as(x)
    if _is_new(x) or not x.known.is_floating_point():
        return torch.clone(other if other.shape == x.shape else _expand_as(other, x))
    return torch.where(torch.ones_like(x, dtype=torch.bool), other, x)


def _is_new(x: Any) -> bool:
    """Return whether no parameter contributes to a tensor: a factory created it, or it is a view of such a tensor."""
    if type(x) not in PROXIES:
        return True
    node, links = x.tracer.latest(x.node), x.tracer.views.links
    while node in links:
        node = links[node].base
    name = (
        node.target
        if isinstance(node.target, str)
        else getattr(node.target, "__name__", "")
    )
    return name.startswith("new_") or name.endswith("_like") or node.target in FACTORIES


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """g * v / |v|, the norm over all dimensions but one."""
    over = [other for other in range(_rank(v)) if other != dim % _rank(v)]
    return v * (g / torch.norm(v, 2.0, over, True))


def _view_as(x: Any, other: Any) -> Any:
    return x.view(*(other.size(dim) for dim in range(_rank(other))))


def _reshape_as(x: Any, other: Any) -> Any:
    return x.reshape(*(other.size(dim) for dim in range(_rank(other))))


def _cast(dtype: torch.dtype, x: Any) -> Any:
    return x.to(dtype)


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Rewrite `x.to(y.device, y.dtype)`: the run decides the device; a dtype of a tensor becomes `type_as`."""
    arguments = [
        value for value in (*args, *kwargs.values()) if not _is_device_or_layout(value)
    ]
    if not arguments:
        return x
    if (
        len(arguments) == 1
        and type(arguments[0]) is Attribute
        and arguments[0].known == _known(x).dtype
    ):
        source = dtype_source(arguments[0])
        return (
            x
            if source is None or source.node is getattr(x, "node", None)
            else x.type_as(source)
        )
    if len(arguments) == 1 and (source := dtype_source(arguments[0])) is not None:
        return x.type_as(source)
    return None if len(arguments) == len(args) + len(kwargs) else x.to(*arguments)


def _is_device_or_layout(value: Any) -> bool:
    """Return whether an argument of `to` is about device, layout or copying."""
    plain_value = value.known if type(value) in PROXIES else value
    return isinstance(plain_value, torch.device | bool | torch.memory_format | str)


def _like_another(function: Any, args: Any, kwargs: Any) -> Any:
    """Create a tensor with the dtype of another."""
    source = dtype_source(kwargs.get("dtype"))
    if source is None or not source.known.is_floating_point():
        return None
    if function in _DRAWING:  # other precisions draw other numbers
        drawing, named = (
            _DRAWING[function],
            {name: kwargs[name] for name in ("size",) if name in kwargs},
        )
        return drawing(source.new_zeros(*args, **named))
    making = getattr(
        torch, function.__name__
    )  # as it is while a model is followed: it takes sizes of the graph
    return making(
        *args, **{name: value for name, value in kwargs.items() if name != "dtype"}
    ).type_as(source)


def _diff(
    x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    if n != 1:
        return None
    parts = [tensor for tensor in (prepend, x, append) if tensor is not None]
    joined = torch.cat(parts, dim) if len(parts) > 1 else x
    before: list[Any] = [slice(None)] * (dim % _rank(x))
    later, earlier = slice(1, None), slice(None, -1)
    return (
        joined[(*before, later)] - joined[(*before, earlier)]
        if before
        else joined[later] - joined[earlier]
    )


def _where(condition: Any, a: Any = None, b: Any = None) -> Any:
    """Rewrite `torch.where` with a number in place of a tensor."""
    if type(b) in (int, float) and _covers(a, condition):
        return a.masked_fill(torch.logical_not(condition), b)
    return (
        b.masked_fill(condition, a)
        if type(a) in (int, float) and _covers(b, condition)
        else None
    )


def _where_method(a: Any, condition: Any, b: Any) -> Any:
    return _where(condition, a, b)


def _covers(x: Any, condition: Any) -> bool:
    """Return whether a tensor has the shape to which it is broadcast with a condition."""
    if type(x) not in PROXIES or not isinstance(x.known, torch.Tensor):
        return False
    mask = condition.known if type(condition) in PROXIES else condition
    return (
        x.known.is_floating_point()
        and torch.broadcast_shapes(x.known.shape, mask.shape) == x.known.shape
    )


def _of_two(function: Any, x: Any, other: Any = None, *rest: Any, **named: Any) -> Any:
    """Rewrite `torch.min(a, b)` of two tensors."""
    return (
        function(x, other)
        if isinstance(other, torch.Tensor) and not rest and not named
        else None
    )


def _largest(
    of_two: Any, over: Any, x: Any, other: Any = None, *rest: Any, **named: Any
) -> Any:
    """Rewrite `torch.max(a, b)` of two tensors, and `x.max()` over all elements."""
    if other is None and not rest and not named:
        return (
            over(x, tuple(range(_rank(x))))
            if _rank(x) and x.known.dtype != torch.bool
            else None
        )
    return _of_two(of_two, x, other, *rest, **named)


def _clamped(input: Any, min: Any = None, max: Any = None) -> Any:
    """Clamp with tensors as bounds; for equal values the gradient goes to the input, as in torch."""
    if not isinstance(min, torch.Tensor) and not isinstance(max, torch.Tensor):
        return None
    clamped = input
    for bound, beyond in ((min, torch.lt), (max, torch.gt)):
        if isinstance(bound, torch.Tensor):
            clamped = torch.where(beyond(clamped, bound), bound, clamped)
        elif bound is not None:
            clamped = torch.clamp(
                clamped, **{"min" if beyond is torch.lt else "max": bound}
            )
    return clamped


def _power(input: Any, exponent: Any) -> Any:
    """Rewrite `torch.pow(10000, x)` and `torch.pow(x, y)`."""
    return (
        input**exponent
        if type(input) in (int, float) or isinstance(exponent, torch.Tensor)
        else None
    )


def _masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """With a tensor of one number."""
    return torch.where(mask, value, input) if isinstance(value, torch.Tensor) else None


def _joined(tensors: Any, dim: Any = 0, axis: Any = None) -> Any:
    """Without tensors of no value at all, which torch passes over: a cache before its first step."""
    if not isinstance(tensors, tuple | list):
        return None
    shapes = [
        (tensor.known if type(tensor) in PROXIES else tensor).shape
        for tensor in tensors
    ]
    left = [
        tensor
        for tensor, shape in zip(tensors, shapes, strict=True)
        if tuple(shape) != (0,)
    ]
    if not left or len(left) == len(tensors):
        return None
    return (
        torch.cat(left, dim if axis is None else axis)
        if len(left) > 1
        else torch.clone(left[0])
    )


def _prod(
    input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    if dtype is not None:
        return (
            torch.prod(input.to(dtype), dim, keepdim)
            if dim is not None
            else torch.prod(input.to(dtype))
        )
    return torch.prod(input.reshape(-1), 0) if dim is None else None


def _roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    return (
        torch.roll(input.reshape(-1), shifts, 0).view(input.shape)
        if dims is None
        else None
    )


def _movedim(input: Any, source: Any, destination: Any) -> Any:
    if type(source) is int:
        return None
    rank = _rank(input)
    order: list[Any] = [None] * rank
    for target_dim, dim in zip(destination, source, strict=True):
        order[target_dim % rank] = dim % rank
    rest = iter(sorted(set(range(rank)) - set(order)))
    return input.permute(*(next(rest) if dim is None else dim for dim in order))


def _mse_loss(
    x: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    if size_average is not None or reduce is not None or weight is not None:
        return None
    squares = torch.square(x - target)
    dims = tuple(range(_rank(squares)))
    return {
        "none": lambda: squares,
        "mean": lambda: squares.mean(dims),
        "sum": lambda: squares.sum(dims),
    }[reduction]()


def _meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    tensor_list = (
        tensors[0]
        if len(tensors) == 1 and isinstance(tensors[0], tuple | list)
        else tensors
    )
    rank = len(tensor_list)
    axis_order = (
        [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    )
    sizes = [tensor_list[axis_order.index(dim)].size(0) for dim in range(rank)]
    grids = []
    for tensor, axis in zip(tensor_list, axis_order, strict=True):
        for dim in range(rank):
            tensor = tensor if dim == axis else tensor.unsqueeze(dim)
        grids.append(tensor.expand(*sizes))
    return tuple(grids)


def _divided(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    return {None: lambda: a / b, "floor": lambda: a // b}.get(
        rounding_mode, lambda: None
    )()


def _scaled(function: Any, x: Any, other: Any, *, alpha: Any) -> Any:
    """Rewrite `torch.add(x, other, alpha=2)`."""
    return None if alpha == 1 else function(x, other * alpha)


def _spread(
    function: Any, x: Any, *args: Any, unbiased: bool | None = None, **named: Any
) -> Any:
    """Rewrite `x.var(1, unbiased=False)`, the older form of `correction=0`, and `x.var(False)`, `x.var(1, False)`."""
    positional = list(args)
    flag_index = next(
        (number for number, value in enumerate(positional[:2]) if type(value) is bool),
        None,
    )
    if unbiased is None and flag_index is not None:
        unbiased = positional.pop(flag_index)
    if unbiased is None:
        return None
    return function(
        x,
        **dict(zip(("dim", "keepdim"), positional, strict=False)),
        **named,
        correction=int(unbiased),
    )


def _unflatten(x: Any, dim: int, sizes: Any) -> Any:
    at, rank = dim % _rank(x), _rank(x)
    before, behind = (
        [x.size(other) for other in dims] for dims in (range(at), range(at + 1, rank))
    )
    return x.view(*before, *sizes, *behind)


def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return None if dtype is None else torch.cumsum(x.to(dtype), dim)


def _added(a: Any, b: Any) -> Any:
    """`(1, 2) + x.shape` as the tuple that it is."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        left, right = (
            operand if isinstance(operand, tuple) else _sizes(operand, slice(None))
            for operand in (a, b)
        )
        return None if left is None or right is None else left + right
    return None


def _repeated(a: Any, b: Any) -> Any:
    """`(1,) * x.dim()` as the tuple that it is."""
    row, times = (a, b) if type(a) in (tuple, list) else (b, a)
    return (
        row * times.known
        if type(row) in (tuple, list) and type(times) in PROXIES
        else None
    )


def _sizes(x: Any, index: slice) -> tuple[Any, ...] | None:
    """Return some of the sizes of a shape."""
    if type(x) not in PROXIES or not isinstance(x.known, torch.Size):
        return None
    return tuple(x[number] for number in range(len(x.known))[index])


def _item(x: Any, index: Any) -> Any:
    """Rewrite a slice of a shape as a tuple of numbers."""
    plain = isinstance(index, slice) and all(
        type(bound) in (int, type(None)) for bound in (index.start, index.stop)
    )
    return _sizes(x, index) if plain else None


_DRAWING: dict[Any, Callable[..., Any]] = {
    torch.rand: torch.rand_like,
    torch.randn: torch.randn_like,
}
_DROPOUTS = tuple(getattr(F, name) for name in (*DROPOUTS, "feature_alpha_dropout"))
_EMPTY, _EYE = (
    torch.empty,
    torch.eye,
)  # while a model is followed, torch has others under these names
# By the name that a function of torch and a method of tensors share.
_NAMED: dict[str, Callable[..., Any]] = {
    "outer": _outer,
    "ger": _outer,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "div": _divided,
    "cumsum": _cumsum,
    "diff": _diff,
    "unflatten": _unflatten,
    "prod": _prod,
    "roll": _roll,
    "movedim": _movedim,
    "moveaxis": _movedim,
    "clamp": _clamped,
    "clip": _clamped,
    "pow": _power,
    "masked_fill": _masked_fill,
    "clamp_min": lambda input, min: torch.clamp(input, min=min),
    "clamp_max": lambda input, max: torch.clamp(input, max=max),
    "add": functools.partial(_scaled, operator.add),
    "sub": functools.partial(_scaled, operator.sub),
    "var": functools.partial(_spread, torch.var),
    "std": functools.partial(_spread, torch.std),
    "min": functools.partial(_largest, torch.minimum, torch.amin),
    "max": functools.partial(_largest, torch.maximum, torch.amax),
}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.embedding: lambda weight, indices, padding_idx=-1, *_: F.embedding(
        indices, weight, None if padding_idx < 0 else padding_idx
    ),
    **{getattr(torch, name): way for name, way in _NAMED.items()},
    F.mse_loss: _mse_loss,
    torch._weight_norm: _weight_norm,
    torch.meshgrid: _meshgrid,
    _EMPTY: lambda *args, **named: torch.zeros(*args, **named),
    torch.cat: _joined,
    torch.concat: _joined,
    torch.concatenate: _joined,
    torch.empty_like: lambda *args, **named: torch.zeros_like(*args, **named),
}
_METHODS: dict[str, Callable[..., Any]] = {
    **_NAMED,
    "copy_": _copied,
    "zero_": lambda x: _filled(x, 0),
    "fill_": _filled,
    "new_tensor": lambda x, data, dtype=None, **_: (
        torch.tensor(data).type_as(x)
        if dtype is None
        else torch.tensor(data, dtype=dtype)
    ),
    "new_empty": lambda x, *args, **named: x.new_zeros(*args, **named),
    "type": lambda x, dtype=None, *_, **__: (
        None if dtype is None or isinstance(dtype, str) else x.to(dtype)
    ),
    "expand_as": _expand_as,
    "view_as": _view_as,
    "reshape_as": _reshape_as,
    "to": _to,
    "where": _where_method,
    **{
        name: functools.partial(_cast, dtype)
        for name, dtype in (
            ("bool", torch.bool),
            ("int", torch.int32),
            ("double", torch.float64),
            ("half", torch.float16),
            ("bfloat16", torch.bfloat16),
        )
    },
}
_ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "real": torch.real,
    "imag": torch.imag,
    "data": torch.detach,
    "mT": lambda x: x.transpose(-2, -1),
    "T": lambda x: x.permute(*reversed(range(_rank(x)))),
}
# Ops in the catalog that do not support this argument.
_PARTLY = {"div": "rounding_mode", "cumsum": "dtype", "add": "alpha", "sub": "alpha"}


def rewritten(
    kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Rewrite a call in terms of others; None to leave it as it is."""
    if kind not in ("call_function", "call_method"):
        return None
    if (
        kind == "call_function"
        and target in _DROPOUTS
        and _argument(args, kwargs, 2, "training") is False
    ):
        return args[0]
    if (random_call := drawn(kind, target, args, kwargs)) is not None:
        return random_call
    if target in (operator.getitem, "__getitem__") and len(args) == 2:
        return _item(*args)
    if target is getattr:
        return (
            _ATTRIBUTES[args[1]](args[0])
            if args[1] in _ATTRIBUTES and isinstance(args[0], torch.Tensor)
            else None
        )
    if target in (operator.add, operator.iadd):
        return _added(*args)
    if target in (operator.mul, operator.imul):
        return _repeated(*args)
    if (
        target is _EYE
        and len(args) == 2
        and type(args[0]) is int
        and args[0] == args[1]
    ):
        return torch.eye(args[0], **kwargs)
    if target in FACTORIES and target is not _EMPTY:
        return _like_another(target, args, kwargs)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name == "where" and kind == "call_function":
        return _where(*args, **kwargs)
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if isinstance(target, str):
        way = _METHODS.get(name) or _METHODS.get(plain)
    else:
        way = _FUNCTIONS.get(target) if _hashable(target) else None
    if way is None or (plain in _PARTLY and kwargs.get(_PARTLY[plain]) is None):
        return None
    if not args and "input" in kwargs:
        args, kwargs = (
            (kwargs["input"],),
            {name: value for name, value in kwargs.items() if name != "input"},
        )
    return way(*args, **kwargs)


def _argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], number: int, name: str
) -> Any:
    return kwargs.get(name, args[number] if len(args) > number else None)


def _hashable(target: Any) -> bool:
    return getattr(type(target), "__hash__", None) is not None


# --- Random numbers


def _normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **named: Any) -> Any:
    if size is None or not all(type(number) in (int, float) for number in (mean, std)):
        return None
    return _moved(torch.randn(size, **named), std, mean)


def _filled_normal(x: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    return _moved(torch.randn_like(x), std, mean)


def _filled_uniform(x: Any, *bounds: Any, **named: Any) -> Any:
    low = named.get("from", bounds[0] if bounds else 0.0)
    high = named.get("to", bounds[1] if len(bounds) > 1 else 1.0)
    return _moved(torch.rand_like(x), high - low, low)


def _filled_by_chance(x: Any, p: Any = 0.5) -> Any:
    return (
        (torch.rand_like(x) < p).type_as(x) if not isinstance(p, torch.Tensor) else None
    )


def _by_chance(x: Any) -> Any:
    return (torch.rand_like(x) < x).type_as(x)


def _moved(drawn: Any, factor: float, shift: float) -> Any:
    drawn = drawn if factor == 1 else drawn * factor
    return drawn if shift == 0 else drawn + shift


# Of what learns these give gradients of zero, and the ops give none.
_DRAWN_METHODS: dict[str, Callable[..., Any]] = {
    "normal_": _filled_normal,
    "uniform_": _filled_uniform,
    "bernoulli_": _filled_by_chance,
    "bernoulli": _by_chance,
}
_DRAWN_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.normal: _normal,
    torch.bernoulli: _by_chance,
}


def drawn(kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rewrite a call that draws random numbers in terms of ops; None to leave it as it is."""
    way = (
        _DRAWN_METHODS.get(target)
        if kind == "call_method"
        else _DRAWN_FUNCTIONS.get(target)
        if callable(target)
        else None
    )
    if way is None or any(type(arg) in PROXIES and _learns(arg) for arg in args[:1]):
        return None
    return way(*args, **kwargs)


def _learns(x: ValueProxy) -> bool:
    tracer = x.tracer
    return tracer.gradients.learns(tracer.latest(x.node), tracer.root)
