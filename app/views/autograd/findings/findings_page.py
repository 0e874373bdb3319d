"""Page "Findings" of the bottom dock: findings, gain ladder, checkpointing, and what features add (`Diagnostic`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from app.util.language import marked, tr
from app.views.autograd.findings.checkpoint_page import CheckpointPage
from app.views.autograd.findings.finding_rows import FindingList
from app.views.autograd.findings.gain_chart import GainChart
from app.views.autograd.findings.gain_over_steps import GainsOverRun
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import Divider, label
from app.views.ui.widgets.segmented import Segmented

if TYPE_CHECKING:
    from app.views.autograd.findings.diagnostic import Diagnostic

FINDINGS, GAIN, CHECKPOINT = "findings", "gain", "checkpoint"
BATCH, OVER = "batch", "run"
RUN = {
    FINDINGS: "Diagnose again",
    GAIN: "Measure again",
    CHECKPOINT: "Measure",
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
        added = [(diagnostic.key, diagnostic.title) for diagnostic in diagnostics]
        tabs = [(FINDINGS, "Findings"), (GAIN, "Gain ladder"), *added]
        self.tabs = Segmented([*tabs, (CHECKPOINT, "Checkpoint")], "Diagnostic")
        self._commands = RUN | {
            diagnostic.key: diagnostic.command for diagnostic in diagnostics
        }
        self._hints = HINTS | {
            diagnostic.key: diagnostic.hint for diagnostic in diagnostics
        }
        self.status = label("", "label", "text2")
        self.status.setMinimumWidth(1)
        self.run = Button(RUN[FINDINGS], icon="flask")
        self.left_out = label("", "caption", "warn", wrap=True)
        self.left_out.setContentsMargins(12, 5, 12, 5)
        self.stop = Button("Stop", icon="stop")
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
            [(BATCH, "This batch"), (OVER, "Over the run")], "The gain ladder of what"
        )
        gain = QWidget()
        rule_row = hbox((self.rule, 1), margins=(16, 6, 16, 6))
        vbox(rule_row, (self.chart, 1), on=gain, margins=0, spacing=0)
        self.empty = EmptyState(
            "autograd",
            "No graph captured yet",
            tr(HINTS[FINDINGS]),
            "Capture one batch",
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
        self.run.setText(self._commands[page])
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
            title = (
                "Steps cannot be diagnosed" if self._why else "No graph captured yet"
            )
            self.empty.set_text(title, self._why or tr(self._hints[page]))
            self.empty.button.setVisible(not self._why)

    def set_working(self, status: str | None) -> None:
        """Show what is in progress, with a Stop button; None when idle."""
        self.stop.setVisible(status is not None)
        self.run.setVisible(self._captured and not self.over_run and status is None)
        self.status.setText(status or "")
