"""Records of tracing: a frame for each module that was entered, the paths of modules, and the errors."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten

from app.builder.catalog.catalog import OpSpec
from app.features.importing.compute.tracing.source_lines import SourceLine
from app.util import module_tree
from app.util.errors import CodedError
from app.util.formatting import shape_text
from app.util.module_tree import inside

_raised = threading.local()


class TraceError(CodedError, RuntimeError):
    """Raised for a module that cannot be traced. `path` is the module's path, `why` the bare reason. With `inline` it
    can be drawn as a part of the sheet that contains it. `code` identifies causes that have another cure."""

    code = "not_followed"

    def __init__(
        self, message: str, path: str | None = None, why: str = "", inline: bool = False
    ) -> None:
        super().__init__(message)
        self.path, self.why, self.inline = path, why or message, inline
        self.source_line: SourceLine | None = None
        getattr(_raised, "errors", []).append(self)


@contextlib.contextmanager
def none_swallowed() -> Iterator[None]:
    """Re-raise a TraceError of this thread that the model's code caught."""
    before, _raised.errors = getattr(_raised, "errors", []), []
    try:
        yield
        if _raised.errors:
            raise _raised.errors[0]
    finally:
        _raised.errors = before


class DataDependentError(TraceError):
    """Control flow or shapes depend on the values of the data; `message` say where and how."""

    def __init__(self, message: str) -> None:
        super().__init__(message, None, VALUES)


class InputNotAcceptedError(TraceError):
    """A model that does not run with its example inputs."""


class Apart(Struct):
    """An opaque node of one submodule, of `spec` with `params`; `real` is the module with its values. `record` is what
    it last returned, if that is more than tensors: the node gives the tensors in it."""

    real: nn.Module
    spec: OpSpec
    params: dict[str, Any] = {}
    record: Any = None


class Frame(Struct):
    """The trace of one module call. `path` is the module's qualified name.

    `inputs` are the placeholders, in the order of the leaves of the arguments; `inner` has the frame of every call of a
    submodule that was entered, by the node that stands for the call. `given` and `result` are the tree structures of
    arguments and results. `extra` are outputs, by number, that are inputs after an in-place change, with the node
    outside for each. `recorded` tells whether gradients were enabled.
    """

    path: str
    module: nn.Module
    graph: fx.Graph
    inputs: list[fx.Node] = []
    names: list[str] = []
    inner: dict[fx.Node, Frame] = {}
    outer: dict[fx.Node, fx.Node] = {}
    outputs: list[Any] = []
    structure: Any = None
    extra: dict[int, fx.Node] = {}
    recorded: bool = True


COMPILED = "it is compiled by torch.jit, so its Python code is not available"
RECURSIVE = "it calls itself recursively"
VARYING = "it does not do the same at every call"  # as f(x, 0.5) after f(x, 1.0)
VALUES = "what it does depends on the values of the data"
DEPENDS = "cannot be followed: " + VALUES + ", and a network's graph is fixed"


def first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0].rstrip(".")


def words_of(error: Exception) -> str:
    """Format an error, even if its message cannot be formatted because of a proxy in it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # keep at least the type
        return type(error).__name__


def not_taken(path: str, module: nn.Module, arguments: Any) -> str:
    """Describe a layer and the input shapes that it rejects."""
    shapes = [
        shape_text(leaf.shape, "one number")
        for leaf in tree_flatten(arguments)[0]
        if isinstance(leaf, Tensor)
    ]
    layer = f"{type(module).__name__}({module.extra_repr()})"
    return f"{path}, {layer}, does not accept its input ({', '.join(shapes)})"


def leaf_names(module: nn.Module, args: Any, kwargs: Any) -> list[str]:
    """Name each leaf of the arguments: after its argument, numbered if there are several."""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(type(module).forward).parameters.values())[
            1:
        ]
    except (TypeError, ValueError):
        parameters = []
    plain = [
        p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    spread = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    for number, value in enumerate(args):
        name = plain[number] if number < len(plain) else f"{spread}{number}"
        names += _numbered(name, len(tree_flatten(value)[0]))
    for name, value in kwargs.items():
        names += _numbered(name, len(tree_flatten(value)[0]))
    return names


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}{number}" for number in range(count)]


class QualifiedNames:
    """Paths of modules and tensors. `original` is the model that was copied: closures may still refer to it."""

    def __init__(self, model: nn.Module, original: nn.Module | None) -> None:
        self._paths: dict[nn.Module, list[str]] = {}
        self._owned: dict[int, list[str]] = {}
        for name, module in module_tree.named_modules(model, remove_duplicate=False):
            self._paths.setdefault(module, []).append(name)
        self._own(model)
        self._twins: dict[nn.Module, nn.Module] = {}
        self._copies: dict[int, torch.Tensor] = {}
        if original is not None:
            self._own(original)
            there = dict(module_tree.named_modules(model, remove_duplicate=False))
            self._twins = {
                twin: there[name]
                for name, twin in module_tree.named_modules(
                    original, remove_duplicate=False
                )
            }
            mine = dict(_tensors(model))
            self._copies = {
                id(tensor): mine[name] for name, tensor in _tensors(original)
            }

    def _own(self, model: nn.Module) -> None:
        for name, tensor in _tensors(model):
            self._owned.setdefault(id(tensor), []).append(name)

    def in_the_copy(self, module: nn.Module) -> nn.Module:
        """Map a module of the original to its copy; return others unchanged."""
        return self._twins.get(module, module)

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Map a tensor of the original to its copy; return others unchanged."""
        return self._copies.get(id(tensor), tensor)

    def of_module(self, module: nn.Module, running: str) -> str | None:
        """Return the path of a module, preferably inside the running one; None without."""
        return _nearest(self._paths.get(module), running)

    def of_tensor(self, tensor: torch.Tensor, running: str) -> str | None:
        """Return the path of a tensor likewise."""
        return _nearest(self._owned.get(id(tensor)), running)

    def has(self, value: Any) -> bool:
        """Return whether a tensor belongs to the model."""
        return id(value) in self._owned


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module_tree.named_parameters(model, remove_duplicate=False)
    yield from module_tree.named_buffers(model, remove_duplicate=False)


def _nearest(names: list[str] | None, running: str) -> str | None:
    if not names or len(names) == 1:
        return names[0] if names else None
    return next((name for name in names if inside(name, running)), names[0])
