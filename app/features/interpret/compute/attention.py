"""Find every scaled-dot-product attention of a forward pass: fused, in C++, or a softmax between two matmuls.

A function mode sees `F.scaled_dot_product_attention` with the arguments as they were written, and keeps
`nn.MultiheadAttention` and `nn.TransformerEncoder` off their fused inference, whose weights are hidden. A dispatch
mode sees the kernels that are called past the public functions, and follows tensors from a matmul of two activations
through a softmax to the matmul that takes its result, whatever masks, biases, casts and views lie between.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from app.util import module_tree, user_frames
from app.util.torch_calls import FunctionCalls, KernelCalls
from tapedeck import devices

CHUNK = 1 << 26  # bytes of weights that are computed at a time
OPEN = 4  # results of softmax that wait for their matmul
_SOFTMAX = ("_softmax", "_safe_softmax")
_MATMULS = ("bmm", "mm", "baddbmm", "addmm", "matmul")
_OTHERS = (
    "convolution",
    "linear",
    "addmv",
    "mv",
    "dot",
    "_scaled_mm",
    "embedding",
)  # nothing is followed through
_FUSED = "_scaled_dot_product_"


class Attention(Struct, eq=False):
    """An attention that has just been computed. Weights have the shape (..., heads, queries, keys), `values` (...,
    heads, keys, width), and `output` is the result used by the net, as (..., heads, queries, width).

    `path` is the innermost module, `call` counts the attentions of that module from 1. `dropout` is the probability
    that the call was given. `rows(begin, end)` computes weights, and returns them with the largest score among them.
    `pictures` are heights and widths of what modules gave as (N, C, H, W) before, the newest first.
    """

    path: str
    call: int
    kind: str
    place: tuple[str, int]
    values: Tensor
    output: Tensor
    queries: int
    keys: int
    lead: tuple[int, ...]
    rows: Callable[[int, int], tuple[Tensor, float]]
    dropout: float = 0.0
    remark: str = ""
    pictures: tuple[tuple[int, int], ...] = ()

    def chunks(self, step: int = 1) -> Iterator[tuple[int, int, Tensor, float]]:
        """Yield begin, end and weights (..., heads, end - begin, keys) of some queries at a time, a multiple of `step`
        of them, with the largest score among them."""
        row = 8 * self.keys * math.prod(self.lead)
        size = max(1, CHUNK // max(row * step, 1)) * step
        for begin in range(0, self.queries, size):
            end = min(begin + size, self.queries)
            yield begin, end, *self.rows(begin, end)


class AttentionFinder:
    """Calls `found(attention)` for each one that `model` computes, before it is used; it may write to the output."""

    def __init__(self, model: nn.Module, found: Callable[[Attention], None]) -> None:
        self._model, self._found = model, found
        self._paths: list[str] = []
        self._calls = Counter[str]()
        self._pictures: dict[tuple[int, int], None] = {}
        self.busy = False  # inside a call whose parts are not recorded
        self._scores: Any = (
            WeakTensorKeyDictionary()
        )  # what comes of a matmul of two activations
        self._weights: Any = (
            WeakTensorKeyDictionary()
        )  # what comes of their softmax: its number
        self._softmax: dict[int, Tensor] = {}
        self._number = 0
        self._parameters = {
            _storage(parameter)
            for parameter in module_tree.parameters(model)
            if _storage(parameter)
        }

    @contextlib.contextmanager
    def watching(self, kernels: bool = True) -> Iterator[None]:
        """Observe the operations of this thread, without gradients; without `kernels` only public functions."""
        hooks: list[Any] = []
        try:
            for path, module in module_tree.named_modules(self._model):
                hooks.append(module_tree.before_call(module, self._entering(path)))
                hooks.append(
                    module_tree.on_call(module, self._leaving, always_call=True)
                )
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                if kernels:
                    stack.enter_context(KernelCalls(self._kernel_called))
                # entered last, so that it is called first
                stack.enter_context(FunctionCalls(self._function_called))
                yield
        finally:
            for hook in hooks:
                hook.remove()
            self._softmax.clear()

    def _entering(self, path: str) -> Callable[..., None]:
        def enter(_module: nn.Module, _args: Any) -> None:
            self._paths.append(path)

        return enter

    def _leaving(self, _module: nn.Module, _args: Any, output: Any) -> None:
        self._paths.pop()
        if isinstance(output, Tensor) and output.ndim == 4:
            size = (output.shape[-2], output.shape[-1])
            self._pictures.pop(size, None)
            self._pictures[size] = None

    def _tell(self, kind: str, frame: FrameType | None, **rest: Any) -> None:
        path = self._paths[-1] if self._paths else ""
        self._calls[path] += 1
        self.busy = True
        try:
            location = user_frames.location(frame, generated=True)
            pictures = tuple(reversed(self._pictures))
            self._found(
                Attention(
                    path, self._calls[path], kind, location, pictures=pictures, **rest
                )
            )
        finally:
            self.busy = False

    # --- Fused

    def _function_called(
        self, func: Any, args: Any, kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        if func is not F.scaled_dot_product_attention or self.busy:
            return func(*args, **kwargs)
        self.busy = True
        try:
            output = func(*args, **kwargs)
        finally:
            self.busy = False
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args, strict=False)) | kwargs
        self._fused("scaled_dot_product_attention", frame, given, output)
        return output

    def _fused(
        self, kind: str, frame: FrameType | None, given: dict[str, Any], output: Tensor
    ) -> None:
        """Take a call of `F.scaled_dot_product_attention` or of a kernel of it, with its arguments by name."""
        query, key, value = given["query"], given["key"], given["value"]
        if query.is_nested or query.device.type == "meta":
            return
        causal, scale = bool(given.get("is_causal")), given.get("scale")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        if query.ndim > 2 and key.shape[-3] != query.shape[-3]:  # grouped queries
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        mask, keys = given.get("attn_mask"), key.shape[-2]
        if mask is not None and mask.shape[-1] > keys:  # padded for a kernel
            mask = mask[..., :keys]

        def rows(begin: int, end: int) -> tuple[Tensor, float]:
            double = devices.doubled(query[..., begin:end, :])
            scores = double @ devices.doubled(key).transpose(-2, -1) * scale
            top = float(scores.abs().amax()) if scores.numel() else 0.0
            if mask is not None:
                some = (
                    mask[..., begin:end, :]
                    if mask.ndim > 1 and mask.shape[-2] > 1
                    else mask
                ).to(scores.device)
                scores = (
                    scores.masked_fill(~some, -math.inf)
                    if some.dtype == torch.bool
                    else scores + some
                )
            if causal:  # aligned to the upper left, as torch documents it
                later = (
                    torch.arange(keys, device=scores.device)
                    > torch.arange(begin, end, device=scores.device)[:, None]
                )
                scores = scores.masked_fill(later, -math.inf)
            none = (scores == -math.inf).all(
                -1, keepdim=True
            )  # every key is masked: zeros
            return scores.softmax(-1).masked_fill(none, 0.0), top

        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        self._tell(
            kind,
            frame,
            values=value,
            output=output,
            queries=query.shape[-2],
            keys=keys,
            lead=tuple(lead),
            rows=rows,
            dropout=float(given.get("dropout_p") or 0.0),
        )

    # --- Written out

    def _kernel_called(
        self, func: Any, args: Any, kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        output = func(*args, **kwargs)
        if not self.busy:
            self._follow(func, args, kwargs, output, frame)
        return output

    def _follow(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        output: Any,
        frame: FrameType | None,
    ) -> None:
        """Follow one kernel that was called outside the fused ones."""
        name = func.__name__.partition(".")[0]
        if name.startswith(_FUSED) and "backward" not in name and "math" not in name:
            given = {
                argument.name: value
                for argument, value in zip(func._schema.arguments, args, strict=False)
            } | kwargs
            given.setdefault("attn_mask", given.get("attn_bias"))
            self._fused(
                name,
                frame,
                given,
                output[0] if isinstance(output, tuple | list) else output,
            )
            return
        made = [
            tree_leave
            for tree_leave in tree_leaves(output)
            if isinstance(tree_leave, Tensor) and tree_leave.is_floating_point()
        ]
        if not made or name in _OTHERS:
            return
        taken = [
            tree_leave
            for tree_leave in tree_leaves((args, kwargs))
            if isinstance(tree_leave, Tensor)
        ]
        if name in _MATMULS:
            self._matmul(taken[-2:], made[0], frame)
        elif name in _SOFTMAX:
            if (
                taken[0] in self._scores
                and args[1] % taken[0].ndim == taken[0].ndim - 1
            ):
                self._number += 1
                self._softmax[self._number] = made[0]
                self._weights[made[0]] = self._number
                for old in [*self._softmax][:-OPEN]:
                    del self._softmax[old]
        else:
            self._pass_on(taken, made)

    def _pass_on(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Follow scores and weights through views, casts, masks and whatever else keeps most of them."""
        for tensor in inputs:
            for marks in (self._scores, self._weights):
                mark = marks.get(tensor)
                if mark is not None:
                    for result in outputs:
                        if 2 * result.numel() >= tensor.numel():
                            marks[result] = mark

    def _matmul(
        self, operands: list[Tensor], output: Tensor, frame: FrameType | None
    ) -> None:
        left, right = operands
        for weights, number in (
            (left, self._weights.get(left)),
            (right, self._weights.get(right)),
        ):
            softmax = self._softmax.pop(number, None) if number is not None else None
            if softmax is not None:
                self._written_out(softmax, weights is right, left, right, output, frame)
                return
        if not {_storage(left), _storage(right)} & self._parameters:
            self._scores[output] = 1

    def _written_out(
        self,
        softmax: Tensor,
        transposed: bool,
        left: Tensor,
        right: Tensor,
        output: Tensor,
        frame: FrameType | None,
    ) -> None:
        """Take softmax(scores) @ values, or values^T @ softmax(scores)^T if `transposed`."""
        weights, values, product = left, right, output
        if transposed:
            weights, values, product = (
                tensor.transpose(-2, -1) for tensor in (right, left, output)
            )
        queries, keys = weights.shape[-2:]
        lead = softmax.shape[:-2]
        if math.prod(lead) * queries != weights.numel() // max(keys, 1):
            lead = weights.shape[:-2]
        weights, values, product = (
            tensor.reshape(*lead, *tensor.shape[-2:])
            for tensor in (weights, values, product)
        )
        if _storage(product) != _storage(output):
            return  # a copy, which an intervention could not write to
        same = weights.numel() == softmax.numel() and torch.equal(
            weights, softmax.reshape(weights.shape).to(weights)
        )
        remark = (
            ""
            if same
            else "the weights as they multiply the values, which differ from the softmax's result"
        )

        def rows(begin: int, end: int) -> tuple[Tensor, float]:
            return devices.doubled(weights[..., begin:end, :]), 0.0

        self._tell(
            "softmax",
            frame,
            values=values,
            output=product,
            queries=queries,
            keys=keys,
            lead=tuple(lead),
            rows=rows,
            remark=remark,
        )


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # of tensors without a storage
        return 0
