"""Regions of a `forward` without gradients or under autocast.

A drawing has no regions. Calls under no_grad are drawn as they are and the values leaving the region are detached,
which is equivalent. Autocast is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from app.features.importing.compute.tracing import source_lines
from app.features.importing.compute.tracing.frames import Frame
from app.util import module_tree

if TYPE_CHECKING:
    from app.features.importing.compute.tracing.tracing import Tracer

_DETACHED = frozenset({"detach", "detach_", torch.detach, torch.Tensor.detach})


@contextlib.contextmanager
def watched(tracer: Tracer) -> Iterator[None]:
    """Patch torch so that the tracer notices code that enters autocast."""
    switch = torch._C._set_grad_enabled
    kind = torch.amp.autocast_mode.autocast
    initialise, enter = kind.__init__, kind.__enter__

    def switched(mode: Any) -> None:
        switch(bool(mode))

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        self._wanted = kwargs.get("enabled", args[2] if len(args) > 2 else True)

    def entered(self: Any) -> Any:
        absent = (
            self.device != "cpu"
            and not getattr(torch, self.device, torch.cuda).is_available()
        )
        if tracer.following:
            if getattr(self, "_wanted", absent or self._enabled):
                raise tracer.refused(f"it computes under autocast on {self.device}")
            remark = f"A region without autocast ({source_lines.here()}) is imported without it"
            tracer.report.add(
                f"{remark}: under mixed precision it is cast like its surroundings."
            )
        return enter(self)

    torch._C._set_grad_enabled = switched  # type: ignore[assignment]
    kind.__init__, kind.__enter__ = initialised, entered  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch._C._set_grad_enabled = switch
        kind.__init__, kind.__enter__ = initialise, enter  # type: ignore[method-assign]


def checkpoint_remark() -> str:
    """Return the remark on a checkpoint, which is drawn as the calls that it runs."""
    remark = f"A checkpoint ({source_lines.here()}) is imported as plain calls"
    return f"{remark}: choose in the training settings which modules are recomputed in backward."


class Gradients:
    """Which values of a trace require grad. `quiet` are those computed under no_grad."""

    def __init__(self, values: dict[fx.Node, Any]) -> None:
        self._values = values
        self.quiet: set[fx.Node] = set()
        self.outside: dict[
            fx.Node, fx.Node
        ] = {}  # of what arrives at a module, where it comes from
        self._known: dict[fx.Node, bool] = {}

    def learns(self, node: fx.Node, root: nn.Module) -> bool:
        """Return whether the value of a node requires grad, if the inputs of the net do."""
        todo = [node]
        while todo:
            last = todo[-1]
            sources = self._sources(last)
            left = [source for source in sources if source not in self._known]
            if left and last not in self._known:
                todo += left
                continue
            self._known.setdefault(
                last,
                any(self._known[source] for source in sources) or self._own(last, root),
            )
            todo.pop()
        return self._known[node]

    def _sources(self, node: fx.Node) -> list[fx.Node]:
        if (
            node in self.quiet
            or node.target in _DETACHED
            or not _can_learn(self._values.get(node))
        ):
            return []
        if node.op == "placeholder":
            return [self.outside[node]] if node in self.outside else []
        return node.all_input_nodes

    def _own(self, node: fx.Node, root: nn.Module) -> bool:
        if node in self.quiet or not _can_learn(self._values.get(node)):
            return False
        if node.op == "placeholder":
            return node not in self.outside
        if node.op == "get_attr":
            return bool(getattr(self._values[node], "requires_grad", False))
        if node.op == "call_module":
            module = root.get_submodule("" if node.target == "_" else str(node.target))
            return any(p.requires_grad for p in module_tree.parameters(module))
        return False


def _can_learn(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_can_learn, value))
    return isinstance(value, torch.Tensor) and (
        value.is_floating_point() or value.is_complex()
    )


def detached(
    frame: Frame, gradients: Gradients, values: dict[fx.Node, Any], root: nn.Module
) -> None:
    """Detach the values that leave a no_grad region, in a frame and in nested ones."""
    for inner in frame.inner.values():
        detached(inner, gradients, values, root)
    if not frame.recorded:
        return  # all of it is in the region, which ends where it was called
    quiet, returned_nodes = (
        gradients.quiet,
        {leaf for leaf in frame.outputs if isinstance(leaf, fx.Node)},
    )
    for node in list(frame.graph.nodes):
        if (
            node not in quiet
            or node.target in _DETACHED
            or isinstance(values[node], tuple | list)
        ):
            continue
        leaving = [user for user in node.users if user not in quiet]
        if (
            (leaving or node in returned_nodes)
            and _can_learn(values[node])
            and _asks(node, gradients, root)
        ):
            with frame.graph.inserting_after(node):
                detach_node = frame.graph.create_node(
                    "call_function", torch.detach, (node,)
                )
            values[detach_node] = values[node]
            for user in leaving:
                user.replace_input_with(node, detach_node)
            frame.outputs = [
                detach_node if leaf is node else leaf for leaf in frame.outputs
            ]


def _asks(node: fx.Node, gradients: Gradients, root: nn.Module) -> bool:
    """Return whether the value would require grad outside of the region."""
    fresh = Gradients(gradients._values)
    fresh.outside = gradients.outside
    return fresh.learns(node, root)
