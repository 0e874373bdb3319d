"""A snippet as a batch that can be run again, for the diagnostics.

What comes before its first operation that autograd records is run once, and its leaf tensors and modules are the
parameters; the rest up to its first backward pass is the forward pass.
"""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.utils._pytree import tree_leaves

from app.autograd.batch import TrainingBatch
from app.autograd.errors import CaptureError
from app.features.snippets.compute.names import ScopeNames
from app.features.snippets.compute.snippet_tape import BACKWARD, BETWEEN, SnippetSource
from app.util import module_tree, rng
from app.util.torch_calls import FunctionCalls

CHECKS = ("gradcheck", "gradgradcheck")
Execute = Callable[[ast.Module, str, dict[str, Any]], None]

NOTHING = (
    "No tensor of the snippet requires a gradient before the first operation that is recorded, so there is no "
    "parameter to look at: make the leaf tensors and modules first, each with a name."
)


class _Reached(BaseException):
    """A backward pass would begin at these tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.tensors = tuple(tensors)


def _without_backward(func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
    """Raise `_Reached` in place of a backward pass. A pass of gradcheck runs: its graph is separate."""
    if func in BACKWARD and not _of_a_check(frame):
        tensors = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
        raise _Reached(
            [leaf for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor)]
        )
    return func(*args, **kwargs)


def _of_a_check(frame: FrameType | None) -> bool:
    """Return whether torch's gradcheck starts the pass that begins at this frame."""
    while frame is not None and frame.f_code.co_filename in BETWEEN:
        frame = frame.f_back
    return (
        frame is not None and frame.f_code.co_filename == gradcheck.__code__.co_filename
    )


def _calls_check(statement: ast.stmt) -> bool:
    """Return whether a statement calls gradcheck.

    >>> _calls_check(ast.parse("assert torch.autograd.gradcheck(f, x)").body[0])
    True
    """
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(
        getattr(func, "attr", getattr(func, "id", "")) in CHECKS for func in calls
    )


class _Text(Struct):
    """The statements of a snippet, and how they are run. `last` is the name of a last expression's value."""

    statements: list[ast.stmt]
    filename: str
    execute: Execute
    last: str
    given: frozenset[str]
    scope: dict[str, Any] = {}

    def run(self, statements: list[ast.stmt]) -> None:
        with FunctionCalls(_without_backward):
            self.execute(ast.Module(statements, []), self.filename, self.scope)

    def names(self) -> ScopeNames:
        names = ScopeNames()
        names.add(
            {
                name: value
                for name, value in self.scope.items()
                if name not in self.given
            }
        )
        return names

    def _graphs(self) -> bool:
        """Return whether a named tensor was computed by an operation that autograd recorded."""
        return any(
            tensor.grad_fn is not None for tensor in self.names().tensors.values()
        )

    def begins(self) -> int:
        """Return the number of the first statement that autograd records, or that fails.

        A gradient check records nothing that stays.
        """
        node_counter = torch._C._autograd._get_sequence_nr  # counts the nodes of graphs
        for number, statement in enumerate(self.statements):
            before = node_counter()
            try:
                self.run([statement])
            except BaseException:  # a snippet may call exit(), too
                return number
            if node_counter() != before and not (
                _calls_check(statement) and not self._graphs()
            ):
                return number
        return len(self.statements)


@contextlib.contextmanager
def suppress_exit() -> Iterator[None]:
    """Take an exit with success as the end of the snippet."""
    try:
        yield
    except SystemExit as ended:
        if ended.code:
            raise


class SnippetModule(nn.Module):
    """The forward pass of a snippet: called, it returns the tensors that its first backward pass would begin at, or
    else its result."""

    def __init__(self, text: _Text, forward: list[ast.stmt]) -> None:
        super().__init__()
        self._text, self._forward = text, forward
        names = text.names()
        for name, module in names.modules.items():
            if all(module is not child for child in self.children()):
                self._modules[name] = module
        parameter_ids = {id(parameter) for parameter in self.parameters()}
        for name, tensor in names.tensors.items():
            if (
                tensor.is_leaf
                and tensor.requires_grad
                and id(tensor) not in parameter_ids
            ):
                parameter_ids.add(id(tensor))
                self._parameters[name] = tensor  # type: ignore[assignment]  # any leaf has a .grad

    def forward(self) -> Any:
        text, before = self._text, dict(self._text.scope)
        try:
            with suppress_exit():
                text.run(self._forward)
            return self._result()
        except _Reached as reached:
            return reached.tensors
        finally:
            text.scope.clear()
            text.scope.update(before)

    def _result(self) -> Any:
        """Return the last expression's value or `loss`, or else the tensor that was computed last."""
        tensors = self._text.names().tensors
        for name in (self._text.last, "loss"):
            if (
                named_tensor := tensors.get(name)
            ) is not None and named_tensor.requires_grad:
                return named_tensor
        computed = [tensor for tensor in tensors.values() if tensor.grad_fn is not None]
        computed.sort(
            key=lambda tensor: (
                tensor.grad_fn._sequence_nr() if tensor.grad_fn is not None else -1
            )
        )
        return computed[-1] if computed else torch.zeros(())

    def train(self, mode: bool = True) -> SnippetModule:
        """Leave its modules in the modes that the snippet gave them."""
        return self


SnippetModule.__name__ = "Snippet"  # as findings call it


def batch_of(
    tree: ast.Module,
    source: SnippetSource,
    execute: Execute,
    fresh: Callable[[], types.ModuleType],
    last: str,
    seed: int,
) -> TrainingBatch:
    """Run the beginning of a snippet and return its rest as a batch. `fresh()` makes the module that it runs in.

    Raises CaptureError if there is nothing to diagnose.
    """
    text = _Text(
        tree.body,
        source.filename,
        execute,
        last,
        frozenset(vars(fresh())),
        vars(fresh()),
    )
    torch.manual_seed(seed)
    begins = text.begins()
    text.scope = vars(fresh())
    torch.manual_seed(seed)
    text.run(tree.body[:begins])
    module = SnippetModule(text, tree.body[begins:])
    if next(module_tree.parameters(module), None) is None:
        raise CaptureError(NOTHING)
    return TrainingBatch(module, (), source=source, seed=rng.Generators())
