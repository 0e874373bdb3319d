"""What the page "Runs" shows of the selected runs: a sentence, why some actions are impossible, and their settings."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from app.features.runs.table_model import RunRow
from app.runs.checkpoint_files import DiskUse
from app.runs.compare import Setting
from app.util.columns import Column
from app.util.formatting import bytes_text, counted, plural
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

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


def columns_of(titles: Sequence[str]) -> list[Column]:
    """Return the columns of settings: the name, then a column a run. Those that differ stand out."""

    def strong(line: Setting) -> str:
        return "section" if line.differs else ""

    def color(line: Setting) -> str:
        return "text" if line.differs else "text3"

    name = Column(
        "Setting",
        lambda line: line.name,
        color=lambda line: "text" if line.differs else "text2",
        font=strong,
        icon=lambda line: ("compare", "accent") if line.differs else (),
        spoken=lambda line: f"{line.name}, differs" if line.differs else line.name,
    )

    def run(at: int, title: str) -> Column:
        return Column(title, lambda line: line.values[at], color=color, font=strong)

    return [name, *(run(*numbered) for numbered in enumerate(titles))]


class RunsCompare(QWidget):
    """The table, with a choice between all settings and those that differ."""

    def __init__(self) -> None:
        super().__init__()
        self._titles: list[str] = []
        self._lines: tuple[Setting, ...] = ()
        self.table = Table(columns_of(()), "Settings of the runs", room=0)
        header = self.table.horizontalHeader()
        header.setMaximumSectionSize(260)
        header.setStretchLastSection(True)
        self._caption = label("", "caption", "text2")
        self._which = Segmented(
            [("differing", "Differences only"), ("all", "All settings")],
            "Settings to show",
        )
        self._which.changed.connect(lambda _key: self._show())
        row = hbox(self._caption, 1, self._which, margins=(12, 4, 8, 4), spacing=8)
        vbox(row, (self.table, 1), on=self, margins=0, spacing=0)

    def set_settings(self, titles: list[str], lines: tuple[Setting, ...]) -> None:
        """Show these runs, a column each."""
        self._titles, self._lines = titles, lines
        self._show()

    def _show(self) -> None:
        differing = [line for line in self._lines if line.differs]
        everything = self._which.value() == "all"
        same = [line for line in self._lines if not line.differs] if everything else []
        count = len(differing)
        caption = (
            f"{count} {plural(count, 'setting differs', 'settings differ')}"
            if count
            else ("All settings are equal")
        )
        self._caption.setText(caption)
        self.table.cells.set_rows([*differing, *same], columns_of(self._titles))
        self.table.resizeColumnsToContents()
