"""Fallbacks for submodules that fx cannot trace: torch.export, an opaque node, then the enclosing module."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from app.builder.importer.fallback_report import (
    EXPORTED,
    OPAQUE,
    Fallback,
    inside,
    parent,
)
from app.builder.importer.lowering.binding import BindingError
from app.builder.importer.lowering.constructor_args import CONSTRUCTOR_ARGS
from app.builder.importer.lowering.ir import DraftError
from app.builder.importer.lowering.normed_layers import statements
from app.builder.importer.lowering.opaque import OwnClasses
from app.builder.importer.torch_export import (
    PATIENCE,
    NotExportedError,
    Replay,
    exported,
)
from app.builder.importer.tracing import source_lines
from app.builder.importer.tracing.frames import (
    Apart,
    DataDependentError,
    InputNotAcceptedError,
    TraceError,
    VaryingCallsError,
    words_of,
)
from app.builder.importer.tracing.real_evaluation import run_alone
from app.builder.importer.tracing.source_lines import SourceLine
from app.util import module_tree

Called = tuple[Any, Any]


class ReadPastError(TraceError):
    """A submodule that is called while another reads a tensor of it, or calls a part of it. `layer` says that it can be
    part of the sheet that contains it: a layer of the catalog, or a block."""

    layer = False


class FallbackChooser:
    """The untraced submodules of one model, by path. `own` makes opaque nodes of them, if given; `whole` tells layers
    of the catalog."""

    def __init__(
        self,
        model: nn.Module,
        own: OwnClasses | None,
        examples: Called,
        whole: Callable[[nn.Module], bool],
        cancelled: Callable[[], bool],
    ) -> None:
        self._model, self.own, self._examples, self._whole = model, own, examples, whole
        self.cancelled = cancelled
        tensors = (
            leaf
            for leaf in tree_flatten(examples)[0]
            if isinstance(leaf, torch.Tensor) and leaf.dim()
        )
        self._batch = next((tensor.shape[0] for tensor in tensors), 0)
        self.apart: dict[str, Apart] = {}
        self.loose: set[str] = set()
        self.accepted: set[str] = set()  # doubts that no fallback resolves
        self._fallbacks: dict[str, Fallback] = {}
        self._results: dict[
            str, Any
        ] = {}  # by path: what each module returned when the model was run
        self._tried: dict[str, int] = {}
        self._spent = 0.0  # seconds for exports
        self._replays: dict[Any, Replay | None] = {}

    def covers(self, path: str) -> bool:
        """Return whether a submodule lies inside an untraced one."""
        return any(inside(path, outer) for outer in self.apart)

    def hides(self, path: str) -> bool:
        """Return whether a submodule is, or lies inside, one node."""
        return any(
            entry.spec is not None and inside(path, outer)
            for outer, entry in self.apart.items()
        )

    def fallbacks(self) -> tuple[Fallback, ...]:
        """List the fallbacks in the order of the model."""
        modules = module_tree.named_modules(self._model, remove_duplicate=False)
        order = {path: number for number, (path, _) in enumerate(modules)}
        return tuple(
            sorted(self._fallbacks.values(), key=lambda fallback: order[fallback.path])
        )

    def add_fallback(
        self, error: TraceError | DraftError, arrived: dict[str, Called]
    ) -> None:
        """Add a fallback that avoids the error next time. Raises the error if none is left."""
        path = error.path or ""
        self._check_it_runs(error)
        first = self._fallbacks.get(path)
        forward = type(module_tree.submodule(self._model, path))
        source_location = (
            error.place
            or source_lines.of_error(error)
            or source_lines.of_forward(forward)
        )
        needs_inlining = isinstance(error, VaryingCallsError) or (
            isinstance(error, ReadPastError) and error.layer
        )
        if needs_inlining and path and path not in self.loose:
            self.loose.add(path)
            return
        if first is not None:
            source_location = first.place
        if getattr(error, "exportable", True) and self._exported(
            path, error, source_location, arrived.get(path)
        ):
            return
        reason = self._node_around(
            path, first.reason if first is not None else error.why, source_location
        )
        doubt = getattr(error, "doubt", "")
        if reason is not None and doubt and doubt not in self.accepted:
            self.accepted.add(doubt)
        elif reason is not None:
            reason = (
                f"; and it cannot become one node: {reason}"
                if reason and self.own is not None
                else ""
            )
            error.args = (f"{error}{reason}",)
            raise error

    def set_apart(self, path: str, why: str) -> None:
        """Make a submodule one node, or the next one around it that can be. Raises TraceError if none can."""
        reason = self._node_around(
            path,
            why,
            source_lines.of_forward(type(module_tree.submodule(self._model, path))),
        )
        if reason is not None:
            reason = (
                f"it cannot become one node: {reason}"
                if reason
                else "it is inside a module that is one node already"
            )
            raise TraceError(reason, path, why, False)

    def _node_around(
        self, path: str, why: str, source_location: SourceLine | None
    ) -> str | None:
        """Make a submodule one node, else the next one around it; None if one could be, else why the first cannot."""
        first_reason = ""
        for outer in _upwards(path):
            module = module_tree.submodule(self._model, outer)
            entry = self.apart.get(outer)
            if entry is not None and entry.spec is not None:
                continue  # opaque already and still failing: try the enclosing module
            try:
                self._one_node(outer, module, why, source_location)
            except BindingError as reason:
                first_reason = first_reason or str(reason)
            else:
                return None
        return first_reason

    def _check_it_runs(self, error: TraceError | DraftError) -> None:
        """Raise the model's own error if it does not run with these inputs."""
        if self._results:
            return
        try:
            run_alone(self._model, *self._examples, self._results)
        except Exception as wrong:
            if (
                error.code == DataDependentError.code
            ):  # tracing stopped before the model's own error
                name = type(self._model).__name__
                raise InputNotAcceptedError(
                    f"{name} does not accept its input: {words_of(wrong)}", ""
                ) from wrong
            raise error from None  # the trace error names the source line

    def _result_of(self, path: str) -> Any:
        """Return what a module returned when the model was run; None if it was not called."""
        if not self._results:
            with contextlib.suppress(
                Exception
            ):  # its own error is reported where the node is run
                run_alone(self._model, *self._examples, self._results)
        return self._results.get(path)

    # --- Fallbacks

    def _exported(
        self,
        path: str,
        error: TraceError | DraftError,
        source_location: SourceLine | None,
        called: Called | None,
    ) -> bool:
        """Let `torch.export` follow it, in its own functions first and then in smaller ones; whether that can be."""
        module = module_tree.submodule(self._model, path)
        entry = self.apart.get(path)
        if (
            called is None
            or (entry is not None and entry.spec is not None)
            or self.cancelled()
        ):
            return False
        if self._spent > PATIENCE:
            return False  # the user's file has a time limit too, and an opaque node is immediate
        if (
            self.own is None
            and threading.current_thread() is not threading.main_thread()
        ):
            return False  # torch.export patches nn.Module globally, and a run may be in progress
        tried = self._tried.get(path, 0)
        for smaller in (False, True)[tried:]:
            self._tried[path] = tried = tried + 1
            replay = self._replay(module, called, smaller)
            if replay is not None:
                why = (
                    self._fallbacks[path].reason
                    if path in self._fallbacks
                    else error.why
                )
                fallback = Fallback(
                    path, module_tree.class_name(module), EXPORTED, why, source_location
                )
                self._set(path, Apart(module, replay=replay), fallback)
                return True
        self.apart.pop(path, None)
        self._fallbacks.pop(path, None)
        return False

    def _replay(
        self, module: nn.Module, called: Called, smaller: bool
    ) -> Replay | None:
        """Return the cached export of a module; identical modules share one."""
        shapes = [
            (tuple(leaf.shape), leaf.dtype)
            if isinstance(leaf, torch.Tensor)
            else repr(leaf)
            for leaf in tree_flatten(called)[0]
        ]
        key = (
            type(module),
            repr(module),
            repr(module.__dict__.get(CONSTRUCTOR_ARGS)),
            repr(shapes),
            smaller,
        )
        if key not in self._replays:
            began = time.monotonic()
            try:
                self._replays[key] = exported(
                    module, *called, self._whole, smaller, self._batch
                )
            except NotExportedError:
                self._replays[key] = None
            self._spent += time.monotonic() - began
        return self._replays[key]

    def _one_node(
        self, path: str, module: nn.Module, why: str, source_location: SourceLine | None
    ) -> None:
        """Make it one node, and with it every other that is the same. Raises BindingError."""
        if self.own is None:
            raise BindingError(
                f"{type(module).__name__} is not defined in a custom layer file"
            )
        spec, params = self.own.stand_in(module, self._result_of(path))
        self._set(
            path,
            Apart(module, spec, params),
            Fallback(
                path, module_tree.class_name(module), OPAQUE, why, source_location
            ),
        )
        for other, twin in module_tree.named_modules(self._model):
            alike = type(twin) is type(module) and twin.__dict__.get(
                CONSTRUCTOR_ARGS
            ) == module.__dict__.get(CONSTRUCTOR_ARGS)
            if (
                alike
                and statements(twin) == statements(module)
                and not self.covers(other)
            ):
                self._one_twin(other, twin, why, source_location)

    def _one_twin(
        self, path: str, module: nn.Module, why: str, source_location: SourceLine | None
    ) -> None:
        assert self.own is not None
        try:
            spec, params = self.own.stand_in(module, self._result_of(path))
        except (
            BindingError
        ):  # it was changed since; whether it can be followed is seen by following it
            return
        self._set(
            path,
            Apart(module, spec, params),
            Fallback(
                path, module_tree.class_name(module), OPAQUE, why, source_location
            ),
        )

    def _set(self, path: str, apart: Apart, fallback: Fallback) -> None:
        for inner in [
            other_path for other_path in self.apart if inside(other_path, path)
        ]:
            del self.apart[inner]
            self._fallbacks.pop(inner, None)
        self.apart[path], self._fallbacks[path] = apart, fallback


def _upwards(path: str) -> list[str]:
    """List the paths of a module and its enclosing ones, the whole model last."""
    paths = [path]
    while paths[-1]:
        paths.append(parent(paths[-1]))
    return paths
