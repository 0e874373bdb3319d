"""Tracing of a module on meta tensors with torch.fx: one graph per entered submodule.

Each proxy knows its node in the graph and the meta value of an example. So shapes that are computed with (`x.size(0)`)
stay symbolic, and a branch on one is taken as for the example. Layers of the catalog are leaf modules.
"""

# A whole, which its parts import for type checkers alone: what happens in a call is written into the tracing under way.
from __future__ import annotations

import builtins
import operator
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import fx, nn
from torch.fx import _symbolic_trace
from torch.utils._pytree import tree_flatten, tree_unflatten

from app.features.importing.compute.remarks import Questions
from app.features.importing.compute.tracing import grad_regions, source_lines
from app.features.importing.compute.tracing.aliasing import AliasingError, Views
from app.features.importing.compute.tracing.dispatch_patches import opened, plain_number
from app.features.importing.compute.tracing.frames import (
    Apart,
    Frame,
    QualifiedNames,
    TraceError,
    leaf_names,
    none_swallowed,
    words_of,
)
from app.features.importing.compute.tracing.meta_evaluation import (
    MetaEvaluator,
    by_default,
)
from app.features.importing.compute.tracing.module_calls import Modules
from app.features.importing.compute.tracing.patches import (
    check_call,
    is_in_place,
    method_of,
    watched,
)
from app.features.importing.compute.tracing.proxies import (
    FACTORIES,
    PROXIES,
    Attribute,
    Training,
    ValueProxy,
    dtype_source,
)
from app.features.importing.compute.tracing.records import plain, refilled
from app.features.importing.compute.tracing.rewrites import rewritten
from app.features.importing.compute.tracing.source_lines import SourceLine


class Tracer(fx.Tracer):
    """Traces one model. `whole` decides which modules are leaves."""

    def __init__(
        self,
        whole: Callable[[nn.Module], bool],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(param_shapes_constant=False)
        self.proxy_buffer_attributes = True
        self.cancelled, self._whole = cancelled, whole
        self.values: dict[fx.Node, Any] = {}
        self.gradients = grad_regions.Gradients(self.values)
        self.views = Views(
            self.values,
            self._append_call,
            lambda path: type(self.root.get_submodule(path)).__name__,
        )
        self.constants: dict[fx.Node, torch.Tensor] = {}
        self.places: dict[fx.Node, SourceLine | None] = {}
        self.frames: list[Frame] = []
        self.apart: dict[
            str, Apart
        ] = {}  # by path: untraced submodules, and what replaces them
        self.loose: set[str] = set()  # layers inlined because others use their tensors
        self._left: dict[
            fx.Graph, tuple[Frame, fx.Node, Frame]
        ] = {}  # frames that were left, with call and outer frame
        self._computing = MetaEvaluator(lambda: self.apart, self.where)
        self._silent = 0
        self.questions, self.modules = Questions(self), Modules(self)
        self.report = self.questions.report
        self._thread = threading.get_ident()

    @property
    def following(self) -> bool:
        """True while calls are recorded: not those of other threads, nor our own."""
        return (
            bool(self.frames)
            and not self._silent
            and threading.get_ident() == self._thread
        )

    def is_leaf(self, module: nn.Module) -> bool:
        """Return whether a module is a leaf. Finding out may construct a layer, unrecorded."""
        return bool(self.unseen(lambda: self._whole(module)))

    # --- The model and its frames

    def follow(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        original: nn.Module | None = None,
    ) -> Frame:
        """Trace the whole model, called with meta tensors. Raises TraceError.

        `model` is a copy of `original`, to which closures may still refer.
        """
        self.root, self.module_stack, self.node_name_to_scope = model, OrderedDict(), {}
        self.original, self._computing.root = original, model
        self.names = QualifiedNames(model, original)
        self.scope = fx.proxy.Scope("", None)
        functions = _symbolic_trace._wrapped_fns_to_patch.copy()
        methods = _symbolic_trace._wrapped_methods_to_patch.copy()
        # Functions that a library registered as leaves by `fx.wrap` are traced too.
        _symbolic_trace._wrapped_fns_to_patch.clear()
        recorded, deep = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        try:
            with (
                none_swallowed(),
                torch.inference_mode(False),
                torch.enable_grad(),
                watched(self),
            ):
                frame = self.enter(
                    model, "", self.modules.forward(model, ""), args, kwargs, None
                )[0]
            grad_regions.detached(frame, self.gradients, self.values, model)
            return frame
        except TraceError as error:
            if error.path is None and self.frames:
                error.path = self.frames[-1].path
            if not str(error):
                error.args = (
                    f"{error.path or type(model).__name__} cannot be followed: {error.why}",
                )
            raise
        except Exception as error:
            path = self.frames[-1].path if self.frames else ""
            why = words_of(error)
            raise TraceError(
                f"{path or type(model).__name__} cannot be followed: {why}", path, why
            ) from error
        finally:
            if not deep:
                torch.set_grad_enabled(recorded)
            _symbolic_trace._wrapped_fns_to_patch.update(functions)
            _symbolic_trace._wrapped_methods_to_patch[:] = methods

    def refused(self, why: str) -> TraceError:
        """Build the error for something that the running module does and a drawing cannot express."""
        path = (
            self.frames[-1].path if self.frames else None
        )  # which is not known later, if the model catches the error
        error = TraceError(f"{self.where()} cannot be followed: {why}", path, why)
        error.source_line = source_lines.here()
        return error

    def enter(
        self,
        module: nn.Module,
        path: str,
        forward: Any,
        args: Any,
        kwargs: Any,
        outer: Frame | None,
    ) -> tuple[Frame, Any]:
        """Trace a submodule into a separate graph; its results in the outer graph are items of the call."""
        frame = Frame(path, module, fx.Graph(), recorded=torch.is_grad_enabled())
        leaves, structure = tree_flatten((args, kwargs))
        names = leaf_names(module, args, kwargs)
        fresh: list[Any] = []
        self.frames.append(frame)
        self.graph = frame.graph
        placeholders: dict[fx.Node, Any] = {}
        for leaf, name in zip(leaves, names, strict=True):
            if type(leaf) in PROXIES:
                source = (
                    dtype_source(leaf) if isinstance(leaf.known, torch.dtype) else leaf
                )
                source = None if isinstance(leaf.known, torch.device) else source
                if source is None:
                    fresh.append(leaf.known)
                    continue
                node = self.latest(source.node)
                if node not in placeholders:
                    placeholders[node] = self._placeholder(
                        frame, name, self.values[node], node
                    )
                fresh.append(
                    placeholders[node]
                    if source is leaf
                    else Attribute(placeholders[node], "dtype")
                )
            elif isinstance(leaf, torch.Tensor):
                fresh.append(self._placeholder(frame, name, leaf, None))
            else:
                fresh.append(leaf)
        arguments, named = tree_unflatten(fresh, structure)
        before = _drawn_outside()
        result = forward(module, *arguments, **named)
        if _drawn_outside() != before:
            why = "it draws random numbers with Python's random module or NumPy"
            raise TraceError("", path, why)
        if frame.recorded and not torch.is_grad_enabled():
            raise TraceError("", path, "it disables gradients for everything after it")
        frame.outputs, frame.structure = tree_flatten(plain(result))
        output_examples = [self.known(leaf) for leaf in frame.outputs]
        frame.outputs = [self._own(frame, leaf) for leaf in frame.outputs]
        changed = [
            (p, node)
            for p in frame.inputs
            if p in frame.outer and (node := self.latest(p)) is not p
        ]
        extra = dict.fromkeys(node for _, node in changed if node not in frame.outputs)
        frame.outputs += extra
        output_examples += [self.values[node] for node in extra]
        self.frames.pop()
        if outer is None:
            return frame, None
        self.graph = outer.graph
        call = self._call_of(frame, outer)
        self.values[call] = tuple(output_examples)
        outer.inner[call] = frame
        self._left[frame.graph] = frame, call, outer
        items = []
        for number, leaf in enumerate(frame.outputs):
            if isinstance(leaf, fx.Node):
                item = outer.graph.create_node(
                    "call_function", operator.getitem, (call, number)
                )
                self.values[item] = output_examples[number]
                self.views.note_item(item, leaf, frame.outer)
                items.append(self.proxy(item))
            else:
                items.append(leaf)
        if not torch.is_grad_enabled():
            self.gradients.quiet.update((call, *call.users))
        for placeholder, leaf in changed:  # in-place changes of its inputs
            self.changed(
                self.proxy(frame.outer[placeholder]), items[frame.outputs.index(leaf)]
            )
        frame.extra = {
            number: items[number].node
            for number in range(len(items) - len(extra), len(items))
        }
        return frame, refilled(result, iter(items))

    def _call_of(self, frame: Frame, outer: Frame) -> fx.Node:
        """Add the node for the call of an entered module, with every outer value it uses as an argument."""
        arguments = []
        for placeholder in frame.inputs:
            node = frame.outer.get(placeholder)
            arguments.append(
                self._own(outer, self.proxy(node)) if node is not None else None
            )
        return outer.graph.create_node(
            "call_module", frame.path or "_", tuple(arguments)
        )

    def _placeholder(
        self, frame: Frame, name: str, value: Any, node: fx.Node | None
    ) -> ValueProxy:
        placeholder = frame.graph.placeholder(name)
        frame.inputs.append(placeholder)
        frame.names.append(name)
        self.values[placeholder] = value
        if node is not None:
            frame.outer[placeholder] = self.gradients.outside[placeholder] = node
        return self.proxy(placeholder)

    def _own(self, frame: Frame, leaf: Any) -> Any:
        """Return the node of a leaf in the graph of a frame; a value from further out becomes an input."""
        if type(leaf) not in PROXIES:
            return leaf
        node = self.latest(leaf.node)
        if node.graph is frame.graph:
            return node
        if node.graph in self._left:
            return self._own(frame, self.proxy(self._returned_too(node)))
        placeholder = next(
            (p for p, outer in frame.outer.items() if outer is node), None
        )
        if placeholder is not None:
            return self.latest(placeholder)
        return self._placeholder(frame, "taken", self.values[node], node).node

    def _returned_too(self, node: fx.Node) -> fx.Node:
        """Make a module return a value that another reads from a shared object, such as a cache; return the item."""
        frame, call, outer = self._left[node.graph]
        number = next(
            (position for position, leaf in enumerate(frame.outputs) if leaf is node),
            len(frame.outputs),
        )
        if number == len(frame.outputs):
            frame.outputs.append(node)
            self.values[call] = (*self.values[call], self.values[node])
        item = next((user for user in call.users if user.args == (call, number)), None)
        if item is None:
            with outer.graph.inserting_after(call):
                item = outer.graph.create_node(
                    "call_function", operator.getitem, (call, number)
                )
            self.values[item] = self.values[node]
            frame.extra[number] = item
            if node in self.gradients.quiet:
                self.gradients.quiet.add(item)
        return item

    def latest(self, node: fx.Node) -> fx.Node:
        """Return the node with the current version of a tensor, after in-place changes."""
        return self._refusing_aliasing(lambda: self.views.latest(node))

    def changed(self, old: ValueProxy, proxy: ValueProxy) -> None:
        """Record an in-place change of a tensor."""
        before, after = self._own(self.frames[-1], old), proxy.node
        if before is not after:
            self._refusing_aliasing(lambda: self.views.change(before, after))

    def _refusing_aliasing(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except AliasingError as error:
            refused = self.refused(str(error))
            if error.path:
                refused.path, refused.inline = error.path, True
            raise refused from error

    def _append_call(self, kind: str, target: Any, args: tuple[Any, ...]) -> fx.Node:
        to_proxy: Callable[[fx.Node], Any] = self.proxy
        proxies: Any = fx.map_arg(args, to_proxy)
        node: fx.Node = self.create_proxy(kind, target, proxies, {}).node
        return node

    def known(self, leaf: Any) -> Any:
        return self.values[self.latest(leaf.node)] if type(leaf) in PROXIES else leaf

    def is_held(self, value: Any) -> bool:
        """Return whether a tensor belongs to the model."""
        return self.names.has(value)

    def held_tensor(self, value: torch.Tensor) -> Any:
        """Return the traced value of a tensor of the model; other tensors unchanged."""
        frame = self.frames[-1]
        path = self.names.of_tensor(value, frame.path)
        if path is None:
            return value
        for node in frame.graph.nodes:
            if node.op == "get_attr" and node.target == path:
                return self.proxy(node)
        node = frame.graph.create_node("get_attr", path)
        self.values[node] = self.names.copy_of(value)
        return self.proxy(node)

    # --- fx hooks

    def proxy(self, node: fx.Node) -> ValueProxy:
        return ValueProxy(node, self)

    def create_arg(self, a: Any) -> Any:
        if type(a) in PROXIES:
            return self._own(self.frames[-1], a)
        if (
            isinstance(a, Training | torch.dtype | torch.device)
            or a is None
            or a is Ellipsis
        ):
            return a
        if isinstance(a, torch.Tensor):
            return (
                self.create_arg(self.held_tensor(a))
                if self.is_held(a)
                else self._constant(a)
            )
        if isinstance(a, tuple | list):
            return (
                type(a)(map(self.create_arg, a))
                if type(a) in (tuple, list)
                else tuple(map(self.create_arg, a))
            )
        if isinstance(a, dict):
            return {key: self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(
                *(self.create_arg(bound) for bound in (a.start, a.stop, a.step))
            )
        return plain_number(a)

    def _constant(self, value: torch.Tensor) -> fx.Node:
        """Add a tensor that is neither parameter nor buffer: created in `forward`, or a plain attribute."""
        if value.requires_grad:
            raise self.refused(
                "it uses a trainable tensor that is not a parameter of the model"
            )
        node = self.frames[-1].graph.create_node("get_attr", f"constant_{id(value)}")
        self.values[node] = value.to("meta")
        self.constants[node] = (
            value.detach().clone()
        )  # a snapshot, as it may be changed later
        return node

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *_: Any,
        **__: Any,
    ) -> Any:
        target = method_of(target) if kind == "call_method" else target
        check_call(self, kind, target, args, kwargs)
        new_proxy = rewritten(kind, target, args, kwargs)
        if new_proxy is None:
            new_proxy = self._call(kind, target, args, kwargs)
        if is_in_place(kind, target):  # later reads see the new version
            args[0].changed(new_proxy)
        return new_proxy

    def _call(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if kind == "call_function" and target in FACTORIES:
            self._near()
        arguments, named = (
            self.create_arg(opened(kind, target, args)),
            self.create_arg(kwargs),
        )
        node = self.frames[-1].graph.create_node(kind, target, arguments, named)
        self.places[node] = source_lines.here()
        input_nodes = node.all_input_nodes
        arriving = [
            input_node
            for input_node in input_nodes
            if isinstance(self.values[input_node], torch.Tensor)
        ]
        before = [self.values[tensor_node]._version for tensor_node in arriving]
        self.values[node] = self._computed(kind, target, arguments, named)
        if (dtype := by_default(node, self.values)) is not None:
            if target not in FACTORIES:
                raise self.refused(
                    f"it computes in {dtype}, the default dtype where the model is constructed"
                )
            node.kwargs = {**node.kwargs, "dtype": dtype}
        selects_item = (
            target is operator.getitem
            and isinstance(self.values[input_nodes[0]], tuple | list)
            if input_nodes
            else False
        )
        if not torch.is_grad_enabled() or (
            selects_item and input_nodes[0] in self.gradients.quiet
        ):
            self.gradients.quiet.add(node)
        moved = [
            moved_node
            for moved_node, version in zip(arriving, before, strict=True)
            if self.values[moved_node]._version != version
        ]
        if not moved:
            self.views.note(node)
        elif kind != "call_method":
            self._moved(node, moved)
        return self.proxy(node)

    def _moved(self, node: fx.Node, moved: list[fx.Node]) -> None:
        """Record that a function or layer modifies its argument and returns it."""
        for argument in moved:
            if self.values[node] is self.values[argument]:
                self.views.in_place[node] = argument
                self.changed(self.proxy(argument), self.proxy(node))

    def _near(self) -> None:
        """Let a module that takes no tensor have one from outside, to make others where that one is."""
        *outer, frame = self.frames
        if any(isinstance(self.values[node], torch.Tensor) for node in frame.inputs):
            return
        outer_inputs = (
            node for outer_frame in reversed(outer) for node in outer_frame.inputs
        )
        node = next(
            (
                node
                for node in outer_inputs
                if isinstance(self.values[node], torch.Tensor)
            ),
            None,
        )
        if node is not None:
            self._own(frame, self.proxy(node))

    def arrived_like(self, dtype: torch.dtype) -> Any:
        """Return an input of the running module with this dtype; None if there is none."""
        self._near()
        inputs = self.frames[-1].inputs
        return next(
            (
                self.proxy(node)
                for node in inputs
                if getattr(self.values[node], "dtype", None) == dtype
            ),
            None,
        )

    def _computed(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Evaluate a call for the example."""
        return self.silently(
            kind, target, *fx.map_arg((args, kwargs), lambda node: self.values[node])
        )

    def silently(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Evaluate a call on values, unrecorded."""
        return self.unseen(lambda: self._computing.evaluate(kind, target, args, kwargs))

    def unseen(self, run: Callable[[], Any]) -> Any:
        """Run a function of ours with recording off."""
        self._silent += 1
        try:
            return run()
        finally:
            self._silent -= 1

    def where(self) -> str:
        """Return the path or class name of the running module."""
        return self.frames[-1].path or type(self.frames[-1].module).__name__

    # --- Reads of a value by Python

    def to_bool(self, obj: fx.Proxy) -> bool:
        return self.questions.truth(obj.node)

    def number(self, node: fx.Node, value: Any) -> Any:
        return self.questions.number(node, value)

    def iter(self, obj: Any) -> Iterator[Any]:
        value = self.values[obj.node]
        if isinstance(value, torch.Tensor):
            self.number(obj.size(0).node, len(value))
        return builtins.iter([obj[number] for number in range(len(value))])

    def keys(self, obj: fx.Proxy) -> Any:
        raise TraceError(f"{self.frames[-1].path}: ** of a computed value")


def _drawn_outside() -> tuple[Any, ...]:
    """Return the states of the random generators that torch does not see."""
    states = numpy.random.get_state(legacy=False)
    return random.getstate(), states["state"]["pos"], states["state"]["key"].tobytes()
