"""What the integers that a model is called with are used as: rows of a table, classes, positions, lengths."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from app.sources.examples import falling
from app.util import rng
from app.util.module_tree import temporary_mode
from app.util.torch_calls import FunctionCalls

ROUNDS = 5  # forward passes, each with what the one before has shown
INTEGERS = (torch.int64, torch.int32, torch.int16)
_COPIES = {
    "to",
    "long",
    "int",
    "clone",
    "contiguous",
    "reshape",
    "flatten",
    "cpu",
    "repeat",
    "expand",
    "type_as",
    "sort",
}
_BY_DIMENSION = {
    "index_select",
    "gather",
    "take_along_dim",
    "scatter",
    "scatter_",
    "scatter_add",
    "scatter_add_",
    "index_add",
    "index_add_",
    "index_copy",
    "index_copy_",
    "index_fill",
    "index_fill_",
}


class Range(Struct, frozen=True):
    """Integers from `low` to `high`, both included, other than `without`. `sorted` are the lengths of sequences, the
    longest first."""

    low: int
    high: int
    without: int | None = None
    sorted: bool = False

    def __str__(self) -> str:
        return f"{self.high}..{self.low}" if self.sorted else f"{self.low}..{self.high}"

    def values(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return values of the whole range, the same in every process."""
        if self.sorted:
            return falling(self.high, self.low, shape).to(dtype)
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(self.low, self.high + 1, shape, generator=generator)
        if self.without is not None and self.low < self.high:
            other = self.low if self.without > self.low else self.high
            drawn[drawn == self.without] = other
        return drawn.to(dtype)


class _AllKnownError(Exception):
    """Every integer input has been used."""


class _Watch(FunctionCalls):
    """Notes what the tensors with these storages are used as."""

    def __init__(self, wanted: Mapping[int, Tensor], known: dict[int, Range]) -> None:
        super().__init__()
        self._of = {
            tensor.untyped_storage().data_ptr(): position
            for position, tensor in wanted.items()
        }
        self._alive: list[
            Tensor
        ] = []  # so that no other tensor gets the storage of a copy
        self._places = set(wanted)
        self.known = known
        self.seen: set[int] = set()

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        name = getattr(func, "__name__", "")
        with contextlib.suppress(
            AttributeError, IndexError, KeyError, TypeError, ValueError
        ):
            self._note(name, args, kwargs)
        if self.seen == self._places:
            raise _AllKnownError
        result = func(*args, **kwargs)
        copy = result[0] if name == "sort" else result  # lengths are sorted for packing
        if (
            name in _COPIES
            and isinstance(copy, Tensor)
            and (position := self._place(args[0])) is not None
        ):
            self._of[copy.untyped_storage().data_ptr()] = position
            self._alive.append(copy)
        return result

    def _place(self, value: Any) -> int | None:
        if not isinstance(value, Tensor) or value.dtype not in INTEGERS:
            return None
        return self._of.get(value.untyped_storage().data_ptr())

    def _note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        if name in ("embedding", "embedding_bag"):
            table: Any = values.get("weight", values.get(1))
            self._use(
                values.get("input", values.get(0)),
                Range(0, len(table) - 1, values.get("padding_idx")),
            )
        elif name in ("cross_entropy", "nll_loss"):
            scores: Any = values.get("input", values.get(0))
            self._use(
                values.get("target", values.get(1)),
                Range(0, scores.shape[min(1, scores.ndim - 1)] - 1),
            )
        elif (
            name == "one_hot"
            and (classes := values.get("num_classes", values.get(1, -1))) > 0
        ):
            self._use(values[0], Range(0, classes - 1))
        elif name == "_pack_padded_sequence":
            first = 1 if values.get("batch_first", values.get(2)) else 0
            self._use(values[1], Range(1, values[0].shape[first], sorted=True))
        elif name in _BY_DIMENSION:
            dimension = values.get("dim", values.get(1))
            self._use(
                values.get("index", values.get(2)),
                Range(0, values[0].shape[dimension] - 1),
            )
        elif name == "__getitem__":
            self._indexed(values[0], values[1])

    def _indexed(self, tensor: Tensor, index: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        after = 0
        if Ellipsis in [
            component for component in parts if not isinstance(component, Tensor)
        ]:
            at = next(
                position
                for position, component in enumerate(parts)
                if component is Ellipsis
            )
            after = tensor.ndim - sum(
                component is not None and component is not Ellipsis
                for component in parts
            )
            parts = (*parts[:at], *([slice(None)] * after), *parts[at + 1 :])
        dimension = 0
        for entry in parts:
            if entry is None:
                continue
            if isinstance(entry, Tensor):
                self._use(entry, Range(0, tensor.shape[dimension] - 1))
            dimension += 1

    def _use(self, value: Any, bounds: Range) -> None:
        position = self._place(value)
        if position is None or bounds.high < bounds.low:
            return
        self.seen.add(position)
        before = self.known.get(position)
        if before is None:
            self.known[position] = bounds
            return
        low, high = max(before.low, bounds.low), min(before.high, bounds.high)
        if low <= high:
            self.known[position] = Range(
                low, high, before.without, before.sorted or bounds.sorted
            )


def ranges_of(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    free: Sequence[Tensor],
) -> list[Range | None]:
    """Return the range that a model uses each of the `free` integer tensors among its arguments in, as some calls of it
    show; None where they show none. The values of these tensors are replaced by those of their range."""
    integer_tensors = {
        index: tensor
        for index, tensor in enumerate(free)
        if tensor.dtype in INTEGERS and tensor.numel()
    }
    ranges: dict[int, Range] = {}
    for _ in range(ROUNDS if integer_tensors else 0):
        before = dict(ranges)
        copies = {
            id(tensor): tensor.clone()
            for tensor in tree_leaves((args, kwargs))
            if isinstance(tensor, Tensor)
        }
        copied_args, copied_kwargs = _mapped((args, kwargs), copies)
        watch = _Watch(
            {index: copies[id(tensor)] for index, tensor in integer_tensors.items()},
            ranges,
        )
        attempt(model, copied_args, copied_kwargs, around=watch)
        if ranges == before:
            break
        for position, bounds in ranges.items():
            integer_tensors[position].copy_(
                bounds.values(
                    integer_tensors[position].shape, integer_tensors[position].dtype
                )
            )
    return [ranges.get(index) for index in range(len(free))]


def _mapped(value: Any, copies: Mapping[int, Tensor]) -> Any:
    return tree_map_only(Tensor, lambda tensor: copies[id(tensor)], value)


def attempt(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    around: contextlib.AbstractContextManager[Any] | None = None,
) -> BaseException | None:
    """Call a model without effect on it, on torch's generators or on what is printed; return what it raised."""
    called: Callable[..., Any] = model
    try:
        with (
            _silenced(),
            rng.borrowed(0),
            temporary_mode(model, False),
            torch.no_grad(),
        ):
            with around or contextlib.nullcontext():
                called(*args, **kwargs)
    except _AllKnownError:
        return None
    except (Exception, SystemExit) as error:  # whatever a model raises
        return error
    return None


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    with open(os.devnull, "w", encoding="utf-8") as nowhere, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
