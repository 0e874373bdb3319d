"""Find in-place changes that break backward before it runs: the node, the saved tensor, the writer and its line.

A node saves a tensor together with its version counter, which torch checks only in backward. Every write is recorded
here and matched with saved tensors by their storage. Writes through `.data` do not bump the version: torch never
notices, and the gradient is wrong, unless the bytes are those that were saved again, as after gradcheck.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module
from torch.utils.weak import WeakIdKeyDictionary

from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.diagnostics.clone_placement import LineFix, cure_of
from app.autograd.diagnostics.detached_paths import custom_node
from app.autograd.memory import raw_saved
from app.autograd.place import OpLocation
from app.autograd.source_locations import SourceLocations
from app.autograd.sparse import parts_of
from app.autograd.tape import Tape
from app.autograd.walk import LEAF_SEQUENCE, short_name
from app.source.generated import Source
from app.util import module_tree
from app.util.language import tr, trn
from app.util.torch_calls import FunctionCalls, KernelCalls

_MISMATCH = re.compile(r"is at version (\d+); expected version (\d+)")
_TORCH_ERROR = "one of the variables needed for gradient computation has been modified by an inplace operation"
# A batch norm keeps its running statistics, but in training its backward does not read them.
_NOT_READ = frozenset({"running_mean", "running_var"})


class Write(Struct, frozen=True):
    """One operation that wrote into a saved tensor.

    `view` means through a view of it, `parameter` names the parameter written to, and `silent` means through `.data`,
    which does not bump the version. `count` counts equal writes at the same line, as in a loop. `replaced` means that
    `.data` was set to another tensor: "read" where backward reads the new values, "unread" where it has the old ones.
    """

    location: OpLocation
    silent: bool
    view: bool
    parameter: str = ""
    count: int = 1
    replaced: str = ""


class BrokenNode(Struct, frozen=True):
    """A node whose backward fails, or is silently wrong.

    `node` is its number in the tape, `place` the location of its operation. `saved` names the saved tensor, `version`
    is its version when saved and `version_now` the current one. `silent` means that torch does not notice. `cure` tells
    where to put `.clone()`, None without a line.
    """

    node: int
    name: str
    place: OpLocation
    saved: str
    shape: tuple[int, ...]
    version: int | None
    version_now: int | None
    silent: bool
    writes: tuple[Write, ...]
    sentence: str
    cure: LineFix | None = None


class Mutations(Struct, frozen=True):
    """In-place changes that break backward, in backward order; the first that is not silent raises.

    `error` is torch's error from the backward pass of this graph, "" if none: a write through a view can invalidate
    tensors that are saved inside a CopySlices node, and then `broken` is empty.
    """

    tape: Tape
    broken: tuple[BrokenNode, ...]
    error: str = ""

    @property
    def first(self) -> BrokenNode | None:
        """The node whose error torch would raise."""
        return next((broken for broken in self.broken if not broken.silent), None)


class _Seen(Struct):
    """A write while the pass runs. `started` is autograd's counter when the call that it belongs to began; `inside` is
    the custom Function whose forward wrote. The reference keeps the block's address from being given to another.
    `before` is the digest of the block before a silent write, None where no node was created since the last one."""

    block: StorageWeakRef
    place: OpLocation
    started: int
    inside: Any
    silent: bool
    view: bool
    before: bytes | None = None
    replaced: str = ""


def find_broken(batch: TrainingBatch) -> Mutations:
    """Run the forward pass and the loss, and find the nodes that an in-place change has broken.

    Raises what `TrainingBatch.hold` raises: torch rejects some in-place operations immediately.
    """
    watcher = WriteWatcher(batch.model, batch.source)
    try:
        with batch.hold(around=watcher) as graph:
            broken = watcher.broken(graph.nodes)
            order = graph.tape.steps
            broken.sort(key=lambda broken_node: order.get(broken_node.node, 0))
            with preserve_gradients(batch.model):
                return Mutations(graph.tape, tuple(broken), run_backward(graph))
    finally:
        watcher.forget()


class WriteWatcher:
    """A context around any code that uses torch; `broken(nodes)` returns the broken nodes, before backward is run.

    Line numbers refer to the text of `source`, else to the files that run.
    """

    def __init__(
        self, model: Module | None = None, source: Source | None = None
    ) -> None:
        self.places = SourceLocations(model, source)
        self._names = (
            {id(p): name for name, p in module_tree.named_parameters(model)}
            if model is not None
            else {}
        )
        self._data_aliases: Any = WeakIdKeyDictionary()
        self._writes: list[_Seen] = []
        self._digested: dict[
            int, int
        ] = {}  # a block -> autograd's counter at its last digest
        self._calls: list[tuple[int, OpLocation]] = []
        self._modes: tuple[Any, ...] = ()
        self._parameters: dict[int, str] = {}
        if model is not None:
            for parameter in module_tree.parameters(model):
                for component in parts_of(parameter):
                    self._parameters[_block(component)] = self._names[id(parameter)]

    def __enter__(self) -> WriteWatcher:
        self.places.__enter__()
        self._modes = FunctionCalls(self._called), KernelCalls(self._kernel_called)
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
        self._modes = ()
        self.places.__exit__(*error)

    def forget(self) -> None:
        """Release the watched storages."""
        self._writes, self._digested, self._data_aliases = [], {}, WeakIdKeyDictionary()

    def _called(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Run one of torch's functions, recording its caller for the kernels it runs."""
        name = getattr(func, "__name__", "")
        if not self.places.origins.listening:
            return func(*args, **kwargs)
        if name == "__get__":
            result = func(*args, **kwargs)
            if _property(func) == "data":
                self._data_aliases[result] = True
            return result
        if name == "__set__" and _property(func) == "data":
            self._replace(args[0], args[1], self.places.here(frame, "data"))
        started = _sequence()
        with torch._C.DisableTorchFunction():
            self._calls.append((started, self.places.here(frame, name)))
        try:
            return func(*args, **kwargs)
        finally:
            _, location = self._calls.pop()
            self.places.note(started, _sequence(), location)

    def _replace(
        self, tensor: torch.Tensor, value: torch.Tensor, location: OpLocation
    ) -> None:
        """Record that `.data` of a tensor is about to be set: nodes saved its memory, or the tensor itself."""
        with torch._C.DisableTorchFunction():
            for replaced, saved_tensor in (("unread", tensor), ("read", value)):
                for dense in parts_of(saved_tensor):
                    block = StorageWeakRef(dense.untyped_storage())
                    self._parameters.setdefault(
                        block.cdata, self._names.get(id(tensor), "")
                    )
                    self._writes.append(
                        _Seen(
                            block,
                            location,
                            _sequence(),
                            None,
                            True,
                            False,
                            replaced=replaced,
                        )
                    )

    def _kernel_called(
        self, func: Any, args: Any, kwargs: Any, frame: FrameType
    ) -> Any:
        self._note_writes(func, args, kwargs, frame)
        return func(*args, **kwargs)

    def _note_writes(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> None:
        """Record the writes of a kernel that is about to run."""
        if not self.places.origins.listening:
            return
        for tensor in written_by(func, args, kwargs):
            if self._calls:
                started, location = self._calls[-1]
            else:
                started, location = (
                    _sequence(),
                    self.places.here(frame, func._schema.name.rpartition("::")[2]),
                )
            base = tensor._base if tensor._is_view() else None
            silent = tensor in self._data_aliases or (
                base is not None and base in self._data_aliases
            )
            for component in parts_of(tensor):
                block = StorageWeakRef(component.untyped_storage())
                before = self._digest_before(component, block.cdata) if silent else None
                self._writes.append(
                    _Seen(
                        block,
                        location,
                        started,
                        custom_node(frame),
                        silent,
                        base is not None,
                        before,
                    )
                )

    def _digest_before(self, tensor: torch.Tensor, block: int) -> bytes | None:
        """Return the digest of what a node may have saved, unless no node was created since the last one."""
        now = _sequence()
        if self._digested.get(block) == now:
            return None
        self._digested[block] = now
        return _digest(tensor)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def broken(self, nodes: Sequence[Any]) -> list[BrokenNode]:
        """Find the nodes at which backward fails or goes wrong; they are numbered by position in `nodes`."""
        by_block: dict[int, list[_Seen]] = {}
        for write in self._writes:
            by_block.setdefault(write.block.cdata, []).append(write)
        broken_nodes: list[BrokenNode] = []
        for number, node in enumerate(nodes):
            for name, tensor, version, now in _saved_versions(node):
                blocks = [
                    write
                    for block in _blocks(tensor)
                    for write in by_block.get(block, [])
                ]
                writes = [write for write in blocks if _after(write, node)]
                if (
                    version is None
                ):  # torch is content; a write through .data is all that can be wrong
                    writes = [
                        write
                        for write in writes
                        if write.silent and name not in _NOT_READ
                    ]
                    writes = _since_saved(writes, tensor)
                    if not writes:
                        continue
                else:
                    writes = [write for write in writes if not write.silent] or writes
                broken_nodes.append(
                    self._describe(number, node, name, tensor, version, now, writes)
                )
        return broken_nodes

    def _describe(
        self,
        number: int,
        node: Any,
        name: str,
        tensor: Any,
        version: int | None,
        now: int,
        recorded_writes: list[_Seen],
    ) -> BrokenNode:
        location, silent = self.places.location_of(node), version is None
        parameter = next(
            filter(None, (self._parameters.get(block) for block in _blocks(tensor))), ""
        )
        counts: dict[Write, int] = {}
        for write in recorded_writes:
            key = Write(
                write.place,
                write.silent,
                write.view,
                parameter,
                replaced=write.replaced,
            )
            counts[key] = counts.get(key, 0) + 1
        writes = tuple(replace(write, count=count) for write, count in counts.items())
        sentence = _sentence(short_name(node), location, name, version, now, writes)
        return BrokenNode(
            number,
            short_name(node),
            location,
            name,
            tuple(tensor.shape),
            now if silent else version,
            now,
            silent,
            writes,
            sentence,
            cure_of(writes[0], location, name) if writes else None,
        )


def _sentence(
    node: str,
    location: OpLocation,
    saved: str,
    version: int | None,
    now: int,
    writes: tuple[Write, ...],
) -> str:
    writers = [
        f"{write.location.op} {write.location.where}{_times(write)}" for write in writes
    ]
    values = {"node": node, "where": location.where, "saved": saved}
    if replacing := [write for write in writes if write.replaced]:
        return _replaced(replacing[0], values)
    who = f" {tr('and')} ".join(writers) or tr("An unrecorded operation")
    if version is None:
        return trn(
            "{who} writes through .data into what {node} {where} saves for backward ({saved}). The version counter "
            "does not change, so torch cannot detect it: the gradient is silently wrong.",
            "{who} write through .data into what {node} {where} saves for backward ({saved}). The version counter "
            "does not change, so torch cannot detect it: the gradient is silently wrong.",
            max(len(writes), 1),
            who=who,
            **values,
        )
    return trn(
        "{who} changes in place what {node} {where} saves for backward ({saved}): saved at version {version}, now at "
        "version {now}. Backward will raise “{error}”.",
        "{who} change in place what {node} {where} saves for backward ({saved}): saved at version {version}, now at "
        "version {now}. Backward will raise “{error}”.",
        max(len(writes), 1),
        who=who,
        version=version,
        now=now,
        error=_TORCH_ERROR,
        **values,
    )


def _times(write: Write) -> str:
    return f" ({tr('{number} times', number=write.count)})" if write.count > 1 else ""


def _replaced(write: Write, values: Mapping[str, str]) -> str:
    effect = tr(
        "The gradient is that of the values before, while the step changes the new ones."
    )
    if write.replaced == "read":
        effect = tr(
            "Backward reads the new values, which the forward pass did not use: the gradient is silently wrong."
        )
    return tr(
        "{tensor} is replaced through .data {place}, after it became what {node} {where} saves for backward ({saved}). "
        "torch cannot notice that. {effect}",
        tensor=write.parameter or tr("A tensor"),
        place=write.location.where,
        effect=effect,
        **values,
    )


def _property(func: Any) -> str:
    """Return the name of the property that a getter or a setter belongs to."""
    return getattr(getattr(func, "__self__", None), "__name__", "")


def _saved_versions(node: Any) -> Iterator[tuple[str, Any, int | None, int]]:
    """Yield (name, tensor, version when saved, version now) of a node's saved tensors; None where torch sees no
    difference."""
    for attribute, items in raw_saved(node):
        if any(raw.unpack_hook is not None for _, raw in items):
            continue  # unpacking would run the hook, which recomputes under checkpoint
        tensors = [
            (name, raw.data)
            for name, raw in items
            if isinstance(raw.data, torch.Tensor)
        ]
        tensors = [
            (name, tensor) for name, tensor in tensors if not tensor.is_inference()
        ]
        expected: tuple[int, int] | None = None
        try:
            getattr(node, attribute)
        except RuntimeError as error:
            if match := _MISMATCH.search(str(error)):
                expected = int(match[1]), int(match[2])
        for name, tensor in tensors:
            if expected is not None and tensor._version == expected[0]:
                yield name, tensor, expected[1], expected[0]
                expected = None  # torch reports only the first of several
            else:
                yield name, tensor, None, tensor._version


def _digest(tensor: torch.Tensor) -> bytes:
    """Return a digest of the bytes behind a dense tensor; b"" for one without bytes."""
    if tensor.is_meta:
        return b""
    with torch._C.DisableTorchFunction():
        storage_bytes = (
            torch.empty(0, dtype=torch.uint8, device=tensor.device)
            .set_(tensor.untyped_storage())
            .cpu()
        )
        return hashlib.blake2b(storage_bytes.numpy().data, digest_size=16).digest()


def _since_saved(writes: list[_Seen], tensor: torch.Tensor) -> list[_Seen]:
    """Return the writes since the block of a saved tensor last had the bytes that were saved, none if it has them."""
    saved = writes[0].before if writes else b""
    if not saved:
        return writes
    if any(
        _digest(component) == saved
        for component in parts_of(tensor)
        if _block(component) == writes[0].block.cdata
    ):
        return []
    return writes[
        max(index for index, write in enumerate(writes) if write.before == saved) :
    ]


def _block(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _blocks(tensor: torch.Tensor) -> list[int]:
    """Return the storages of a tensor: several for a sparse one."""
    return [_block(component) for component in parts_of(tensor)]


def _after(write: _Seen, node: Any) -> bool:
    """Return whether a write happened after a node had saved its tensors, and not by the node's own operation."""
    number = node._sequence_nr()
    return (
        number != LEAF_SEQUENCE and number < write.started and write.inside is not node
    )


def written_by(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the tensors that an operation's schema declares as written."""
    for index, name in _written_arguments(func):
        value = args[index] if index < len(args) else kwargs.get(name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor


@lru_cache(maxsize=1024)
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _sequence() -> int:
    return torch._C._autograd._get_sequence_nr()
