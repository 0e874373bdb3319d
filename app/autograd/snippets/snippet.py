"""Snippets and their results, as plain data; and the bundled snippets.

Nothing here runs a line: that happens in a process of its own (`app.engine.snippet_process`), on a person's
command alone.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from app.autograd.playback.steps import PassResult
from app.autograd.tape import Tape
from app.util import resources

Ending = Literal["done", "failed", "time", "memory", "stopped", "died"]


@dataclass(frozen=True)
class Limits:
    """Limits of a snippet: seconds by the clock from its first line on, bytes beside what torch itself takes."""

    seconds: float = 30.0
    memory: int = 2 << 30


@dataclass(frozen=True)
class Snippet:
    """Code to run. `name` is what tracebacks call the text.

    With `function` the text is a file of which that function is called, with `inputs` (shapes and dtypes) drawn at
    random; one that gives back a module or another function has that called with them. `folder` is where the imports
    of the text are looked for first, "" for nowhere.

    With `play` the backward pass of the first graph is played. `findings` and `gradcheck` (a layer, "" for all, None
    for no check) look into the net that the function gives back.
    """

    text: str
    name: str = "snippet"
    function: str = ""
    inputs: tuple[tuple[tuple[int, ...], str], ...] = ()
    folder: str = ""
    play: bool = False
    findings: bool = False
    gradcheck: str | None = None


@dataclass(frozen=True)
class NamedTensor:
    """A tensor that a name of the snippet stood for at its end.

    `grad_fn` is torch's name of the node that made it, "" for none. `grad` are the values of `.grad` as text, "" where
    it is None. `version` is None where torch counts none (inference tensors).
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


@dataclass(frozen=True)
class Graph:
    """The graph below one tensor. `freed_at` is the line whose backward freed it, 0 if no line is known for that.

    Of a graph that was freed the tape shows how it was before, where that was seen. `played` is its backward pass where
    that was asked for and can be played, `stopped` why that ended before its last step.
    """

    name: str
    tape: Tape
    freed_at: int | None = None
    played: PassResult | None = None
    stopped: str = ""


@dataclass(frozen=True)
class SnippetError:
    """The error that a snippet raised, with the line (from 1) of its text."""

    kind: str
    message: str
    line: int | None = None
    traceback: str = ""


@dataclass(frozen=True)
class SnippetAnswer:
    """Result of a snippet: its named tensors, the graphs below them (the chosen one first), what it printed.

    `ended` says how; `words` says it as a sentence, and why there is no graph where there is none. `told` are the lines
    of the detectives and the gradient check, `found` how many errors and warnings they tell of.
    """

    ended: Ending = "done"
    words: str = ""
    tensors: tuple[NamedTensor, ...] = ()
    graphs: tuple[Graph, ...] = ()
    error: SnippetError | None = None
    output: str = ""
    seconds: float = 0.0
    told: tuple[str, ...] = ()
    found: int = 0

    @property
    def graph(self) -> Graph | None:
        """The graph that is shown first."""
        return self.graphs[0] if self.graphs else None

    def graph_of(self, name: str) -> Graph | None:
        """The graph below the tensor of this name."""
        return next((graph for graph in self.graphs if graph.name == name), None)

    def tensor(self, name: str) -> NamedTensor:
        """The tensor of this name. Raises KeyError."""
        found = next((tensor for tensor in self.tensors if tensor.name == name), None)
        if found is None:
            raise KeyError(name)
        return found


@dataclass(frozen=True)
class Ready:
    """A snippet that comes with the program: what it is called, and what it shows in a sentence or two."""

    key: str
    title: str
    words: str
    text: str = field(repr=False)


@cache
def ready() -> tuple[Ready, ...]:
    """The snippets that come with the program, in the order that they are to be read in."""
    return tuple(_read(file) for file in sorted(resources.path("snippets").glob("*.py")))


def ready_snippet(key: str) -> Ready:
    """The ready snippet of this key. Raises KeyError."""
    found = next((one for one in ready() if one.key == key), None)
    if found is None:
        raise KeyError(key)
    return found


def _read(file: Path) -> Ready:
    """`10-spreading.py`: its docstring is the title and the words, what follows is the text."""
    whole = file.read_text("utf-8")
    tree = ast.parse(whole)
    title, _, words = (ast.get_docstring(tree) or file.stem).partition("\n")
    behind = tree.body[0].end_lineno or 0
    text = "\n".join(whole.splitlines()[behind:]).strip("\n") + "\n"
    return Ready(file.stem.partition("-")[2], title.rstrip("."), " ".join(words.split()), text)
