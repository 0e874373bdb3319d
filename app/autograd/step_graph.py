"""Describe the graph below what a script calls `backward` on, which the script's own backward uses afterwards."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import _pop_mode, _push_mode
from torch.utils._device import DeviceContext

from app.autograd.capture import record_of, tensors_of, with_leaves_placed
from app.autograd.errors import CaptureError, NoGraphError
from app.autograd.layers import FileRecorder, _line_mode, _sequence
from app.autograd.memory import SavedReader, StorageTable
from app.autograd.playback.direct_call import is_compiled, passes_on
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Tape
from app.autograd.walk import LEAF_SEQUENCE, execution_order, is_accumulate, walk
from app.util import gc_pause, module_tree, user_frames
from app.util.frozen import FrozenMap

# --- Record modules and source lines during the forward pass of a user's script, without changing its results

MOST_LINES = 2_000_000  # operations; a script that computes without a backward is not recorded for ever


class StepRecorder(FileRecorder):
    """Recorded from `begin` to `end`, which may be called again. `models` are those known by name, without the
    `wrappers` around them; `name_of` names others once they are called. Nothing is recorded if `compiled`.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        wrappers: set[int],
        name_of: Callable[[object], str],
        compiled: bool,
    ) -> None:
        super().__init__(None)
        self.models: dict[str, nn.Module] = {}
        self.paths: dict[int, str] = {}  # of modules, by their id
        self.compiled = compiled
        self.known = frozenset(models)
        self._several = len(models) > 1
        self._wrappers, self._name_of = wrappers, name_of
        self._inputs: list[weakref.ref[Tensor]] = []
        self._stack: list[
            str | None
        ] = []  # of the calls under way; None for one that is not recorded
        self._suspended: list[int] = []
        self._warnings = contextlib.ExitStack()
        for name, model in models.items():
            self._add(name, model)

    def _add(self, name: str, model: nn.Module) -> None:
        self.models[name] = model
        for path, module in module_tree.named_modules(model):
            self.paths.setdefault(
                id(module), f"{name}.{path}".strip(".") if self._several else path
            )

    @property
    def whole(self) -> nn.Module:
        """The model, or one that holds all of them by name."""
        if len(self.models) == 1:
            return next(iter(self.models.values()))
        container = nn.Module()
        container._modules.update(self.models)
        return container

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that outermost modules were called with, as far as they are alive."""
        return [
            tensor for reference in self._inputs if (tensor := reference()) is not None
        ]

    # -- while the script runs ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording on this thread."""
        self._thread = threading.get_ident()
        self._warnings.enter_context(user_frames.at_users_lines())
        self._open, self._stack, self._suspended = [], [], []
        if self.compiled:
            return
        self._hooks = [
            register_module_forward_pre_hook(self._called),
            register_module_forward_hook(self._returned, always_call=True),
        ]
        stack = [
            torch._C._get_function_stack_at(index)
            for index in range(torch._C._len_torch_function_stack())
        ]
        if all(
            isinstance(mode, DeviceContext) for mode in stack
        ):  # else a `with` of the script would end ours
            self._mode = _line_mode(self)
            _push_mode(self._mode)

    def end(self) -> None:
        """Record no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._pull()
        self._mode = None
        self._warnings.close()

    def _pull(self) -> bool:
        """Take our mode off torch's stack, wherever it is; return whether it was there."""
        above, removed = [], False
        while (
            self._mode is not None
            and not removed
            and torch._C._len_torch_function_stack()
        ):
            top = _pop_mode()
            removed = top is self._mode
            if not removed:
                above.append(top)
        for mode in reversed(above):
            _push_mode(mode)
        return removed

    def _called(self, module: nn.Module, args: Any) -> None:
        if not self.listening:
            return
        graded = torch.is_grad_enabled()
        path = self._path_of(module) if graded else None
        if not graded and not self._suspended and self._pull():
            self._suspended.append(len(self._stack))
        self._stack.append(path)
        if path is None:
            return
        if not self._open:
            self._inputs += [
                weakref.ref(tensor)
                for tensor in tensors_of(args)
                if not isinstance(tensor, nn.Parameter)
            ]
        self._calls[path] += 1
        self._open.append((_sequence(), path, self._calls[path]))

    def _returned(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self.listening or not self._stack:
            return
        path = self._stack.pop()
        if path is not None:
            super()._after(module, args, output)
        if self._suspended and self._suspended[-1] == len(self._stack):
            self._suspended.pop()
            if self._mode is not None:
                _push_mode(self._mode)
        if len(self._lines) > MOST_LINES:
            self.end()

    def _path_of(self, module: nn.Module) -> str | None:
        """Return the path of a module, also of an unregistered model; None for a loss, or a wrapper."""
        path = self.paths.get(id(module))
        if path is not None or id(module) in self._wrappers or self._stack:
            return path
        if next(module_tree.parameters(module), None) is None:
            return None
        name = self._name_of(module) or type(module).__name__
        several, self._several = self._several, True
        used_names, free, number = {*self.models, *self.paths.values()}, name, 2
        while free in used_names:
            free, number = f"{name}_{number}", number + 1
        self._add(free, module)
        self._several = several
        return self.paths[id(module)]

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def names_of_parameters(self) -> dict[int, tuple[str, ...]]:
        """Return the names of all parameters by id."""
        names: dict[int, tuple[str, ...]] = {}
        for name, parameter in self._named("named_parameters"):
            names[id(parameter)] = (*names.get(id(parameter), ()), name)
        return names

    def buffers(self) -> list[Tensor]:
        return [
            buffer
            for model in self.models.values()
            for buffer in module_tree.buffers(model)
        ]

    def layers(self) -> dict[str, str]:
        """Return the class of each module by its path."""
        return {
            name: type(module).__name__ for name, module in self._named("named_modules")
        }

    def _named(self, kind: str) -> list[tuple[str, Any]]:
        members = []
        for model in self.models.values():
            top = self.paths[id(model)]
            for path, member in getattr(model, kind)(remove_duplicate=False):
                members.append((f"{top}.{path}".strip("."), member))
        return members


class StepGraph:
    """What a backward that is about to run starts from, and all below it. `tensors` and `gradients` are the arguments
    of `backward`; `name_of` names parameters that no model holds. `notes` are sentences shown with it.

    Raises CaptureError for a call that cannot be described.
    """

    def __init__(
        self,
        tensors: Any,
        gradients: Any,
        recorder: StepRecorder,
        name_of: Callable[[Tensor], str],
        notes: Iterable[str] = (),
    ) -> None:
        ends: list[Any] = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if not all(isinstance(tensor, Tensor) for tensor in ends):
            raise CaptureError(
                "backward was called on an edge of the graph instead of a tensor, such as the loss."
            )
        if not any(tensor.requires_grad for tensor in ends):
            raise NoGraphError(
                "backward was called on a tensor that requires no gradient."
            )
        self._ends: list[Tensor] = ends
        self._seeds = _seeds(gradients, len(ends))
        self._whole = recorder.whole
        with gc_pause.put_off():
            self._nodes, edges, roots = walk(ends)
            self.tape = _tape(self._nodes, edges, roots, ends, recorder, name_of)
        self.notes = (*notes, *_notes(self._nodes))

    def hold(self) -> LiveGraph:
        """Return the graph to be played; releasing it frees nothing of the script's."""
        graph = LiveGraph(
            self.tape,
            list(self._nodes),
            list(self._ends),
            self._whole,
            (),
            None,
            lent=True,
        )
        graph.seeds = None if self._seeds is None else list(self._seeds)
        graph.undo = ExitStack()
        return graph


def _notes(nodes: Sequence[Any]) -> Iterator[str]:
    """Say what of the graph is played in another way than the script's own backward runs it."""
    if hooked := sum(map(_is_hooked, nodes)):
        subject = (
            "hook of the script is"
            if hooked == 1
            else f"{hooked} hooks of the script are"
        )
        yield f"{'A' if hooked == 1 else 'The'} {subject} not run while it is played"
    if any(map(is_compiled, nodes)):
        yield "compiled parts are one node each, and have no layers"


def _seeds(gradients: Any, count: int) -> list[Tensor | None] | None:
    if gradients is None:
        return None
    vectors = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    return (
        vectors
        if len(vectors) == count and any(vector is not None for vector in vectors)
        else None
    )


def _tape(
    nodes: list[Any],
    edges: Any,
    roots: tuple[int, ...],
    ends: Sequence[Tensor],
    recorder: StepRecorder,
    name_of: Callable[[Tensor], str],
) -> Tape:
    sequences = [node._sequence_nr() for node in nodes]
    numbers = [number for number in sequences if number != LEAF_SEQUENCE]
    started = min(numbers, default=0)
    inside = [number for number in numbers if recorder.origin(number).call]
    answered = (
        max(inside) + 1 if inside else LEAF_SEQUENCE
    )  # the loss is what comes after the last layer
    order = execution_order(sequences, edges, roots)
    names = recorder.names_of_parameters()
    leaves = [node.variable for node in nodes if is_accumulate(node)]
    names |= {
        id(leaf): (name,)
        for leaf in leaves
        if id(leaf) not in names and (name := name_of(leaf))
    }
    table = StorageTable()
    table.mark((leaf for leaf in leaves if id(leaf) in names), "parameter")
    table.mark(recorder.buffers(), "buffer")
    table.mark(recorder.inputs, "input")
    reader = SavedReader(table)
    records = [
        record_of(index, node, recorder, (started, answered), reader, names)
        for index, node in enumerate(nodes)
    ]
    value = ends[0] if len(ends) == 1 and ends[0].numel() == 1 else None
    return Tape(
        nodes=with_leaves_placed(records, edges, recorder),
        edges=tuple(edges),
        roots=roots,
        order=order,
        storages=table.storages({node: step for step, node in enumerate(order)}),
        loss=float(value.detach()) if value is not None else None,
        train=any(model.training for model in recorder.models.values()),
        input_shapes=tuple(tuple(tensor.shape) for tensor in recorder.inputs),
        layers=FrozenMap(recorder.layers()),
        codes=recorder.codes(records),
    )


def _is_hooked(node: Any) -> bool:
    """Return whether a leaf has hooks of the script's own, or a node carries those of a module. Hooks on
    other nodes cannot be detected without registering one there."""
    return passes_on(node) or (
        is_accumulate(node) and bool(node.variable._backward_hooks)
    )
