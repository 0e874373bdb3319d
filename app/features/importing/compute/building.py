"""A live module as a graph with blocks: traced, drafted, merged, laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import nn
from torch.utils._pytree import tree_flatten

from app.builder.arrange import arrange
from app.builder.blocks import Block, Blocks
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.codegen.whole_net import WHOLE
from app.builder.graph import Graph
from app.builder.layout import used_part, with_uncalled
from app.builder.literals import DType
from app.builder.sheet import Comments, Positions
from app.features.importing.compute import remarks
from app.features.importing.compute.fallbacks import Fallback, FallbackChooser
from app.features.importing.compute.lowering.binding import BindingError
from app.features.importing.compute.lowering.ir import Draft, DraftError, drafts_in
from app.features.importing.compute.lowering.lowering import Drafter
from app.features.importing.compute.lowering.merge_blocks import Merger
from app.features.importing.compute.lowering.modules import described, key_of
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.lowering.package_classes import is_generated
from app.features.importing.compute.lowering.parameter_order import (
    as_called,
    freeze,
    mixed,
    number,
    partly_frozen,
)
from app.features.importing.compute.lowering.shared_tensors import (
    called_past,
    keep_unused,
    read_past,
    tie,
    tied,
)
from app.features.importing.compute.tracing.frames import COMPILED, TraceError, words_of
from app.features.importing.compute.tracing.meta_evaluation import (
    argument_names,
    port_name,
    run_alone,
)
from app.features.importing.compute.tracing.patches import gradient_hooks
from app.features.importing.compute.tracing.proxies import on_meta, set_mode
from app.features.importing.compute.tracing.records import is_record, plain
from app.features.importing.compute.tracing.tracing import Tracer
from app.features.importing.compute.train_eval import check_chance, with_evaluation
from app.util import module_tree
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.util.module_tree import parent
from app.util.rng import Generators, borrowed


class Imported(Struct, frozen=True):
    """The imported drawing of a live module: graph, blocks and node positions.

    `fallbacks` are the submodules that were not traced call by call, `remarks` further warnings.
    """

    graph: Graph
    blocks: Blocks
    positions: Positions
    comments: Comments = FrozenMap()
    fallbacks: tuple[Fallback, ...] = ()
    remarks: tuple[str, ...] = ()


def import_module(
    model: nn.Module,
    args: tuple[Any, ...],
    catalog: Catalog,
    kwargs: Mapping[str, Any] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    own: OwnClasses | None = None,
    apart: Mapping[str, str] | None = None,
) -> Imported:
    """Import a module called with `args`: tensors, of which only shapes and dtypes are read, and plain values.

    The model is not modified, and values are computed only where a submodule cannot be traced without. With `own`, the
    classes of the model's file, such a submodule can become one opaque node. Those in `apart`, a reason by path, are
    not traced at all. Raises TraceError or DraftError.
    """
    drawing = _Drawing(
        model,
        args,
        dict(kwargs or {}),
        own.with_these(catalog) if own else catalog,
        cancelled,
    )
    chooser = FallbackChooser(model, own, drawing.examples)
    scripted = {"": COMPILED} if isinstance(model, torch.jit.ScriptModule) else {}
    for path, why in {**scripted, **(apart or {})}.items():
        chooser.set_apart(path, why)
    drawing.catalog = own.with_these(catalog) if own else catalog
    while True:
        try:
            drawn = drawing.drawn(chooser)
        except (TraceError, DraftError) as error:
            if cancelled():
                raise
            chooser.add_fallback(error)
            drawing.catalog = own.with_these(catalog) if own else catalog
        else:
            return replace(drawn, fallbacks=chooser.fallbacks())


class _Drawing:
    """One import of a model, repeated with more fallbacks until it succeeds."""

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        catalog: Catalog,
        cancelled: Callable[[], bool],
    ) -> None:
        self.model, self.catalog, self._cancelled = model, catalog, cancelled
        self.examples = (
            tuple(map(_on_meta, args)),
            {name: _on_meta(value) for name, value in kwargs.items()},
        )
        self.remarks: dict[str, None] = {}

    def is_catalog_layer(self, module: nn.Module) -> bool:
        """Return whether a module is a layer of the catalog that can be constructed from its attributes."""
        key = key_of(module, self.catalog)
        if key is None or partly_frozen(module):
            return False
        if not key.startswith("nn.Transformer"):
            return True
        try:
            with borrowed(Generators()):  # constructing it draws initial weights
                described(module, self.catalog)
        except BindingError:
            return False
        return True

    def drawn(self, chooser: FallbackChooser) -> Imported:
        """Trace, lower and merge the model with the fallbacks found so far. Raises TraceError or DraftError."""
        self.remarks = {}
        opaque = chooser.apart.get("")
        if opaque is not None:
            root = draw_as_one_node(
                self.model, opaque.spec, opaque.params, self.examples
            )
        else:
            self._check_model(chooser)
            root, mode_read = self._drafted(chooser, True)
            evaluation = self._drafted(chooser, False)[0] if mode_read else None
            check_chance(root, evaluation)
            if evaluation is not None:
                with_evaluation(root, evaluation, lambda: self._switch_op(chooser))
            keep_unused(root, self.model, self.catalog)
            self._tie(root, chooser)
        freeze(root)
        number(root, self.model)
        graph, blocks = as_called(*Merger(self.catalog).merge(root), self.catalog)
        laid = FrozenMap({name: _laid(block) for name, block in blocks.items()})
        layout = with_uncalled(graph, arrange(used_part(graph), {}), {})
        return Imported(graph, laid, *layout, remarks=tuple(self.remarks))

    def _switch_op(self, chooser: FallbackChooser) -> str | None:
        """Return the op of a layer that passes on one of two values by the mode; None without generated layers."""
        op = chooser.own.by_mode() if chooser.own is not None else None
        if chooser.own is not None:
            self.catalog = chooser.own.with_these(self.catalog)
        return op

    def _check_model(self, chooser: FallbackChooser) -> None:
        """Raise TraceError for gradient hooks and partly frozen layers, which no traced call shows."""
        for path, why in (*gradient_hooks(self.model), *mixed(self.model)):
            if not chooser.hides(path):
                raise TraceError(
                    f"{path or type(self.model).__name__} cannot be followed: {why}",
                    path,
                    why,
                )

    def _tie(self, root: Draft, chooser: FallbackChooser) -> None:
        """Tie tensors that have several names. Raises TraceError if a drawing cannot express it."""
        buffers = {
            name
            for name, _ in module_tree.named_buffers(self.model, remove_duplicate=False)
        }
        for path, names in tied(self.model):
            owners = [self.model.get_submodule(parent(name)) for name in names]
            if buffers.issuperset(names) and not any(
                map(self.is_catalog_layer, owners)
            ):
                continue  # never written, so two buffers with equal values are equivalent
            if not chooser.hides(path) and (
                buffers.intersection(names) or not tie(root, names, path)
            ):
                why = f"{names[0]} and {names[-1]} are the same tensor, which a network can hold under one name only"
                raise TraceError(
                    f"{path or type(self.model).__name__} cannot be followed: {why}",
                    path,
                    why,
                )

    def _drafted(self, chooser: FallbackChooser, training: bool) -> tuple[Draft, bool]:
        """Return the draft, and whether `training` was read."""
        copied = on_meta(self.model)
        try:
            flag = set_mode(copied, training)
        except Exception as error:
            raise TraceError(
                f"{type(copied).__name__}.train() raises {words_of(error)}", ""
            ) from error
        tracer = Tracer(self.is_catalog_layer, self._cancelled)
        tracer.apart, tracer.loose = chooser.apart, chooser.loose
        frame = tracer.follow(copied, *self.examples, original=self.model)
        drafter = Drafter(tracer, self.model, self.catalog, chooser.own)
        draft, self.catalog = drafter.draft(frame), drafter.catalog
        numbers_once(draft)
        self._check_tensors(draft)
        named = zip(frame.inputs, frame.names, strict=True)
        changed = [
            name
            for input_node, name in named
            if tracer.latest(input_node) is not input_node
        ]
        for remark in (
            *remarks.of_arguments(self.model, *self.examples),
            *tracer.report.sentences(self._shapes()),
            *remarks.of_results(self.model, frame.outputs, changed),
        ):
            self.remarks.setdefault(remark)
        return draft, flag.asked

    def _shapes(self) -> str:
        """Format the shapes of the example inputs."""
        tensors = (
            leaf
            for leaf in tree_flatten(self.examples)[0]
            if isinstance(leaf, torch.Tensor)
        )
        return ", ".join(shape_text(tensor.shape) for tensor in tensors)

    def _check_tensors(self, draft: Draft) -> None:
        """Raise TraceError if a tensor, or a part of a block, would be drawn next to the one that owns it."""
        for violation, why in (
            (called_past(draft), "another module calls a part of it"),
            (read_past(draft), "another module reads a tensor of {}"),
        ):
            if violation is not None:
                path, layer = violation
                reason = why.format(path)
                raise TraceError(
                    f"{path} cannot be followed: {reason}",
                    path if layer else parent(path),
                    reason,
                    layer,
                )


def _laid(block: Block) -> Block:
    positions, comments = with_uncalled(
        block.graph, arrange(used_part(block.graph), {}), {}
    )
    return replace(block, positions=positions, comments=comments)


def _on_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


# --- Numbers, one node each


def numbers_once(root: Draft) -> None:
    """Merge nodes that compute the same number, on every sheet."""
    for draft in drafts_in(root):
        _once(draft, draft.numbers)


def _once(draft: Draft, numbers: set[str]) -> None:
    into: dict[str, list[tuple[str, int, str, int]]] = {}
    for source, output, target, port, index in draft.wires:
        into.setdefault(target, []).append((source, output, port, index))
    first_ids: dict[Any, str] = {}
    same: dict[str, str] = {}
    for (
        node
    ) in draft.nodes.values():  # in topological order, so inputs were visited already
        if node.id in numbers:
            feeds = sorted(
                (port, index, same.get(source, source), output)
                for source, output, port, index in into.get(node.id, ())
            )
            key = node.op, repr(sorted(node.params.items())), tuple(feeds)
            if first_ids.setdefault(key, node.id) != node.id:
                same[node.id] = first_ids[key]
    if same:
        draft.nodes = {
            key: node for key, node in draft.nodes.items() if key not in same
        }
        draft.wires = [
            (same.get(source, source), output, target, port, index)
            for source, output, target, port, index in draft.wires
            if target not in same
        ]


# --- A model that is one node


def draw_as_one_node(
    model: nn.Module, spec: OpSpec, params: dict[str, Any], examples: tuple[Any, Any]
) -> Draft:
    """Draw a model as one node with its inputs and outputs. Raises DraftError."""
    args, kwargs = examples
    draft = Draft("", type(model).__name__)
    model_node = draft.add(spec.key, WHOLE, params)
    names = [port_name(spec, name) for name in argument_names(model)]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise DraftError(
                f"{draft.kind} is called with a {type(value).__name__}, which an input cannot be"
            )
        shape: dict[str, Any] = {"shape": tuple(value.shape[1:])}
        if value.dtype != torch.float32:
            shape["dtype"] = DType(str(value.dtype).removeprefix("torch."))
        node = draft.add("input", name, shape)
        draft.inputs.append(node.id)
        draft.wires.append((node.id, 0, model_node.id, name, 0))
    returned = run_alone(model, args, kwargs)
    leaves = tree_flatten(plain(returned))[0]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    closed = is_record(returned) and not is_generated(spec)
    if closed or not tensors or len(tensors) != len(spec.outputs):
        raise DraftError(
            f"{draft.kind} returns a {type(returned).__name__}, which an output cannot be"
        )
    for output in range(len(tensors)):
        node = draft.add(
            "output", f"output{output + 1}" if len(tensors) > 1 else "output", {}
        )
        draft.wires.append((model_node.id, output, node.id, "input", 0))
        draft.outputs.append(node.id)
    return draft
