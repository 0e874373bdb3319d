"""The page "Panels": metrics and samples of several runs beside one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QStackedLayout, QWidget

from app.features.panels.metric_chart import MetricChart
from app.features.panels.samples_view import SamplesView
from app.views.shown_run import ComparedRun
from app.views.training.charts import ticks
from app.views.training.charts.controls import CurveControls
from app.views.training.charts.metrics import DEFAULT, Choice, known_parts, offered
from app.views.training.charts.plot import StepView
from app.views.training.charts.series import Mode
from app.views.ui import theme
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import vbox
from app.views.ui.scrolled import Pages, Scrolled
from app.views.ui.turns import TURN
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.segmented import Segmented

PANEL = 340  # px of a panel, from which two have room beside one another, at the designed text size
CAPTIONED = 300  # px of the page, from which its tools have captions
MOST = 24  # panels
REST = 400  # milliseconds between two redraws, at least
SHARE = 0.01  # of the time may go into redrawing
METRICS, SAMPLES = "metrics", "samples"
COMPARE = "Choose several runs on the page Runs, with Ctrl or Shift, to compare them."


class PanelsPage(QWidget):
    """`changed` is emitted when panels were added, removed, moved or edited; `runsRequested` asks for the page Runs.

    `refresh()` reports that histories may have grown. Panels are made, and redrawn, one a turn of the event loop.
    """

    changed = Signal()
    viewed = Signal()  # metrics or samples may be in sight, or no longer
    runsRequested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.charts: list[MetricChart] = []
        self._unmade: list[Choice] = []  # panels to make once the page is seen
        self.room = 1  # how many times `SHARE` redrawing may take
        self._runs: Sequence[ComparedRun] = ()
        self._known: tuple[object, ...] = ()
        self._mode: Mode = "step"
        self._following, self._moving = True, False
        self._range, self._end = (0.0, 1.0), 0.0
        self._waiting: dict[
            tuple[MetricChart | None, str], Callable[[], object]
        ] = {}  # one step a turn
        self._turn = QTimer(self, singleShot=True, interval=TURN)
        self._turn.timeout.connect(self._next)
        self._rest = QTimer(self, singleShot=True)
        self._rest.timeout.connect(self._redraw_soon)
        self._cost = 0.0
        self._build()
        theme.manager().changed.connect(self._restyle)
        self.set_choices(DEFAULT)

    def _build(self) -> None:
        self.controls = CurveControls(self)
        self.controls.hide()  # its parts are in the row of tools
        self.add = Button("Add panel", icon="add")
        self.choose = Button("Choose runs", "link")
        self.choose.setToolTip(COMPARE)
        self.tools = QWidget()
        row = FlowLayout(self.tools, (12, 4, 8, 4), 8)
        self.view = Segmented([(METRICS, "Metrics"), (SAMPLES, "Samples")], "Panels of")
        self.samples = SamplesView()
        row.put(
            self.view, self.add, *self.controls.parts, *self.samples.tools, self.choose
        )
        self.empty = EmptyState("runs", "No run to show", COMPARE, "Choose runs")
        self.content = QWidget()
        self.grid = QGridLayout(self.content)
        self.grid.setContentsMargins(0, 0, 0, 8)
        self.grid.setSpacing(2)
        body = Pages()
        self._stack = QStackedLayout(body)
        self._scrolled = Scrolled(self.content)
        self._nothing = Scrolled(self.empty)  # which takes no room from the tools
        for widget in (self._nothing, self._scrolled, self.samples):
            self._stack.addWidget(widget)
        vbox(self.tools, (body, 1), on=self, margins=0, spacing=0)
        self.empty.acted.connect(self.runsRequested)
        self.choose.clicked.connect(self.runsRequested)
        self.add.clicked.connect(self._add)
        self.view.changed.connect(self._choose_view)
        self.controls.smoothingChanged.connect(lambda _weight: self._redraw_soon())
        self.controls.modeChanged.connect(self.set_mode)
        self.controls.followRequested.connect(self.follow)
        self._show_view()
        self._tell()

    def _choose_view(self, _view: str) -> None:
        self._show_view()
        self.changed.emit()

    def set_view(self, view: str) -> None:
        """Show "metrics" or "samples"."""
        self.view.blockSignals(True)
        self.view.set_value(view if view in (METRICS, SAMPLES) else METRICS)
        self.view.blockSignals(False)
        self._show_view()

    def _show_view(self) -> None:
        samples = self.view.value() == SAMPLES
        self._stack.setCurrentWidget(
            self._nothing
            if not self._runs
            else self.samples
            if samples
            else self._scrolled
        )
        for widget in (self.add, *self.controls.parts[1:]):
            widget.setVisible(not samples)
        self._fit_tools()
        self.controls.show_following(self._following or samples)
        for widget in self.samples.tools[:2]:
            widget.setVisible(samples)
        self.samples.more.setVisible(samples and self.samples.has_more)
        self.viewed.emit()

    def _fit_tools(self) -> None:
        """Leave the caption of the smoothing out where the tools would need another row for it."""
        roomy = self.width() >= CAPTIONED * theme.manager().scale
        self.controls.parts[1].setVisible(roomy and self.view.value() == METRICS)

    # -- panels -------------------------------------------------------------------------------------------------------

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return what the panels show."""
        return tuple(chart.choice for chart in self.charts) + tuple(self._unmade)

    def set_choices(self, choices: Sequence[Choice]) -> None:
        """Show other panels."""
        for chart in self.charts:
            self._drop(chart)
        self.charts, self._unmade = [], list(choices[:MOST])
        self._begin()

    def _begin(self) -> None:
        """Make the panels that are not there yet, once the page is seen with runs."""
        if self._unmade and self._runs and self.isVisible():
            self._later(None, "make", self._make_next)

    def _make_next(self) -> None:
        if self._unmade:
            self._make(self._unmade.pop(0))
            self._begin()

    def _make(self, choice: Choice) -> MetricChart:
        chart = MetricChart(choice)
        chart.edited.connect(self.changed)
        chart.removed.connect(lambda: self.remove(chart))
        chart.moved.connect(lambda offset: self._move(chart, offset))
        chart.pointed.connect(lambda x: self._point(chart, x))
        chart.released.connect(self.follow)
        chart.plot.view.handled.connect(self._on_handled)
        chart.plot.view.sigResized.connect(lambda _view: self._redraw_later(chart))
        chart.set_axes(self._mode, self.controls.smoothing)
        chart.set_runs(self._runs)
        self.charts.append(chart)
        self._arrange()
        self._redraw_later(chart)
        return chart

    def _add(self) -> None:
        """Add a panel of the first metric that none shows, else of the last one."""
        shown = {choice.metric for choice in self.choices}
        metrics = [
            metric
            for metric in offered(run.history for run in self._runs)
            if metric.layers is None
        ]
        key = next((metric.key for metric in metrics if metric.key not in shown), None)
        chart = self._make(
            Choice(key) if key else self.choices[-1] if self.choices else DEFAULT[0]
        )
        self._scrolled.ensureWidgetVisible(chart)
        chart.metric_field.setFocus()
        self._tell()
        self.changed.emit()

    def remove(self, chart: MetricChart) -> None:
        """Remove a panel; the focus goes to the one after it."""
        index = self.charts.index(chart)
        had_focus = chart.isAncestorOf(self.focusWidget() or self) or chart.hasFocus()
        self.charts.remove(chart)
        if had_focus:  # before the panel goes: Qt would give the keys to any other
            (
                self.charts[min(index, len(self.charts) - 1)]
                if self.charts
                else self.add
            ).setFocus()
        self._drop(chart)
        self._arrange()
        self._tell()
        self.changed.emit()

    def _drop(self, chart: MetricChart) -> None:
        self.grid.removeWidget(chart)
        chart.hide()
        chart.deleteLater()

    def _move(self, chart: MetricChart, offset: int) -> None:
        at = self.charts.index(chart)
        if 0 <= at + offset < len(self.charts):
            self.charts.insert(at + offset, self.charts.pop(at))
            self._arrange()
            self.changed.emit()

    @property
    def across(self) -> int:
        """Return how many panels are beside one another."""
        room = (
            self.width() - self._scrolled.verticalScrollBar().sizeHint().width()
        )  # metrics may not be in sight yet
        return max(1, int(room // (PANEL * theme.manager().scale)))

    def _arrange(self) -> None:
        across = min(self.across, max(len(self.charts) + len(self._unmade), 1))
        for index, chart in enumerate(self.charts):
            at = self.grid.indexOf(chart)
            row, column = divmod(index, across)
            if at < 0 or self.grid.getItemPosition(at)[:2] != (row, column):  # type: ignore[index]
                self.grid.addWidget(chart, row, column)
            if chart.isHidden():
                chart.show()  # now: one that is not shown yet takes no focus
            if index:
                QWidget.setTabOrder(self.charts[index - 1].close_button, chart)
        for column in range(self.grid.columnCount()):
            self.grid.setColumnStretch(column, int(column < across))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_tools()
        self._arrange()

    # -- runs ---------------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Sequence[ComparedRun]:
        return self._runs

    def set_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Show these runs, in this order."""
        self._runs = runs
        self._known = known_parts(run.history for run in runs)
        self._show_view()
        for chart in self.charts:
            self._later(chart, "runs", partial(chart.set_runs, runs))
        self._begin()
        self._tell()
        self.follow()

    def _tell(self) -> None:
        count = len(self._runs)
        self.choose.setVisible(count == 1)
        self.controls.set_run(bool(count))
        self.add.setEnabled(bool(count) and len(self.choices) < MOST)

    # -- redrawing ----------------------------------------------------------------------------------------------------

    def _later(
        self, chart: MetricChart | None, key: str, step: Callable[[], object]
    ) -> None:
        """Call a function in a later turn of the event loop, once for all requests until then; skip removed panels."""
        self._waiting[chart, key] = step
        self._turn.start()

    def _next(self) -> None:
        if self._waiting:
            began = perf_counter()
            chart, key = next(iter(self._waiting))
            step = self._waiting.pop((chart, key))
            if chart is None or chart in self.charts:
                step()
            self._cost += perf_counter() - began
        if self._waiting:
            self._turn.start()

    def refresh(self) -> None:
        """Redraw soon, throttled, if the page is visible; histories may have grown."""
        if self.isVisible() and self._runs and not self._rest.isActive():
            cost, self._cost = self._cost, 0.0
            self._rest.start(max(REST, round(1000 * cost / (SHARE * self.room))))

    def _redraw_soon(self) -> None:
        """Redraw the panels, one per turn of the event loop."""
        stored_parts = known_parts(run.history for run in self._runs)
        if stored_parts != self._known:
            self._known = stored_parts
            for chart in self.charts:
                self._later(chart, "offer", chart.offer)
        for chart in self.charts:
            self._redraw_later(chart)

    def _redraw_later(self, chart: MetricChart) -> None:
        """Redraw a panel after smoothing each run, one per turn of the event loop: long runs take long."""
        chart.set_axes(self._mode, self.controls.smoothing)
        for index in range(len(self._runs)):
            self._later(chart, f"run {index}", partial(chart.prepare, index))
        self._later(chart, "redraw", partial(self._redraw, chart))

    def _redraw(self, chart: MetricChart) -> None:
        if not self.isVisible():
            return
        chart.set_axes(self._mode, self.controls.smoothing)
        if self._following:
            self._end = (
                ticks.grown(
                    max((other.end(self._mode) for other in self.charts), default=0.0),
                    self._end,
                )
                or 1.0
            )
            self._range = (0.0, self._end)
        self._moving = True
        chart.plot.set_x_range(*self._range)
        self._moving = False
        chart.redraw()

    def set_mode(self, mode: Mode) -> None:
        """Set the x axis: "step", "epoch" or "time"."""
        self._mode = mode
        self.follow()

    def follow(self) -> None:
        """Show all runs whole, and grow with them."""
        self._following, self._end = True, 0.0
        self.controls.show_following(True)
        for chart in self.charts:
            chart.plot.view.free_y = False
            self._later(chart, "cursor", partial(chart.show_cursor, None))
        self._redraw_soon()

    def _on_handled(self) -> None:
        """Apply the x range of a panel that the user zoomed or panned to the others."""
        view = self.sender()
        if not self._moving and isinstance(view, StepView):
            self._following = False
            self.controls.show_following(False)
            low, high = view.viewRange()[0]
            self._range = (low, high)
            self._redraw_soon()

    def _point(self, chart: MetricChart, x: float | None) -> None:
        """Put the cursor of all panels at one x, with the values beside it in that of the pointer."""
        for panel in self.charts:
            panel.show_cursor(x)
            if panel is not chart or x is None:
                panel.plot.readout.hide()
        if x is not None:
            chart.show_readout(x)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._begin()
        self._redraw_soon()
        self.viewed.emit()

    @property
    def shows_samples(self) -> bool:
        """Return whether samples of runs are in sight."""
        return self.isVisible() and bool(self._runs) and self.view.value() == SAMPLES

    def _restyle(self) -> None:
        for chart in self.charts:
            chart.restyle()
        self._fit_tools()
        self._arrange()
        self._redraw_soon()
