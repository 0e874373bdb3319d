"""Lowering of traces to drafts: nodes and wires of one sheet, with the drafts of its submodules."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_unflatten

from app.builder.catalog import ops
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.codegen.tensor_literals import LONGEST, MOST_BYTES
from app.builder.codegen.tensor_values import packed
from app.builder.literals import DType
from app.features.importing.compute.lowering.binding import (
    BATCH_NORM,
    Binder,
    BindingError,
    Bound,
    literal_of,
)
from app.features.importing.compute.lowering.ir import (
    Draft,
    DraftError,
    DraftNode,
    Source,
    same_calls,
)
from app.features.importing.compute.lowering.modules import described
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.lowering.parameter_order import wholly_frozen
from app.features.importing.compute.tracing.frames import VARYING, Frame, TraceError
from app.features.importing.compute.tracing.meta_evaluation import (
    argument_names,
    port_name,
)
from app.features.importing.compute.tracing.tracing import Tracer
from app.util import module_tree

# --- Constant tensors: neither parameters nor in the state_dict, so their values go into the source

FEW = 16  # values, readable at a glance
TYPED = 256  # values; longer literals are encoded


def constant_params(tensor: torch.Tensor, name: str) -> tuple[str, dict[str, Any]]:
    """Return the op for a constant tensor and its parameters: a fill, a readable literal, or encoded bytes. Raises
    BindingError if the text would be too long."""
    shape, dtype = tuple(tensor.shape), DType(str(tensor.dtype).removeprefix("torch."))
    fill = fill_of(tensor) if tensor.numel() > FEW else None
    if fill is not None:
        params: dict[str, Any] = {"shape": shape, **fill}
        return "buffer", params if tensor.dtype == torch.float32 else {
            **params,
            "dtype": dtype,
        }
    if tensor.numel() <= TYPED and not tensor.dtype.is_complex:
        return "constant", {"value": _nested(tensor.tolist()), "dtype": dtype}
    size = math.prod(shape) * tensor.element_size()
    text = packed(tensor) if 0 < size <= MOST_BYTES else ""
    if not 0 < len(text) <= LONGEST:
        raise BindingError(
            f"{name} is in no state_dict, and its {tensor.numel():,} values take more than {LONGEST:,} letters of "
            "source; register it as a buffer that is, and its values go with the weights"
        )
    return "packed", {"values": text, "shape": shape, "dtype": dtype}


def fill_of(tensor: torch.Tensor) -> dict[str, Any] | None:
    """Return the fill of a buffer that reproduces a tensor, None if there is none."""
    if tensor.dtype.is_complex or not tensor.numel() or tensor.device.type == "meta":
        return None
    first = tensor.flatten()[0]
    if bool((tensor == first).all()):
        value = first.item()
        if value in (0, 1):
            return {"fill": "ones" if value else "zeros"}
        return (
            {"fill": "full", "value": _shortest(value, tensor.dtype)}
            if math.isfinite(value)
            else None
        )
    candidates: dict[str, torch.Tensor] = {
        "arange": torch.arange(tensor.numel()).view(tensor.shape)
    }
    if tensor.dim() == 2:
        candidates["eye"] = torch.eye(*tensor.shape)
    if tensor.dim() >= 2:
        ones = torch.ones(tensor.shape)
        candidates |= {"tril": ones.tril(), "triu": ones.triu()}
    for fill, values in candidates.items():
        if not (fill == "arange" and tensor.dtype == torch.bool) and torch.equal(
            values.to(tensor.dtype), tensor
        ):
            return {"fill": fill}
    return None


def _shortest(value: Any, dtype: torch.dtype) -> Any:
    """Shorten a float to the digits its dtype needs: 0.1 for 0.10000000149 in float32."""
    if not isinstance(value, float):
        return value
    rounded = torch.tensor(value, dtype=dtype)
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 17))
    return next(
        (
            short
            for short in candidates
            if torch.equal(torch.tensor(short, dtype=dtype), rounded)
        ),
        value,
    )


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


class Drafter:
    """Lowers the frames of one trace to drafts. `model` is the traced model, with its real tensors. With `own`, calls
    that no op of the catalog makes become generated layers, by which the catalog is extended."""

    def __init__(
        self,
        tracer: Tracer,
        model: nn.Module,
        catalog: Catalog,
        own: OwnClasses | None = None,
    ) -> None:
        self.tracer, self.model, self.catalog, self.own = tracer, model, catalog, own
        self.binder = Binder(catalog, tracer.values)
        self.parameters = dict(
            module_tree.named_parameters(model, remove_duplicate=False)
        )
        self.buffers = dict(module_tree.named_buffers(model, remove_duplicate=False))
        self.drafts: dict[str, Draft] = {}

    def draft(self, frame: Frame) -> Draft:
        """Lower a frame and everything in it. Raises DraftError."""
        return _Sheet(self, frame).drawn()

    def bind(self, node: fx.Node, like: fx.Node | None) -> Bound:
        """Bind a call to an op of the catalog, else to a generated layer. Raises BindingError."""
        try:
            bound = self.binder.bind(node, like)
            bound.check(self.catalog[bound.key])
            return bound
        except BindingError:
            if self.own is None or node in self.tracer.views.in_place:
                raise
            try:
                bound = self.own.function(node, self.tracer.values)
            except BindingError:
                bound = None
            if bound is None:
                raise
            self.catalog = self.own.with_these(self.catalog)
            return bound

    def persistent(self, path: str) -> bool:
        """Return whether a buffer is in the state_dict."""
        owner, _, name = path.rpartition(".")
        return name not in self.model.get_submodule(owner)._non_persistent_buffers_set


class _Sheet:
    def __init__(self, drafter: Drafter, frame: Frame) -> None:
        self.drafter, self.frame = drafter, frame
        self.draft = Draft(frame.path, type(frame.module).__name__)
        self.places: dict[fx.Node, Source] = {}
        self.constants: dict[fx.Node, Any] = {}
        self.modules: dict[str, str] = {}
        self.called_with: dict[
            str, dict[str, Any]
        ] = {}  # by layer: arguments of its first call
        self.names: set[str] = set()
        self.needed: set[fx.Node] = set()
        self.values = drafter.tracer.values

    def drawn(self) -> Draft:
        needed = self._needed()
        self.needed.update(needed)
        for node in needed:
            try:
                self._draw(node)
            except BindingError as error:
                where = self.frame.path or self.draft.kind
                layer = node.op == "call_module" and node not in self.frame.inner
                path = str(node.target) if layer else self.frame.path
                draft_error = DraftError(f"{where}: {error}", path, str(error))
                draft_error.source_line = self.drafter.tracer.places.get(node)
                raise draft_error from error
        self._return()
        self._tidy()
        self.draft.numbers = {
            source[0]
            for node, source in self.places.items()
            if type(self.values[node]) in (int, float)
            and node.op in ("call_function", "call_method")
        }
        return self.draft

    def _tidy(self) -> None:
        """Remove dead calls, such as a shape of which every size is read separately."""
        draft = self.draft
        while True:
            used_ids = {wire[0] for wire in draft.wires}
            kinds = ("function", "method", "operator")
            idle = {
                node.id
                for node in draft.nodes.values()
                if node.id not in used_ids
                and node.inner is None
                and self.drafter.catalog[node.op].kind in kinds
            }
            if not idle:
                return
            draft.nodes = {
                key: node for key, node in draft.nodes.items() if key not in idle
            }
            draft.wires = [wire for wire in draft.wires if wire[2] not in idle]

    def _return(self) -> None:
        """Add an output for every returned tensor; the caller knows other values already."""
        leaves = [
            (number, leaf)
            for number, leaf in enumerate(self.frame.outputs)
            if isinstance(leaf, fx.Node)
        ]
        if not leaves:
            raise DraftError(
                f"{self.frame.path or self.draft.kind} returns no tensor",
                self.frame.path,
            )
        leaf_numbers = tree_unflatten(
            list(range(self.frame.structure.num_leaves)), self.frame.structure
        )
        keys = (
            dict(_keys(leaf_numbers))
            if isinstance(leaf_numbers, dict) and not self.frame.path
            else {}
        )
        for index, (number, leaf) in enumerate(leaves):
            plain = "output" if len(leaves) == 1 else f"output{index + 1}"
            key = keys.get(number)
            output_node = self._add(
                "output", self._fresh(key or plain), {"key": key} if key else {}
            )
            self._wire(leaf, output_node, "input")
            self.draft.outputs.append(output_node.id)

    def _needed(self) -> list[fx.Node]:
        """List the nodes that the outputs need, in order, and calls of modules with parameters, for their state_dict
        keys."""
        required: set[fx.Node] = {
            leaf for leaf in self.frame.outputs if isinstance(leaf, fx.Node)
        }
        order = []
        for node in reversed(list(self.frame.graph.nodes)):
            if node in required or node.op == "placeholder":
                required.update(node.all_input_nodes)
                order.append(node)
        return order[::-1]

    # --- Nodes

    def _draw(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._input(node)
        elif node.op == "get_attr":
            self._owned(node)
        elif node in self.frame.inner:
            self._block(node)
        elif node.op == "call_module":
            self._layer(node)
        else:
            self._function(node)

    def _input(self, node: fx.Node) -> None:
        name = self.frame.names[self.frame.inputs.index(node)]
        value = self.values[node]
        input_node = self._add("input", self._fresh(name), {})
        if isinstance(value, torch.Tensor) and value.dim():
            input_node.params["shape"] = tuple(value.shape[1:])
            if value.dtype != torch.float32:
                input_node.params["dtype"] = literal_of(value.dtype)
        self.draft.inputs.append(input_node.id)
        self.places[node] = (input_node.id, 0)

    def _owned(self, node: fx.Node) -> None:
        path, drafter = str(node.target), self.drafter
        tensor: torch.Tensor | None = drafter.parameters.get(path)
        tensor = drafter.buffers.get(path) if tensor is None else tensor
        if node in drafter.tracer.constants or tensor is None:
            return self._constant(
                node, drafter.tracer.constants[node], self._fresh("constant"), False
            )
        name = self._relative(path)
        if path in drafter.buffers and not drafter.persistent(path):
            if (
                "." in name
            ):  # of a submodule, which may be called too, and has it under this name
                name = self._fresh(name.rpartition(".")[2])
            return self._constant(node, tensor, name, False)
        op = "parameter" if path in drafter.parameters else "buffer"
        self.places[node] = (self._add(op, name, tensor_params(tensor)).id, 0)
        self.names.add(name)
        return None

    def _constant(
        self, node: fx.Node, tensor: torch.Tensor, name: str, persistent: bool
    ) -> None:
        """Add a constant tensor, with its values in the source."""
        if tensor.device.type == "meta":
            raise BindingError(
                "it reads a tensor without nn.Module's attribute access, so its owner is unknown"
            )
        op, params = constant_params(tensor, name)
        self.places[node] = (
            self._add(op, name, {**params, "persistent": persistent}).id,
            0,
        )

    def _layer(self, node: fx.Node) -> None:
        path = str(node.target)
        module = self.drafter.model.get_submodule(path)
        apart = self.drafter.tracer.apart.get(path)
        if apart is not None:
            spec, params = apart.spec, apart.params
        else:
            spec, params = described(module, self.drafter.catalog)
        names = tuple(port_name(spec, name) for name in argument_names(module))
        arguments = self.drafter.binder.by_name(
            spec, list(node.args), dict(node.kwargs), names
        )
        bound = Bound(spec.key)
        for name, value in arguments.items():
            self.drafter.binder.put(bound, spec, name, value)
        _leave_to_arriving(spec, params, bound, self.values)
        draft_node = self._module(path, spec.key, {**params, **bound.params})
        draft_node.frozen = wholly_frozen(module)
        at_call = {
            param.name: bound.params.get(param.name)
            for param in spec.params
            if param.call
        }
        if draft_node.shares and self.called_with[draft_node.shares] != at_call:
            raise _varying(path)
        self.called_with[draft_node.id] = at_call
        if node in self.drafter.tracer.views.in_place and not self._alone(node):
            self.draft.nodes[draft_node.shares or draft_node.id].params.pop(
                "inplace", None
            )
        self._connect(draft_node, bound)
        self.places[node] = (draft_node.id, 0)

    def _block(self, node: fx.Node) -> None:
        inner_frame = self.frame.inner[node]
        for number, item in inner_frame.extra.items():
            if item not in self.needed:
                inner_frame.outputs[number] = None
        inner = self.drafter.draft(inner_frame)
        draft_node = self._module(inner_frame.path, "", {}, inner)
        if draft_node.shares and not same_calls(
            self.draft.nodes[draft_node.shares].inner, inner
        ):
            raise _varying(inner_frame.path)
        for leaf, input_id in zip(node.args, inner.inputs, strict=True):
            self._wire(leaf, draft_node, inner.nodes[input_id].name)
        self.places[node] = (draft_node.id, 0)

    def _module(
        self, path: str, op: str, params: dict[str, Any], inner: Draft | None = None
    ) -> DraftNode:
        first = self.modules.get(path)
        if first is not None:
            draft_node = self._add(
                op, self._fresh(self.draft.nodes[first].name), {}, inner
            )
            draft_node.shares = first
            return draft_node
        name = self._relative(path)
        draft_node = self._add(
            op, name, params, inner
        )  # an argument of forward may be called so too
        self.names.add(draft_node.name)
        self.modules[path] = draft_node.id
        return draft_node

    def _function(self, node: fx.Node) -> None:
        if self._plain(node):
            return
        like = next(
            (n for n in self.frame.inputs if isinstance(self.values[n], torch.Tensor)),
            None,
        )
        bound = self.drafter.bind(node, like)
        spec = self.drafter.catalog[bound.key]
        count = self._count_of(bound) if bound.key == BATCH_NORM else None
        if node in self.drafter.tracer.views.in_place and not self._alone(node):
            bound.params.pop("inplace", None)
        if spec.kind == "module":  # a generated layer, whose name no submodule may have
            self.names.update(
                name for name, _ in module_tree.named_children(self.frame.module)
            )
        draft_node = self._add(bound.key, self._fresh(spec.stem), bound.params)
        draft_node.written = spec.kind == "module"
        self._connect(draft_node, bound)
        if count is not None:
            self.draft.wires.append((count.id, 0, draft_node.id, ops.COUNTED, 0))
        self.places[node] = (draft_node.id, 0)

    def _alone(self, node: fx.Node) -> bool:
        """Return whether no other call of this sheet reads the tensor that a call modifies in place."""
        views = self.drafter.tracer.views
        source = views.in_place[node]
        others = (source.users.keys() & self.needed) - {node}
        return (
            source.op not in ("placeholder", "get_attr")
            and source not in views.links
            and not others
        )

    def _count_of(self, bound: Bound) -> DraftNode | None:
        """Return the num_batches_tracked buffer that belongs to the statistics of an `F.batch_norm`."""
        mean = bound.ports.get("running_mean", [None])[0]
        owner = (
            str(mean.target).rpartition(".")[0]
            if mean is not None and mean.op == "get_attr"
            else None
        )
        path = f"{owner}.{ops.COUNTED}" if owner else ops.COUNTED
        if owner is None or path not in self.drafter.buffers:
            return None
        tracer = self.drafter.tracer
        if int(tracer.root.training) and not any(
            n.op == "get_attr" and n.target == path for n in tracer.views.became
        ):
            return None  # present, but never incremented
        name = self._relative(path)
        existing = next(
            (
                node
                for node in self.draft.nodes.values()
                if (node.op, node.name) == ("buffer", name)
            ),
            None,
        )
        return existing or self._add(
            "buffer", name, {"shape": (), "dtype": DType("int64")}
        )

    def _plain(self, node: fx.Node) -> bool:
        """Resolve nodes without a call: one of several outputs, a size of a shape, a fact of the example."""
        value = self.values[node]
        if node.target is getattr:
            source, name = node.args
            assert isinstance(source, fx.Node)
            if name in ("dtype", "device", "requires_grad", "is_cuda", "layout"):
                self.constants[node] = value
                return True
            result = type(self.values[source])
            named = (
                result.__match_args__
                if result.__module__ == "torch.return_types"
                else ()
            )  # (values, indices)
            if name in named and self._item(node, source, named.index(str(name))):
                return True
            key = {"shape": "Tensor.shape", "ndim": "Tensor.dim"}.get(str(name))
            if key is None:
                raise BindingError(f"Tensor.{name} is not among the ops")
            draft_node = self._add(key, self._fresh(self.drafter.catalog[key].stem), {})
            self._wire(source, draft_node, "input")
            self.places[node] = (draft_node.id, 0)
            return True
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            source, index = node.args
            if (
                isinstance(source, fx.Node)
                and type(index) is int
                and self._item(node, source, index)
            ):
                return True
        if (
            node.op == "call_function"
            and node.target in (operator.not_, torch._assert)
            or isinstance(value, bool)
        ):
            self.constants[node] = value
            return True
        return False

    def _item(self, node: fx.Node, source: fx.Node, index: int) -> bool:
        """Resolve an item of a call with several outputs, or of a shape."""
        sequence = self.values[source]
        location = self.places.get(source)
        if location is None or not isinstance(sequence, tuple | list):
            return False
        owner = self.draft.nodes[location[0]]
        if owner.op == "Tensor.shape":
            index = index % len(sequence)
            tensor = next(w for w in self.draft.wires if w[2] == owner.id)
            draft_node = self._add("Tensor.size", self._fresh("size"), {"dim": index})
            self.draft.wires.append((tensor[0], tensor[1], draft_node.id, "input", 0))
            self.places[node] = (draft_node.id, 0)
            return True
        if source in self.frame.inner:  # only the tensors it returns have an output
            leaves = self.frame.inner[source].outputs
            self.places[node] = (
                owner.id,
                sum(
                    isinstance(leaf, fx.Node)
                    for leaf in leaves[: index % len(sequence)]
                ),
            )
            return True
        several = len(self._outputs(owner)) > 1
        if several and location[1] == 0:
            self.places[node] = (owner.id, index % len(sequence))
            return True
        return False

    def _outputs(self, node: DraftNode) -> tuple[Any, ...]:
        spec = self.drafter.catalog[node.op]
        return spec.outputs[
            : spec.outputs_given({p.name: p.default for p in spec.params} | node.params)
        ]

    # --- Wires

    def _connect(self, draft_node: DraftNode, bound: Bound) -> None:
        for port, nodes in bound.ports.items():
            for index, node in enumerate(nodes):
                self._wire(node, draft_node, port, index)
        for port, node in bound.wired.items():
            self._wire(node, draft_node, port)

    def _wire(
        self, node: Any, draft_node: DraftNode, port: str, index: int = 0
    ) -> None:
        if node not in self.places:
            constant = self.constants.get(node, node)
            raise BindingError(
                f"{draft_node.name} takes {constant!r:.40} as {port}, which a wire cannot carry"
            )
        source, output = self.places[node]
        self.draft.wires.append((source, output, draft_node.id, port, index))

    def _add(
        self, op: str, name: str, params: dict[str, Any], inner: Draft | None = None
    ) -> DraftNode:
        self.names.add(name)
        return self.draft.add(op, name, params, inner)

    # --- Names

    def _relative(self, path: str) -> str:
        prefix = f"{self.frame.path}." if self.frame.path else ""
        if not path.startswith(prefix):
            raise BindingError(f"it uses {path}, which belongs to another module")
        return path.removeprefix(prefix)

    def _fresh(self, stem: str) -> str:
        if stem not in self.names:
            return stem
        number = 2
        while f"{stem}{number}" in self.names:
            number += 1
        return f"{stem}{number}"


def _varying(path: str) -> TraceError:
    """Return the error for a module whose calls no block has: in the sheet around it each is drawn for itself."""
    return TraceError(f"{path} cannot be followed: {VARYING}", path, VARYING, True)


def _leave_to_arriving(
    spec: OpSpec, params: dict[str, Any], bound: Bound, values: Any
) -> None:
    """Set sizes to AUTO where inference from the input shape yields the same value."""
    for param in spec.params:
        rule = ops.AUTO_RULES.get((spec.key, param.name))
        if rule is None or param.name not in params:
            continue
        port, index = rule
        nodes = bound.ports.get(port)
        shape = getattr(values[nodes[0]], "shape", ()) if nodes else ()
        try:
            arriving: Any = shape[index]
        except IndexError:
            continue
        arriving = tuple(arriving) if isinstance(index, slice) else arriving
        mine = params[param.name]
        if arriving == mine or (
            isinstance(arriving, tuple) and len(arriving) == 1 and arriving[0] == mine
        ):
            del params[param.name]


def tensor_params(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the parameters of a free parameter or buffer like a tensor; a buffer keeps its values if a fill expresses
    them."""
    params: dict[str, Any] = {"shape": tuple(tensor.shape)}
    fill = None if isinstance(tensor, nn.Parameter) else fill_of(tensor)
    if fill is not None and fill != {"fill": "zeros"}:
        params |= fill
    if tensor.dtype != torch.float32:
        params["dtype"] = DType(str(tensor.dtype).removeprefix("torch."))
    if isinstance(tensor, nn.Parameter) and not tensor.requires_grad:
        params["requires_grad"] = False
    return params


def _keys(nested: Any, path: str = "") -> Iterator[tuple[int, str]]:
    """Yield number and dotted key of every leaf of a nested dict.

    >>> dict(_keys({"out": 0, "aux": [1, 2]}))
    {0: 'out', 1: 'aux.0', 2: 'aux.1'}
    """
    if isinstance(nested, int):
        yield nested, path
        return
    for key, value in nested.items() if isinstance(nested, dict) else enumerate(nested):
        yield from _keys(value, f"{path}.{key}" if path else str(key))
