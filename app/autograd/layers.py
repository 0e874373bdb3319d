"""Map each backward node to the layer, its call, and the source line that created it.

Every autograd node carries the value of a per-thread counter at its creation. Hooks on the modules and a function mode
on torch's operations record the counter before and after each call, so the innermost interval that contains a node's
number is its origin. The nodes themselves are not modified.
"""

from __future__ import annotations

import linecache
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.source.generated import Source
from app.util import module_tree, user_frames
from app.util.frozen import FrozenMap
from app.util.torch_calls import FunctionCalls

if TYPE_CHECKING:
    from torch import nn

    from app.autograd.tape import TapeNode


class NodeOrigin(Struct, frozen=True):
    """`layer` is a module path, `call` counts that module's calls from 1; `line` is a line of the generated text, or of
    `file`."""

    layer: str = ""
    call: int = 0
    node: str | None = None
    line: int | None = None
    file: str = ""


class _Spans(Struct):
    """Half-open intervals of one depth: they do not overlap and come in rising order."""

    starts: list[int] = []
    ends: list[int] = []
    what: list[tuple[str, int]] = []

    def find(self, number: int) -> tuple[str, int] | None:
        index = bisect_right(self.starts, number) - 1
        return self.what[index] if index >= 0 and number < self.ends[index] else None


class OriginRecorder:
    """A context in which the forward pass of `model` runs; afterwards `origin(sequence_nr)` answers.

    Only the thread that entered the context is recorded, for the counter is one per thread. Calls made while a
    backward pass runs (a checkpoint that recomputes) are left out.
    """

    def __init__(self, model: nn.Module | None, source: Source | None = None) -> None:
        self._names = (
            {module: name for name, module in module_tree.named_modules(model)}
            if model is not None
            else {}
        )
        self._source = source
        self._thread = threading.get_ident()
        self._hooks: list[Any] = []
        self._calls: Counter[str] = Counter()
        self._open: list[tuple[int, str, int]] = []
        self._by_depth: list[_Spans] = []
        self._lines: list[tuple[int, int, tuple[int, ...]]] = []
        self._first_line_at: dict[int, tuple[int, ...]] = {}
        self._mode: Any = None
        self._module_nodes = _nodes_by_module(source)
        self._line_nodes = _nodes_by_line(source)
        self._known: dict[tuple[str, int, tuple[int, ...]], NodeOrigin] = {}

    def __enter__(self) -> OriginRecorder:

        for module in self._names:
            self._hooks.append(
                module_tree.before_call(module, self._before, prepend=True)
            )
            self._hooks.append(
                module_tree.on_call(module, self._after, always_call=True)
            )
        if self._has_lines:
            self._mode = _line_mode(self)
            self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._mode is not None:
            self._mode.__exit__(*error)
            self._mode = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._names.clear()

    @property
    def _has_lines(self) -> bool:
        return self._source is not None

    @property
    def listening(self) -> bool:
        """False in other threads and while autograd's engine runs."""
        return (
            threading.get_ident() == self._thread
            and torch._C._current_graph_task_id() == -1
        )

    @property
    def running(self) -> bool:
        """True while a module of the net runs."""
        return bool(self._open)

    def _before(self, module: nn.Module, _args: Any) -> None:
        if self.listening:
            name = self._names[module]
            self._calls[name] += 1
            self._open.append((_sequence(), name, self._calls[name]))

    def _after(self, module: nn.Module, _args: Any, _output: Any) -> None:
        if not self.listening or not self._open:
            return
        start, name, call = self._open.pop()
        depth = len(self._open)
        while len(self._by_depth) <= depth:
            self._by_depth.append(_Spans())
        spans, end = self._by_depth[depth], _sequence()
        if end > start:
            spans.starts.append(start)
            spans.ends.append(end)
            spans.what.append((name, call))

    def note_line(self, start: int, end: int, frame: FrameType | None) -> None:
        """Record that a torch operation called from `frame` began at counter `start` and ended at `end`."""
        if end == start and start in self._first_line_at:
            return
        lines = self._lines_of(frame)
        if lines:
            self._first_line_at.setdefault(start, lines)
            if end > start:
                self._lines.append((start, end, lines))

    def _lines_of(self, frame: FrameType | None) -> tuple[int, ...]:
        """Return the lines of the generated text on the stack, innermost first."""
        assert self._source is not None
        filename, lines = self._source.filename, []
        while frame is not None:
            if frame.f_code.co_filename == filename:
                lines.append(frame.f_lineno)
            frame = frame.f_back
        return tuple(lines)

    def origin(self, number: int) -> NodeOrigin:
        """Return the layer, call and line that created the node with this sequence number."""
        layer, call = "", 0
        for spans in reversed(self._by_depth):
            if at := spans.find(number):
                layer, call = at
                break
        return self._origin(layer, call, self._lines_at(number))

    def here(self, frame: FrameType | None) -> NodeOrigin:
        """Return the current place in the forward pass: the innermost module, and the line that called `frame`."""
        _, layer, call = self._open[-1] if self._open else (0, "", 0)
        return self._origin(
            layer, call, self._lines_of(frame) if self._has_lines else ()
        )

    def _origin(self, layer: str, call: int, lines: tuple[int, ...]) -> NodeOrigin:
        key = (layer, call, lines)
        origin = self._known.get(key)
        if origin is None:
            origin = self._known[key] = NodeOrigin(
                layer, call, self._node(layer, lines), next(iter(lines), None)
            )
        return origin

    def _lines_at(self, number: int) -> tuple[int, ...]:
        index = bisect_right(self._lines, number, key=lambda span: span[0]) - 1
        if index >= 0 and number < self._lines[index][1]:
            return self._lines[index][2]
        # A custom Function takes its number first and runs its operations, which make no nodes, after that.
        return self._first_line_at.get(number + 1, ())

    def _node(self, layer: str, lines: tuple[int, ...]) -> str | None:
        """Return the drawing's node that owns both the module and the line, else either of the two."""
        written = [node for line in lines for node in self._line_nodes.get(line, ())]
        path = layer
        while path:
            owners = self._module_nodes.get(path, ())
            if owners:
                return next((node for node in owners if node in written), owners[0])
            path = path.rpartition(".")[0]
        root_nodes = self._module_nodes.get("")
        if root_nodes:
            return root_nodes[0]  # the net is this one layer
        plain = [node for node in written if node not in self._owning_nodes]
        return next(iter(plain or written), None)

    @property
    def _owning_nodes(self) -> frozenset[str]:
        return frozenset(self._source.modules) if self._source else frozenset()

    def free(self, parameters: Iterable[str]) -> str | None:
        """Return the drawing's node that is itself one of these parameters, rather than a layer that holds it."""
        return next(
            (node for name in parameters for node in self._module_nodes.get(name, ())),
            None,
        )

    def owner(self, parameter: str) -> str | None:
        """Return the drawing's node whose module holds the parameter of this name, or that is this parameter."""
        return self._node(parameter, ())


class FileRecorder(OriginRecorder):
    """Records lines of the files that called torch, neither torch's own nor this program's. A line is a number in a
    table of files and their lines here."""

    def __init__(self, model: nn.Module | None) -> None:
        super().__init__(model)
        self._numbers: dict[tuple[str, int], int] = {}
        self._places: list[tuple[str, int]] = []

    @property
    def _has_lines(self) -> bool:
        return True

    def _lines_of(self, frame: FrameType | None) -> tuple[int, ...]:
        location = user_frames.location(frame)
        if not location[1]:
            return ()
        number = self._numbers.setdefault(location, len(self._places))
        if number == len(self._places):
            self._places.append(location)
        return (number,)

    def _origin(self, layer: str, call: int, lines: tuple[int, ...]) -> NodeOrigin:
        key = (layer, call, lines)
        if key not in self._known:
            file, line = self._places[lines[0]] if lines else ("", None)
            self._known[key] = NodeOrigin(layer, call, None, line, file)
        return self._known[key]

    def codes(self, records: Iterable[TapeNode]) -> FrozenMap[str, str]:
        """Return the text of the lines that some nodes were made at, by "file:line"."""
        locations = {
            (record.file, record.line)
            for record in records
            if record.file and record.line
        }
        return FrozenMap(
            {
                f"{file}:{line}": linecache.getline(file, line).strip()
                for file, line in sorted(locations)
            }
        )


def _sequence() -> int:
    return torch._C._autograd._get_sequence_nr()


def _line_mode(recorder: OriginRecorder) -> FunctionCalls:
    """Create a context that notes the line of every call of torch's functions, methods and operators."""

    def called(func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if not recorder.listening:
            return func(*args, **kwargs)
        start = _sequence()
        try:
            return func(*args, **kwargs)
        finally:
            recorder.note_line(start, _sequence(), frame)

    return FunctionCalls(called)


def _nodes_by_module(source: Source | None) -> dict[str, tuple[str, ...]]:
    nodes: dict[str, tuple[str, ...]] = {}
    for node, path in source.modules.items() if source else ():
        nodes[path] = (*nodes.get(path, ()), node)
    return nodes


def _nodes_by_line(source: Source | None) -> dict[int, tuple[str, ...]]:
    nodes: dict[int, tuple[str, ...]] = {}
    for node, lines in source.lines.items() if source else ():
        for line in lines:
            nodes[line] = (*nodes.get(line, ()), node)
    return nodes
