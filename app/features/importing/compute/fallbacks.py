"""Fallback for submodules that fx cannot trace: an opaque node of the module's class, else of its parent's."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec import Struct
from torch import nn

from app.features.importing.compute.lowering.binding import BindingError
from app.features.importing.compute.lowering.constructor_args import CONSTRUCTOR_ARGS
from app.features.importing.compute.lowering.ir import DraftError
from app.features.importing.compute.lowering.normed_layers import statements
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.tracing import source_lines
from app.features.importing.compute.tracing.frames import (
    Apart,
    DataDependentError,
    InputNotAcceptedError,
    TraceError,
    words_of,
)
from app.features.importing.compute.tracing.meta_evaluation import run_alone
from app.features.importing.compute.tracing.source_lines import SourceLine
from app.util import module_tree
from app.util.module_tree import inside, parent

Called = tuple[Any, Any]
LONGEST = 300  # letters of a reason


class Fallback(Struct, frozen=True):
    """A submodule that is one node of its class: its path, class and why it is not traced."""

    path: str
    name: str
    reason: str
    source_line: SourceLine | None = None

    def __str__(self) -> str:
        where = (
            f"{self.path} ({self.name})"
            if self.path
            else f"The whole model ({self.name})"
        )
        reason = " ".join(
            self.reason.split()
        )  # one line, even for a multi-line torch error
        reason = reason if len(reason) <= LONGEST else f"{reason[:LONGEST]}…"
        at_line = f" ({self.source_line})" if self.source_line else ""
        return (
            f"{where} is one node, run by its own code: {reason.rstrip('.')}{at_line}."
        )


class FallbackChooser:
    """The untraced submodules of one model, by path. `own` makes opaque nodes of them, if given."""

    def __init__(
        self, model: nn.Module, own: OwnClasses | None, examples: Called
    ) -> None:
        self._model, self.own, self._examples = model, own, examples
        self.apart: dict[str, Apart] = {}
        self.loose: set[str] = set()
        self._fallbacks: dict[str, Fallback] = {}
        self._results: dict[
            str, Any
        ] = {}  # by path: what each module returned when the model was run

    def hides(self, path: str) -> bool:
        """Return whether a submodule is, or lies inside, one node."""
        return any(inside(path, outer) for outer in self.apart)

    def fallbacks(self) -> tuple[Fallback, ...]:
        """List the fallbacks in the order of the model."""
        modules = module_tree.named_modules(self._model, remove_duplicate=False)
        order = {path: number for number, (path, _) in enumerate(modules)}
        return tuple(
            sorted(self._fallbacks.values(), key=lambda fallback: order[fallback.path])
        )

    def add_fallback(self, error: TraceError | DraftError) -> None:
        """Add a fallback that avoids the error next time. Raises the error if none is left."""
        path = error.path or ""
        self._check_it_runs(error)
        if getattr(error, "inline", False) and path and path not in self.loose:
            self.loose.add(path)
            return
        forward = type(module_tree.submodule(self._model, path))
        source_location = (
            error.source_line
            or source_lines.of_error(error)
            or source_lines.of_forward(forward)
        )
        first = self._fallbacks.get(path)
        why, source_location = (
            (first.reason, first.source_line) if first else (error.why, source_location)
        )
        reason = self._node_around(path, why, source_location)
        if reason is not None:
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
            raise TraceError(reason, path, why)

    def _node_around(
        self, path: str, why: str, source_location: SourceLine | None
    ) -> str | None:
        """Make a submodule one node, else the next one around it; None if one could be, else why the first cannot."""
        first_reason = ""
        for outer in _upwards(path):
            module = module_tree.submodule(self._model, outer)
            if outer in self.apart:
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

    def _one_node(
        self, path: str, module: nn.Module, why: str, source_location: SourceLine | None
    ) -> None:
        """Make it one node, and with it every other that is the same. Raises BindingError."""
        self._set(path, module, why, source_location)
        for other, twin in module_tree.named_modules(self._model):
            alike = type(twin) is type(module) and twin.__dict__.get(
                CONSTRUCTOR_ARGS
            ) == module.__dict__.get(CONSTRUCTOR_ARGS)
            if (
                alike
                and statements(twin) == statements(module)
                and not self.hides(other)
            ):
                # It may have been changed since; whether it can be traced is seen by tracing it.
                with contextlib.suppress(BindingError):
                    self._set(other, twin, why, source_location)

    def _set(
        self, path: str, module: nn.Module, why: str, source_location: SourceLine | None
    ) -> None:
        if self.own is None:
            raise BindingError(
                f"{type(module).__name__} is not defined in a custom layer file"
            )
        spec, params = self.own.stand_in(module, self._result_of(path))
        for inner in [
            other_path for other_path in self.apart if inside(other_path, path)
        ]:
            del self.apart[inner], self._fallbacks[inner]
        self.apart[path] = Apart(module, spec, params)
        self._fallbacks[path] = Fallback(
            path, module_tree.class_name(module), why, source_location
        )


def _upwards(path: str) -> list[str]:
    """List the paths of a module and its enclosing ones, the whole model last."""
    paths = [path]
    while paths[-1]:
        paths.append(parent(paths[-1]))
    return paths
