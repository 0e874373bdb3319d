"""The page "Layer": details of one layer, during a run and after it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSizePolicy, QSplitter, QWidget

from app.features.layer.cards import HealthCard, InsideCard
from app.features.layer.charts import HistogramChart, RatioChart
from app.features.layer.health import health_checks
from app.training.history import History
from app.views.training.charts import ticks
from app.views.training.charts.charts import Chart
from app.views.training.charts.series import TimeScale
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.scrolled import Scrolled
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.painting import label

REST = 500  # ms between two redraws


class LayerPage(QWidget):
    """`layerChosen(path)` is emitted when the user selects a layer. `controls` may be put beside the tabs.

    Of a chosen step, `recomputeRequested(step)` asks for its values, `batchRequested` for its batch, and
    `newestRequested` for the newest again.
    """

    layerChosen = Signal(str)
    recomputeRequested = Signal(int)
    batchRequested = Signal()
    newestRequested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.values = HistogramChart()
        self.ratio = RatioChart()
        self.inside = InsideCard()
        self.charts: tuple[Chart, ...] = (self.values, self.ratio)
        self._history = History()
        self._layers: tuple[str, ...] = ()
        self._layer = self._run_title = ""
        self._step: int | None = None
        self._past = ""
        self._drawn = -1
        self.controls = QWidget()
        self.list = ChoiceField((), pairs=True)
        self.list.setAccessibleName("Layer")
        self.list.setMinimumWidth(160)
        self.list.edited.connect(self._choose)
        row = hbox(
            label("Layer", "caption", "text2"),
            self.list,
            on=self.controls,
            margins=(12, 4, 8, 4),
            spacing=8,
        )
        self.run_words = label("", "caption", "text2")
        self.recompute, self.batch, self.newest = (
            Button("", "link"),
            Button("Show batch", "link"),
            Button("Newest", "link"),
        )
        self.batch.setToolTip(
            "Samples, labels, outputs and losses of this step's batch"
        )
        self.newest.setToolTip("Show the newest step and follow the run")
        self.recompute.clicked.connect(
            lambda: self._step is not None and self.recomputeRequested.emit(self._step)
        )
        self.batch.clicked.connect(self.batchRequested)
        self.newest.clicked.connect(self.newestRequested)
        for widget in (self.run_words, self.recompute, self.batch, self.newest):
            row.addWidget(widget)
        column = vbox(on=self, margins=0)
        self.cards = QSplitter(Qt.Orientation.Horizontal)
        column.addWidget(Scrolled(self.cards))
        self.health = HealthCard()
        for card, share in (
            (self.values, 340),
            (self.ratio, 190),
            (self.health, 220),
            (self.inside, 370),
        ):
            self.cards.addWidget(card)
            self.cards.setStretchFactor(self.cards.count() - 1, share)
        self.cards.setSizes([340, 190, 220, 370])
        self.cards.setChildrenCollapsible(False)
        self.cards.setHandleWidth(1)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._tell_step()
        self._timer = QTimer(self, singleShot=True, interval=REST)
        self._timer.timeout.connect(self._redraw_if_new)
        for chart in self.charts:
            chart.plot.view.setMouseEnabled(x=False, y=False)
        theme.manager().changed.connect(self._restyle)

    @property
    def layer(self) -> str:
        """Return the path of the shown module, "" for none."""
        return self._layer

    def set_layers(self, layers: Sequence[str]) -> None:
        """Set the modules to choose from, by path."""
        if tuple(layers) == self._layers:
            return
        self._layers = tuple(layers)
        self.list.clear_choices()
        for layer in self._layers:
            self.list.add_choice(layer, layer)
        if self._layer in self._layers:
            self.list.set_value(self._layer)
        self._begin_with_first()

    def _begin_with_first(self) -> None:
        """Show the first layer if none was chosen."""
        if self.isVisible() and not self._layer and self._layers:
            self.show_layer(self._layers[0])

    @property
    def run_title(self) -> str:
        """Return the title of the run whose values and updates are shown, "" for none."""
        return self._run_title

    def set_history(self, history: History | None, title: str = "") -> None:
        """Show another run, which is called `title`; None for none."""
        self._history, self._run_title = history or History(), title
        self._tell_step()
        self._drawn = -1
        for chart in self.charts:
            chart.set_history(self._history, "step")
        self.redraw()

    def set_step(
        self, step: int | None, past: str = "", can_recompute: bool = True
    ) -> None:
        """Note the chosen step, None for the newest; `past` are the words for one whose values can be shown."""
        self._step, self._past = step, past
        self.recompute.setEnabled(can_recompute)
        if not past:
            self.values.show_past(None)
        self.values.set_step(step)
        self.ratio.set_step(step)
        self._tell_health()
        for chart in self.charts:
            chart.plot.cursor_line.show_at(self._cursor())
        self._tell_step()

    def _cursor(self) -> float | None:
        return float(self._step) if self._step is not None else None

    def _tell_step(self) -> None:
        step, title = self._step, self._run_title
        newest = f"Values and updates of {title}" if title else ""
        self.run_words.setText(self._past or newest)
        self.recompute.setText(f"Recompute step {step:,}" if step is not None else "")
        self.recompute.setToolTip(
            "Recompute this step and show its activations, batch and histograms"
        )
        self.recompute.setVisible(step is not None and not self._past)
        self.batch.setVisible(bool(self._past))
        self.newest.setVisible(step is not None)

    def show_layer(self, layer: str) -> None:
        """Show another layer."""
        self._layer = layer
        self.values.show_past(None)  # of the layer before
        if layer in self._layers:
            self.list.set_value(layer)
        self.values.show_layer(layer)
        self.ratio.show_layer(layer)
        self._tell_health()

    def _tell_health(self) -> None:
        self.health.list.set_checks(
            health_checks(self._history.seen, self._layer, self._step)
            if self._layer
            else ()
        )

    def refresh(self) -> None:
        """Redraw soon if the page is visible; the history may have grown."""
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def redraw(self) -> None:
        """Update the charts to the current history."""
        self._drawn = self._history.seen.version
        end = ticks.grown(TimeScale(self._history).end(), 0.0) or 1.0
        for chart in self.charts:
            chart.plot.set_x_range(0.0, end)
            chart.redraw()
        self._tell_health()

    def _redraw_if_new(self) -> None:
        if self._history.seen.version != self._drawn and self.isVisible():
            self.redraw()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._begin_with_first()
        self._redraw_if_new()

    def sizeHint(self) -> QSize:
        return QSize(980, 304)

    def _choose(self, layer: str) -> None:
        self.show_layer(layer)
        self.layerChosen.emit(layer)

    def _restyle(self) -> None:
        for chart in self.charts:
            chart.restyle()
        self.redraw()
