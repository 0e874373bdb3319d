"""Calls of modules and of Functions while a model is followed: which are left whole, and which are entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from app.features.importing.compute.lowering.normed_layers import (
    KEEPS_STATE,
    has_power_iteration,
)
from app.features.importing.compute.tracing import grad_regions
from app.features.importing.compute.tracing.dispatch_patches import items_of
from app.features.importing.compute.tracing.frames import (
    COMPILED,
    RECURSIVE,
    TraceError,
)
from app.features.importing.compute.tracing.patches import with_hooks
from app.features.importing.compute.tracing.proxies import follows_mode, tuple_of
from app.features.importing.compute.tracing.records import plain, refilled
from app.util import module_tree

if TYPE_CHECKING:
    from app.features.importing.compute.tracing.tracing import Tracer


class Modules:
    """Handles module calls of a trace."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Trace a module call. Raises TraceError."""
        tracer = self._tracer
        if tracer.cancelled():
            raise TraceError("cancelled")
        running, module = tracer.frames[-1], tracer.names.in_the_copy(module)
        path = tracer.names.of_module(module, running.path)
        belongs_to_model = all(
            map(
                tracer.is_held,
                (*module_tree.parameters(module), *module_tree.buffers(module)),
            )
        )
        if (
            path is None
            and belongs_to_model
            and not isinstance(module, torch.jit.ScriptModule)
        ):
            return self.forward(module, None)(
                module, *args, **kwargs
            )  # an activation made in passing, a tied layer
        if path is None:
            kind = type(module).__name__
            raise tracer.refused(
                f"a {kind} is constructed in forward, or not registered as a submodule"
            )
        if any(frame.module is module for frame in tracer.frames):
            raise TraceError("", path, RECURSIVE)
        apart = tracer.apart.get(path)
        if apart is not None:
            return self._opened(
                tracer.create_proxy("call_module", path, args, kwargs), apart.record
            )
        entering = [
            leaf
            for leaf in tree_flatten((args, kwargs))[0]
            if isinstance(leaf, torch.Tensor)
        ]
        empty = any(
            0 in tracer.known(leaf).shape[1:] for leaf in entering
        )  # which no block takes
        if path in tracer.loose or (empty and not tracer.is_leaf(module)):
            return self.forward(module, path)(module, *args, **kwargs)
        if has_power_iteration(module):
            raise TraceError("", path, KEEPS_STATE)
        own_forward = "forward" in module.__dict__
        if tracer.is_leaf(module) and follows_mode(module) and not own_forward:
            if isinstance(module, nn.LSTMCell):
                args = tuple(map(items_of, args))
            elif isinstance(module, nn.LSTM):
                args, kwargs = (
                    tuple(map(self._as_value, args)),
                    {key: self._as_value(kwargs[key]) for key in kwargs},
                )
            call = with_hooks(
                module,
                lambda _, *arguments, **named: tracer.create_proxy(
                    "call_module", path, arguments, named
                ),
            )
            return call(module, *args, **kwargs)
        if isinstance(module, torch.jit.ScriptModule):
            raise TraceError("", path, COMPILED)
        forward = self.forward(module, path)
        if not entering or (
            tracer.is_leaf(module) and not module._parameters and not module._buffers
        ):
            return forward(
                module, *args, **kwargs
            )  # no tensor arrives, or stateless: part of the enclosing module
        return tracer.enter(module, path, forward, args, kwargs, running)[1]

    def _as_value(self, argument: Any) -> Any:
        """Return a pair of traced tensors as one traced value; other arguments unchanged."""
        if type(argument) not in (tuple, list) or not argument:
            return argument
        return self._tracer.create_proxy(
            "call_function", tuple_of, (tuple(argument),), {}
        )

    def _opened(self, call: Any, record: Any) -> Any:
        """Return the record that a node of a class returns, with the node's outputs in place of its tensors."""
        if record is None:
            return call
        example = self._tracer.values[call.node]
        items = iter(
            [call[number] for number in range(len(example))]
            if isinstance(example, tuple)
            else [call]
        )
        leaves = tree_flatten(plain(record))[0]
        return refilled(
            record,
            iter(
                [
                    next(items) if isinstance(leaf, torch.Tensor) else leaf
                    for leaf in leaves
                ]
            ),
        )

    def forward(self, module: nn.Module, path: str | None) -> Callable[..., Any]:
        """Return the callable of a module call: its own code with hooks."""
        instance_forward, kind = (
            module.__dict__.get("forward"),
            type(module),
        )  # the instance's attribute takes precedence
        return with_hooks(
            module,
            kind.forward
            if instance_forward is None
            else lambda _, *args, **named: instance_forward(*args, **named),
        )

    def state_set(self, module: nn.Module, name: str, value: Any) -> None:
        """Handle assignment to a parameter or buffer during forward. Raises TraceError, except for non-persistent
        buffers: these are treated as attributes and checked after the call."""
        if name in module._non_persistent_buffers_set:
            module.__dict__[name] = value
            return
        path = self._tracer.names.of_module(module, self._tracer.frames[-1].path)
        raise TraceError("", path, f"it changes self.{name} at every call")

    # --- Functions

    def applied(self, function: type, args: Any) -> Any:
        """Handle `Function.apply`. Raises TraceError for a custom backward."""
        if function is torch.utils.checkpoint.CheckpointFunction:
            return self._run_again(*args)
        raise self._tracer.refused(f"{function.__name__} has a custom backward")

    def _run_again(self, run: Callable[..., Any], _preserve: bool, *args: Any) -> Any:
        """Trace a reentrant checkpoint as plain calls."""
        self._tracer.report.add(grad_regions.checkpoint_remark())
        return run(*args)
