"""Page "Sweep": the trials of a sweep as a table and as pictures, and what is done with them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSplitter, QStackedLayout, QWidget

from app.features.sweep.plots import COSTS, KINDS, SweepPlot
from app.features.sweep.values import SweepSetting, SweepTable, TrialRow, text_of
from app.util.columns import Column
from app.util.formatting import UNKNOWN, bytes_text, counted, figure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import RowsModel, Table
from app.views.ui.widgets import Button, ChoiceField, EmptyState, Segmented
from app.views.ui.widgets.painting import label

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
