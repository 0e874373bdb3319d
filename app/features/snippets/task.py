"""Run a snippet in the engine started for it: it answers `RunSnippet`."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from app.engine.server import Context, handles
from app.features.snippets.compute import run as snippet_run
from app.features.snippets.values import (
    Limits,
    RunSnippet,
    Snippet,
    SnippetAnswer,
    SnippetBegan,
)
from app.source import layer_files, own_files, own_imports


@handles(RunSnippet)
def run_snippet(request: RunSnippet, context: Context) -> SnippetAnswer:
    _restrict_imports(request.snippet)
    context.progress(SnippetBegan())
    with _limited(request.limits):
        answer = snippet_run.run(request.snippet, execute)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            AttributeError, OSError, ValueError
        ):  # the text may have put away or closed it
            stream.flush()
    return answer


def _restrict_imports(snippet: Snippet) -> None:
    """Let a text import what was reviewed with it of its folder, and nothing else that is the user's own."""
    own_imports.guard()
    if not snippet.folder:
        return
    os.chdir(snippet.folder)
    files = own_files.read(Path(snippet.folder, snippet.name), Path(snippet.name).stem)
    if files is not None and layer_files.allowed(files.key):
        files.permit()


def execute(tree: ast.Module, filename: str, scope: dict[str, Any]) -> None:
    """Compile and run the user's code."""
    exec(compile(tree, filename, "exec", dont_inherit=True), scope)


@contextlib.contextmanager
def _limited(limits: Limits) -> Iterator[None]:
    """Limit the address space while it runs, where supported: torch then raises at the line that allocates too much.

    A GPU driver reserves terabytes of addresses, so with a GPU only the parent process limits memory.
    """
    if sys.platform != "linux" or torch.accelerator.is_available():
        yield
        return
    import resource  # which is not there on Windows

    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + limits.memory, hard)
    )
    yield
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
