"""Find the first NaN or Inf of a forward pass, in execution order; and what describes one."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from app.autograd.diagnostics import nonfinite_reasons
from app.autograd.diagnostics.results import line_text
from app.autograd.sparse import parts_of
from app.util import module_tree, user_frames
from app.util.language import tr
from app.util.torch_calls import KernelCalls

if TYPE_CHECKING:
    from torch import Tensor

    from app.source.generated import Source

# Operations that create Infs on purpose, as for the mask of an attention.
_DELIBERATE = (
    "full",
    "fill",
    "masked_fill",
    "new_full",
    "full_like",
    "scalar_tensor",
    "where",
    "triu",
    "tril",
)
_UNWRITTEN = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize",
)  # memory as it is


class NonFinite(Struct, frozen=True):
    """`direction` is "forward" or "backward", `op` torch's name of the operation or of the backward node.

    `value` is "NaN" or "Inf". `made_here` is False if it was an input: in the data, a weight, or the initial vector of
    backward. `layer` is a module path, `node` the drawing's node, `line` a line of the generated text or of `file`,
    `tape_node` the number on the tape (backward only). `in_loss` means that it occurred after the net's forward.
    `reason` says why, and `cure` what to change, "" where that is not known. `masked_by` names the backward node that
    drops it, so that no parameter receives it; "" if one does.
    """

    direction: str
    op: str
    value: str
    made_here: bool
    layer: str = ""
    node: str | None = None
    line: int | None = None
    tape_node: int | None = None
    in_loss: bool = False
    file: str = ""
    reason: str = ""
    cure: str = ""
    masked_by: str = ""

    def sentence(self) -> str:
        """Describe it in one sentence."""
        name = name_of(self.op, self.in_loss, self.layer, self.line, self.file)
        if self.direction == "forward":
            text = tr(
                "In the forward pass, {name} produced the first {value}.",
                name=name,
                value=self.value,
            )
            received = tr(
                "In the forward pass, {name} is the first to receive a {value}.",
                name=name,
                value=self.value,
            )
        else:
            text = tr(
                "In the backward pass, {name} produced the first {value}.",
                name=name,
                value=self.value,
            )
            received = tr(
                "In the backward pass, {name} is the first to receive a {value}.",
                name=name,
                value=self.value,
            )
        masked = tr(
            "{node} masks it: no parameter receives it on this batch.",
            node=self.masked_by,
        )
        parts = (
            text if self.made_here else received,
            self.reason,
            masked if self.masked_by else "",
        )
        return " ".join(filter(None, parts))


def name_of(op: str, in_loss: bool, layer: str, line: int | None, file: str) -> str:
    """Name an operation with its layer and line: "ReluBackward0 of f.3, line 13 of net.py"."""
    if in_loss:
        name = tr("{op} of the loss", op=op)
    elif layer:
        name = tr("{op} of {layer}", op=op, layer=layer)
    else:
        name = tr("{op} of the network's own code", op=op)
    return ", ".join(filter(None, (name, line_text(line, file))))


class ForwardWatch:
    """A context for a forward pass; `found` is the first operation that produced a NaN or an Inf.

    An operation produced a NaN if none of its inputs had one, and an Inf if all of them were finite. Deliberate Infs
    (the mask of an attention) do not count. `found` may have been dropped on the way (`torch.where`, an unused
    constant): `reached` returns the origin of what is still in a tensor. Every operation is synchronised, so this is
    for diagnosis, not for training. Only the entering thread is watched.
    """

    def __init__(
        self,
        source: Source | None = None,
        model: nn.Module | None = None,
        own_lines: bool = False,
    ) -> None:
        self.found: NonFinite | None = None
        self._source, self._model, self._own_lines = source, model, own_lines
        self._mode: Any = None
        # What made the NaN or the Inf in a memory block; the weak reference keeps its address from being used again.
        self._origins: dict[int, tuple[StorageWeakRef, NonFinite]] = {}

    def __enter__(self) -> ForwardWatch:
        self._mode = KernelCalls(self._called)
        self._mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._mode.__exit__(*exception)
        self._mode = None

    def reached(self, value: Any) -> NonFinite | None:
        """Return the source of a NaN or Inf in the tensors in `value`; None where all are finite, or where they
        hold an Inf that was put there on purpose."""
        for tensor in _floating(value):
            if (
                not bool(tensor.isfinite().all())
                and (origin := self._origin(tensor)) is not None
            ):
                return origin
        return None

    def _called(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        # Checked before the call, since an in-place operation overwrites its input.
        given = (args, kwargs)
        kinds = _kinds(given)
        before = self.reached(given) if any(kinds) else None
        values = _by_name(func, args, kwargs)
        answered = func(*args, **kwargs)
        self._note_result(func, values, kinds, before, answered, frame)
        return answered

    def _note_result(
        self,
        func: Any,
        values: dict[str, Any],
        kinds: tuple[bool, bool],
        before: NonFinite | None,
        answered: Any,
        frame: FrameType,
    ) -> None:
        """Record the result of an operation; `values` are its arguments by name, `kinds` tells whether they had a NaN,
        an Inf, and `before` is their origin."""
        nan, inf = _kinds(answered)
        name = func._schema.name.rpartition("::")[2].lstrip("_").removesuffix("_")
        if name in _UNWRITTEN or not (nan or inf):
            return
        origin = before
        if nan and not kinds[0]:
            origin = self._new_origin(
                frame, name, "NaN", nonfinite_reasons.of_call(name, values, answered)
            )
        elif nan and before is None:
            origin = self._new_origin(frame, name, "NaN")
        elif inf and not any(kinds) and name not in _DELIBERATE:
            origin = self._new_origin(
                frame, name, "Inf", nonfinite_reasons.of_call(name, values, answered)
            )
        if origin is None:
            return
        self.found = self.found or origin
        for tensor in _floating(answered):
            if not bool(tensor.isfinite().all()):
                storage = tensor.untyped_storage()
                self._origins[storage._cdata] = (StorageWeakRef(storage), origin)

    def _origin(self, tensor: Tensor) -> NonFinite | None:
        origin = self._origins.get(tensor.untyped_storage()._cdata)
        return None if origin is None else origin[1]

    def _new_origin(
        self,
        frame: FrameType,
        op: str,
        value: str,
        reason: nonfinite_reasons.Reason | None = None,
    ) -> NonFinite:
        """Describe the running operation; `reason` is None where it received the value."""
        layer, line, inside = self._locate(frame)
        file, at = user_frames.location(frame) if self._own_lines else ("", 0)
        node = (
            self._source.node_at(line)
            if self._source is not None and line is not None
            else None
        )
        locatable = self._source is not None or self._model is not None
        sentence, cure = reason or nonfinite_reasons.UNKNOWN
        return NonFinite(
            "forward",
            op,
            value,
            reason is not None,
            layer,
            node,
            line or at or None,
            in_loss=locatable and not inside,
            file=file,
            reason=sentence,
            cure=cure,
        )

    def _locate(self, frame: FrameType | None) -> tuple[str, int | None, bool]:
        """Return (module path, line of the generated text, whether it is inside the net) of the running code."""
        line, innermost, outermost = None, None, None
        while frame is not None:
            if (
                self._source is not None
                and line is None
                and frame.f_code.co_filename == self._source.filename
            ):
                line = frame.f_lineno
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                innermost, outermost = innermost or owner, owner
            frame = frame.f_back
        root = self._model if self._model is not None else outermost
        paths = (
            {module: path for path, module in module_tree.named_modules(root)}
            if root is not None
            else {}
        )
        inside = line is not None if self._model is None else innermost in paths
        return (
            (paths.get(innermost, "") if inside and innermost is not None else ""),
            line,
            inside,
        )


def _by_name(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of an operation by their names in its schema; of one that writes to them, copies."""
    names = (argument.name for argument in func._schema.arguments)
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    if not func._schema.is_mutable:
        return values
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def all_finite(value: Any) -> bool:
    """Return True if no tensor in `value` has a NaN or an Inf."""
    return all(bool(tensor.isfinite().all()) for tensor in _floating(list(value)))


def _kinds(value: Any) -> tuple[bool, bool]:
    """Return whether any tensor in `value` has a NaN, and an Inf."""
    nan = inf = False
    for tensor in _floating(value):
        if not bool(tensor.isfinite().all()):
            nan, inf = (
                nan or bool(tensor.isnan().any()),
                inf or bool(tensor.isinf().any()),
            )
    return nan, inf


def _floating(value: Any) -> Iterable[Tensor]:
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and (
            leaf.is_floating_point() or leaf.is_complex()
        ):
            if (
                leaf.numel()
                and leaf.device.type != "meta"
                and (parts := parts_of(leaf.detach()))
            ):
                yield parts[-1]
