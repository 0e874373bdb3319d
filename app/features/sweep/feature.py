"""Sweeps in the window: a page, a button and a strip on the page Runs, and a command in the Run menu."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QSplitter, QStackedLayout, QWidget

from app.features.sweep.control import SweepControl
from app.features.sweep.plots import COSTS, KINDS, SweepPlot
from app.features.sweep.values import (
    ReadSweep,
    SweepSetting,
    SweepTable,
    TrialRow,
    Values,
    text_of,
)
from app.util.columns import Column
from app.util.formatting import UNKNOWN, bytes_text, counted, figure
from app.views.feature import Action, Feature, Page
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import RowsModel, Table
from app.views.ui.widgets import Button, ChoiceField, EmptyState, Segmented
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.views.workspace import Workspace

# --- Page "Sweep": the trials of a sweep as a table and as pictures, and what is done with them

FIGURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("Loss", "value", figure),
    ("Accuracy", "accuracy", lambda share: f"{share:.2%}"),
    ("Parameters", "parameters", lambda count: f"{count:,.0f}"),
    ("Bytes", "bytes", bytes_text),
    ("ms a step", "milliseconds", figure),
)
TONES = {"failed": "error", "pruned": "text3", "waiting": "text3", "running": "run"}


def _figure(name: str, text: Callable[[Any], str]) -> Callable[[TrialRow], str]:
    def shown(row: TrialRow) -> str:
        value = getattr(row, name)
        return UNKNOWN if value is None else text(value)

    return shown


def _spread(row: TrialRow) -> float | None:
    return statistics.stdev(row.seeds) if len(row.seeds) > 1 else None


def _spread_text(row: TrialRow) -> str:
    spread = _spread(row)
    return UNKNOWN if spread is None else f"± {figure(spread)}"


def columns_of(table: SweepTable) -> Sequence[Column]:
    """Return the columns of a table of trials; those that no trial has a figure for are left out."""
    columns = [
        Column(
            "Trial",
            lambda row: str(row.number),
            number=True,
            value=attrgetter("number"),
        ),
        Column(
            "State", attrgetter("state"), color=lambda row: TONES.get(row.state, "")
        ),
    ]
    measured = [
        Column(title, _figure(name, text), number=True, value=attrgetter(name))
        for title, name, text in FIGURES
        if name == "value"
        or any(getattr(row, name) is not None for row in table.trials)
    ]
    if table.search.seeds > 1:
        measured.insert(1, Column("Spread", _spread_text, number=True, value=_spread))
    note = Column("Note", attrgetter("note"))
    split = 1 + (table.search.seeds > 1)
    settings = map(_setting_column, table.search.settings)
    return [*columns, *measured[:split], *settings, *measured[split:], note]


def _setting_column(setting: SweepSetting) -> Column:
    name = setting.name

    def text(row: TrialRow) -> str:
        value = row.values.get(name, UNKNOWN)
        return text_of({name: value}).removeprefix(f"{name} ")

    number = all(isinstance(each, int | float) for each in setting.extremes)
    return Column(name, text, number=number, value=lambda row: row.values.get(name))


class SweepPage(QWidget):
    """`chosen(tag)` is another sweep, `opened(runs)` the numbers of the runs of a trial. Buttons are the control's."""

    chosen = Signal(object)
    opened = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.table: SweepTable | None = None
        self.ended = 0
        self.tags = ChoiceField()
        self.tags.setAccessibleName("Sweep")
        self.tags.edited.connect(self.chosen)
        self.words = label("", "label", "text2")
        self.pause = Button("Pause", icon="pause")
        self.stop = Button("Stop trial", icon="stop")
        self.add = Button("Add a trial…", icon="add")
        self.space = Button("Edit the space…")
        self.go_on = Button("Continue", icon="run")
        self.begin = Button("Sweep…")
        bar = hbox(
            self.tags,
            (self.words, 1),
            *(self.pause, self.stop, self.add, self.space, self.go_on, self.begin),
            margins=(10, 4, 8, 4),
            spacing=6,
        )
        self.plot = SweepPlot()
        self.plot.chosen.connect(self._choose)
        self.rows = Table(RowsModel([]), "Trials")
        self.rows.chosen.connect(lambda row: self.plot.mark(row.number))
        self.rows.opened.connect(lambda row: self.opened.emit(row.runs))
        self.rows.opens = lambda _row: "Show its runs"
        self.kind = Segmented(list(KINDS.items()), "Picture of the trials")
        self.kind.changed.connect(self._show_kind)
        self.cost = ChoiceField(tuple(COSTS.items()), pairs=True)
        self.cost.setAccessibleName("Cost")
        self.cost.edited.connect(self.plot.show_cost)
        self.cost.hide()
        pictures, inside = QWidget(), QWidget()
        top = hbox(self.kind, self.cost, 1, spacing=8)
        vbox(top, (self.plot, 1), on=pictures, margins=(8, 4, 8, 4), spacing=4)
        split = QSplitter(Qt.Orientation.Horizontal)
        split.addWidget(self.rows)
        split.addWidget(pictures)
        split.setChildrenCollapsible(False)
        split.setStretchFactor(0, 1)
        split.setStretchFactor(1, 1)
        self.verdict = label("", "caption", "text2", wrap=True)
        vbox((split, 1), self.verdict, on=inside, margins=0, spacing=2)
        self.empty = EmptyState("runs", "No sweep yet", "Begin one by Sweep…")
        self._stack = QStackedLayout()
        column = vbox(bar, on=self, margins=0, spacing=0)
        column.addLayout(self._stack, 1)  # first: a stack shows what it gets
        self._stack.addWidget(self.empty)
        self._stack.addWidget(inside)
        self.show_table(None)

    def show_table(self, table: SweepTable | None, problem: str = "") -> None:
        """Show a sweep; None for none, and why."""
        before, self.table = self.table, table
        self._stack.setCurrentIndex(int(table is not None))
        self.tags.setVisible(table is not None)
        self.plot.show_table(table)
        if table is None:
            self.empty.set_text("No sweep yet", problem or "Begin one by Sweep…")
            self.words.setText("")
            return
        if self.tags.choices() != table.tags:
            self.tags.clear_choices()
            for tag in table.tags:
                self.tags.add_choice(tag)
        self.tags.set_value(table.tag)
        same = before is not None and before.search == table.search
        columns = columns_of(table)
        titles = [column.title for column in self.rows.cells.columns]
        same = same and titles == [column.title for column in columns]
        self.rows.cells.set_rows(table.trials, None if same else columns)
        if not same or before is None or before.trials != table.trials:
            self.rows.fit_columns()
        ended = [
            row for row in table.trials if row.state in ("done", "pruned", "failed")
        ]
        self.ended = len(ended)
        pruned = sum(row.state == "pruned" for row in ended)
        words = f"{len(ended):,} of {counted(table.search.count, 'trial')}"
        more = f", {pruned:,} pruned" if pruned else ""
        self.words.setText(f"{words}{more}, {table.search.sampler}")
        self.verdict.setText(table.verdict)
        self.verdict.setVisible(bool(table.verdict))

    def _show_kind(self, kind: str) -> None:
        self.cost.setVisible(kind == "pareto")
        self.plot.show_kind(kind)

    def _choose(self, number: int) -> None:
        """Select the row of a trial."""
        numbers = [row.number for row in self.rows.cells.rows]
        if number in numbers:
            self.rows.selectRow(numbers.index(number))
        self.plot.mark(number)


# --- The page "Sweep" kept up to date, and its buttons

LOOK = 3000  # milliseconds between two looks at a sweep of another process
TOGETHER = 200  # milliseconds in which changes are read at once


class PageControl(QObject):
    """Reads the sweep that the page shows while it can be seen: the newest, or the one that was chosen there."""

    def __init__(
        self, workspace: Workspace, sweeps: SweepControl, page: SweepPage
    ) -> None:
        super().__init__(page)
        self._workspace, self._sweeps, self._page = workspace, sweeps, page
        self._tag = ""
        self._timer = QTimer(self, interval=LOOK)
        self._timer.timeout.connect(self._look)
        self._timer.start()
        self._soon = QTimer(self, singleShot=True, interval=TOGETHER)
        self._soon.timeout.connect(self._read)
        page.begin.clicked.connect(sweeps.open)
        page.stop.clicked.connect(sweeps.stop_trial)
        page.pause.clicked.connect(self._pause)
        page.add.clicked.connect(self._add)
        page.space.clicked.connect(lambda: self._with_table(sweeps.edit_space))
        page.go_on.clicked.connect(lambda: self._with_table(sweeps.go_on))
        page.chosen.connect(self._choose)
        page.opened.connect(self._open)
        sweeps.changed.connect(self.refresh)
        workspace.pages.shown.connect(lambda _key: self.refresh())
        workspace.document.replaced.connect(lambda _project: self._choose(""))
        workspace.session.stateChanged.connect(lambda _state: self._show_buttons())
        self._show_buttons()
        self.refresh()

    def refresh(self) -> None:
        """Read the sweep soon, if the page or the list of runs, which has those of sweeps, can be seen."""
        in_sight = self._page.isVisible() or self._workspace.pages.is_front("runs")
        if in_sight and not self._soon.isActive():
            self._soon.start()

    def _read(self) -> None:
        request = ReadSweep(self._sweeps.folder, self._sweeps.tag or self._tag)
        self._workspace.engine.ask(
            "sweep read", request, on_answer=self._show, on_error=self._cannot_read
        )

    def _show(self, table: SweepTable | None) -> None:
        self._page.show_table(table)
        if table is not None:
            self._workspace.pages.set_offered("sweep", True)
        self._show_buttons()

    def _cannot_read(self, failure: WorkerFailure) -> None:
        message = failure.message
        self._page.show_table(None, f"{message[:1].upper()}{message[1:]}.")
        self._show_buttons()

    def _look(self) -> None:
        table = self._page.table
        if table is not None and table.held and not self._sweeps.tag:
            self.refresh()

    def _show_buttons(self) -> None:
        page, table, session = self._page, self._page.table, self._workspace.session
        here = bool(self._sweeps.tag) and session.active
        page.stop.setVisible(here)
        page.pause.setVisible(here)
        page.pause.setText("Resume" if session.state == "paused" else "Pause")
        steered = table is not None and not table.of_runs
        page.add.setVisible(steered)
        page.space.setVisible(steered)
        page.begin.setVisible(not self._sweeps.tag)
        left = table is not None and steered and page.ended < table.search.count
        elsewhere = table is not None and table.held
        page.go_on.setVisible(left and not self._sweeps.tag and not elsewhere)

    def _pause(self) -> None:
        session = self._workspace.session
        if session.state == "paused":
            session.resume()
        else:
            session.pause()

    def _with_table(self, does: Callable[[SweepTable], object]) -> None:
        if self._page.table is not None:
            does(self._page.table)

    def _add(self) -> None:
        table = self._page.table
        if table is None:
            return
        near = [row for row in table.trials if row.value is not None]
        best = min(near, key=lambda row: row.value or 0.0, default=None)
        first = {s.name: s.extremes[0] for s in table.search.settings}
        self._sweeps.add_trial(table, best.values if best else Values(first))

    def _choose(self, tag: str) -> None:
        self._tag = tag
        self.refresh()

    def _open(self, _runs: object) -> None:
        table = self._page.table
        if table is not None:
            filtered = f"tags:{table.tag}"
            self._workspace.commands.trigger("show-runs", filtered, "best_loss")


TIP = "Search for the best settings: run after run, chosen on a grid, at random or by what earlier runs reached"


class SweepFeature(Feature):
    follows = True  # its button stands in the list of runs, which does
    sweeps: SweepControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "sweep",
            "Sweep",
            "search",
            "bottom",
            self._make,
            after="runs",
            words="Sweep",
        )

    def _make(self) -> SweepPage:
        self.page = SweepPage()
        return self.page

    def begin(self) -> None:
        self.workspace.pages.set_offered("sweep", False)  # until it is asked for

    def actions(self) -> Iterable[Action]:
        yield Action(
            "sweep",
            "Sw&eep…",
            lambda: self.sweeps.open(),
            tip=TIP,
            late=True,
            menu="run.rate",
        )

    def finish(self) -> None:
        self.sweeps = SweepControl(self.workspace)
        self.page_control = PageControl(self.workspace, self.sweeps, self.page)
