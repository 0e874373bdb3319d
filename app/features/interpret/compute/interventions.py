"""Mute or patch parts of a net in a forward pass: the output of a module, one channel of it, one head of attention."""

from __future__ import annotations

import contextlib
import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from app.features.interpret.compute.attention import Attention, AttentionFinder
from app.features.interpret.compute.attention_maps import dims
from app.features.interpret.values import InterpretError, Intervention
from app.util import module_tree

# Modules whose channels come last; those of all others are the second axis, but for outputs (N, tokens, channels).
_LAST = (
    nn.Linear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.Embedding,
    nn.MultiheadAttention,
    nn.RNNBase,
)
_SECOND = (
    nn.Conv1d,
    nn.ConvTranspose1d,
    nn.BatchNorm1d,
    nn.InstanceNorm1d,
    nn.GroupNorm,
    nn.MaxPool1d,
    nn.AvgPool1d,
)
Recorded = dict[
    tuple[Intervention, int], Any
]  # what parts passed on for the source, by the number of the call


class Interventions:
    """Changes of a forward pass. `recording()` records the outputs of the parts, `applied()` replaces them.

    Raises InterpretError for a module or head that is not there, and for a part that a pass did not use.
    """

    def __init__(
        self, model: nn.Module, changes: Sequence[Intervention], batch: int
    ) -> None:
        self._model, self._batch = model, batch
        self.changes = tuple(changes)
        self.remarks: list[str] = []
        for one in changes:
            find_module(model, one.path)
            if one.head is not None and one.channel is not None:
                raise InterpretError(
                    f"{one.path}: choose a head or a channel, not both"
                )
        self._recorded: Recorded = {}
        self._used: set[Intervention] = set()
        self._heads: dict[str, int] = {}  # of the attentions that were seen, by path

    @contextlib.contextmanager
    def recording(self, of: Sequence[Intervention]) -> Iterator[None]:
        """Record the outputs of the parts of some changes within this context."""
        with self._acting(of, self._note):
            yield

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Change nothing, in a pass that is otherwise run as one with changes."""
        with self._acting((), self._change):
            yield

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Make the changes within this context."""
        with self._acting(self.changes, self._change):
            yield

    @contextlib.contextmanager
    def _acting(
        self,
        changes: Sequence[Intervention],
        act: Callable[[Intervention, int, Tensor], Tensor],
    ) -> Any:
        """Call `act(change, number of the call, part)` for each part, and replace the part by its result."""
        self._used, self._heads = set(), {}
        heads = [one for one in changes if one.head is not None]
        hooks = [self._hook(one, act) for one in changes if one.head is None]

        def change_heads(found: Attention) -> None:
            count = dims(found.lead, self._batch)[1]
            self._heads[found.path] = count
            for one in heads:
                if (
                    one.path == found.path
                    and one.call in (0, found.call)
                    and one.head is not None
                    and one.head < count
                ):
                    own = _head(found.output, found.lead, one.head, count)
                    own.copy_(act(one, found.call, own))
                    self._used.add(one)

        try:
            # Without heads a pass runs as ever. With them the one without changes is watched too: it takes no fused
            # inference of nn.TransformerEncoder either, so that both are computed by the same kernels.
            watched = any(one.head is not None for one in self.changes)
            with (
                AttentionFinder(self._model, change_heads).watching()
                if watched
                else torch.no_grad()
            ):
                yield
        finally:
            for hook in hooks:
                hook.remove()
        for one in changes:
            if one not in self._used:
                raise InterpretError(self._unused(one))

    def _hook(
        self, one: Intervention, act: Callable[[Intervention, int, Tensor], Tensor]
    ) -> Any:
        module, count = find_module(self._model, one.path), Counter[str]()

        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            count["calls"] += 1
            call = count["calls"]
            if one.call not in (0, call):
                return None
            self._used.add(one)
            place = Counter[str]()

            def changed(part: Any) -> Any:
                if not isinstance(part, Tensor) or not part.is_floating_point():
                    return part
                place["tensors"] += 1
                if one.channel is None:
                    return act(one, 1000 * call + place["tensors"], part)
                if place["tensors"] > 1:
                    return part
                axis = channel_axis(module, part) if one.axis is None else one.axis
                self._check_channel(one, part, axis)
                made = part.clone()
                own = made.select(axis, one.channel)
                own.copy_(act(one, call, own))
                return made

            return tree_map(changed, output)

        return module_tree.on_call(module, hook)

    def _check_channel(self, one: Intervention, part: Tensor, axis: int) -> None:
        if (
            not -part.ndim <= axis < part.ndim
            or one.channel is None
            or one.channel >= part.shape[axis]
        ):
            count = part.shape[axis] if -part.ndim <= axis < part.ndim else 0
            raise InterpretError(
                f"{one}: the output of {one.path} is {tuple(part.shape)} with {count} channels along axis {axis}, "
                "counted from 0; choose one of them, or another axis"
            )
        words = (
            f"{one.path}: channels are axis {axis} of its output {tuple(part.shape)}"
        )
        if words not in self.remarks:
            self.remarks.append(words)

    def _note(self, one: Intervention, number: int, part: Tensor) -> Tensor:
        self._recorded[replace(one, source=None), number] = part.detach().clone()
        return part

    def _change(self, one: Intervention, number: int, part: Tensor) -> Tensor:
        if one.source is None:
            return torch.zeros_like(part)
        other = self._recorded.get((replace(one, source=None), number))
        if other is None or other.shape != part.shape:
            there = "nothing" if other is None else str(tuple(other.shape))
            raise InterpretError(
                f"{one}: its output is {tuple(part.shape)} for the samples and {there} for sample {one.source}; the "
                "shapes must match"
            )
        return other

    def _unused(self, one: Intervention) -> str:
        if one.head is None:
            return f"{one}: the forward pass makes no such call of this module"
        if one.path in self._heads:
            return f"{one}: its attention has {self._heads[one.path]} heads, counted from 0, or fewer calls"
        there = ", ".join(self._heads) or "none at all"
        return f"{one}: this module itself computes no attention; those that do are {there}"


def channel_axis(module: nn.Module, output: Tensor) -> int:
    """Return the axis of channels: the last of (N, tokens, channels) and of layers that act on it, else the second."""
    if isinstance(module, _LAST):
        return -1
    if isinstance(module, _SECOND):
        return 1
    return -1 if output.ndim <= 3 else 1


def find_module(model: nn.Module, path: str) -> nn.Module:
    """Return the module at a path, "" for the model. Raises InterpretError that names near ones."""
    known = dict(module_tree.named_modules(model))
    if path not in known:
        near = (
            difflib.get_close_matches(path, known, 5, 0.4)
            or [one for one in known if one][:5]
        )
        raise InterpretError(
            f"the model has no module {path}; near it are {', '.join(near)}"
        )
    return known[path]


def _head(output: Tensor, lead: tuple[int, ...], head: int, count: int) -> Tensor:
    """Return the view of one head of (..., heads, queries, width); of one leading size, heads are its inner part."""
    if len(lead) == 1:
        return output.unflatten(0, (-1, count))[:, head]
    return output.select(-3, head) if lead else output
