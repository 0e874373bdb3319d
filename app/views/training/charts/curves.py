"""The page "Curves": live charts of a run with a shared x axis and cursor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

import numpy as np
from PySide6.QtCore import QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QSizePolicy,
    QSplitter,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from app.source.generated import Source
from app.telemetry.gradient_gains import path_of
from app.training.history import History
from app.util import formatting
from app.views.shown_run import ComparedRun
from app.views.training.charts import export, ticks
from app.views.training.charts.charts import (
    MIDDLE,
    SIDE,
    AccuracyChart,
    Chart,
    LossChart,
)
from app.views.training.charts.controls import CurveControls
from app.views.training.charts.gradient_map import GradientMap
from app.views.training.charts.gradients import nodes_by_layer
from app.views.training.charts.plot import StepView
from app.views.training.charts.series import Mode, TimeScale
from app.views.ui import theme
from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.scrolled import Scrolled
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.segmented import Segmented

AnyChart = TypeVar("AnyChart", bound=Chart)

FASTEST, SLOWEST = 0.1, 2.0  # seconds between two redraws, at least and at most
SHARE = 0.005  # of the time may go into redrawing; a slower machine gets fewer pictures, not a slower run
BESIDE = 2  # charts that are redrawn beside the loss; the others follow in turn
STAGGER = 20  # milliseconds between the redraws of two charts
NEAR = 8  # pixels from a mark in which it is meant


ONE = 115  # px that a chart needs of a column, at the designed text size
WIDTHS = {
    "loss": 320,
    "middle": 225,
    "gradients": 285,
    "side": 295,
    "beside": 190,
}  # px, as they are designed


class Curves(QWidget):
    """The charts of one run: its loss, the gradient map, and those of the columns of `charts`.

    `refresh()` reports that the history may have grown; the page redraws soon, if it is visible, throttled by `FASTEST`
    and `SHARE`. `controls` is a separate widget that may be placed next to the tabs.
    """

    runRequested = Signal()
    layerSelected = Signal(str)  # a node's id
    layerHovered = Signal(object)  # a node's id, or None
    stepChosen = Signal(object)  # a chart was clicked at this step; None for the newest
    aloneChanged = Signal(bool)  # one chart has the page, or all have it again
    menuWanted = Signal(
        int, object
    )  # with the right button, at this step, and the point of the screen

    def __init__(self) -> None:
        super().__init__()
        self.loss = LossChart()
        self.gradients = GradientMap()
        self._columns = tuple(
            tuple(chart() for chart in column) for column in (MIDDLE, SIDE)
        )
        middle, side = self._columns
        self.charts: tuple[Chart, ...] = (self.loss, *middle, self.gradients, *side)
        self.accuracy = self.chart(AccuracyChart)
        self.controls = CurveControls(self)
        self._history = History()
        self._scale = TimeScale(self._history)
        self._source: Source | None = None
        self._known: tuple[tuple[str, ...], dict[str, tuple[str, ...]]] = ((), {})
        self._following = True
        self._end = 0.0
        self._range = (0.0, 1.0)
        self._moving = False
        self._cursor: tuple[Chart, int] | None = None
        self._step: int | None = (
            None  # where the cursor stays when the pointer is elsewhere
        )
        self._step_before: int | None = None  # until the last click
        self._alone: Chart | None = None
        self._drawn = (-1, -1, -1, -1)
        self._waiting: list[
            Chart
        ] = []  # charts that the current redraw has not reached
        self._stale: list[
            Chart
        ] = []  # charts that show less than the history has, the oldest picture first
        self.redraw_seconds = 0.0  # of the last redraw, painting left out
        self.room = 1  # how many times `SHARE` it may take
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._redraw_if_new)
        self._resized: list[Chart] = []  # several at once
        self._fit = QTimer(self, singleShot=True, interval=0)
        self._fit.timeout.connect(self._redraw_resized)
        self._around: list[QWidget] = []  # above and below the charts
        self._build()
        self._connect()

    def _build(self) -> None:
        self._log = Segmented([("log", "Log"), ("linear", "Linear")], "Loss axis")
        self.loss.tools.addWidget(self._log)
        # From the outside in: reparenting a widget restyles all widgets in it.
        layout = vbox(
            (self.controls, 0, Qt.AlignmentFlag.AlignRight),
            on=self,
            margins=0,
            spacing=0,
        )
        self._pages = QWidget()
        layout.addWidget(self._pages, 1)
        self._stack = QStackedLayout(self._pages)
        hint = "Loss, accuracy, gradient norms and memory are plotted here while a run trains."
        self.empty = EmptyState("curves", "No run yet", hint, "Run")
        self._stack.addWidget(self.empty)
        self.cards = QSplitter(Qt.Orientation.Horizontal)
        self._scrolled = Scrolled(self.cards)
        self._stack.addWidget(self._scrolled)
        middle, side = (
            QSplitter(Qt.Orientation.Vertical),
            QSplitter(Qt.Orientation.Vertical),
        )
        self._splitters = (middle, side)
        for card in (self.loss, middle, self.gradients, side):
            self.cards.addWidget(card)
        for splitter, charts in zip(self._splitters, self._columns, strict=True):
            for chart in charts:
                splitter.addWidget(chart)
        for splitter in (self.cards, side, middle):
            splitter.setChildrenCollapsible(False)
            splitter.setHandleWidth(1)
        self._share_room()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def _connect(self) -> None:
        self.empty.acted.connect(self.runRequested)
        self._log.changed.connect(self._set_log_key)
        self.controls.smoothingChanged.connect(self.set_smoothing)
        self.controls.modeChanged.connect(self.set_mode)
        self.controls.followRequested.connect(self.follow)
        self.controls.offer_export(
            lambda path, kind: export.save(self.history, self.cards, path, kind)
        )
        self.gradients.layerClicked.connect(self.choose_layer)
        self.gradients.layerHovered.connect(self._tell_hover)
        for chart in self.charts:
            chart.plot.view.handled.connect(self._on_handled)
            chart.plot.view.clicked.connect(self._on_clicked)
            chart.plot.view.menuWanted.connect(self._on_menu)
            chart.plot.double_clicked.connect(partial(self._on_double_click, chart))
            chart.double_clicked.connect(partial(self.toggle_alone, chart))
            chart.plot.view.sigResized.connect(
                lambda _view, chart=chart: self._on_resized(chart)
            )
            chart.plot.pointed.connect(self._on_pointed)
        theme.manager().changed.connect(self._restyle)
        self.set_smoothing(self.controls.smoothing)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put all charts beside one another where those of a column would be too low to be read."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        room = self.height() - sum(
            widget.sizeHint().height() for widget in self._around
        )
        high = room >= ONE * max(map(len, self._columns)) * theme.manager().scale
        orientation = Qt.Orientation.Vertical if high else Qt.Orientation.Horizontal
        if self._splitters[0].orientation() != orientation:
            for splitter in self._splitters:
                splitter.setOrientation(orientation)
            for chart in self.charts:
                chart.legend.set_in_one_line(not high)
            self._share_room()

    def _share_room(self) -> None:
        """Give the charts their shares of the room."""
        beside = self._splitters[0].orientation() == Qt.Orientation.Horizontal
        middle, side = (
            WIDTHS["beside"] * (len(column) - 1) if beside else 0
            for column in self._columns
        )
        shares = [
            WIDTHS["loss"],
            WIDTHS["middle"] + middle,
            WIDTHS["gradients"],
            WIDTHS["side"] + side,
        ]
        for index, share in enumerate(shares):
            self.cards.setStretchFactor(index, share)
        self.cards.setSizes(shares)
        first, further = (WIDTHS["middle"], WIDTHS["beside"]) if beside else (180, 110)
        for splitter in self._splitters:
            splitter.setSizes([first, *[further] * (splitter.count() - 1)])

    def add_above(self, widget: QWidget) -> None:
        """Put a widget above the charts."""
        layout = present(self.layout())
        assert isinstance(layout, QVBoxLayout)
        layout.insertWidget(layout.indexOf(self._pages), widget)
        self._take_around(widget)

    def add_below(self, widget: QWidget) -> None:
        """Put a widget under the charts."""
        present(self.layout()).addWidget(widget)
        self._take_around(widget)

    def _take_around(self, widget: QWidget) -> None:
        """Show a widget while a run is shown."""
        self._around.append(widget)
        widget.setVisible(self.has_run)
        self._arrange()

    # Content

    def chart(self, kind: type[AnyChart]) -> AnyChart:
        """Return the chart of a class."""
        return next(chart for chart in self.charts if isinstance(chart, kind))

    @property
    def history(self) -> History:
        return self._history

    @property
    def has_run(self) -> bool:
        """Return whether a run is shown."""
        return self._stack.currentWidget() is self._scrolled

    @property
    def mode(self) -> Mode:
        return self._scale.mode

    @property
    def following(self) -> bool:
        """Return whether the x range grows with the run."""
        return self._following

    def set_history(
        self,
        history: History | None,
        source: Source | None = None,
        others: Sequence[tuple[str, History]] = (),
    ) -> None:
        """Show another history, and the loss and accuracy of other runs beside it.

        `source` maps layers to nodes. None shows the empty state.
        """
        self._history = history or History()
        self._step = None
        self._source = source
        self._known = ((), {})
        own = ((self.loss.run_name or "this run", self._history),)
        runs = [ComparedRun(*run, None) for run in (*own, *others)] if others else []
        self.loss.runs = self.accuracy.runs = runs
        for widget in self._around:
            widget.setVisible(history is not None)
        present(self.layout()).activate()  # else the charts are given their sizes twice
        self._stack.setCurrentWidget(
            self._scrolled if history is not None else self.empty
        )
        self.controls.set_run(history is not None)
        self._drawn = (-1, -1, -1, -1)
        self.set_mode(self._scale.mode)

    def set_run_name(self, name: str) -> None:
        """Name the run that is shown next."""
        self.loss.run_name = name

    def _reach(self) -> float:
        """Return the last x of the longest run, or of the step whose loss ended it."""
        marked = np.array([max(self._history.marks, default=0)], dtype=float)
        end = max(self._scale.end(), float(self._scale.x_of(marked)[0]))
        runs = self.loss.runs
        return max([end, *(TimeScale(run.history, self.mode).end() for run in runs)])

    def set_mode(self, mode: Mode) -> None:
        """Set the x axis: "step", "epoch" or "time"."""
        self._scale = TimeScale(self._history, mode)
        self.controls.show_mode(mode)
        for chart in self.charts:
            chart.set_history(self._history, mode)
        self.follow()

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the past in the smoothed loss, 0 to 0.99."""
        self.controls.show_smoothing(weight)
        self.loss.set_smoothing(weight)

    def _set_log_key(self, key: str) -> None:
        self.loss.set_log(key == "log")

    @property
    def _nodes(self) -> dict[str, tuple[str, ...]]:
        """The nodes of each layer; the layers are known from the first norms on."""
        tables = self._history.seen.tables
        layers = (
            *self._history.layers,
            *tables["dead"].layers,
            *map(path_of, tables["reach"].layers),
        )
        if self._source is not None and layers != self._known[0]:
            self._known = (layers, nodes_by_layer(self._source, layers))
        return self._known[1]

    def select_nodes(self, nodes: Iterable[str]) -> None:
        """Outline the rows of these nodes."""
        chosen = frozenset(nodes)
        self.gradients.set_selected(
            layer for layer, ids in self._nodes.items() if chosen.intersection(ids)
        )

    # redrawing

    def refresh(self) -> None:
        """Redraw soon, throttled, if the page is visible; the history may have grown."""
        if self.isVisible() and not self._timer.isActive():
            cost = self.redraw_seconds + self._painting()
            self._timer.start(
                int(
                    1000
                    * max(FASTEST, min(cost / (SHARE * self.room), SLOWEST / self.room))
                )
            )

    def _painting(self) -> float:
        """Return the seconds of painting since the last redraw."""
        seconds = sum(chart.plot.paint_seconds for chart in self.charts)
        for chart in self.charts:
            chart.plot.paint_seconds = 0.0
        return seconds

    def _sizes(self) -> tuple[int, int, int, int]:
        history = self._history
        return (
            len(history.steps),
            len(history.epochs),
            len(history.memory),
            len(history.gradients),
        )

    def _redraw_if_new(self, every: bool = False) -> None:
        """Redraw the loss and the charts that are most outdated; with `every` all outdated ones."""
        if not self.isVisible() or self._waiting:
            return
        if (sizes := self._sizes()) != self._drawn:
            self._drawn = sizes
            self._stale += [chart for chart in self.charts if chart not in self._stale]
        if not self._stale:
            return
        self.redraw_seconds = 0.0
        self._end = ticks.grown(self._reach(), self._end) or 1.0
        if every:
            self._waiting = list(self.charts)
        else:
            others = [chart for chart in self._stale if chart is not self.loss]
            self._waiting = [self.loss] * (self.loss in self._stale) + others[:BESIDE]
        self._redraw_next()

    def _redraw_next(self) -> None:
        """Redraw one chart per turn of the event loop, so that no turn is long."""
        if not self._waiting:
            return
        chart, *self._waiting = self._waiting
        if chart in self._stale:
            self._stale.remove(chart)
        began = perf_counter()
        if self._following:
            self._range = (0.0, self._end)
            self._moving = True
            chart.plot.set_x_range(*self._range)
            self._moving = False
        chart.redraw()
        chart.show_cursor(self._cursor_x())
        if self._cursor is not None and chart is self._cursor[0]:
            self._show_readout(*self._cursor)
        self.redraw_seconds += perf_counter() - began
        if self._waiting:
            QTimer.singleShot(STAGGER, self, self._redraw_next)
        elif self._stale or self._sizes() != self._drawn:
            self.refresh()

    def redraw(self) -> None:
        """Update every chart to the current history."""
        self._waiting, self._stale = [], []
        began = perf_counter()
        if self._following:
            self._end = ticks.grown(self._reach(), self._end) or 1.0
            self._set_range(0.0, self._end)
        for chart in self.charts:
            chart.redraw()
        self._show_cursor()
        self.redraw_seconds = perf_counter() - began

    def follow(self) -> None:
        """Show the whole run and grow with it."""
        self._following = True
        self._end = 0.0
        self.controls.show_following(True)
        for chart in self.charts:
            chart.plot.view.free_y = False
        self.redraw()

    def _set_range(self, low: float, high: float) -> None:
        self._moving = True
        self._range = (low, high)
        for chart in self.charts:
            chart.plot.set_x_range(low, high)
        self._moving = False

    def _on_handled(self) -> None:
        """Apply the x range of a chart that the user zoomed or panned to the others."""
        view = self.sender()
        if self._moving or not isinstance(view, StepView):
            return
        self._following = False
        self.controls.show_following(False)
        low, high = view.viewRange()[0]
        self._set_range(low, high)
        self.redraw()

    def _on_resized(self, chart: Chart) -> None:
        """Redraw a chart soon: what fits a pixel has changed."""
        if chart not in self._resized:
            self._resized.append(chart)
        self._fit.start()

    def _redraw_resized(self) -> None:
        resized, self._resized = self._resized, []
        if self.isVisible() and self.has_run:
            for chart in resized:
                chart.redraw()
            self._show_cursor()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._redraw_if_new(every=True)

    def sizeHint(self) -> QSize:
        return QSize(980, 304)

    def _restyle(self) -> None:
        self._arrange()
        for chart in self.charts:
            chart.restyle()
        self.redraw()

    # the cursor

    def _on_pointed(self, x: float | None) -> None:
        plot = self.sender()
        chart = next(chart for chart in self.charts if chart.plot is plot)
        index = None if x is None else self._scale.nearest(x)
        if index is None and self._cursor is not None and self._cursor[0] is not chart:
            return
        self._cursor = None if index is None else (chart, index)
        self._show_cursor()

    def _on_clicked(self, x: float, _y: float) -> None:
        self._step_before = self._step
        if (index := self._scale.nearest(x)) is not None:
            self.stepChosen.emit(int(self._history.steps["step"][index]))

    def _on_double_click(self, chart: Chart) -> None:
        """Follow the run again in a chart that is zoomed, else show it alone; at the step that was chosen before the
        first of the two clicks."""
        self.stepChosen.emit(self._step_before)
        if not self._following or chart.plot.view.free_y:
            self.follow()
        else:
            self.toggle_alone(chart)

    def toggle_alone(self, chart: Chart) -> None:
        """Give one chart the whole page, or all of them again."""
        self.show_alone(chart if self._alone is None else None)

    def show_alone(self, chart: Chart | None) -> None:
        """Give one chart the whole page; None for all."""
        if chart is self._alone:
            return
        self._alone = chart
        for other in self.charts:
            other.setVisible(chart in (None, other))
        for pair in self._splitters:
            pair.setVisible(chart is None or pair.isAncestorOf(chart))
        self.aloneChanged.emit(chart is not None)

    def _on_menu(self, x: float, where: QPoint) -> None:
        """Ask for the menu of the marked step under the pointer, else of the recorded one."""
        view = self.sender()
        marked = np.array(sorted(self._history.marks), dtype=float)
        if len(marked) and isinstance(view, StepView):
            low, high = view.viewRange()[0]
            apart = np.abs(self._scale.x_of(marked) - x)
            if apart.min() <= NEAR * (high - low) / max(view.width(), 1):
                self.menuWanted.emit(int(marked[int(apart.argmin())]), where)
                return
        if (index := self._scale.nearest(x)) is not None:
            self.menuWanted.emit(int(self._history.steps["step"][index]), where)

    def set_step(self, step: int | None) -> None:
        """Keep the cursor of all charts at a step while the pointer is elsewhere; None for the newest."""
        self._step = step
        self._show_cursor()

    def _index(self) -> int | None:
        """Return the index of the step under the pointer, else of the chosen one; None for the newest."""
        if self._cursor is not None or self._step is None:
            return self._cursor[1] if self._cursor is not None else None
        return int(np.searchsorted(self._history.steps["step"], self._step))

    def _cursor_x(self) -> float | None:
        """Return the x of the step under the pointer, else of the chosen one; None for the newest."""
        index = self._index()
        positions = self._scale.of_steps()
        return (
            float(positions[index])
            if index is not None and index < len(positions)
            else None
        )

    def _show_cursor(self) -> None:
        x = self._cursor_x()
        for chart in self.charts:
            chart.show_cursor(x)
            if self._cursor is None or chart is not self._cursor[0]:
                chart.plot.readout.hide()
        if self._cursor is not None:
            self._show_readout(*self._cursor)

    def _show_readout(self, chart: Chart, index: int) -> None:
        steps = self._history.steps
        if index >= len(steps):
            return
        x = float(self._scale.of_steps()[index])
        heading = f"step {formatting.grouped_digits(int(steps['step'][index]))}"
        note = f"epoch {int(steps['epoch'][index]):,}"
        cuts = chart.plot.backdrop.cuts_near(x, NEAR)
        cut_rows = [
            (theme.current().accent, "network edited", cut.text) for cut in cuts
        ]
        chart.plot.show_readout(x, heading, note, [*chart.rows(x), *cut_rows])

    # layers

    def choose_layer(self, layer: str) -> None:
        """Select the first node of a layer."""
        for node in self._nodes.get(layer, ())[:1]:
            self.layerSelected.emit(node)

    def _tell_hover(self, layer: str | None) -> None:
        self.layerHovered.emit(
            next(iter(self._nodes.get(layer, ())), None) if layer is not None else None
        )
