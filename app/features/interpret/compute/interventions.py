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
        for change in changes:
            find_module(model, change.path)
            if change.head is not None and change.channel is not None:
                raise InterpretError(
                    f"{change.path}: choose a head or a channel, not both"
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
        heads = [change for change in changes if change.head is not None]
        hooks = [self._hook(change, act) for change in changes if change.head is None]

        def change_heads(attention: Attention) -> None:
            count = dims(attention.lead, self._batch)[1]
            self._heads[attention.path] = count
            for change in heads:
                if (
                    change.path == attention.path
                    and change.call in (0, attention.call)
                    and change.head is not None
                    and change.head < count
                ):
                    head_output = _head(
                        attention.output, attention.lead, change.head, count
                    )
                    head_output.copy_(act(change, attention.call, head_output))
                    self._used.add(change)

        try:
            # Without heads a pass runs as ever. With them the one without changes is watched too: it takes no fused
            # inference of nn.TransformerEncoder either, so that both are computed by the same kernels.
            watched = any(change.head is not None for change in self.changes)
            with (
                AttentionFinder(self._model, change_heads).watching()
                if watched
                else torch.no_grad()
            ):
                yield
        finally:
            for hook in hooks:
                hook.remove()
        for intervention in changes:
            if intervention not in self._used:
                raise InterpretError(self._unused(intervention))

    def _hook(
        self, change: Intervention, act: Callable[[Intervention, int, Tensor], Tensor]
    ) -> Any:
        module, count = find_module(self._model, change.path), Counter[str]()

        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            count["calls"] += 1
            call = count["calls"]
            if change.call not in (0, call):
                return None
            self._used.add(change)
            counts = Counter[str]()

            def changed(leaf: Any) -> Any:
                if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
                    return leaf
                counts["tensors"] += 1
                if change.channel is None:
                    return act(change, 1000 * call + counts["tensors"], leaf)
                if counts["tensors"] > 1:
                    return leaf
                axis = (
                    channel_axis(module, leaf) if change.axis is None else change.axis
                )
                self._check_channel(change, leaf, axis)
                patched = leaf.clone()
                channel = patched.select(axis, change.channel)
                channel.copy_(act(change, call, channel))
                return patched

            return tree_map(changed, output)

        return module_tree.on_call(module, hook)

    def _check_channel(self, change: Intervention, tensor: Tensor, axis: int) -> None:
        if (
            not -tensor.ndim <= axis < tensor.ndim
            or change.channel is None
            or change.channel >= tensor.shape[axis]
        ):
            count = tensor.shape[axis] if -tensor.ndim <= axis < tensor.ndim else 0
            raise InterpretError(
                f"{change}: the output of {change.path} is {tuple(tensor.shape)} with {count} channels "
                f"along axis {axis}, "
                "counted from 0; choose one of them, or another axis"
            )
        remark = f"{change.path}: channels are axis {axis} of its output {tuple(tensor.shape)}"
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _note(self, change: Intervention, number: int, tensor: Tensor) -> Tensor:
        self._recorded[replace(change, source=None), number] = tensor.detach().clone()
        return tensor

    def _change(self, change: Intervention, number: int, tensor: Tensor) -> Tensor:
        if change.source is None:
            return torch.zeros_like(tensor)
        other = self._recorded.get((replace(change, source=None), number))
        if other is None or other.shape != tensor.shape:
            there = "nothing" if other is None else str(tuple(other.shape))
            raise InterpretError(
                f"{change}: its output is {tuple(tensor.shape)} for the samples and {there} for sample "
                f"{change.source}; the "
                "shapes must match"
            )
        return other

    def _unused(self, change: Intervention) -> str:
        if change.head is None:
            return f"{change}: the forward pass makes no such call of this module"
        if change.path in self._heads:
            return f"{change}: its attention has {self._heads[change.path]} heads, counted from 0, or fewer calls"
        there = ", ".join(self._heads) or "none at all"
        return f"{change}: this module itself computes no attention; those that do are {there}"


def channel_axis(module: nn.Module, output: Tensor) -> int:
    """Return the axis of channels: the last of (N, tokens, channels) and of layers that act on it, else the second."""
    if isinstance(module, _LAST):
        return -1
    if isinstance(module, _SECOND):
        return 1
    return -1 if output.ndim <= 3 else 1


def find_module(model: nn.Module, path: str) -> nn.Module:
    """Return the module at a path, "" for the model. Raises InterpretError that names near ones."""
    modules = dict(module_tree.named_modules(model))
    if path not in modules:
        near = (
            difflib.get_close_matches(path, modules, 5, 0.4)
            or [name for name in modules if name][:5]
        )
        raise InterpretError(
            f"the model has no module {path}; near it are {', '.join(near)}"
        )
    return modules[path]


def _head(output: Tensor, lead: tuple[int, ...], head: int, count: int) -> Tensor:
    """Return the view of one head of (..., heads, queries, width); of one leading size, heads are its inner part."""
    if len(lead) == 1:
        return output.unflatten(0, (-1, count))[:, head]
    return output.select(-3, head) if lead else output
