"""The time of each layer in a step: a page of rows, and the overlay "Time" on the canvas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QStackedLayout, QWidget

from app.data.own_files import cache
from app.features.trials.values import LayerTimes, TimeLayers
from app.preflight import preflight
from app.training.choices import CLOSURE
from app.training.events import Failed
from app.util.columns import Column
from app.util.formatting import UNKNOWN, figure, milliseconds, share
from app.util.language import marked, tr
from app.views.measured_net import MeasuredNet
from app.views.run.failures import show_failure
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import RowsModel, Table
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.source.generated import Source
    from app.views.workspace import Workspace

KEY, OVERLAY = "times", "Time"
BETWEEN, OPTIMIZER = marked("Between layers"), marked("Optimizer")
TITLE = marked("Time of each layer")
WAITS = marked("Measuring has to wait")
UNDER_WAY = marked(
    "A run is in progress. Stop it first: both would compete for the processor"
)
SEVERAL_CALLS = marked(
    "One step of {name} calls the network several times. Choose another optimizer to measure"
)
CHANGED = marked("The network has changed since; measure again.")
CAPTION = marked("Share of a step's time")
POSSIBLE = marked(
    "The least that its operations need by the roofline: the FLOP or the bytes of each, whichever takes longer at "
    "what this device reached in a matrix product and in a copy. Tensors in a cache need less."
)


class TimeRow(Struct, frozen=True):
    """Seconds of a layer, or of what is none (`layer` is ""), in a step of `step` seconds."""

    name: str
    layer: str
    forward: float
    backward: float | None
    possible: float | None
    step: float

    @property
    def together(self) -> float:
        return self.forward + (self.backward or 0.0)

    @property
    def ratio(self) -> float | None:
        """How many times what is possible it takes; None where nothing is computed, or too little to measure."""
        return (
            self.together / self.possible if self.possible and self.together else None
        )


def rows_of(times: LayerTimes) -> list[TimeRow]:
    """Return a row per layer, then what lies between them, then the optimizer."""
    step = times.step_seconds
    *layers, between = times.layers
    rows = [
        TimeRow(
            row.layer,
            row.layer,
            row.forward,
            row.backward,
            row.forward_possible + row.backward_possible,
            step,
        )
        for row in layers
    ]
    between_row = TimeRow(
        tr(BETWEEN),
        "",
        between.forward,
        between.backward,
        between.forward_possible + between.backward_possible,
        step,
    )
    optimizer = TimeRow(tr(OPTIMIZER), "", times.optimizer_seconds, None, None, step)
    return [*rows, between_row, optimizer]


def _ratio_text(row: TimeRow) -> str:
    return UNKNOWN if row.ratio is None else f"{figure(row.ratio, 2)}×"


def _name_color(row: TimeRow) -> str:
    return "" if row.layer else "text2"


COLUMNS = (
    Column("Layer", lambda row: row.name, color=_name_color),
    Column(
        "Forward",
        lambda row: milliseconds(row.forward) if row.backward is not None else UNKNOWN,
        "Time in the forward pass, without that of layers in it; 0 ms if it is shorter than what measuring costs",
        number=True,
        value=lambda row: row.forward if row.backward is not None else None,
    ),
    Column(
        "Backward",
        lambda row: UNKNOWN if row.backward is None else milliseconds(row.backward),
        "Time in the backward pass, without that of layers in it; 0 ms if it is shorter than what measuring costs",
        number=True,
        value=lambda row: row.backward,
    ),
    Column(
        "Together",
        lambda row: milliseconds(row.together),
        number=True,
        value=lambda row: row.together,
    ),
    Column(
        "Share",
        lambda row: share(row.together, row.step),
        "Share of the time of a step",
        number=True,
        value=lambda row: row.together / row.step,
    ),
    Column(
        "Possible",
        lambda row: milliseconds(row.possible) if row.possible else UNKNOWN,
        POSSIBLE,
        number=True,
        value=lambda row: row.possible or None,
    ),
    Column(
        "Times possible",
        _ratio_text,
        "Together, divided by what is possible",
        number=True,
        value=lambda row: row.ratio,
    ),
)


def conclusion(times: LayerTimes) -> str:
    """Return what a step takes, and which layer loses most to what is possible."""
    sentences = [
        tr(
            "A step takes {step} on {device}, measured on synthetic data.",
            step=milliseconds(times.step_seconds),
            device=times.device,
        )
    ]
    layers = [row for row in rows_of(times) if row.layer and row.possible]
    if layers:
        worst = max(layers, key=lambda row: row.together - (row.possible or 0.0))
        sentences.append(
            tr(
                "{layer} is furthest above what is possible: {time} in place of {possible}.",
                layer=worst.layer,
                time=milliseconds(worst.together),
                possible=milliseconds(worst.possible or 0.0),
            )
        )
    sentences.append(
        tr(
            "Possible is at {flop} GFLOP/s and {bandwidth} GB/s, measured here.",
            flop=figure(times.flop_per_second / 1e9),
            bandwidth=figure(times.bytes_per_second / 1e9),
        )
    )
    return " ".join(sentences)


class TimesTable(Table):
    """Enter and a double click go to the layer."""

    def opens(self, row: TimeRow) -> str:
        return tr("Show {layer}", layer=row.layer) if row.layer else ""


class TimesPage(QWidget):
    """The rows, or why there are none. `measure` measures again, `jump_requested(layer)` requests to show a layer."""

    jump_requested = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.times: LayerTimes | None = None
        self.measure = Button(tr("Measure again"), "secondary")
        self.summary = label("", "caption", "text2", wrap=True)
        self.summary.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.table = TimesTable(RowsModel(COLUMNS), tr(TITLE), 26)
        self.table.sort_by_header()
        self.table.horizontalHeader().setStretchLastSection(False)
        self.table.opened.connect(self._open)
        self.empty = EmptyState("curves", tr(TITLE))
        head = hbox((self.summary, 1), self.measure, margins=(8, 4, 8, 4), spacing=8)
        self._stack = QStackedLayout()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.table)
        vbox(head, (self._stack, 1), on=self, margins=0, spacing=0)

    def _open(self, row: TimeRow) -> None:
        if row.layer:
            self.jump_requested.emit(row.layer)

    def show_message(self, text: str) -> None:
        """Show a sentence in place of rows."""
        self.times = None
        self.summary.setText("")
        self.empty.set_text(tr(TITLE), text)
        self._stack.setCurrentIndex(0)

    def show_times(self, times: LayerTimes) -> None:
        """Show what was measured."""
        self.times = times
        self.summary.setText(conclusion(times))
        self.table.cells.set_rows(rows_of(times))
        self.table.fit_columns()
        self._stack.setCurrentIndex(1)

    def note(self, text: str) -> None:
        """Put a sentence before what was measured."""
        if not self.summary.text().startswith(text):
            self.summary.setText(f"{text} {self.summary.text()}")


class TimesControl(MeasuredNet):
    """Measures how long the layers of the open net take, and draws it."""

    def __init__(self, workspace: Workspace, page: TimesPage) -> None:
        super().__init__(workspace, page, KEY, OVERLAY, tr(CHANGED))
        self._page = page
        page.measure.clicked.connect(self.measure)
        page.jump_requested.connect(self.jump)

    def measure(self) -> None:
        """Measure in the engine, or say why not."""
        workspace = self._workspace
        blocked = workspace.run_control.blocked
        optimizer = workspace.document.project.training.optimizer.name
        if workspace.session.active:
            blocked = tr(UNDER_WAY)
        elif optimizer == CLOSURE:
            blocked = tr(SEVERAL_CALLS, name=optimizer)
        if blocked or workspace.live.analysis is None:
            workspace.notifier.refuse(tr(WAITS), f"{blocked}.")
            return
        self.open_page()
        project, source = workspace.document.project, workspace.live.analysis.source
        job = preflight.job(
            project, workspace.live.analysis, str(workspace.settings.data_folder)
        )
        self._page.measure.setEnabled(False)
        self._page.show_message(tr("Steps on synthetic data are measured…"))

        def on_answer(answer: LayerTimes | Failed | WorkerFailure) -> None:
            self._page.measure.setEnabled(True)
            if isinstance(answer, LayerTimes):
                self._page.show_times(answer)
                self.measured(project, source)
            elif isinstance(answer, Failed):
                self._page.show_message(answer.message)
                show_failure(workspace, answer, tr("The step failed"))
            else:
                self._page.show_message(answer.message)

        workspace.engine.ask(
            KEY,
            TimeLayers(job, cache.fact(job.data)),
            on_answer=on_answer,
            on_error=on_answer,
        )

    def stop(self) -> None:
        self._workspace.engine.forget(KEY)
        self._page.measure.setEnabled(True)

    def draw(self, source: Source) -> None:
        """Draw the share of each node in the time of a step."""
        times = self._page.times
        if times is None:
            return
        seconds = node_seconds(times, source.within(self._workspace.place.path))
        step = times.step_seconds
        shares = {node: spent / step for node, spent in seconds.items() if spent}
        texts = {node: milliseconds(seconds[node]) for node in shares}
        self._workspace.overlays.draw_costs(OVERLAY, shares, texts, tr(CAPTION))


def node_seconds(times: LayerTimes, sheet: Source) -> Mapping[str, float]:
    """Return forward and backward of the nodes of a sheet, with those of what is in them."""
    rows = [row for row in rows_of(times) if row.layer]
    seconds = {}
    for node, first in sheet.modules.items():
        modules = (first, *sheet.further.get(node, ()))
        seconds[node] = sum(
            row.together
            for row in rows
            if any(
                row.layer == module or row.layer.startswith(f"{module}.")
                for module in modules
            )
        )
    return seconds
