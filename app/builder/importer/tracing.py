"""One run of a module on meta tensors that writes down what was called: a graph for every submodule that was entered.

`torch.fx` hands out proxies; each of these knows, beside its place in the graph, the meta value that an example has
there. So shapes stay symbolic where they are computed with (`x.size(0)`), and a branch that asks for one takes the way
that the example takes. Modules that the catalog has are left whole.
"""

from __future__ import annotations

import builtins
import contextlib
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch.fx import _symbolic_trace
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from app.builder.importer.arguments import items_of, lengths_seen, opened, plain_number, tensors_seen
from app.builder.importer.factories import Factories, sizes_seen
from app.builder.importer.fallback import inside
from app.builder.importer.frames import (
    COMPILED,
    DEPENDS,
    RECURSIVE,
    VALUES,
    Apart,
    Frame,
    TraceError,
    first_sentence,
    leaf_names,
    not_taken,
    words_of,
)
from app.builder.importer.numbers_first import numbers_first
from app.builder.importer.quick import normalised
from app.builder.importer.rewritten import rewritten
from app.builder.importer.running import alone
from app.builder.importer.values import FACTORIES, PROXIES, Training, ValueProxy, plain_flag
from app.builder.importer.views_of import NoWayBack, Views
from app.builder.importer.watching import counters, left_behind, patched, plain, refilled, with_hooks


class Tracer(fx.Tracer):
    """Traces one model. `whole` says which modules are not entered."""

    def __init__(self, whole: Callable[[nn.Module], bool], cancelled: Callable[[], bool] = lambda: False) -> None:
        super().__init__(param_shapes_constant=False)
        self.proxy_buffer_attributes = True
        self.whole, self.cancelled = whole, cancelled
        self.values: dict[fx.Node, Any] = {}
        self.views = Views(self.values, self._written, lambda path: type(self.root.get_submodule(path)).__name__)
        self.constants: dict[fx.Node, torch.Tensor] = {}
        self.frames: list[Frame] = []
        self.apart: dict[str, Apart] = {}  # by path: what is not followed, and what stands for it
        self.loose: set[str] = set()  # layers of which others take tensors, so that the sheet around has them
        self.arrived: dict[str, tuple[Any, Any]] = {}  # by path: what each module was first called with
        self._silent = 0
        self._thread = threading.get_ident()

    @property
    def following(self) -> bool:
        """Whether what is called now is written down: not what another thread trains or checks meanwhile."""
        return bool(self.frames) and not self._silent and threading.get_ident() == self._thread

    # --- The model and its frames

    def follow(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        """The frame of the whole model, called with meta tensors. Raises TraceError."""
        self._paths: dict[nn.Module, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            self._paths.setdefault(module, []).append(name)
        self._owned: dict[int, list[str]] = {}
        tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
        for name, tensor in tensors:
            self._owned.setdefault(id(tensor), []).append(name)
        self.root, self.module_stack, self.node_name_to_scope = model, OrderedDict(), {}
        self._before = counters(model)
        self.scope = fx.proxy.Scope("", None)
        functions = _symbolic_trace._wrapped_fns_to_patch.copy()
        methods = _symbolic_trace._wrapped_methods_to_patch.copy()
        # Functions that a library asked to leave whole are followed too, but for those that a catalog would have.
        _symbolic_trace._wrapped_fns_to_patch.clear()
        try:
            sizes = sizes_seen(lambda: self.following, self.create_proxy)
            numbers = numbers_first(lambda: self.following, self.create_proxy)
            lengths, typed = lengths_seen(lambda: self.following), tensors_seen(lambda: self.following)
            factories = Factories(lambda: self.following, self.create_proxy)
            with self._patched(), sizes, numbers, lengths, typed, torch.no_grad(), factories:
                self.arrived[""] = (args, kwargs)
                frame = self._enter(model, "", self._forward(model, ""), args, kwargs, None)[0]
                self._check_state()
                return frame
        except TraceError as error:
            if error.path is None and self.frames:
                error.path = self.frames[-1].path
            raise
        except Exception as error:
            path = self.frames[-1].path if self.frames else ""
            why = words_of(error)
            raise TraceError(f"{path or type(model).__name__} cannot be followed: {why}", path, why) from error
        finally:
            _symbolic_trace._wrapped_fns_to_patch.update(functions)
            _symbolic_trace._wrapped_methods_to_patch[:] = methods

    def _patched(self) -> contextlib.AbstractContextManager[None]:
        return patched(lambda: self.following, self._called, self._owned_tensor, self._applied, self._changed)

    def _applied(self, function: type, args: Any) -> Any:
        why = f"{function.__name__} has a backward of its own"
        raise TraceError(f"{self._where()} cannot be followed: {why}", None, why)

    def _changed(self, module: nn.Module, name: str) -> None:
        path, why = self._name(self._paths.get(module)), f"it changes its {name} at every call"
        raise TraceError(f"{path or type(module).__name__} cannot be followed: {why}", path, why)

    def _forward(self, module: nn.Module, path: str) -> Callable[..., Any]:
        """What runs when a module is called: its own code with its hooks, or what was exported of it."""
        apart = self.apart.get(path)
        if apart is not None and apart.replay is not None:
            return apart.replay
        return with_hooks(module, type(module).forward)

    def _check_state(self) -> None:
        found = left_behind(self.root, self._before, self.views.became)
        if found is not None:
            path, why = found
            raise TraceError(f"{path or type(self.root).__name__} cannot be followed: {why}", path, why)

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self.cancelled():
            raise TraceError("cancelled")
        path = self._name(self._paths.get(module))
        if path is None:
            why = f"a {type(module).__name__} is made while it runs, or kept where torch does not look for modules"
            raise TraceError(f"{self._where()} cannot be followed: {why}", None, why)
        if any(frame.module is module for frame in self.frames):
            raise TraceError(f"{path or type(module).__name__} cannot be followed: {RECURSIVE}", path, RECURSIVE)
        self.arrived.setdefault(path, tree_map(self._known, (args, kwargs)))
        apart = self.apart.get(path)
        if apart is not None and apart.spec is not None:
            return self.create_proxy("call_module", path, args, kwargs)
        if path in self.loose:
            return self._forward(module, path)(module, *args, **kwargs)
        if apart is None and self.whole(module):
            args = tuple(map(items_of, args)) if isinstance(module, nn.LSTMCell) else args
            call = with_hooks(module, lambda _, *given, **named: self.create_proxy("call_module", path, given, named))
            return call(module, *args, **kwargs)
        if isinstance(module, torch.jit.ScriptModule) and apart is None:
            raise TraceError(f"{path} cannot be followed: {COMPILED}", path, COMPILED)
        forward = self._forward(module, path)
        if not any(type(leaf) in PROXIES or isinstance(leaf, torch.Tensor) for leaf in tree_flatten((args, kwargs))[0]):
            return forward(module, *args, **kwargs)  # nothing arrives, so it is a part of the module around it
        return self._enter(module, path, forward, args, kwargs, self.frames[-1])[1]

    def _enter(
        self, module: nn.Module, path: str, forward: Any, args: Any, kwargs: Any, outer: Frame | None
    ) -> tuple[Frame, Any]:
        """Follow a submodule with a graph of its own; what comes back in the outer graph are items of the call."""
        frame = Frame(path, module, fx.Graph())
        leaves, structure = tree_flatten((args, kwargs))
        names = leaf_names(module, args, kwargs)
        fresh: list[Any] = []
        self.frames.append(frame)
        self.graph = frame.graph
        seen: dict[fx.Node, Any] = {}
        for leaf, name in zip(leaves, names, strict=True):
            if type(leaf) in PROXIES:
                node = self.latest(leaf.node)
                if node not in seen:
                    seen[node] = self._placeholder(frame, name, self.values[node], node)
                fresh.append(seen[node])
            elif isinstance(leaf, torch.Tensor):
                fresh.append(self._placeholder(frame, name, leaf, None))
            else:
                fresh.append(leaf)
        given, named = tree_unflatten(fresh, structure)
        result = forward(module, *given, **named)
        frame.outputs, frame.structure = tree_flatten(plain(result))
        known = [self._known(leaf) for leaf in frame.outputs]
        frame.outputs = [self._own(frame, leaf) for leaf in frame.outputs]
        changed = [(p, node) for p in frame.inputs if p in frame.outer and (node := self.latest(p)) is not p]
        extra = dict.fromkeys(node for _, node in changed if node not in frame.outputs)
        frame.outputs += extra
        known += [self.values[node] for node in extra]
        self.frames.pop()
        if outer is None:
            return frame, None
        self.graph = outer.graph
        call = self._call_of(frame, outer)
        self.values[call] = tuple(known)
        outer.inner[call] = frame
        items = []
        for number, leaf in enumerate(frame.outputs):
            if isinstance(leaf, fx.Node):
                item = outer.graph.create_node("call_function", operator.getitem, (call, number))
                self.values[item] = known[number]
                self.views.note_item(item, leaf, frame.outer)
                items.append(self.proxy(item))
            else:
                items.append(leaf)
        for placeholder, leaf in changed:  # it changed what it was given
            self.changed(self.proxy(frame.outer[placeholder]), items[frame.outputs.index(leaf)])
        frame.extra = {number: items[number].node for number in range(len(items) - len(extra), len(items))}
        return frame, refilled(result, iter(items))

    def _call_of(self, frame: Frame, outer: Frame) -> fx.Node:
        """The node for the call of an entered module; everything that its inside took from outside is an argument."""
        taken = []
        for placeholder in frame.inputs:
            node = frame.outer.get(placeholder)
            taken.append(self._own(outer, self.proxy(node)) if node is not None else None)
        return outer.graph.create_node("call_module", frame.path or "_", tuple(taken))

    def _placeholder(self, frame: Frame, name: str, value: Any, node: fx.Node | None) -> ValueProxy:
        made = frame.graph.placeholder(name)
        frame.inputs.append(made)
        frame.names.append(name)
        self.values[made] = value
        if node is not None:
            frame.outer[made] = node
        return self.proxy(made)

    def _own(self, frame: Frame, leaf: Any) -> Any:
        """The node of a leaf in the graph of a frame; what comes from further out is one more input."""
        if type(leaf) not in PROXIES:
            return leaf
        node = self.latest(leaf.node)
        if node.graph is frame.graph:
            return node
        known = next((p for p, outer in frame.outer.items() if outer is node), None)
        if known is not None:
            return self.latest(known)
        return self._placeholder(frame, "taken", self.values[node], node).node

    def latest(self, node: fx.Node) -> fx.Node:
        """The node for what a tensor is now, after changes in place."""
        return self._told(lambda: self.views.latest(node))

    def changed(self, old: ValueProxy, made: ValueProxy) -> None:
        """A tensor was changed in place."""
        before, after = self._own(self.frames[-1], old), made.node
        if before is not after:
            self._told(lambda: self.views.change(before, after))

    def _told(self, asked: Callable[[], Any]) -> Any:
        try:
            return asked()
        except NoWayBack as error:
            raise TraceError(f"{self._where()} cannot be followed: {error}", None, str(error)) from error

    def _written(self, kind: str, target: Any, args: tuple[Any, ...]) -> fx.Node:
        made: fx.Node = self.create_proxy(kind, target, fx.map_arg(args, lambda one: self.proxy(one)), {}).node  # type: ignore[arg-type,return-value]
        return made

    def _known(self, leaf: Any) -> Any:
        return self.values[self.latest(leaf.node)] if type(leaf) in PROXIES else leaf

    def _owned_tensor(self, value: torch.Tensor) -> Any:
        path, frame = self._name(self._owned.get(id(value))), self.frames[-1]
        if path is None:
            return value
        for node in frame.graph.nodes:
            if node.op == "get_attr" and node.target == path:
                return self.proxy(node)
        node = frame.graph.create_node("get_attr", path)
        self.values[node] = value
        return self.proxy(node)

    def _name(self, names: list[str] | None) -> str | None:
        """Of several names of one module or tensor the one that it has in the module that runs, else the first."""
        if not names or len(names) == 1:
            return names[0] if names else None
        return next((name for name in names if inside(name, self.frames[-1].path)), names[0])

    # --- What fx asks

    def proxy(self, node: fx.Node) -> ValueProxy:
        return ValueProxy(node, self)

    def create_arg(self, a: Any) -> Any:
        if type(a) in PROXIES:
            return self._own(self.frames[-1], a)
        if isinstance(a, Training | torch.dtype | torch.device) or a is None or a is Ellipsis:
            return a
        if isinstance(a, torch.Tensor):
            return self._constant(a)
        if isinstance(a, tuple | list):
            return type(a)(map(self.create_arg, a)) if type(a) in (tuple, list) else tuple(map(self.create_arg, a))
        if isinstance(a, dict):
            return {key: self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        return plain_number(a)

    def _constant(self, value: torch.Tensor) -> fx.Node:
        """A tensor that is neither parameter nor buffer: made in `forward` or kept as a plain attribute."""
        node = self.frames[-1].graph.create_node("get_attr", f"constant_{id(value)}")
        self.values[node] = value.to("meta")
        self.constants[node] = value
        return node

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *_: Any, **__: Any
    ) -> Any:
        made = rewritten(kind, target, args, kwargs)
        if made is not None:
            return made
        if kind == "call_function" and target in FACTORIES:
            self._near()
        given, named = self.create_arg(opened(kind, target, args)), self.create_arg(kwargs)
        node = self.frames[-1].graph.create_node(kind, target, given, named)
        arriving = [one for one in node.all_input_nodes if isinstance(self.values[one], torch.Tensor)]
        before = [self.values[one]._version for one in arriving]
        self.values[node] = self._computed(kind, target, given, named)
        moved = [one for one, version in zip(arriving, before, strict=True) if self.values[one]._version != version]
        if not moved:
            self.views.note(node)
        elif kind != "call_method":
            self._moved(node, moved)
        return self.proxy(node)

    def _moved(self, node: fx.Node, moved: list[fx.Node]) -> None:
        """A function or a layer changes what it takes, and gives that back."""
        for one in moved:
            if self.values[node] is self.values[one]:
                self.views.in_place[node] = one
                self._told(partial(self.views.change, one, node))

    def _near(self) -> None:
        """Let a module that takes no tensor have one from outside, to make others where that one is."""
        *outer, frame = self.frames
        if any(isinstance(self.values[node], torch.Tensor) for node in frame.inputs):
            return
        given = (node for one in reversed(outer) for node in one.inputs)
        node = next((node for node in given if isinstance(self.values[node], torch.Tensor)), None)
        if node is not None:
            self._own(frame, self.proxy(node))

    def arrived_like(self, dtype: torch.dtype) -> Any:
        """A tensor of this dtype that the running module was given; None if there is none."""
        self._near()
        inputs = self.frames[-1].inputs
        return next((self.proxy(node) for node in inputs if getattr(self.values[node], "dtype", None) == dtype), None)

    def _computed(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """The value of a call, found by making it."""
        args, kwargs = tree_map(plain_flag, fx.map_arg((args, kwargs), lambda node: self.values[node]))
        self._silent += 1
        try:
            if kind == "call_module":
                return self._layer(target, args, kwargs)
            if target in FACTORIES:
                kwargs = {**kwargs, "device": "meta"}
            if kind == "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            return target(*args, **kwargs)
        except NotImplementedError as error:  # a size that only values can tell; meta tensors have none
            raise TraceError(f"{self._where()} {DEPENDS} ({first_sentence(error)})", None, VALUES) from error
        finally:
            self._silent -= 1

    def _where(self) -> str:
        return self.frames[-1].path or type(self.frames[-1].module).__name__

    def _layer(self, path: str, args: Any, kwargs: Any) -> Any:
        module, apart = self.root.get_submodule(path), self.apart.get(path)
        try:
            if apart is not None:
                return alone(module, apart.real, args, kwargs)
            found = normalised(module, args, kwargs)
            return module(*args, **kwargs) if found is None else found
        except Exception as error:  # torch's words, and whose they are
            raise TraceError(f"{not_taken(path, module, (args, kwargs))}: {error}") from error

    def to_bool(self, obj: fx.Proxy) -> bool:
        value = self.values[obj.node]
        if isinstance(value, torch.Tensor):
            raise TraceError(f"{self._where()} {DEPENDS} (a branch asks a tensor)", None, VALUES)
        return bool(value)

    def iter(self, obj: Any) -> Iterator[Any]:
        return builtins.iter([obj[number] for number in range(len(self.values[obj.node]))])

    def keys(self, obj: fx.Proxy) -> Any:
        raise TraceError(f"{self.frames[-1].path}: ** of a value that is computed")
