"""What the page "Runs" says of the selected runs, and why some of its actions are not possible for them."""

from __future__ import annotations

from collections.abc import Sequence

from app.runs.checkpoint_files import DiskUse
from app.util.formatting import bytes_text, counted
from app.views.training.runs.table_model import RunRow

GOING = "A run is in progress: stop it first"
CUT_SHORT = ("stopped", "failed", "interrupted")
RESUMES = "Continue resumes it from its newest checkpoint."
NONE_SELECTED = "Choose a run to see its curves."


def selection_text(
    rows: Sequence[RunRow],
    hidden: Sequence[RunRow],
    shown: int,
    count: int,
    resumable: bool | None = None,
) -> str:
    """Say which runs are selected, how a single one ended and whether it can be resumed, which is None where it is not
    known, and how many of `count` runs the filter leaves."""
    sentences = []
    if len(rows) == 1:
        verb = "was stopped" if rows[0].state == "stopped" else "is selected"
        sentences.append(rows[0].outcome or f"{rows[0].title} {verb}.")
        if resumable is not None and rows[0].state in CUT_SHORT:
            sentences[0] += "" if sentences[0].endswith(".") else "."
            sentences.append(
                RESUMES if resumable else "It has no checkpoint to resume from."
            )
    elif rows:
        sentences.append(f"{len(rows)} runs.")
    elif not hidden:
        sentences.append("Choose two to compare them." if shown > 1 else NONE_SELECTED)
    if shown < count:
        sentences.append(f"{shown} of {counted(count, 'run')} shown.")
    if hidden:
        verb, them = ("is", "it") if len(hidden) == 1 else ("are", "them")
        sentences.append(
            f"{_named(hidden)} {verb} selected, but the filter hides {them}."
        )
    return " ".join(sentences)


def disk_text(use: DiskUse | None) -> str:
    """Say what checkpoints for revisiting take; "" where there are none, or none are measured yet."""
    if use is None or not use.to_revisit:
        return ""
    return f"{counted(use.to_revisit, 'checkpoint')} for revisiting: {bytes_text(use.bytes)}."


def fork_refusal(
    row: RunRow | None, hidden: Sequence[RunRow], going: bool, use: DiskUse | None
) -> str:
    """Return why no run can be started from the weights of a run, with the cure; "" if one can, as far as is known.

    `row` is the only selected run that is stored, if there is such a one.
    """
    if going:
        return GOING
    if row is None:
        return (
            f"Clear the filter, which hides {_named(hidden)}"
            if hidden
            else "Choose one run that has ended"
        )
    if use is None or use.any:
        return ""
    cure = (
        "wait for its first one"
        if row.elsewhere
        else "start a new run, with save_every under Training, Checkpoints"
    )
    return f"{row.title} has no checkpoint: {cure}"


def resume_refusal(
    row: RunRow | None, hidden: Sequence[RunRow], going: bool, use: DiskUse | None
) -> str:
    """Return why a run cannot be resumed, with the cure; "" if it can, as far as is known."""
    if row is not None and row.elsewhere and not going:
        return f"{row.title} is being trained by another window or command: stop it there first"
    return fork_refusal(row, hidden, going, use)


def _named(rows: Sequence[RunRow]) -> str:
    """Name runs in a sentence: the one, or how many."""
    return rows[0].title if len(rows) == 1 else f"{len(rows)} selected runs"
