"""Calls that the catalog has no op for and that are a few of its ops: written down as those, value for value."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from app.builder.importer.values import FACTORIES, PROXIES


def _rank(x: Any) -> int:
    return int((x.known if type(x) in PROXIES else x).dim())


def _whole(part: Any) -> bool:
    return type(part) is slice and (part.start, part.stop, part.step) == (None, None, None)


def _outer(a: Any, b: Any) -> Any:
    return a.unsqueeze(1) * b.unsqueeze(0)


def _expand_as(x: Any, other: Any) -> Any:
    return x.expand(*(other.size(dim) for dim in range(_rank(other))))


def _addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return x + (a * b if value == 1 else value * a * b)


def _product_added(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = torch.matmul(a, b)
    return (x if beta == 1 else x * beta) + (product if alpha == 1 else product * alpha)


def _view_as(x: Any, other: Any) -> Any:
    return x.view(*(other.size(dim) for dim in range(_rank(other))))


def _reshape_as(x: Any, other: Any) -> Any:
    return x.reshape(*(other.size(dim) for dim in range(_rank(other))))


def _cast(dtype: torch.dtype, x: Any) -> Any:
    return x.to(dtype)


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
    """`x[:, i]` with one tensor of whole numbers: what `index_select` takes, for each of them."""
    if isinstance(index, slice) and all(type(part) in (int, type(None)) for part in (index.start, index.stop)):
        sizes = _sizes(x, index)
        if sizes is not None:
            return sizes
    if type(x) not in PROXIES or not isinstance(x.known, torch.Tensor):
        return None
    parts = index if isinstance(index, tuple) else (index,)
    tensors = [place for place, part in enumerate(parts) if isinstance(part, torch.Tensor)]
    if len(tensors) != 1 or not all(map(_whole, parts[: tensors[0]])):
        return None
    place = tensors[0]
    found = parts[place]
    known = found.known if type(found) in PROXIES else found
    if known.dtype in (torch.bool, torch.uint8) or not all(map(_whole, parts[place + 1 :])):
        return None
    if place == 0 and (known.dim() == 1 or _rank(x) == 2) and len(parts) == 1:
        return None  # the binder's: a row of a table for each
    if known.dim() == 1:
        return torch.index_select(x, place, found)
    chosen = torch.index_select(x, place, found.reshape(-1))
    before, behind = range(place), range(place + 1, _rank(x))
    return chosen.reshape(*(x.size(dim) for dim in before), *known.shape, *(x.size(dim) for dim in behind))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.outer: _outer, torch.ger: _outer, torch.addcmul: _addcmul, torch.addmm: _product_added,
    torch.baddbmm: _product_added, F.mse_loss: _mse_loss, torch.meshgrid: _meshgrid, torch.div: _divided,
    torch.cumsum: _cumsum, F.hardsigmoid: _hardsigmoid,
}  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "zero_": lambda x: torch.zeros_like(x), "fill_": lambda x, value: torch.full_like(x, value),
    "expand_as": _expand_as, "view_as": _view_as, "reshape_as": _reshape_as,
    **{name: functools.partial(_cast, dtype) for name, dtype in (
        ("bool", torch.bool), ("int", torch.int32), ("double", torch.float64), ("half", torch.float16))},
    "outer": _outer, "ger": _outer, "addcmul": _addcmul, "addmm": _product_added,
    "baddbmm": _product_added, "div": _divided, "cumsum": _cumsum,
}  # fmt: skip
# These are among the ops; only some ways of calling them are not.
_PARTLY = {torch.div: "rounding_mode", torch.cumsum: "dtype", "div": "rounding_mode", "cumsum": "dtype"}


def rewritten(kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call gives when it is made of others; None where it stands as it is."""
    if kind not in ("call_function", "call_method"):
        return None
    if target in (operator.getitem, "__getitem__") and len(args) == 2:
        return _item(*args)
    if target in (operator.add, operator.iadd):
        return _added(*args)
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
