"""What the ready snippets show, run once each in this process."""

from __future__ import annotations

import contextlib
import io
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.util import rng

if TYPE_CHECKING:
    from app.autograd.tape import Tape
    from app.features.snippets.values import SnippetAnswer


def ran(text: str, **asked: object) -> SnippetAnswer:
    """What came of a text."""
    from app.features.snippets.compute import run
    from app.features.snippets.task import execute
    from app.features.snippets.values import Snippet

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), rng.borrowed(0):
        answer = run.run(Snippet(text, **asked), execute)
    return replace(answer, output=printed.getvalue())


@cache
def shown(key: str) -> SnippetAnswer:
    """What came of the ready snippet of this key."""
    from app.features.snippets.values import ready_snippet

    return ran(ready_snippet(key).text)


def made_by(tape: Tape) -> list[str]:
    """Names of the operations of a tape, from the loss on, without the leaves."""
    return [
        tape.nodes[node].name for node in tape.order if not tape.nodes[node].is_leaf
    ]


def leaves(tape: Tape) -> set[str]:
    return {name for node in tape.nodes for name in node.parameters}
