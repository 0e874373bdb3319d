"""Calls that the catalog has no op for and that are a few of its ops: written down as those, value for value."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from app.builder.importer.values import FACTORIES, PROXIES, Attribute


def _rank(x: Any) -> int:
    return int((x.known if type(x) in PROXIES else x).dim())


def _outer(a: Any, b: Any) -> Any:
    return a.unsqueeze(1) * b.unsqueeze(0)


def _expand_as(x: Any, other: Any) -> Any:
    return x.expand(*(other.size(dim) for dim in range(_rank(other))))


def _addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return x + (a * b if value == 1 else value * a * b)


def _product_added(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = torch.matmul(a, b)
    return (x if beta == 1 else x * beta) + (product if alpha == 1 else product * alpha)


def _copied(x: Any, other: Any, non_blocking: bool = False) -> Any:
    """What `x.copy_(other)` leaves in x."""
    same = isinstance(other, torch.Tensor) and other.dtype == x.dtype
    other = other if same else other.type_as(x)
    return torch.clone(other if other.shape == x.shape else _expand_as(other, x))


def _view_as(x: Any, other: Any) -> Any:
    return x.view(*(other.size(dim) for dim in range(_rank(other))))


def _reshape_as(x: Any, other: Any) -> Any:
    return x.reshape(*(other.size(dim) for dim in range(_rank(other))))


def _cast(dtype: torch.dtype, x: Any) -> Any:
    return x.to(dtype)


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """`x.to(y.device, y.dtype)`: where a tensor lies is the run's; a dtype that another has is read off that."""
    given = [value for value in (*args, *kwargs.values()) if not _place(value)]
    if not given:
        return x
    if len(given) == 1 and type(given[0]) is Attribute and given[0].known == x.known.dtype:
        source = _dtype_of(given[0])
        return x if source is None or source.node is x.node else x.type_as(source)
    if len(given) == 1 and (source := _dtype_of(given[0])) is not None:
        return x.type_as(source)
    return None if len(given) == len(args) + len(kwargs) else x.to(*given)


def _place(value: Any) -> bool:
    """What says where a tensor lies, or how it is brought there."""
    known = value.known if type(value) in PROXIES else value
    return isinstance(known, torch.device | bool | torch.memory_format | str)


def _dtype_of(value: Any) -> Any:
    """The tensor of which a value is the dtype: for that of a parameter, which stays with its layer, one that
    arrived."""
    if type(value) is not Attribute or value.attr != "dtype":
        return None
    return value.root if value.root.node.op != "get_attr" else value.tracer.arrived_like(value.known)


def _like_another(function: Any, args: Any, kwargs: Any) -> Any:
    """A new tensor of the dtype that another has."""
    source = _dtype_of(kwargs.get("dtype"))
    if source is None or not source.known.is_floating_point():
        return None
    return function(*args, **{name: value for name, value in kwargs.items() if name != "dtype"}).type_as(source)


def _diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    if n != 1:
        return None
    parts = [part for part in (prepend, x, append) if part is not None]
    whole = torch.cat(parts, dim) if len(parts) > 1 else x
    before: list[Any] = [slice(None)] * (dim % _rank(x))
    later, earlier = slice(1, None), slice(None, -1)
    return whole[(*before, later)] - whole[(*before, earlier)] if before else whole[later] - whole[earlier]


def _where(condition: Any, a: Any = None, b: Any = None) -> Any:
    """With a number in the place of a tensor."""
    if type(b) in (int, float) and _covers(a, condition):
        return a.masked_fill(torch.logical_not(condition), b)
    return b.masked_fill(condition, a) if type(a) in (int, float) and _covers(b, condition) else None


def _where_method(a: Any, condition: Any, b: Any) -> Any:
    return _where(condition, a, b)


def _covers(x: Any, condition: Any) -> bool:
    """Whether a tensor is as large as what a condition is joined with it to."""
    if type(x) not in PROXIES or not isinstance(x.known, torch.Tensor):
        return False
    mask = condition.known if type(condition) in PROXIES else condition
    return x.known.is_floating_point() and torch.broadcast_shapes(x.known.shape, mask.shape) == x.known.shape


def _of_two(function: Any, x: Any, other: Any = None, *rest: Any, **named: Any) -> Any:
    """`torch.min(a, b)` of two tensors."""
    return function(x, other) if isinstance(other, torch.Tensor) and not rest and not named else None


def _mse_loss(
    x: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:
    if size_average is not None or reduce is not None or weight is not None:
        return None
    squares = torch.square(x - target)
    dims = tuple(range(_rank(squares)))
    return {"none": lambda: squares, "mean": lambda: squares.mean(dims), "sum": lambda: squares.sum(dims)}[reduction]()


def _meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    rank = len(given)
    places = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    sizes = [given[places.index(dim)].size(0) for dim in range(rank)]
    grids = []
    for tensor, place in zip(given, places, strict=True):
        for dim in range(rank):
            tensor = tensor if dim == place else tensor.unsqueeze(dim)
        grids.append(tensor.expand(*sizes))
    return tuple(grids)


def _divided(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    return {None: lambda: a / b, "floor": lambda: a // b}.get(rounding_mode, lambda: None)()


def _scaled(function: Any, x: Any, other: Any, *, alpha: Any) -> Any:
    """`torch.add(x, other, alpha=2)`."""
    return None if alpha == 1 else function(x, other * alpha)


def _spread(function: Any, x: Any, *args: Any, unbiased: bool | None = None, **named: Any) -> Any:
    """`x.var(1, unbiased=False)`, an older way to write `correction=0`, as are `x.var(False)` and `x.var(1, False)`."""
    given = list(args)
    place = next((number for number, value in enumerate(given[:2]) if type(value) is bool), None)
    if unbiased is None and place is not None:
        unbiased = given.pop(place)
    if unbiased is None:
        return None
    return function(x, **dict(zip(("dim", "keepdim"), given, strict=False)), **named, correction=int(unbiased))


def _unflatten(x: Any, dim: int, sizes: Any) -> Any:
    at, rank = dim % _rank(x), _rank(x)
    before, behind = ([x.size(other) for other in dims] for dims in (range(at), range(at + 1, rank)))
    return x.view(*before, *sizes, *behind)


def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return None if dtype is None else torch.cumsum(x.to(dtype), dim)


def _hardsigmoid(x: Any, inplace: bool = False) -> Any:
    return F.relu6(x + 3.0) / 6.0


def _added(a: Any, b: Any) -> Any:
    """`(1, 2) + x.shape` as the tuple that it is."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        left, right = (part if isinstance(part, tuple) else _sizes(part, slice(None)) for part in (a, b))
        return None if left is None or right is None else left + right
    return None


def _sizes(x: Any, index: slice) -> tuple[Any, ...] | None:
    """Some of the sizes of a shape."""
    if type(x) not in PROXIES or not isinstance(x.known, torch.Size):
        return None
    return tuple(x[number] for number in range(len(x.known))[index])


def _item(x: Any, index: Any) -> Any:
    """Some of the sizes of a shape, as a tuple of numbers."""
    plain = isinstance(index, slice) and all(type(part) in (int, type(None)) for part in (index.start, index.stop))
    return _sizes(x, index) if plain else None


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.outer: _outer, torch.ger: _outer, torch.addcmul: _addcmul, torch.addmm: _product_added,
    torch.baddbmm: _product_added, F.mse_loss: _mse_loss, torch.meshgrid: _meshgrid, torch.div: _divided,
    torch.cumsum: _cumsum, F.hardsigmoid: _hardsigmoid, torch.diff: _diff, torch.unflatten: _unflatten,
    torch.add: functools.partial(_scaled, operator.add), torch.sub: functools.partial(_scaled, operator.sub),
    torch.var: functools.partial(_spread, torch.var), torch.std: functools.partial(_spread, torch.std),
    torch.min: functools.partial(_of_two, torch.minimum), torch.max: functools.partial(_of_two, torch.maximum),
}  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "copy_": _copied, "zero_": lambda x: torch.zeros_like(x), "fill_": lambda x, value: torch.full_like(x, value),
    "expand_as": _expand_as, "view_as": _view_as, "reshape_as": _reshape_as,
    **{name: functools.partial(_cast, dtype) for name, dtype in (
        ("bool", torch.bool), ("int", torch.int32), ("double", torch.float64), ("half", torch.float16))},
    "outer": _outer, "ger": _outer, "addcmul": _addcmul, "addmm": _product_added,
    "baddbmm": _product_added, "div": _divided, "cumsum": _cumsum, "to": _to, "diff": _diff, "where": _where_method,
    "add": functools.partial(_scaled, operator.add), "sub": functools.partial(_scaled, operator.sub),
    "var": functools.partial(_spread, torch.var), "std": functools.partial(_spread, torch.std),
    "unflatten": _unflatten,
    "min": functools.partial(_of_two, torch.minimum), "max": functools.partial(_of_two, torch.maximum),
}  # fmt: skip
_ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "real": torch.real, "imag": torch.imag, "mT": lambda x: x.transpose(-2, -1),
    "T": lambda x: x.permute(*reversed(range(_rank(x)))),
}  # fmt: skip
# These are among the ops; only some ways of calling them are not.
_PARTLY = {torch.div: "rounding_mode", torch.cumsum: "dtype", "div": "rounding_mode", "cumsum": "dtype",
           torch.add: "alpha", torch.sub: "alpha", "add": "alpha", "sub": "alpha"}  # fmt: skip


def rewritten(kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call gives when it is made of others; None where it stands as it is."""
    if kind not in ("call_function", "call_method"):
        return None
    if target in (operator.getitem, "__getitem__") and len(args) == 2:
        return _item(*args)
    if target is getattr:
        return _ATTRIBUTES[args[1]](args[0]) if args[1] in _ATTRIBUTES and isinstance(args[0], torch.Tensor) else None
    if target in (operator.add, operator.iadd):
        return _added(*args)
    if target in FACTORIES:
        return _like_another(target, args, kwargs)
    if getattr(target, "__name__", "") == "where" and kind == "call_function":
        return _where(*args, **kwargs)
    way = _METHODS.get(target) if isinstance(target, str) else _FUNCTIONS.get(target) if _hashable(target) else None
    if way is None or (target in _PARTLY and kwargs.get(_PARTLY[target]) is None):
        return None
    return way(*args, **kwargs)


def _hashable(target: Any) -> bool:
    return getattr(type(target), "__hash__", None) is not None


@contextlib.contextmanager
def sizes_seen(following: Callable[[], bool], made: Callable[..., Any]) -> Iterator[None]:
    """While `following`, `torch.zeros(n, m)` comes to `made` also where a size is computed, which torch itself refuses
    before anybody is asked."""
    names = {name: getattr(torch, name) for name in ("zeros", "ones", "full", "arange", "linspace", "eye")}

    def instead(function: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if following() and function in FACTORIES:
                return made("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return called

    for name, function in names.items():
        setattr(torch, name, instead(function))
    try:
        yield
    finally:
        for name, function in names.items():
            setattr(torch, name, function)


class Factories(TorchFunctionMode):
    """While `following`, the making of tensors out of numbers comes to `made`."""

    def __init__(self, following: Callable[[], bool], made: Callable[..., Any]) -> None:
        super().__init__()
        self._following, self._made = following, made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FACTORIES and self._following():
            return self._made("call_function", func, args, kwargs or {})
        return func(*args, **(kwargs or {}))
