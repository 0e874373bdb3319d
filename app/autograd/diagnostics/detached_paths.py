"""Find where the graph is detached, by watching the forward pass.

An operation detaches its inputs when one of them requires grad and its output does not: `detach()`, `no_grad()`,
`argmax`, `.item()`. Results computed from there on are tracked, to know which cuts the loss depends on. The watcher
holds autograd nodes during the pass, and plain data afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch.nn import Module, Parameter
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from app.autograd.diagnostics.results import Cut, PathStep
from app.autograd.place import OpLocation
from app.autograd.source_locations import SourceLocations
from app.autograd.walk import edge_of, is_accumulate, short_name
from app.source.generated import Source
from app.util import module_tree
from app.util.torch_calls import FunctionCalls

# Results that come from a tensor's form and not from its values, and calls that are about the tensor itself.
_NOT_VALUES = frozenset(
    """zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full
    new_tensor size dim ndimension numel nelement stride is_contiguous backward register_hook retain_grad requires_grad_
    grad _set_grad_enabled is_floating_point is_complex element_size storage_offset data_ptr untyped_storage __format__
    __repr__ __len__ __hash__ __bool__ is_same_size get_device type register_post_accumulate_grad_hook
    uniform_ normal_ zero_ fill_ trunc_normal_ kaiming_uniform_ xavier_uniform_ is_nonzero""".split()
)
_HERE = __file__.removesuffix("diagnostics/detached_paths.py")
_TO_NUMBER = {
    "item": "item",
    "tolist": "item",
    "__float__": "item",
    "__int__": "item",
    "__index__": "item",
    "__complex__": "item",
    "numpy": "numpy",
    "__array__": "numpy",
    "to_dlpack": "numpy",
    "__dlpack__": "numpy",
}
_COMPARISONS = frozenset(
    "eq ne lt le gt ge equal isclose __eq__ __ne__ __lt__ __le__ __gt__ __ge__ logical_and logical_or logical_not "
    "isnan isinf isfinite greater less greater_equal less_equal not_equal".split()
)
# Integers that are indices into values, rather than values.
_CHOICES = frozenset(
    "argmax argmin argsort bucketize searchsorted multinomial nonzero count_nonzero unique".split()
)


class _Seen(Struct):
    """A cut while the pass runs, with the graph that ends in it."""

    cut: Cut
    edges: list[Any]


class CutWatcher:
    """A context around a forward pass and its loss; `found` returns the cuts afterwards.

    `requires` maps the drawing's nodes, and `layer_requires` the modules' paths, to whether their last tensor requires
    grad.
    """

    def __init__(
        self, model: Module | None = None, source: Source | None = None
    ) -> None:
        self.places = SourceLocations(model, source)
        self.requires: dict[str, bool] = {}
        self.layer_requires: dict[str, bool] = {}
        self.used: dict[int, OpLocation] = {}
        self.outputs: list[Any] = []
        self._model = model
        self._seen: list[_Seen] = []
        self._taints: Any = WeakIdKeyDictionary()
        self._made: list[Any] = []
        self._taken: tuple[int, dict[Any, list[Any]]] = (0, {})
        self._mode: Any = None
        self._hook: Any = None

    def __enter__(self) -> CutWatcher:
        self.places.__enter__()
        if self._model is not None:
            self._hook = module_tree.on_call(self._model, self._record_outputs)
        self._mode = FunctionCalls(self._called)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)
        if self._hook is not None:
            self._hook.remove()
        self.places.__exit__(*error)

    def forget(self) -> None:
        """Release every node and tensor."""
        self._seen, self._made, self.outputs, self._taints = (
            [],
            [],
            [],
            WeakIdKeyDictionary(),
        )
        self._taken = (0, {})

    def _record_outputs(self, _module: Module, _args: Any, output: Any) -> None:
        self.outputs = tensors_in(output)

    # -- while it runs -------------------------------------------------------------------------------------------------

    def _called(
        self, func: Any, args: Any, kwargs: Mapping[str, Any], frame: FrameType
    ) -> Any:
        """Run one operation and record whether it detaches gradient paths."""
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name != "data":
                return func(*args, **kwargs)
        if (
            name in _NOT_VALUES
            or name == "__set__"
            or _is_capture(frame)
            or not self.places.origins.listening
        ):
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            inputs = tensors_in((args, kwargs))
            # Asked before the call only via grad_fn: under no_grad and inside functorch torch does not expose a leaf's
            # node.
            alive = [
                (tensor, tensor.grad_fn or tensor)
                for tensor in inputs
                if tensor.requires_grad
            ]
        started = torch._C._autograd._get_sequence_nr()
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self._note(name, inputs, alive, args, kwargs, result, started, frame)
        return result

    def _note(
        self,
        name: str,
        inputs: Any,
        alive: Any,
        args: Any,
        kwargs: Any,
        result: Any,
        started: int,
        frame: FrameType | None,
    ) -> None:
        taint: frozenset[int] = frozenset().union(
            *(self._taints.get(tensor, ()) for tensor in inputs)
        )
        ended = torch._C._autograd._get_sequence_nr()
        writes = _is_write(name) or "out" in kwargs
        outputs = tensors_in(args[:1]) if _is_write(name) else tensors_in(result)
        location: OpLocation | None = None
        if (
            alive
            or ended > started
            or any(output.is_floating_point() for output in outputs)
        ):
            location = self.places.here(frame, name)
            for tensor in inputs:
                if isinstance(tensor, Parameter):
                    self.used.setdefault(id(tensor), location)
            self.places.note(started, ended, location)
        if name in _TO_NUMBER:
            if alive and location is not None:
                self._cut(_TO_NUMBER[name], location, alive, "", False, frame)
            return
        for output in outputs:
            if output.requires_grad and output.grad_fn is not None and ended > started:
                self._made.append(output.grad_fn)
            if location is not None and output.is_floating_point():
                self._record_requires(location, output.requires_grad)
            cut = self._detached_inputs(alive, output, writes)
            mine = taint
            if cut and location is not None:
                dtype = str(output.dtype).removeprefix("torch.")
                mine = taint | {
                    self._cut(_kind(name, output), location, cut, dtype, writes, frame)
                }
            if mine:
                self._taints[output] = mine | self._taints.get(output, frozenset())

    @staticmethod
    def _detached_inputs(alive: Any, output: Any, writes: bool) -> Any:
        """Return the inputs that contribute to `output` but get no gradient from it."""
        if not output.requires_grad:
            return alive
        if (
            writes and not torch.is_grad_enabled()
        ):  # the written tensor keeps its graph; the value written is cut
            return [(tensor, node) for tensor, node in alive if tensor is not output]
        return []

    def _record_requires(self, location: OpLocation, requires: bool) -> None:
        if location.node is not None:
            self.requires[location.node] = requires
        if location.layer:
            self.layer_requires[location.layer] = requires

    def _cut(
        self,
        kind: str,
        location: OpLocation,
        alive: Any,
        dtype: str,
        writes: bool,
        frame: FrameType | None,
    ) -> int:
        function = custom_node(frame)
        inside = (
            type(function).__name__.removesuffix("Backward")
            if function is not None
            else ""
        )
        if inside:
            kind = "checkpoint" if inside == "CheckpointFunction" else "custom"
        edges = [node for _, node in alive]
        self._seen.append(_Seen(Cut(kind, location, dtype, writes, inside), edges))
        return len(self._seen) - 1

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def find_cuts(
        self, names: Mapping[int, tuple[str, ...]], ends: Iterable[Any]
    ) -> tuple[Cut, ...]:
        """Return the cuts in order of occurrence; `names` are the parameters' names by id."""
        reaching: frozenset[int] = frozenset().union(
            *(self._taints.get(end, ()) for end in ends)
        )
        cuts = []
        for number, record in enumerate(self._seen):
            chains: dict[str, tuple[PathStep, ...]] = {}
            for leaf in (
                edge for edge in record.edges if isinstance(edge, torch.Tensor)
            ):
                if parameter_names := names.get(id(leaf)):
                    chains[parameter_names[0]] = ()
            for node, nodes in _leaf_paths(
                [edge for edge in record.edges if not isinstance(edge, torch.Tensor)]
            ):
                if parameter_names := names.get(id(node.variable)):
                    chains.setdefault(
                        parameter_names[0], tuple(self._link(node) for node in nodes)
                    )
            cut = record.cut
            cuts.append(
                Cut(
                    cut.kind,
                    cut.place,
                    cut.dtype,
                    cut.in_place,
                    cut.function,
                    tuple(chains),
                    number in reaching,
                    chains,
                )
            )
        return tuple(cuts)

    def last_of(self, parameter: Any) -> tuple[tuple[PathStep, ...], int | None]:
        """Return the longest path from a parameter through recorded nodes, up to an unused result.

        The second value is the index of the net's output that this result is, if any.
        """
        if not parameter.requires_grad:
            return (), None
        users = self._users()
        node, way = edge_of(parameter)[0], []
        while users.get(node):
            node = max(users[node], key=lambda user: user._sequence_nr())
            way.append(node)
        numbers = [
            number
            for number, output in enumerate(self.outputs)
            if way and output.grad_fn is way[-1]
        ]
        return tuple(self._link(node) for node in way), next(iter(numbers), None)

    def _users(self) -> dict[Any, list[Any]]:
        """Return the consumers of each node; cached until more nodes are recorded."""
        count, users = self._taken
        if count != len(self._made):
            users = {}
            for node in _below(self._made):
                for child, _ in node.next_functions:
                    if child is not None:
                        users.setdefault(child, []).append(node)
            self._taken = (len(self._made), users)
        return users

    def _link(self, node: Any) -> PathStep:
        return PathStep(short_name(node), self.places.location_of(node))


def _is_capture(frame: FrameType | None) -> bool:
    """Return whether the call comes from our own instrumentation rather than the net."""
    path = frame.f_code.co_filename if frame is not None else ""
    return path.startswith(_HERE) and not path.endswith("layers.py")


def tensors_in(value: Any) -> list[Any]:
    """List every tensor in a value."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _is_write(name: str) -> bool:
    """Return whether an operation of this name writes to its first argument.

    >>> _is_write("add_"), _is_write("__iadd__"), _is_write("__setitem__"), _is_write("__add__"), _is_write("detach_")
    (True, True, True, False, False)
    """
    if name.startswith("__"):
        return (
            name.startswith("__i")
            and name not in ("__index__", "__invert__", "__int__")
            or name == "__setitem__"
        )
    return name.endswith("_") and name != "detach_"


def _kind(name: str, output: Any) -> str:
    if name in ("detach", "detach_"):
        return "detach"
    if name == "data":
        return "data"
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    if not torch.is_grad_enabled():
        return "no_grad"
    if name in _CHOICES:
        return "argmax"
    if name in _COMPARISONS:
        return "comparison"
    return (
        "no derivative"
        if output.is_floating_point() or output.is_complex()
        else "dtype"
    )


def custom_node(frame: FrameType | None) -> Any:
    """Return the autograd node of the `torch.autograd.Function` whose forward is running; None if there is none."""
    while frame is not None:
        names = frame.f_code.co_varnames
        if names and frame.f_code.co_name == "forward" and frame.f_code.co_argcount:
            first = frame.f_locals.get(names[0])
            if isinstance(first, torch._C._FunctionBase):
                return first
        frame = frame.f_back
    return None


def _below(roots: Iterable[Any]) -> Iterator[Any]:
    visited, todo = set(roots), list(roots)
    while todo:
        node = todo.pop()
        yield node
        for child, _ in node.next_functions:
            if child is not None and child not in visited:
                visited.add(child)
                todo.append(child)


def _leaf_paths(roots: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield every leaf below `roots` with the nodes of a shortest path up from it, the leaf excluded."""
    above: dict[Any, Any] = {root: None for root in roots}
    row = list(above)
    while row:
        next_row: list[Any] = []
        for node in row:
            if is_accumulate(node):
                way, user = [], above[node]
                while user is not None:
                    way.append(user)
                    user = above[user]
                yield node, way
            for child, _ in node.next_functions:
                if child is not None and child not in above:
                    above[child] = node
                    next_row.append(child)
        row = next_row
