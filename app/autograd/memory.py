"""Read the tensors that a backward node saved, without unpacking them.

Only the packed form (`_raw_saved_*`) is read for tensors: accessing `_saved_*` would run unpack hooks, which under
`checkpoint` recompute the forward pass. No reference outlives the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
from msgspec import Struct
from torch.utils._pytree import tree_leaves

from app.autograd.sparse import parts_of
from app.autograd.tape import SavedTensor, Storage
from app.util.frozen import FrozenMap

# torch hands negative dimensions and indices out as unsigned 64-bit numbers.
_WRAPPED = 2**63
_MISMATCH = re.compile(r"is at version (\d+); expected version (\d+)")
_LONGEST_TEXT = 200
_NO_VALUES: FrozenMap[str, Any] = FrozenMap()
_Custom = torch._C._FunctionBase  # nodes of a user-defined `torch.autograd.Function`


class StorageTable(Struct):
    """Small numbers for memory blocks. `kinds` maps the address of a block to "parameter", "buffer" or "input"."""

    kinds: dict[int, str] = {}
    numbers: dict[int, int] = {}
    sizes: list[int] = []
    sorts: list[str] = []
    holders: list[list[int]] = []

    def mark(self, tensors: Iterable[Any], kind: str) -> None:
        """Set the kind of the storages behind `tensors`; the first kind set wins."""
        for tensor in tensors:
            for component in parts_of(tensor):
                self.kinds.setdefault(component.untyped_storage()._cdata, kind)

    def number(self, tensor: Any, holder: int) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.sizes)
            self.sizes.append(storage.nbytes())
            self.sorts.append(self.kinds.get(key, "activation"))
            self.holders.append([holder])
            return number
        if self.holders[number][-1] != holder:
            self.holders[number].append(holder)
        return number

    def storages(self, steps: dict[int, int]) -> tuple[Storage, ...]:
        """Return the storages; `steps` maps node ids to positions in the execution order."""
        last = steps.__getitem__
        return tuple(
            Storage(number, size, kind, (holders[0],), holders[0])
            if len(holders) == 1
            else Storage(
                number,
                size,
                kind,
                tuple(dict.fromkeys(holders)),
                max(holders, key=last),
            )
            for number, (size, kind, holders) in enumerate(
                zip(self.sizes, self.sorts, self.holders, strict=True)
            )
        )


class SavedReader:
    """Reads nodes one after the other; tensors that `checkpoint` holds outside the graph are found with each of its
    nodes.

    `may_be_freed` means that a backward pass may have run and freed saved tensors.
    """

    def __init__(self, table: StorageTable, may_be_freed: bool = False) -> None:
        self.table, self.may_be_freed = table, may_be_freed

    def read(self, node: Any, number: int) -> tuple[SavedTensor, ...]:
        """List the tensors that `node` saved, in torch's naming (`input`, `weight`, `saved_tensors[0]`, `ctx.mask`)."""
        saved: list[SavedTensor] = []
        frames: list[Any] = []
        custom = isinstance(node, _Custom)
        if not (custom or _saved_names(node.__class__)[0]) or (
            self.may_be_freed and is_freed(node)
        ):
            return ()
        for attribute, items in raw_saved(node):
            plain = all(raw.unpack_hook is None for _, raw in items)
            for name, raw in items:
                data, hook = raw.data, raw.unpack_hook
                if data is None:
                    continue
                if hook is None:
                    version = (
                        _saved_version(node, attribute, data, len(items))
                        if plain
                        else None
                    )
                    self._add(saved, name, data, number, version)
                    continue
                for packed in _tensors_in(data):
                    self._add(saved, f"{name} (packed)", packed, number)
                for kept_name, checkpoint_input in _checkpointed(hook, frames):
                    self._add(saved, kept_name, checkpoint_input, number)
        for name, tensor in _context_tensors(node) if custom else ():
            self._add(saved, name, tensor, number)
        return tuple(saved)

    def _add(
        self,
        saved: list[SavedTensor],
        name: str,
        tensor: Any,
        holder: int,
        version: int | None = None,
    ) -> None:
        """Append a saved tensor to `saved`: a sparse one has several parts."""
        table, shape, dtype = (
            self.table,
            tuple(map(int, tensor.shape)),
            _dtype_name(tensor.dtype),
        )
        now = None if tensor.is_inference() else tensor._version
        for component in parts_of(tensor):
            storage = table.number(component, holder)
            saved.append(
                SavedTensor(
                    name,
                    shape,
                    dtype,
                    component.nbytes,
                    table.sorts[storage],
                    storage,
                    version,
                    now,
                )
            )


def _checkpointed(hook: Any, frames: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the inputs of a non-reentrant `checkpoint`, which only its unpack hook can reach.

    Every node in the checkpoint holds its frame. `frames` are those already visited for this node.
    """
    for cell in getattr(hook, "__closure__", None) or ():
        frame = cell.cell_contents
        if type(frame).__name__ != "_CheckpointFrame" or any(
            frame is visited for visited in frames
        ):
            continue
        frames.append(frame)
        for index, argument in enumerate(getattr(frame, "saved_args", None) or ()):
            for tensor in _tensors_in(getattr(argument, "data", argument)):
                yield f"checkpoint input {index}", tensor


def saved_values(node: Any) -> FrozenMap[str, Any]:
    """Return the plain values that a node saved (`stride`, `padding`, sizes), as numbers, strings, None and tuples of
    them."""
    if isinstance(node, _Custom):
        return FrozenMap(
            {
                name: _value(value)
                for name, value in vars(node).items()
                if _is_plain(value)
            }
        )
    names = _saved_names(node.__class__)[1]
    if not names:
        return _NO_VALUES
    return FrozenMap(
        {name.removeprefix("_saved_"): _value(getattr(node, name)) for name in names}
    )


@lru_cache(maxsize=1024)
def _saved_names(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Attribute names of one class of nodes: packed tensors, and values that are no tensors."""
    names = dir(kind)
    raw = tuple(name for name in names if name.startswith("_raw_saved_"))
    tensors = {name.removeprefix("_raw") for name in raw}
    return raw, tuple(
        name for name in names if name.startswith("_saved_") and name not in tensors
    )


def raw_saved(node: Any) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Yield (unpacking attribute, [(name, packed tensor)]) for everything the node saved."""
    if isinstance(node, _Custom):
        raws = node._raw_saved_tensors or ()
        yield (
            "saved_tensors",
            [(f"saved_tensors[{index}]", raw) for index, raw in enumerate(raws)],
        )
        return
    for attribute in _saved_names(node.__class__)[0]:
        value, name = getattr(node, attribute), attribute.removeprefix("_raw_saved_")
        if isinstance(value, (tuple, list)):
            items = [(f"{name}[{index}]", raw) for index, raw in enumerate(value)]
        else:
            items = [] if value is None else [(name, value)]
        yield attribute.removeprefix("_raw"), items


def is_freed(node: Any) -> bool:
    """Return True if a backward pass freed what the node saved; a node that saved nothing never is."""
    try:
        for _ in raw_saved(node):
            continue
        for attribute in (
            () if isinstance(node, _Custom) else _saved_names(node.__class__)[0]
        ):
            raw = getattr(node, attribute)
            # A freed tensor is indistinguishable from an absent one until it is unpacked.
            if (
                not isinstance(raw, (tuple, list))
                and raw is not None
                and raw.data is None
                and raw.unpack_hook is None
            ):
                getattr(node, attribute.removeprefix("_raw"))
    except RuntimeError as error:
        return "second time" in str(error)
    return False


def _context_tensors(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield tensors that a custom Function stored as attributes of `ctx` instead of saving them."""
    for name, value in vars(node).items():
        for tensor in _tensors_in(value):
            yield f"ctx.{name}", tensor


def _saved_version(node: Any, attribute: str, tensor: Any, count: int) -> int | None:
    """Return the version of `tensor`, one of `count` behind `attribute`, when it was saved; None if unknown.

    torch exposes it only in the error that it raises after a change. Must not be called if an unpack hook would run.
    """
    if tensor.is_inference():
        return None
    try:
        getattr(node, attribute)
    except RuntimeError as error:
        match = _MISMATCH.search(str(error))
        return int(match[2]) if match and count == 1 else None
    return tensor._version


def _tensors_in(value: Any) -> Iterator[Any]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


@lru_cache(maxsize=256)
def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_value(item) for item in value)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value - 2 * _WRAPPED if value >= _WRAPPED else value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
