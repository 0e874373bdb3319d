"""Seeing, and changing, what is called of torch: public functions, and the kernels below them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Takes function, arguments, keyword arguments and the frame of the caller; makes the call, and returns its result.
Visit = Callable[[Any, Any, dict[str, Any], FrameType], Any]


def plain_call(func: Any, args: Any, kwargs: dict[str, Any], _frame: FrameType) -> Any:
    """Make a call as it is."""
    return func(*args, **kwargs)


class FunctionCalls(TorchFunctionMode):
    """A context in which each call of a function, method or operator of torch on this thread goes to a visitor.

    What the visitor calls does not come to it again. A subclass may be its own visitor, and override `visit`.
    """

    def __init__(self, visitor: Visit = plain_call) -> None:
        super().__init__()
        self._visitor = visitor

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.visit(func, args, kwargs or {}, sys._getframe(1))

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Make a call, `frame` being that of the caller, and return its result."""
        return self._visitor(func, args, kwargs, frame)


class KernelCalls(TorchDispatchMode):
    """A context in which each operation that torch dispatches on this thread, backward ones too, goes to a visitor.

    What the visitor calls does not come to it again. A subclass may be its own visitor, and override `visit`.
    """

    def __init__(self, visitor: Visit = plain_call) -> None:
        super().__init__()
        self._visitor = visitor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.visit(func, args, kwargs or {}, sys._getframe(1))

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Run an operation, `frame` being that of the caller, and return its result."""
        return self._visitor(func, args, kwargs, frame)
