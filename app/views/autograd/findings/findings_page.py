"""Page "Findings" of the bottom dock: findings, gain ladder, checkpointing, and what features add (`Diagnostic`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QMenu, QScrollArea, QStackedWidget, QWidget

from app.util.formatting import MINUS, bytes_text, scientific
from app.util.language import marked, tr, trn
from app.views.autograd.findings.gain_chart import GainChart
from app.views.autograd.findings.gain_over_steps import GainsOverRun
from app.views.ui import icons
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.list_row import ListRow
from app.views.ui.tables import FiguresTable
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import Divider, Glyph, label
from app.views.ui.widgets.segmented import Segmented

if TYPE_CHECKING:
    from collections.abc import Collection

    from app.autograd.diagnostics.results import Finding, WhatIf
    from app.views.autograd.findings.diagnostic import Diagnostic

# --- List of findings: one row each, with its location, sentence and fix

CHUNK = 50  # rows that are made at once
PLACE = 168  # px of the column of locations
_STATES = {
    "error": ("error", "error"),
    "warning": ("warning", "warn"),
    "info": ("info", "text3"),
}


def as_text(finding: Finding) -> str:
    """Return the finding as text for the clipboard."""
    parts = [
        f"{tr(finding.severity)}: {finding.location_text}: {finding.sentence}",
        finding.cure,
    ]
    if finding.after:
        parts += [
            f"- {finding.before}",
            *(f"+ {line}" for line in finding.after.splitlines()),
        ]
    return "\n".join(filter(None, parts))


class FindingRow(ListRow):
    """One finding. Click or Enter goes to its place; the menu copies it. `expanded` asks for the rows of those that it
    stands for."""

    opened = Signal(object)
    expanded = Signal()

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding
        self.followed.connect(lambda: self.opened.emit(finding))
        self.setAccessibleName(
            f"{tr(finding.severity)}, {finding.location_text}: {finding.sentence}"
        )
        self.setAccessibleDescription(finding.cure)
        top = Qt.AlignmentFlag.AlignTop
        title = label(finding.title, "message", wrap=True)
        title.setFixedWidth(PLACE)
        where = vbox(title, spacing=1)
        if finding.line is not None:
            where.addWidget(
                line_label := label(finding.line_text, "caption", "text3", wrap=True)
            )
            line_label.setFixedWidth(PLACE)
        where.addStretch(1)
        column = vbox(label(finding.sentence, "label", wrap=True), spacing=2)
        if finding.cure:
            column.addWidget(
                label(finding.cure.replace("`", ""), "label", "text2", wrap=True)
            )
        if finding.after:
            column.addSpacing(2)
            column.addWidget(label(f"− {finding.before}", "formula", "error"))
            for line in finding.after.splitlines():
                column.addWidget(label(f"+ {line}", "formula", "run"))
        if finding.others:
            every = Button(
                trn(
                    "Show the {count} other place",
                    "Show the {count} other places",
                    len(finding.others),
                ),
                "link",
            )
            every.clicked.connect(every.hide)
            every.clicked.connect(self.expanded)
            column.addWidget(every, 0, Qt.AlignmentFlag.AlignLeft)
        hbox(
            (Glyph(*_STATES[finding.severity], 15), 0, top),
            where,
            (column, 1),
            on=self,
            margins=(16, 8, 16, 9),
            spacing=10,
        )

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(
            icons.icon("frame"), "Show it", lambda: self.opened.emit(self.finding)
        )
        text = as_text(self.finding)
        menu.addAction(
            icons.icon("copy"),
            "Copy text",
            lambda: QGuiApplication.clipboard().setText(text),
        )
        if self.finding.after:
            after = self.finding.after
            menu.addAction(
                icons.icon("copy"),
                "Copy the new line",
                lambda: QGuiApplication.clipboard().setText(after),
            )
        menu.popup(event.globalPos())


class FindingList(QScrollArea):
    """All findings, errors first, then the checks without a finding. `opened(finding)` asks to show its location."""

    opened = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[FindingRow] = []
        self.setWidgetResizable(True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        inside = QWidget()
        self._icon, self.foot = (
            Glyph("check", "run", 15),
            label("", "label", "text3", wrap=True),
        )
        foot = hbox(
            (self._icon, 0, Qt.AlignmentFlag.AlignTop),
            (self.foot, 1),
            margins=(16, 12, 16, 12),
            spacing=10,
        )
        self.more = Button("", "link")
        self.more.hide()
        self.more.clicked.connect(self._add)
        self._waiting: tuple[Finding, ...] = ()
        self._column = vbox(
            (self.more, 0, Qt.AlignmentFlag.AlignLeft),
            foot,
            1,
            on=inside,
            margins=0,
            spacing=0,
        )
        self.setWidget(inside)

    def show_findings(
        self, findings: tuple[Finding, ...], note: str, fine: bool
    ) -> None:
        """Show the rows, and `note` below them; `fine` puts a check before them."""
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows, self._waiting = [], findings
        self._add()
        self._icon.set("check" if fine else "info", "run" if fine else "text3")
        self.foot.setText(note)
        self.verticalScrollBar().setValue(0)

    def _add(self) -> None:
        """Make the next rows; the focus stays with the last that was there."""
        last = len(self.rows)
        for finding in self._waiting[:CHUNK]:
            self._insert(len(self.rows), finding)
        self._waiting = self._waiting[CHUNK:]
        self.more.setVisible(bool(self._waiting))
        self.more.setText(
            trn(
                "Show more of {count} other finding",
                "Show more of {count} other findings",
                len(self._waiting),
            )
        )
        if last and last < len(self.rows):
            self.rows[last].setFocus(Qt.FocusReason.OtherFocusReason)

    def _insert(self, index: int, finding: Finding) -> None:
        row = FindingRow(finding)
        row.opened.connect(self._open)
        row.left.connect(self._move)
        row.expanded.connect(lambda: self._expand(row))
        self._column.insertWidget(index, row)
        self.rows.insert(index, row)

    def _expand(self, row: FindingRow) -> None:
        """Make rows for the findings that a row stands for, below it; of very many the last row has the rest."""
        shown, rest = row.finding.others[:CHUNK], row.finding.others[CHUNK:]
        index = self.rows.index(row) + 1
        for number, finding in enumerate(shown, 1):
            self._insert(
                index,
                replace(finding, others=rest) if number == len(shown) else finding,
            )
            index += 1
        row.setFocus(Qt.FocusReason.OtherFocusReason)

    def _open(self, finding: Finding) -> None:
        for row in self.rows:
            row.set_marked(row.finding is finding)
        self.opened.emit(finding)

    def _move(self, step: int) -> None:
        at = next((index for index, row in enumerate(self.rows) if row.hasFocus()), 0)
        row = self.rows[min(max(at + step, 0), len(self.rows) - 1)]
        row.setFocus(Qt.FocusReason.TabFocusReason)
        self.ensureWidgetVisible(row, 0, 0)


# --- Page "Checkpoint": bytes freed at the peak against the time to recompute each block

HEADS = (
    marked("Block"),
    marked("Class"),
    marked("Freed at the peak"),
    marked("Less held"),
    marked("Peak without"),
    marked("Step takes (rounds)"),
    marked("Gradients"),
    marked("Training"),
)


def row_of(measurement: WhatIf, chosen: bool) -> tuple[str, ...]:
    """Return the cells of one block."""
    low, high = (f"{bound * 1000:+.1f}" for bound in measurement.spread)
    time = (
        f"{measurement.slower * 1000:+.1f} ms"
        if measurement.measurable
        else tr("within noise")
    )
    time = f"{time} ({low} to {high} ms)".replace("-", MINUS)
    grads = (
        tr("equal")
        if measurement.equal
        else tr("differ by {size}", size=scientific(measurement.difference, 1))
    )
    freed = (
        f"{MINUS if measurement.freed < 0 else ''}{bytes_text(abs(measurement.freed))}"
    )
    retained = f"{MINUS if measurement.held_less < 0 else ''}{bytes_text(abs(measurement.held_less))}"
    return (
        measurement.path,
        measurement.kind,
        freed,
        retained,
        bytes_text(measurement.plain.peak),
        time,
        grads,
        tr("recompute") if chosen else "",
    )


class CheckpointPage(QWidget):
    """`selected(path)` is emitted for the block of the current row; `wanted(path)` requests to toggle its checkpointing
    in training."""

    selected = Signal(str)
    wanted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[WhatIf, ...] = ()
        self._chosen: frozenset[str] = frozenset()
        self.table = FiguresTable(
            [tr(head) for head in HEADS],
            tr("Blocks, with the effect of checkpointing each"),
            {2, 3, 4, 5},
        )
        self.sentence = label("", "label", "text2", wrap=True)
        self.use = Button("", "primary")
        self.use.clicked.connect(self._use)
        foot = hbox((self.sentence, 1), self.use, margins=(16, 6, 16, 8), spacing=12)
        self._rest = QWidget()
        vbox((self.table, 1), foot, (self._rest, 1), on=self, margins=0, spacing=0)
        self.table.chosen.connect(lambda _row: self._moved())
        self.show_rows((), frozenset())

    @property
    def path(self) -> str:
        """Return the block of the selected row, "" for none."""
        return self.table.current[0] if self.table.current else ""

    def show_rows(
        self, rows: tuple[WhatIf, ...], chosen: Collection[str], hint: str = ""
    ) -> None:
        """Show these blocks, those that frees most first; `chosen` are checkpointed in training already."""
        path = self.path
        self.rows, self._chosen = (
            tuple(sorted(rows, key=lambda row: -row.freed)),
            frozenset(chosen),
        )
        self.table.set_rows(
            [row_of(row, row.path in self._chosen) for row in self.rows]
        )
        self._words = hint
        indices = {row.path: index for index, row in enumerate(self.rows)}
        if self.rows:
            self.table.selectRow(indices.get(path, 0))
        self._show_selected()

    def _use(self) -> None:
        if self.path:
            self.wanted.emit(self.path)

    def _moved(self) -> None:
        self._show_selected()
        if self.path:
            self.selected.emit(self.path)

    def _show_selected(self) -> None:
        row = self.table.currentIndex().row()
        measurement = self.rows[row] if 0 <= row < len(self.rows) else None
        self.use.setVisible(measurement is not None)
        self.table.setVisible(bool(self.rows))
        self._rest.setVisible(not self.rows)
        if measurement is None:
            self.sentence.setText(self._words)
            return
        self.sentence.setText(measurement.sentence)
        inside = measurement.path in self._chosen
        self.use.setText(
            tr("Do not checkpoint {layer} in training", layer=measurement.path)
            if inside
            else tr("Checkpoint {layer} in training", layer=measurement.path)
        )
        self.use.setToolTip(tr("Sets recompute under Training; Ctrl+Z undoes it"))


FINDINGS, GAIN, CHECKPOINT = "findings", "gain", "checkpoint"
NO_GRAPH = marked("No graph captured yet")
BATCH, OVER = "batch", "run"
RUN = {
    FINDINGS: marked("Diagnose again"),
    GAIN: marked("Measure again"),
    CHECKPOINT: marked("Measure"),
}
HINTS = {
    FINDINGS: marked(
        "Capture one batch to diagnose gradients that are None or zero, in-place changes, NaN, and layers where the "
        "gradient vanishes."
    ),
    GAIN: marked("|grad in| / |grad out| of each layer is measured on one batch."),
    CHECKPOINT: marked(
        "Measures the memory that torch.utils.checkpoint would free in each block, and the time of a step."
    ),
}


class FindingsPage(QWidget):
    """Pages with a selector. `asked(page)` requests to compute a page, `stopped` to cancel that,
    `captureRequested` a batch. `turned(page)` is emitted on a change of the page. The gain ladder is of the batch, or
    over the `steps` of a run."""

    asked = Signal(str)
    stopped = Signal()
    captureRequested = Signal()
    turned = Signal(str)

    def __init__(
        self,
        steps: GainsOverRun | None = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__()
        added = [(diagnostic.key, tr(diagnostic.title)) for diagnostic in diagnostics]
        tabs = [(FINDINGS, tr("Findings")), (GAIN, tr("Gain ladder")), *added]
        self.tabs = Segmented([*tabs, (CHECKPOINT, tr("Checkpoint"))], tr("Diagnostic"))
        self._commands = RUN | {
            diagnostic.key: diagnostic.command for diagnostic in diagnostics
        }
        self._hints = HINTS | {
            diagnostic.key: diagnostic.hint for diagnostic in diagnostics
        }
        self.status = label("", "label", "text2")
        self.status.setMinimumWidth(1)
        self.run = Button(tr(RUN[FINDINGS]), icon="flask")
        self.left_out = label("", "caption", "warn", wrap=True)
        self.left_out.setContentsMargins(12, 5, 12, 5)
        self.stop = Button(tr("Stop"), icon="stop")
        self.stop.hide()
        self.list = FindingList()
        self.chart, self.rule = GainChart(), label("", "label", "text2", wrap=True)
        self.rule.setToolTip(
            tr(
                "Gain of a layer: the norm of the gradient that it passes on over the norm of the one that arrives. A "
                "gain far below 1 makes gradients vanish on the way back, one far above 1 makes them explode."
            )
        )
        self.checkpoint, self.steps = CheckpointPage(), steps or GainsOverRun()
        self.over = Segmented(
            [(BATCH, tr("This batch")), (OVER, tr("Over the run"))],
            tr("The gain ladder of what"),
        )
        gain = QWidget()
        rule_row = hbox((self.rule, 1), margins=(16, 6, 16, 6))
        vbox(rule_row, (self.chart, 1), on=gain, margins=0, spacing=0)
        self.empty = EmptyState(
            "autograd",
            tr(NO_GRAPH),
            tr(HINTS[FINDINGS]),
            tr("Capture one batch"),
        )
        self.empty.acted.connect(self.captureRequested)
        self._pages: dict[str, QWidget] = {
            FINDINGS: self.list,
            GAIN: gain,
            CHECKPOINT: self.checkpoint,
        }
        self._pages |= {
            diagnostic.key: diagnostic.make_page() for diagnostic in diagnostics
        }
        self.stack = QStackedWidget()
        tools = QWidget()
        row = FlowLayout(tools, (12, 5, 12, 5), 10)
        row.put(self.tabs, self.over)
        row.fill(self.status)
        row.put(self.stop, self.run)
        vbox(
            tools,
            Divider(),
            self.left_out,
            (self.stack, 1),
            on=self,
            margins=0,
            spacing=0,
        )
        for page in (
            self.empty,
            *self._pages.values(),
            self.steps,
        ):  # last: reparenting restyles widgets
            self.stack.addWidget(page)
        self._captured, self._why = False, ""
        self.tabs.changed.connect(self._turn)
        self.over.changed.connect(lambda _which: self._turn(self.page))
        self.run.clicked.connect(lambda: self.asked.emit(self.page))
        self.stop.clicked.connect(self.stopped)
        self.set_captured(False)

    @property
    def page(self) -> str:
        """Which of them is in front."""
        return self.tabs.value()

    @property
    def over_run(self) -> bool:
        """Return whether the current page is about a run, not about a batch."""
        return self.page == GAIN and self.over.value() == OVER

    def turn_to(self, page: str) -> None:
        self.tabs.set_value(page)

    def set_captured(
        self, captured: bool, left_out: str | None = None, why: str = ""
    ) -> None:
        """Set whether there is a batch that can be diagnosed, or `why` the captured one cannot; `left_out` names
        options of the capture that the pages ignore."""
        self._captured, self._why = captured, why
        if left_out is not None:
            self.left_out.setText(left_out)
        self._show(self.page)

    def _turn(self, page: str) -> None:
        self._show(page)
        self.turned.emit(page)

    def _show(self, page: str) -> None:
        self.run.setText(tr(self._commands[page]))
        self.over.setVisible(page == GAIN)
        self.left_out.setVisible(
            self._captured and not self.over_run and bool(self.left_out.text())
        )
        self.run.setVisible(
            self._captured and not self.over_run and not self.stop.isVisibleTo(self)
        )
        of_batch = self._pages[page] if self._captured else self.empty
        self.stack.setCurrentWidget(self.steps if self.over_run else of_batch)
        if not self._captured:
            title = tr("Steps cannot be diagnosed") if self._why else tr(NO_GRAPH)
            self.empty.set_text(title, self._why or tr(self._hints[page]))
            self.empty.button.setVisible(not self._why)

    def set_working(self, status: str | None) -> None:
        """Show what is in progress, with a Stop button; None when idle."""
        self.stop.setVisible(status is not None)
        self.run.setVisible(self._captured and not self.over_run and status is None)
        self.status.setText(status or "")
