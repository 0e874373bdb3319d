"""Snippets and their results, as plain data; and the bundled snippets.

Nothing here runs code: that happens in a separate process (`process`), only on the user's
command.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

from msgspec import Struct

from app.autograd.diagnostics.results import Findings
from app.autograd.playback.steps import PassResult
from app.autograd.tape import Tape
from app.engine.protocol import MAIN, Request
from app.util import resources
from app.util.frozen import FrozenMap

Ending = Literal["done", "failed", "time", "memory", "stopped", "died"]


class Limits(Struct, frozen=True):
    """Limits of a snippet: seconds of wall time from its first line on, bytes in addition to torch's own."""

    seconds: float = 30.0
    memory: int = 2 << 30


class Snippet(Struct, frozen=True):
    """Code to run. `name` is its file name in tracebacks.

    With `function` the text is a file whose function is called with random `inputs` (shapes and dtypes); if it returns
    a module or a function, that is called with them instead. `folder` is searched first for imports, "" for none.

    With `play` the backward pass of the first graph is played. `findings` and `checks` (by name a layer, ""
    for all) run diagnostics on the net that the function returns; `diagnose` runs them on the text itself.
    """

    text: str
    name: str = "snippet"
    function: str = ""
    inputs: tuple[tuple[tuple[int, ...], str], ...] = ()
    folder: str = ""
    play: bool = False
    findings: bool = False
    checks: FrozenMap[str, str] = FrozenMap()
    diagnose: bool = False


class NamedTensor(Struct, frozen=True):
    """A tensor bound to a name when the snippet ended.

    `grad_fn` is torch's name of its node, "" for none. `grad` are the values of `.grad` as text, "" for None. `version`
    is None for tensors without a version counter (inference tensors).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool
    is_leaf: bool
    grad_fn: str = ""
    values: str = ""
    grad: str = ""
    grad_norm: float | None = None
    retains_grad: bool = False
    version: int | None = None

    @property
    def described(self) -> dict[str, float | str]:
        """What it is, by name; a value or gradient of one number is that number."""
        facts: dict[str, float | str] = {
            "is_leaf": float(self.is_leaf),
            "requires_grad": float(self.requires_grad),
            "grad_fn": self.grad_fn or "None",
            "shape": " ".join(map(str, self.shape)),
            "grad": _number(self.grad or "None"),
            "value": _number(self.values),
        }
        if self.grad_norm is not None:
            facts["grad_norm"] = self.grad_norm
        if self.version is not None:
            facts["version"] = float(self.version)
        return facts


def _number(text: str) -> float | str:
    try:
        return float(text.strip("[]() "))
    except ValueError:
        return text


class TensorGraph(Struct, frozen=True):
    """The graph of one tensor. `freed_at` is the line whose backward freed it, 0 if the line is unknown.

    The tape of a freed graph shows its state before, if observed. `played` is its backward pass if requested and
    possible, `stopped` why that ended before its last step.
    """

    name: str
    tape: Tape
    freed_at: int | None = None
    played: PassResult | None = None
    stopped: str = ""


class SnippetError(Struct, frozen=True):
    """The error that a snippet raised, with the line (from 1) of its text."""

    kind: str
    message: str
    line: int | None = None
    traceback: str = ""

    def sentence(self, message: str) -> str:
        """Join kind, line and a message, which may be empty.

        >>> SnippetError("EOFError", "", 2).sentence("no input"), SnippetError("KeyboardInterrupt", "").sentence("")
        ('EOFError in line 2: no input', 'KeyboardInterrupt')
        """
        where = f"{self.kind} in line {self.line}" if self.line else self.kind
        return f"{where}: {message}" if message else where


class SnippetAnswer(Struct, frozen=True):
    """Result of a snippet: its named tensors, the graphs below them (the chosen one first), what it printed.

    `ended` is how it ended; `words` describes that, or why there is no graph. `report_lines` are the text of the
    diagnostics and the gradient check, `found` counts their errors and warnings. `findings` are those of the text if
    they were requested, `undiagnosed` is why there are none.
    """

    ended: Ending = "done"
    words: str = ""
    tensors: tuple[NamedTensor, ...] = ()
    graphs: tuple[TensorGraph, ...] = ()
    error: SnippetError | None = None
    output: str = ""
    seconds: float = 0.0
    report_lines: tuple[str, ...] = ()
    found: int = 0
    findings: Findings | None = None
    undiagnosed: str = ""

    @property
    def graph(self) -> TensorGraph | None:
        """The graph that is shown first."""
        return self.graphs[0] if self.graphs else None

    def graph_of(self, name: str) -> TensorGraph | None:
        """Return the graph of the tensor of this name."""
        return next((graph for graph in self.graphs if graph.name == name), None)

    def tensor(self, name: str) -> NamedTensor:
        """Return the tensor of this name. Raises KeyError."""
        named_tensor = next(
            (tensor for tensor in self.tensors if tensor.name == name), None
        )
        if named_tensor is None:
            raise KeyError(name)
        return named_tensor


class SnippetBegan(Struct, frozen=True):
    """Reported when torch is loaded and the first line is about to run: time and memory count from here."""


class RunSnippet(Request[SnippetAnswer], frozen=True):
    """Run a user's snippet, in an engine started for it. Its progress is SnippetBegan."""

    lane: ClassVar[str] = MAIN
    snippet: Snippet
    limits: Limits


class Ready(Struct, frozen=True):
    """A bundled snippet: its title, and what it shows in a sentence or two."""

    key: str
    title: str
    words: str
    text: str


@cache
def ready() -> tuple[Ready, ...]:
    """Return the bundled snippets, in reading order."""
    return tuple(
        _read(file) for file in sorted(resources.path("snippets").glob("*.py"))
    )


def ready_snippet(key: str) -> Ready:
    """Return the bundled snippet of this key. Raises KeyError."""
    snippet = next((candidate for candidate in ready() if candidate.key == key), None)
    if snippet is None:
        raise KeyError(key)
    return snippet


def _read(file: Path) -> Ready:
    """Parse `10-spreading.py`: its docstring is title and description, the rest is the code."""
    source_text = file.read_text("utf-8")
    tree = ast.parse(source_text)
    title, _, description = (ast.get_docstring(tree) or file.stem).partition("\n")
    behind = tree.body[0].end_lineno or 0
    text = "\n".join(source_text.splitlines()[behind:]).strip("\n") + "\n"
    return Ready(
        file.stem.partition("-")[2],
        title.rstrip("."),
        " ".join(description.split()),
        text,
    )
