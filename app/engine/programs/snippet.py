"""The program of a process that runs one snippet and hands back data."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from app.autograd.codec import packed, unpacked
from app.autograd.snippets.snippet import Limits, Snippet
from app.engine.snippet_process import LENGTH, READY


def main() -> None:
    """Answer one question: load torch, say so, read what is to run, run it, write what came of it."""
    reads, writes = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what is printed goes one way, in its order
    from app.autograd.snippets import run as snippet_run

    with os.fdopen(writes, "wb") as pipe:
        pipe.write(READY)
        pipe.flush()
        with os.fdopen(reads, "rb") as question:
            data = question.read()
        if not data:
            os._exit(0)  # nobody wanted anything
        snippet, limits = unpacked(data, tuple[Snippet, Limits])
        if snippet.folder:
            os.chdir(snippet.folder)
        with _limited(limits):
            answer = snippet_run.run(snippet, _execute)
        data = packed(answer)
        pipe.write(LENGTH.pack(len(data)) + data)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the text may have put away or closed it
            stream.flush()
    os._exit(0)  # threads that it has started are not waited for


def _execute(tree: ast.Module, filename: str, scope: dict[str, Any]) -> None:
    exec(compile(tree, filename, "exec", dont_inherit=True), scope)


@contextlib.contextmanager
def _limited(limits: Limits) -> Any:
    """No more memory than that while it runs, where the system can keep to it: then torch says which line wanted it.

    A GPU's driver takes addresses by the terabyte, so beside one only the parent watches.
    """
    import torch

    if sys.platform != "linux" or torch.cuda.is_available():
        yield
        return
    import resource  # which is not there on Windows

    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + limits.memory, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
