"""Gradient gain over the steps of a run: a heat map of layers and steps, and where it vanishes or explodes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from app.telemetry.gradient_gains import EXPLODED, VANISHED
from app.training.history import History
from app.training.monitoring.gradient_health import lost_over
from app.util import formatting
from app.util.language import marked, tr, trn
from app.views.training.charts import ticks
from app.views.training.charts.gradient_map import GradientMap
from app.views.training.charts.series import TimeScale
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import label

NO_RUN = (
    marked("No run to show"),
    marked(
        "A run measures |grad out| and |grad in| of each layer at some of its steps, within 1 % of its time. Start a "
        "run, or show a stored one under Runs."
    ),
)
NO_GAINS = (
    marked("No gains were measured in this run"),
    marked(
        "They appear with the first measured step. A forward compiled by torch.compile runs no hooks, and a script "
        "reports none."
    ),
)


class GainMap(GradientMap):
    """Remaining gradient, gain, or dead units, by layer and step; other widgets explain a loss of gradient."""

    def __init__(self) -> None:
        super().__init__(("reach", "gain", "dead"))

    def _judge(self) -> None:
        return


class GainsOverRun(QWidget):
    """The heat map with its caption. `layerChosen(path)` emits the module of a row; `runRequested` requests a run."""

    layerChosen = Signal(str)
    runRequested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.rule = label("", "label", "text2", wrap=True)
        self.empty = EmptyState("autograd", tr(NO_RUN[0]), tr(NO_RUN[1]), tr("Run"))
        self.empty.acted.connect(self.runRequested)
        self._history: History | None = None
        self._version = -1
        self._selected: frozenset[str] = frozenset()
        shown = QWidget()
        rule_row = hbox((self.rule, 1), margins=(12, 6, 12, 2))
        self._column = vbox(rule_row, on=shown, margins=0, spacing=0)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(shown)
        vbox(self._stack, on=self, margins=0)
        theme.manager().changed.connect(self._restyle)

    @cached_property
    def map(self) -> GainMap:
        """The heat map, made with the first run in which gains were measured: its import is that of all charts."""

        gain_map = GainMap()
        self._column.addWidget(gain_map, 1)
        gain_map.show()  # a layout would, in the next turn
        gain_map.plot.view.setMouseEnabled(x=False, y=False)
        gain_map.plot.view.sigResized.connect(
            lambda _view: QTimer.singleShot(0, self, self.redraw)
        )
        gain_map.plot.pointed.connect(self._point)
        gain_map.layerClicked.connect(self.layerChosen)
        gain_map.set_history(self._history or History(), "step")
        gain_map.set_selected(self._selected)
        return gain_map

    def set_history(self, history: History | None) -> None:
        """Show a run, None for none; a run shown already is updated if its history has grown."""
        if history is not self._history:
            self._history, self._version = history, -1
            if "map" in vars(self):
                self.map.set_history(history or History(), "step")
        self._redraw_if_new()

    def set_selected(self, layers: Iterable[str]) -> None:
        """Outline the rows of these layers."""
        self._selected = frozenset(layers)
        if "map" in vars(self):
            self.map.set_selected(self._selected)

    def redraw(self) -> None:
        """Update everything to the current history."""
        history = self._history
        measured = history is not None and len(history.seen.tables["reach"])
        if history is None or not measured:
            self.empty.set_text(*map(tr, NO_RUN if history is None else NO_GAINS))
            self._stack.setCurrentIndex(0)
            return
        self._version = history.seen.version
        self._stack.setCurrentIndex(1)
        self.rule.setText(summary_text(history))
        self.map.plot.set_x_range(
            0.0, ticks.grown(TimeScale(history).end(), 0.0) or 1.0
        )
        self.map.redraw()

    def _redraw_if_new(self) -> None:
        version = self._history.seen.version if self._history is not None else -1
        if self.isVisible() and (version != self._version or version < 0):
            self.redraw()

    def _point(self, x: float | None) -> None:
        """Show the figures of the row under the pointer, at the last measured step before it."""
        history, plot = self._history, self.map.plot
        index = None if x is None or history is None else self.map.scale.nearest(x)
        if index is None or history is None:
            self.map.show_cursor(None)
            return
        at = float(self.map.scale.of_steps()[index])
        self.map.show_cursor(at)
        heading = f"step {formatting.grouped_digits(int(history.steps['step'][index]))}"
        plot.show_readout(at, heading, self.map.note_at(at), self.map.rows(at))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.redraw()

    def _restyle(self) -> None:
        if "map" in vars(self):
            self.map.restyle()
            self.redraw()


def summary_text(history: History) -> str:
    """Summarise the measured steps over all layers."""
    reach = history.seen.tables["reach"]
    if problems := lost_over(reach):
        return " ".join(problem.text for problem in problems)
    return trn(
        "No gradient vanishes or explodes at the measured step: every norm is between {least:g} and {most:,.0f} times "
        "that at the last layer.",
        "No gradient vanishes or explodes at any of the {count} measured steps: every norm is between {least:g} and "
        "{most:,.0f} times that at the last layer.",
        len(reach),
        least=VANISHED,
        most=EXPLODED,
    )
