"""What the detectives are asked on a thread of their own: the batch is made ready there, and torch is loaded there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.autograd.tape import Tape
from app.views.ui.work import Cancelled, Tell

if TYPE_CHECKING:
    from app.autograd.batch import Subject
    from app.autograd.diagnostics.checkpointing import WhatIf
    from app.autograd.diagnostics.findings import Findings
    from app.autograd.gradcheck.report import GradcheckReport

Make = Callable[[], "Subject"]
Check = Callable[["Subject", Tape, Cancelled], "GradcheckReport"]


def whole_net(subject: Subject, _tape: Tape, cancelled: Cancelled) -> GradcheckReport:
    """gradcheck of the net with its loss."""
    from app.autograd.gradcheck.gradcheck import check_net

    return check_net(subject, cancelled=cancelled)


def of_layer(path: str, call: int) -> Check:
    """gradcheck of a call of the module at `path`."""

    def check(subject: Subject, _tape: Tape, cancelled: Cancelled) -> GradcheckReport:
        from app.autograd.gradcheck.gradcheck import check_layer

        return check_layer(subject, path, call=call, cancelled=cancelled)

    return check


def of_node(number: int) -> Check:
    """gradcheck of the operation that made a backward node."""

    def check(subject: Subject, tape: Tape, cancelled: Cancelled) -> GradcheckReport:
        from app.autograd.gradcheck.gradcheck import check_node

        return check_node(subject, tape, tape.nodes[number], cancelled=cancelled)

    return check


def find(make: Make, tell: Tell, cancelled: Cancelled) -> Findings:
    """Every detective, of one batch."""
    from app.autograd.diagnostics.findings import find_all

    return find_all(make(), tell, cancelled)


def checked(
    make: Make, run: Check, expected: Tape | None, title: str, tell: Tell, cancelled: Cancelled
) -> GradcheckReport:
    """A gradcheck on few samples; `expected` is the tape whose nodes `run` numbers, None where it numbers none.

    Raises CaptureError where these samples make another graph.
    """
    from app.autograd.capture import CaptureError

    tell(f"Checking {title} with finite differences…")
    subject = make()
    with subject.hold() as graph:
        tape = graph.tape
    if expected is not None and [node.name for node in tape.nodes] != [node.name for node in expected.nodes]:
        raise CaptureError(
            "This node cannot be run by itself: the graph was captured with checkpoint, compile or create_graph, or "
            "the net runs other operations on few samples. Capture without options, or check the whole net."
        )
    return run(subject, tape, cancelled)


def measure_blocks(make: Make, rows: list[WhatIf], tell: Tell, cancelled: Cancelled) -> list[WhatIf]:
    """Checkpoint each block in turn; each is in `rows` as soon as it is measured."""
    from app.autograd.capture import CaptureError
    from app.autograd.diagnostics import checkpointing

    subject = make()
    paths = checkpointing.blocks(subject.model)
    if not paths:
        raise CaptureError("This net has no blocks: modules that are made of modules. A single layer keeps its input "
                           "under a checkpoint too, so there is little to be had.")  # fmt: skip
    for number, path in enumerate(paths, 1):
        tell(f"Checkpointing {path} ({number} of {len(paths)})")
        if cancelled():
            break
        rows.append(checkpointing.what_if(subject, path))
    return rows
