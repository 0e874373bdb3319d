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


class FunctionCalls(TorchFunctionMode):
    """A context in which each call of a function, method or operator of torch on this thread goes to `visit`.

    What `visit` calls does not come to it again.
    """

    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self._visit = visit

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._visit(func, args, kwargs or {}, sys._getframe(1))


class KernelCalls(TorchDispatchMode):
    """A context in which each operation that torch dispatches on this thread, in backward passes too, goes to `visit`.

    What `visit` calls does not come to it again.
    """

    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self._visit = visit

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._visit(func, args, kwargs or {}, sys._getframe(1))
