"""Fallback for submodules that `torch.export` can trace and fx cannot: replay of the exported calls.

The replay replaces `forward`, so that tracing sees torch functions only. It is first compared with the module
numerically.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from msgspec import Struct
from torch import fx, nn
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from app.builder.importer.aten_names import FLAGGED, KEPT, UnknownAtenOpError, form_of
from app.builder.importer.tracing.dispatch_patches import as_followed
from app.builder.importer.tracing.frames import TraceError
from app.builder.importer.tracing.proxies import PROXIES
from app.builder.importer.tracing.real_evaluation import SEED, real_like
from app.util import module_tree
from app.util.errors import CodedError

PATIENCE = 30.0  # seconds for one export
Whole = Callable[[nn.Module], bool]


class NotExportedError(CodedError, ValueError):
    """A module that cannot be exported into supported calls; the message says why."""


class _Folded(Struct, frozen=True):
    """A group of exported calls that is one torch layer, with its input and output."""

    path: str
    taken: fx.Node
    given: fx.Node


class Replay:
    """The calls of an exported program, for any module that is like the exported one."""

    def __init__(self, program: Any, module: nn.Module, whole: Whole) -> None:
        self._program, self._nodes = program, list(program.graph.nodes)
        self._inputs = {
            spec.arg.name: spec for spec in program.graph_signature.input_specs
        }
        self._outputs, self._paths = (
            _user_outputs(program),
            {path for path, _ in module_tree.named_modules(module)},
        )
        self._needed = self._found_needed()
        self._folded = {
            group[0]: layer
            for group in self._groups()
            if (layer := self._layer(group, module, whole))
        }
        self._skipped = {
            node
            for group in self._groups()
            if group[0] in self._folded
            for node in group
        }
        self.follows_mode = True
        self._forms = {
            node: self._form(node) for node in self._nodes if self._calls(node)
        }

    def __call__(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Run the replay: the same calls on the module's own tensors."""
        leaves, env = iter(tree_flatten((args, kwargs))[0]), dict[fx.Node, Any]()
        for node in self._nodes:
            if node.op == "placeholder":
                env[node] = self._input(node, module, leaves)
            elif node in self._folded:
                layer = self._folded[node]
                env[layer.given] = module.get_submodule(layer.path)(env[layer.taken])
            elif node in self._forms:
                arguments, named = fx.map_arg(
                    (node.args, node.kwargs), lambda argument: env[argument]
                )
                if self.follows_mode and str(node.target) in FLAGGED:
                    arguments = (*arguments[:2], module.training)
                env[node] = as_followed(self._forms[node])(*arguments, **named)
        spec = self._program.call_spec.out_spec
        return tree_unflatten(
            [
                env[leaf] if isinstance(leaf, fx.Node) else leaf
                for leaf in self._outputs
            ],
            spec,
        )

    # --- Kinds of nodes

    def _input(self, node: fx.Node, module: nn.Module, leaves: Iterator[Any]) -> Any:
        spec = self._inputs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            leaf = next(leaves)
            if not isinstance(spec.arg, ConstantArgument):
                return leaf
            leaf_value = leaf.known if type(leaf) in PROXIES else leaf
            if leaf_value != spec.arg.value and repr(leaf_value) != repr(
                spec.arg.value
            ):  # the other value is in the export
                why = "its export is specialised to one value of an argument, and it is called with others"
                raise TraceError(
                    f"{type(module).__name__} cannot be followed: {why}",
                    None,
                    why,
                    False,
                )
            return spec.arg.value
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return self._program.constants[spec.target]
        owner, _, name = spec.target.rpartition(".")
        return getattr(module.get_submodule(owner), name)

    def _calls(self, node: fx.Node) -> bool:
        return (
            node.op == "call_function"
            and node not in self._skipped
            and node in self._needed
        )

    def _form(self, node: fx.Node) -> Callable[..., Any]:
        try:
            return form_of(node.target)
        except UnknownAtenOpError as error:
            raise NotExportedError(str(error)) from error

    def _found_needed(self) -> set[fx.Node]:
        """Return the nodes that the outputs or in-place changes need."""
        needed = {leaf for leaf in self._outputs if isinstance(leaf, fx.Node)}
        for node in reversed(self._nodes):
            if node in needed or _in_place(node):
                needed.update((node, *node.all_input_nodes))
        return needed

    def _groups(self) -> list[list[fx.Node]]:
        """Group consecutive calls that one module call made."""
        groups: list[list[fx.Node]] = []
        last: Any = None
        for node in (node for node in self._nodes if node.op == "call_function"):
            stack = tuple(node.meta.get("nn_module_stack") or ())
            if last is None or stack != last:
                groups.append([])
            groups[-1].append(node)
            last = stack
        return groups

    def _layer(
        self, group: list[fx.Node], module: nn.Module, layer_filter: Whole
    ) -> _Folded | None:
        """Return the torch layer of a group of calls, if it has one tensor input and output."""
        stack = [
            path
            for path, _ in (group[0].meta.get("nn_module_stack") or {}).values()
            if path in self._paths
        ]
        path = stack[-1] if stack else ""
        inside, outer = set(group), self._needed
        if not path or not layer_filter(module.get_submodule(path)):
            return None
        inputs = {
            node
            for exported_call in group
            for node in exported_call.all_input_nodes
            if node not in inside and self._arrives(node)
        }
        ends = {leaf for leaf in self._outputs if isinstance(leaf, fx.Node)}
        outputs = {
            output_call
            for output_call in group
            if output_call in ends
            or any(user in outer - inside for user in output_call.users)
        }
        return (
            _Folded(path, inputs.pop(), outputs.pop())
            if len(inputs) == 1 and len(outputs) == 1
            else None
        )

    def _arrives(self, node: fx.Node) -> bool:
        """Return whether a node is an input of the call rather than state of the module."""
        return (
            node.op != "placeholder"
            or self._inputs[node.name].kind is InputKind.USER_INPUT
        )

    def check_state(self) -> None:
        """Raise NotExportedError if a buffer is modified, unless a torch layer does it."""
        for node in self._nodes:
            first = node.args[0] if node.args else None
            state_argument = (
                isinstance(first, fx.Node)
                and first.op == "placeholder"
                and not self._arrives(first)
            )
            if state_argument and _in_place(node) and node not in self._skipped:
                raise NotExportedError(f"it changes {self._inputs[first.name].target}")  # type: ignore[union-attr]
        for spec in self._program.graph_signature.output_specs:
            new_state = next(
                (node for node in self._nodes if node.name == spec.arg.name), None
            )
            if (
                spec.kind is OutputKind.BUFFER_MUTATION
                and new_state not in self._skipped
            ):
                raise NotExportedError(f"it changes its buffer {spec.target}")


def _in_place(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(
        schema is not None and schema.is_mutable and schema.name != "aten::detach_"
    )


def _user_outputs(program: Any) -> list[Any]:
    """List the returned nodes, and the values of other results."""
    nodes = {node.name: node for node in program.graph.nodes}
    specs = [
        spec
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    return [
        spec.arg.value
        if isinstance(spec.arg, ConstantArgument)
        else nodes[spec.arg.name]
        for spec in specs
    ]


# --- Exporting


def exported(
    module: nn.Module,
    args: Any,
    kwargs: Any,
    layer_filter: Whole,
    smaller: bool,
    batch: int = 0,
) -> Replay:
    """Export a module called with tensors like these. With `smaller`, decomposed to core ATen ops.

    Tensors whose first size is `batch` may have other first sizes, if the module supports them. Raises
    NotExportedError, also if outputs or gradients of the exported program differ.
    """
    real, named = tree_map(real_like, (_two_samples(args), _two_samples(kwargs)))
    others = tree_map(real_like, _other_batch((args, kwargs), batch))
    try:
        with _quiet(), _limited():
            replay = _program(module, real, named, layer_filter, smaller)
    except NotExportedError:
        raise
    except Exception as error:  # any failure of export is the reason
        raise NotExportedError(_first_line(error)) from error
    replay.check_state()
    for follows in (True, False):  # dropout follows the mode, or is always active
        replay.follows_mode = follows
        try:
            if _equals_module(replay, module, real, named):
                _check_batch(replay, module, *others)
                return replay
        except NotExportedError:
            raise
        except Exception as error:  # whatever it is, the two were not found equal
            raise NotExportedError(_first_line(error)) from error
    raise NotExportedError(
        "its torch.export graph gives different outputs or gradients"
    )


def _program(
    module: nn.Module, args: Any, kwargs: Any, layer_filter: Whole, smaller: bool
) -> Replay:
    tried = module_tree.copied(module).train()
    bound = (
        inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments
    )
    _, *arguments = bound.items()
    shapes = {name: tree_map(_free, value) for name, value in arguments}
    program = torch.export.export(tried, args, kwargs, dynamic_shapes=shapes)
    if smaller:
        operator_count = len(
            torch._C._dispatch_get_registrations_for_dispatch_key(
                "CompositeImplicitAutograd"
            )
        )
        program = program.run_decompositions(dict(_decompositions(operator_count)))
    return Replay(program, tried, layer_filter)


@lru_cache(maxsize=1)
def _decompositions(_known: int) -> dict[Any, Any]:
    """Return the decompositions of composite operators; a search through all of them, except the `known`, is slow."""
    return {
        op: way
        for op, way in torch.export.default_decompositions().items()
        if str(op) not in KEPT
    }


def _free(value: Any) -> Any:
    """Mark the batch dimension as dynamic."""
    return (
        {0: torch.export.Dim.AUTO}
        if isinstance(value, torch.Tensor) and value.dim()
        else None
    )


def _two_samples(arguments: Any) -> Any:
    """Repeat single-sample tensors to two samples: export specialises sizes of one."""

    def two(value: Any) -> Any:
        single = isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == 1
        return value.expand(2, *value.shape[1:]).contiguous() if single else value

    return tree_map(two, arguments)


def _other_batch(arguments: Any, batch: int) -> Any:
    def other(value: Any) -> Any:
        grows = (
            isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch
        )
        return value.new_empty((batch + 2, *value.shape[1:])) if grows else value

    return tree_map(other, arguments)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress export's log output and warnings, which address its developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise NotExportedError after PATIENCE seconds, where this system and thread support timers."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def late(*_: Any) -> None:
        raise NotExportedError(f"torch.export did not finish within {PATIENCE:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__


# --- Whether it is the same


def _equals_module(replay: Replay, module: nn.Module, args: Any, kwargs: Any) -> bool:
    """Return whether outputs, gradients and buffers are equal, in both modes."""
    for mode in (True, False):
        theirs, mine = (
            _numbers(call, module, args, kwargs, mode) for call in (None, replay)
        )
        if len(theirs) != len(mine) or not all(map(_close, theirs, mine)):
            return False
    return True


def _check_batch(replay: Replay, module: nn.Module, args: Any, kwargs: Any) -> None:
    """Raise NotExportedError where the module takes these and the export, made for another batch, has other results."""
    try:
        theirs = _numbers(None, module, args, kwargs, False)
    except Exception:  # the module itself does not support that batch size
        return
    try:
        mine = _numbers(replay, module, args, kwargs, False)
        same = len(theirs) == len(mine) and all(map(_close, theirs, mine))
    except Exception:  # it was made for the other batch
        same = False
    if not same:
        raise NotExportedError(
            "its torch.export graph is specialised to one batch size"
        )


def _numbers(
    replay: Replay | None, module: nn.Module, args: Any, kwargs: Any, mode: bool
) -> list[Any]:
    """Compute outputs, gradients and buffers of a copy in double precision."""
    tried = module_tree.copied(module).double().train(mode)
    arguments, named = tree_map(_double, (args, kwargs))
    arriving = [
        leaf
        for leaf in tree_flatten((arguments, named))[0]
        if isinstance(leaf, torch.Tensor)
    ]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(SEED)
        outputs = (
            replay(tried, *arguments, **named)
            if replay is not None
            else tried(*arguments, **named)
        )
        leaves = [
            leaf for leaf in tree_flatten(outputs)[0] if isinstance(leaf, torch.Tensor)
        ]
        learnt = [leaf for leaf in leaves if leaf.requires_grad]
        if learnt:
            torch.stack([leaf.square().mean() for leaf in learnt]).sum().backward()
    return [
        *leaves,
        *(leaf.grad for leaf in arriving),
        *(p.grad for p in module_tree.parameters(tried)),
        *module_tree.buffers(tried),
    ]


def _double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (
        value.double().requires_grad_() if value.is_floating_point() else value.clone()
    )


def _close(first: Any, other: Any) -> bool:
    if first is None or other is None:
        return first is other
    return first.shape == other.shape and torch.allclose(
        first.double(), other.double(), 1e-9, 1e-11, equal_nan=True
    )
