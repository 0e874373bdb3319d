"""Run a snippet in this process, which was started for it, and return its result."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import linecache
import re
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from app.autograd import checks, layers
from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.report import findings, lines_of
from app.autograd.diagnostics.results import Findings
from app.autograd.errors import CaptureError
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.playback.playback import play_through
from app.autograd.walk import walk
from app.features.snippets.compute import snippet_tape
from app.features.snippets.compute.diagnosed import batch_of
from app.features.snippets.compute.names import ScopeNames
from app.features.snippets.compute.snippet_tape import (
    LONGEST,
    MOST_NODES,
    MOST_PLAYED,
    PATIENCE,
    SnippetRecorder,
    SnippetSource,
)
from app.features.snippets.values import (
    Ending,
    Snippet,
    SnippetAnswer,
    SnippetError,
    TensorGraph,
)
from app.util import torch_calls
from app.util.torchvision_import import mend_torchvision

SEED = 0
UNNAMED = "value"  # what a number without a name is called
LAST = "_"  # name bound to the value of a last expression, as at Python's prompt
MOST_GRAPHS = 24
DEAF = "Lines and layers are unknown: torch.compile does not compile while they are recorded."
NOT_SEEN = (
    "A backward pass freed this graph before it could be watched: name the tensor that backward() starts from, or give "
    "it retain_graph=True."
)
# our own frames between a line and torch
LISTENING = {str(module.__file__) for module in (snippet_tape, layers, torch_calls)}
NO_MEMORY = (
    "can't allocate memory",
    "Cannot allocate memory",
    "bad_alloc",
    "out of memory",
)


def run(
    snippet: Snippet, execute: Callable[[ast.Module, str, dict[str, Any]], None]
) -> SnippetAnswer:
    """Run a snippet; `execute(tree, filename, scope)` compiles and runs it.

    Output goes to this process's stdout and stderr. torch's generator is seeded with 0 for reproducibility. Never
    raises what the snippet raises.
    """
    session = _Session(snippet)
    began = perf_counter()
    with _as_main(session.module, snippet.folder):
        error = session.run(execute)
    answer = session.answer(error, perf_counter() - began)
    listed = snippet.findings and error is None and not session.made_module
    if (
        not (snippet.diagnose or listed)
        or error is not None
        and error.kind in ("SyntaxError", "IndentationError")
    ):
        return answer
    with _as_main(session.module, snippet.folder), _silent():
        diagnosis, why_not = session.diagnosed(execute)
    if listed:
        lines, count = (
            lines_of(diagnosis) if diagnosis is not None else ([f"error: {why_not}"], 1)
        )
        answer = replace(
            answer,
            report_lines=(*answer.report_lines, *lines),
            found=answer.found + count,
        )
    return replace(answer, findings=diagnosis, undiagnosed=why_not)


@contextlib.contextmanager
def _as_main(module: types.ModuleType, folder: str) -> Iterator[None]:
    """Install the module in `sys.modules`, where dataclasses and torch look it up, and the folder in `sys.path`."""
    before, path = sys.modules.get(module.__name__), list(sys.path)
    sys.modules[module.__name__] = module
    if folder:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = path
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before


class _Session:
    """One snippet while it runs, and its results."""

    def __init__(self, snippet: Snippet) -> None:
        self._snippet = snippet
        self._source = SnippetSource(snippet.text, name=snippet.name)
        self.module = types.ModuleType(
            "__main__" if not snippet.function else snippet.name.removesuffix(".py")
        )
        self.module.__file__ = snippet.name
        self._scope = self.module.__dict__
        self._local: dict[str, Any] = {}
        self._results: dict[str, Tensor] = {}
        self._made: Any = None
        self._inputs: tuple[Tensor, ...] = ()
        self._last = ""
        self._exit_line: int | None = (
            None  # the line at which the snippet ended itself, with success
        )
        if not snippet.function:
            self._scope.update(torch=torch, nn=nn, F=nn.functional)
        self._given = set(self._scope)
        self._recorder = SnippetRecorder(
            self._source, self._names, deaf=_compiles(snippet.text), watch=snippet.play
        )

    def run(
        self, execute: Callable[[ast.Module, str, dict[str, Any]], None]
    ) -> SnippetError | None:
        name, text = self._source.filename, self._snippet.text
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        mend_torchvision()
        torch.manual_seed(SEED)
        try:
            tree = ast.parse(text, name)
            if not self._snippet.function:
                self._keep_last(tree, text)
            with (
                self._recorder,
                self._recorder.local_names,
                _warnings_at_lines_of(name),
            ):
                execute(tree, name, self._scope)
                if self._snippet.function:
                    self._call()
            if self._last and self._scope.get(LAST) is not None:
                print(repr(self._scope[LAST]))
        except BaseException as error:  # any error of the snippet is part of its answer
            snippet_error = self._error(error)
            if isinstance(error, SystemExit) and not error.code:
                self._exit_line = snippet_error.line
                return None
            return snippet_error
        return None

    @property
    def made_module(self) -> bool:
        """Return whether the requested function is, or returned, a module."""
        return isinstance(self._made, nn.Module)

    def _keep_last(self, tree: ast.Module, text: str) -> None:
        """Give the value of a last expression a name."""
        if not tree.body or not isinstance(tree.body[-1], ast.Expr):
            return
        last = tree.body[-1]
        self._last = " ".join((ast.get_source_segment(text, last) or LAST).split())
        tree.body[-1] = ast.copy_location(
            ast.Assign([ast.Name(LAST, ast.Store())], last.value), last
        )
        ast.fix_missing_locations(tree)

    def _call(self) -> None:
        """Call the requested function, and its result if that is a module or a function."""
        name, function = self._snippet.function, self._scope.get(self._snippet.function)
        if not callable(function):
            raise LookupError(f"{self._snippet.name} has no function {name}")
        self._inputs = inputs = tuple(
            _drawn(shape, dtype) for shape, dtype in self._snippet.inputs
        )
        if not inputs and not _takes_no_arguments(function):
            raise TypeError(f"{name} takes arguments: pass them with --input 1x3x32x32")
        self._made = function
        with _locals_of(getattr(function, "__code__", None), self._local):
            returned = (
                function() if _takes_no_arguments(function) else function(*inputs)
            )
        if not isinstance(returned, Tensor) and callable(returned):
            if not inputs:
                raise TypeError(
                    f"{name} returns {type(returned).__name__}: pass its inputs with --input 1x3x32x32"
                )
            if isinstance(returned, nn.Module):
                self._local = {name: returned}
            self._made = returned
            self._local.update(
                {f"input{index or ''}": tensor for index, tensor in enumerate(inputs)}
            )
            torch.manual_seed(
                SEED
            )  # as before each run of it that findings and gradcheck take
            returned = returned(*inputs)
        tensors = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
        if not tensors:
            raise TypeError(
                f"{name} returns {type(returned).__name__}, which contains no tensor"
            )
        self._results = {
            name if not index else f"{name}[{index}]": tensor
            for index, tensor in enumerate(tensors)
        }

    def _names(self) -> ScopeNames:
        names = ScopeNames()
        names.add(
            {
                name: value
                for name, value in self._scope.items()
                if name not in self._given and name != LAST
            }
        )
        names.add(self._local)
        return names

    def _error(self, error: BaseException) -> SnippetError:
        """Describe an error with the innermost line of the snippet and the traceback from its first frame on."""
        name, kind = self._source.filename, type(error).__name__
        message = _message(error)
        if isinstance(error, SyntaxError) and error.filename == name:
            return SnippetError(
                kind,
                error.msg,
                error.lineno,
                "".join(traceback.format_exception_only(error)),
            )
        frames = list(traceback.walk_tb(error.__traceback__))
        frame_indices = [
            index
            for index, (frame, _) in enumerate(frames)
            if frame.f_code.co_filename == name
        ]
        line = frames[frame_indices[-1]][1] if frame_indices else None
        skipped = frame_indices[0] if frame_indices else 0
        chain = traceback.TracebackException.from_exception(error)
        shown_frames = [
            frame
            for frame in list(chain.stack)[skipped:]
            if frame.filename not in LISTENING
        ]
        chain.stack = traceback.StackSummary.from_list(shown_frames)
        return SnippetError(kind, message, line, "".join(chain.format()))

    # -- results ------------------------------------------------------------------------------------------------------

    def answer(self, error: SnippetError | None, seconds: float) -> SnippetAnswer:
        names = self._names()
        last = self._scope.get(LAST) if self._last else None
        ends = self._ends(names, last)
        graphs: list[TensorGraph] = []
        nodes = 0
        unread = ""
        for name, tensor in ends.items():
            try:
                graph = self._graph(name, tensor, names)
                graph = replace(graph, tape=replace(graph.tape, root=_root_name(name)))
            except Exception as problem:  # an unsupported kind of tensor: the other graphs are still reported
                unread = unread or f"The graph of {name} cannot be read: {problem}."
                continue
            nodes += len(graph.tape.nodes)
            if graphs and (nodes > MOST_NODES or len(graphs) == MOST_GRAPHS):
                break
            graphs.append(graph)
        if not graphs and (before := self._recorder.last_backward()) is not None:
            # Nothing that is left has a name: the graph that the last backward pass began at, as it was then.
            tape = replace(before.tape, root=UNNAMED)
            graphs.append(
                TensorGraph(
                    f"backward() in line {before.line}",
                    tape,
                    before.line,
                    *before.played,
                )
            )
        rows = names.rows()
        if self._snippet.play:
            graphs = self._played(graphs, ends)
        with _silent():
            report_lines, problem_count = (
                self._looked_into() if error is None else ([], 0)
            )
        message = unread
        if not message and graphs and _compiles(self._snippet.text):
            message = DEAF
        elif not (message or graphs or error):
            message = _why_no_graph(names)
        if self._exit_line is not None:
            message = f"It exited in line {self._exit_line}. {message}".strip()
        return SnippetAnswer(
            _ending(error),
            message,
            rows,
            tuple(graphs),
            error,
            "",
            seconds,
            tuple(report_lines),
            problem_count,
        )

    def _played(
        self, graphs: list[TensorGraph], ends: dict[str, Tensor]
    ) -> list[TensorGraph]:
        """Add to the graphs the backward pass that the snippet ran, or play one now.

        The snippet's hooks run in that as well; their output is discarded.
        """
        until, played_graphs = process_time() + PATIENCE, []
        for graph in graphs:
            if graph.played is None and not graph.stopped and graph.freed_at is None:
                if len(graph.tape.nodes) > MOST_PLAYED:
                    graph = replace(graph, stopped=_too_many(graph))
                elif process_time() >= until:
                    reason = f"The graphs before it took the {PATIENCE:.0f} seconds that playing may take."
                    graph = replace(graph, stopped=reason)
                else:
                    with _silent():
                        graph = self._played_now(graph, ends[graph.name])
            elif (
                graph.played is None
                and graph.freed_at is not None
                and not graph.stopped
            ):
                graph = replace(
                    graph,
                    stopped=_too_many(graph)
                    if len(graph.tape.nodes) > MOST_PLAYED
                    else NOT_SEEN,
                )
            played_graphs.append(graph)
        return played_graphs

    def _played_now(self, graph: TensorGraph, tensor: Tensor) -> TensorGraph:
        """From ones where the tensor is no single number."""
        live = LiveGraph(graph.tape, walk([tensor])[0], [tensor], nn.Module(), (), None)
        try:
            played, stopped = play_through(live, ones=True)
        except (
            BaseException
        ) as error:  # user hooks and Functions may raise anything, and call exit()
            return replace(
                graph, stopped=f"Backward cannot be played: {_described(error)}"
            )
        return replace(graph, played=played, stopped=stopped)

    def diagnosed(
        self, execute: Callable[[ast.Module, str, dict[str, Any]], None]
    ) -> tuple[Findings | None, str]:
        """Run the diagnostics on the text, or return why they cannot run."""
        text, filename = self._snippet.text, self._source.filename

        def fresh() -> types.ModuleType:
            module = types.ModuleType(self.module.__name__)
            module.__file__ = self.module.__file__
            vars(module).update(torch=torch, nn=nn, F=nn.functional, **arguments)
            sys.modules[module.__name__] = module
            return module

        tree = ast.parse(text, filename)
        try:
            names = (
                _inlined(tree, self._snippet.function) if self._snippet.function else ()
            )
            arguments = dict(zip(names, self._inputs, strict=False))
            self._keep_last(tree, text)
            return find_all(
                batch_of(tree, self._source, execute, fresh, LAST, SEED)
            ), ""
        except CaptureError as error:
            return None, str(error)
        except (
            BaseException
        ) as error:  # user code runs there and may raise anything, and call exit()
            return None, _described(error)

    def _looked_into(self) -> tuple[list[str], int]:
        """Run the diagnostics and the checks on the function or its result."""
        snippet, target = self._snippet, self._made
        if not snippet.findings and not snippet.checks:
            return [], 0
        lines: list[str] = []
        problem_count = 0
        try:
            if isinstance(target, nn.Module):
                batch = TrainingBatch(
                    target,
                    self._inputs,
                    source=self._source,
                    train=target.training,
                    seed=SEED,
                )
                pending_checks = [partial(findings, batch)] if snippet.findings else []
                pending_checks += [
                    partial(checks.check(name).of_batch, batch, layer)
                    for name, layer in snippet.checks.items()
                ]
            elif not snippet.checks:  # `run` diagnoses its text
                return [], 0
            elif any(snippet.checks.values()) or not self._inputs:
                needed = "an nn.Module"
                if not any(snippet.checks.values()):
                    needed += ", or takes an --input"
                return [
                    f"error: --{next(iter(snippet.checks))} needs a function that returns {needed}; "
                    f"{snippet.function} does not."
                ], 1
            else:
                pending_checks = [
                    partial(
                        checks.check(name).of_function,
                        target,
                        self._inputs,
                        snippet.function,
                    )
                    for name in snippet.checks
                ]
            for ask in pending_checks:
                more, count = ask()
                lines, problem_count = lines + more, problem_count + count
        except Exception as error:  # user code runs there and may raise anything
            return [
                *lines,
                f"error: {error or type(error).__name__}",
            ], problem_count + 1
        return lines, problem_count

    def _ends(self, names: ScopeNames, last: Any) -> dict[str, Tensor]:
        """Return tensors with a graph, by name: the result of a function, a last expression, `loss`, the root of the
        last backward pass, then the newest first."""
        ends = {
            name: candidate
            for name, candidate in self._results.items()
            if candidate.grad_fn is not None
        }
        for tensor in tree_leaves(last):
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                tensor_name = next(
                    (
                        name
                        for name, candidate in names.tensors.items()
                        if candidate is tensor
                    ),
                    self._last,
                )
                ends.setdefault(tensor_name, tensor)
        named = {
            name: candidate
            for name, candidate in names.tensors.items()
            if candidate.grad_fn is not None
        }
        if "loss" in named:
            ends.setdefault("loss", named["loss"])
        begun = {number: index for index, number in enumerate(self._recorder.begun)}

        def rank(item: tuple[str, Tensor]) -> tuple[int, int]:
            assert item[1].grad_fn is not None
            number = item[1].grad_fn._sequence_nr()
            return begun.get(number, -1), number

        for name, tensor in sorted(named.items(), key=rank, reverse=True):
            if not any(tensor is candidate for candidate in ends.values()):
                ends[name] = tensor
        return ends

    def _graph(self, name: str, tensor: Tensor, names: ScopeNames) -> TensorGraph:
        tape, freed = self._recorder.tape_of(tensor, names)
        before = self._recorder.before_backward(tensor)
        played, stopped = before.played if before is not None else (None, "")
        if not freed:
            return TensorGraph(
                name, tape, None, played, stopped if played is not None else ""
            )
        if before is None:
            return TensorGraph(name, tape, 0)
        return TensorGraph(name, before.tape, before.line, played, stopped)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Discard what lines and hooks of the snippet print when they run again."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


@contextlib.contextmanager
def _warnings_at_lines_of(name: str) -> Iterator[None]:
    """Show warnings at the snippet's own line where a frame of this program is between it and torch."""
    show = warnings.showwarning

    def show_at_line(
        message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any
    ) -> None:
        frame = sys._getframe(1) if filename in LISTENING else None
        while frame is not None and frame.f_code.co_filename != name:
            frame = frame.f_back
        if frame is not None:
            filename, lineno = name, frame.f_lineno
        show(message, category, filename, lineno, *rest, **more)

    warnings.showwarning = show_at_line
    try:
        yield
    finally:
        warnings.showwarning = show


def _message(error: BaseException) -> str:
    """Return the text of an error, whose class may be the snippet's; of exit() the status, of input() what to do."""
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return f"exit status {error.code}"
    if isinstance(error, EOFError) and error.args == ("EOF when reading a line",):
        return "input() has no keyboard here: write the value into the snippet"
    try:
        return str(error)
    except Exception:
        return "its text cannot be read, as __str__ raises an error"


def _described(error: BaseException) -> str:
    return SnippetError(type(error).__name__, "").sentence(_message(error))


def _inlined(tree: ast.Module, function: str) -> tuple[str, ...]:
    """Put the statements of a function, whose value is the last, after those of its file; return its arguments. Raises
    CaptureError for one that returns at another place than its end."""
    body = next(
        (
            statement
            for statement in tree.body
            if isinstance(statement, ast.FunctionDef) and statement.name == function
        ),
        None,
    )
    returns = [node for node in ast.walk(body or tree) if isinstance(node, ast.Return)]
    if (
        body is None
        or len(returns) != 1
        or body.body[-1] is not returns[0]
        or returns[0].value is None
    ):
        raise CaptureError(
            f"findings of {function} need a function whose only return is its last line"
        )
    last = ast.copy_location(ast.Expr(returns[0].value), returns[0])
    tree.body = [*tree.body, *body.body[:-1], last]
    return tuple(argument.arg for argument in body.args.args)


def _root_name(name: str) -> str:
    """Return what the number is called that a graph's backward pass starts from: its name, or its expression if that
    is short."""
    return name if len(name) <= LONGEST else UNNAMED


def _too_many(graph: TensorGraph) -> str:
    return f"The graph has {len(graph.tape.nodes):,} nodes, and of a file those of up to {MOST_PLAYED:,} are played."


def _ending(error: SnippetError | None) -> Ending:
    if error is None:
        return "done"
    full = error.kind == "MemoryError" or any(
        phrase in error.message for phrase in NO_MEMORY
    )
    return "memory" if full else "failed"


def _why_no_graph(names: ScopeNames) -> str:
    """Explain why no tensor has a grad_fn."""
    every = [
        *names.tensors.values(),
        *(parameter for _, parameter in names.parameters()),
    ]
    if not every:
        return "No variable of the snippet is a tensor."
    if not any(tensor.requires_grad for tensor in every):
        return "No tensor of the snippet requires a gradient, so torch recorded no graph. Give one requires_grad=True."
    return "No tensor that has a name was computed from one that requires a gradient, so there is no graph to show."


def _compiles(text: str) -> bool:
    """Return whether a text uses torch.compile.

    >>> _compiles("net = torch.compile(net)"), _compiles("import re; re.compile('x')")
    (True, False)
    """
    return re.search(r"\btorch\s*\.\s*compile\b|\bimport compile\b", text) is not None


def _drawn(shape: tuple[int, ...], dtype: str) -> Tensor:
    kind = getattr(torch, dtype) if dtype else torch.get_default_dtype()
    return (
        torch.randn(shape, dtype=kind)
        if kind.is_floating_point
        else torch.zeros(shape, dtype=kind)
    )


def _takes_no_arguments(function: Any) -> bool:
    """Return whether it can be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(
        parameter.default is not parameter.empty or parameter.kind in fixed
        for parameter in parameters
    )


@contextlib.contextmanager
def _locals_of(code: Any, captured: dict[str, Any]) -> Iterator[None]:
    """Capture the local variables of a function when it returns."""

    def profile(frame: Any, event: str, _argument: Any) -> None:
        if event == "return" and frame.f_code is code:
            captured.update(frame.f_locals)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
