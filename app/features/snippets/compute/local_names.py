"""Record names of a snippet's local and rebound variables while it runs."""

from __future__ import annotations

import sys
import weakref
from time import perf_counter
from types import FrameType
from typing import Any

from torch import Tensor

from app.autograd.walk import LEAF_SEQUENCE

PATIENCE = 2.0  # seconds that noting may take; names of what comes later are not known
MOST = 3  # names of one result


class LocalNames:
    """A context around a snippet: after each of its lines, the tensors in the variables of its frame are noted.

    Only frames of the code under `filename` are looked into.
    """

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._results: dict[int, list[str]] = {}  # by autograd's counter
        self._leaves: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self._known: dict[
            int, dict[str, tuple[int, int]]
        ] = {}  # frame id -> variable -> `_state` of its value
        self._left = PATIENCE
        self._before: Any = None

    def __enter__(self) -> LocalNames:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.settrace(self._before)
        self._known.clear()

    def of_result(self, node: Any) -> tuple[str, ...]:
        """Return the names that the result of a backward node's operation had."""
        number = node._sequence_nr()
        return tuple(self._results.get(number, ())) if number != LEAF_SEQUENCE else ()

    def of_leaf(self, tensor: Tensor) -> str:
        """Return the first name of a tensor that no operation made, "" if it had none."""
        entry = self._leaves.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else ""

    def _called(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if self._left <= 0:
            sys.settrace(None)
            return None
        return self._ran if frame.f_code.co_filename == self._filename else None

    def _ran(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """A line is about to run, or the frame returns: note what the line before has bound."""
        began = perf_counter()
        states = self._known.setdefault(id(frame), {})
        for name, value in frame.f_locals.items():
            state = _state(value)
            if states.get(name) == state:
                continue
            states[name] = state
            if isinstance(value, Tensor) and name.isidentifier() and name != "_":
                self._note(name, value)
        if event == "return":
            self._known.pop(id(frame), None)
        self._left -= perf_counter() - began
        return self._ran if self._left > 0 else None

    def _note(self, name: str, tensor: Tensor) -> None:
        try:
            node = tensor.grad_fn
        except RuntimeError:  # of a tensor within vmap
            return
        if node is not None:
            names = self._results.setdefault(node._sequence_nr(), [])
            if name not in names and len(names) < MOST:
                names.append(name)
        elif tensor.requires_grad and id(tensor) not in self._leaves:
            self._leaves[id(tensor)] = weakref.ref(tensor), name


def _state(value: Any) -> tuple[int, int]:
    """Return what tells a value from the one that a variable had before: a change in place counts."""
    if isinstance(value, Tensor) and not value.is_inference():
        return id(value), value._version
    return id(value), 0
