"""The dialog of a sweep: settings with their values, and how many runs they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QScrollArea, QWidget

from app.builder.results import Analysis
from app.data.own_files.cache import Fact
from app.features.sweep.values import (
    PRUNERS,
    SAMPLERS,
    PlanSweep,
    Search,
    SweepError,
    SweepPlan,
    SweepSetting,
    parse_values,
)
from app.project.project import Project
from app.training.choices import ChoiceParam
from app.util.formatting import counted
from app.views.engine_service import EngineService
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.theme import grown
from app.views.ui.widgets import (
    Button,
    ChoiceField,
    NumberField,
    Segmented,
    icon_button,
)
from app.views.ui.widgets.fields import HEIGHT
from app.views.ui.widgets.painting import announce, label, set_property

# --- A row of the sweep dialog: a setting and its values

NAME = 170  # px


class ValuesMenu(QMenu):
    """Values to check, several in one go: it stays open. `toggled` is emitted after each change."""

    toggled = Signal()

    def fill(self, values: Iterable[Any], chosen: Sequence[str]) -> None:
        """List the values, those that are chosen checked."""
        self.clear()
        for value in values:
            action = self.addAction(str(value))
            action.setCheckable(True)
            action.setChecked(str(value) in chosen)

    @property
    def chosen(self) -> list[str]:
        return [action.text() for action in self.actions() if action.isChecked()]

    def event(self, event: QEvent) -> bool:
        """Toggle an entry without closing, by a click, the space bar or Enter."""
        pressed = isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress
        keys = (Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter)
        chosen = pressed and isinstance(event, QKeyEvent) and event.key() in keys
        if (
            chosen or event.type() == QEvent.Type.MouseButtonRelease
        ) and self.activeAction() is not None:
            self.activeAction().toggle()
            self.toggled.emit()
            return True
        return super().event(event)


class SettingRow(QWidget):
    """`changed` is emitted by each edit, `renamed` when another setting is chosen, `removed` by its button."""

    changed = Signal()
    renamed = Signal()
    removed = Signal()

    def __init__(self, params: Sequence[ChoiceParam], name: str) -> None:
        super().__init__()
        self._params: dict[str, ChoiceParam] = {}
        self.name = ChoiceField()
        self.name.setAccessibleName("Setting")
        self.name.setFixedWidth(NAME)
        self.values = QLineEdit()
        self.values.setFixedHeight(grown(HEIGHT, "label"))
        self.values.textChanged.connect(lambda _text: self.changed.emit())
        self.menu = ValuesMenu(self)
        self.menu.aboutToShow.connect(self._fill_menu)
        self.menu.toggled.connect(
            lambda: self.values.setText(", ".join(self.menu.chosen))
        )
        self.choose = Button("Choose")
        self.choose.setMenu(self.menu)
        self.remove = icon_button("close", "Remove")
        self.remove.clicked.connect(self.removed)
        self.problem = label("", "caption", "error", wrap=True)
        row = hbox(self.name, (self.values, 1), self.choose, self.remove, spacing=8)
        vbox(row, self.problem, on=self, margins=0, spacing=2)
        self.show_problem("")
        self.name.edited.connect(lambda _name: self._show_name(renamed=True))
        self.set_names(params, name)

    def set_names(self, params: Sequence[ChoiceParam], name: str) -> None:
        """Set which settings can be chosen, and the one that is."""
        self._params = {param.name: param for param in params}
        names = [*self._params, *([name] if name not in self._params else [])]
        if self.name.choices() != tuple(names):
            self.name.clear_choices()
            for choice in names:
                self.name.add_choice(choice)
        self.name.set_value(name)
        self._show_name()

    def _show_name(self, renamed: bool = False) -> None:
        name = self.name.value()
        param = self._params.get(name)
        self.values.setAccessibleName(f"Values of {name}")
        self.values.setPlaceholderText(
            f"now {param.default}" if param is not None else ""
        )
        self.name.set_hint(param.doc if param is not None else "")
        self.choose.setVisible(bool(self._offered))
        self.choose.setAccessibleName(f"Choose values of {name}")
        self.remove.setAccessibleName(f"Remove {name}")
        self.remove.setToolTip(f"Remove {name}")
        if renamed:
            self.values.clear()
            self.renamed.emit()

    @property
    def _offered(self) -> tuple[Any, ...]:
        """Return all values of a setting that has few."""
        param = self._params.get(self.name.value())
        if param is None:
            return ()
        values = (True, False) if param.kind == "bool" else tuple(param.choices)
        return (None, *values) if values and param.optional else values

    def _fill_menu(self) -> None:
        self.menu.fill(
            self._offered,
            [value_text.strip() for value_text in self.values.text().split(",")],
        )

    @property
    def empty(self) -> bool:
        return not self.values.text().strip()

    def setting(self) -> SweepSetting:
        """Return the setting with its values. Raises SweepError."""
        return parse_values(self.name.value(), self.values.text().strip())

    def show_problem(self, text: str) -> None:
        """Show the error in the values, "" for none."""
        if text and text != self.problem.text():
            announce(self.values, text)
        self.problem.setText(text)
        self.problem.setVisible(bool(text))
        set_property(self.values, "invalid", bool(text))
        self.values.setAccessibleDescription(text)


KEY = "sweep"
TYPING = 200  # milliseconds after the last key before the runs are checked
ROWS = 6  # that are seen without scrolling
FIRST = "lr"
WORDS = (
    "Trains the network, as it is now, with different settings, one run after the other. The runs are listed under "
    "Runs, with their settings as names and one tag for all of them."
)
VALUES = {
    "grid": "Values are separated by commas: 0.1, 0.01, 0.001",
    "random": "Values are separated by commas, or bounds to draw between: 1e-4..1e-1:log by the logarithm, 16..64:16 "
    "in steps",
    "search": "As for random draws; the values are chosen by what the trials before have reached",
}
CHOSEN = SAMPLERS[2:]  # samplers that learn, or spread evenly


class SweepDialog(Dialog):
    """`started(search)` carries what is searched for, which has been checked; the dialog closes then."""

    started = Signal(object)

    def __init__(
        self,
        project: Project,
        analysis: Analysis,
        fact: Fact | None,
        engine: EngineService,
        parent: QWidget | None = None,
        edited: Search | None = None,
        action: str = "Start sweep",
    ) -> None:
        super().__init__("Sweep", parent, icon="runs")
        self._edited = edited
        self.setMinimumWidth(600)
        self._project, self._analysis, self._fact, self._engine = (
            project,
            analysis,
            fact,
            engine,
        )
        self._params: tuple[ChoiceParam, ...] = ()
        self._plan: SweepPlan | None = None
        self._search = Search(())
        self._wanted = False  # to start as soon as the runs are checked
        self.rows: list[SettingRow] = []
        self._typing = QTimer(self, singleShot=True, interval=TYPING)
        self._typing.timeout.connect(self._ask)
        self.mode = Segmented(
            [
                ("grid", "Every combination"),
                ("random", "Random draws"),
                ("search", "Search"),
            ],
            "How runs are chosen",
        )
        self.mode.changed.connect(lambda _mode: self._mode_changed())
        self.draws, self.seed = NumberField(10, "int", 1), NumberField(0, "int", 0)
        self.seeds = NumberField(1, "int", 1)
        self.sampler, self.pruner = ChoiceField(), ChoiceField()
        for field, choices in ((self.sampler, CHOSEN), (self.pruner, PRUNERS)):
            for choice in choices:
                field.add_choice(choice)
            field.set_value(choices[0])
            field.edited.connect(lambda _value: self._changed())
        self.hint = label("", "caption", "text3", wrap=True)
        self.count = label("", "label", "text", wrap=True)
        self._lay_out()
        self.add_button("Cancel").clicked.connect(self.reject)
        self.start_button = self.add_button(action, "primary", default=True)
        self.start_button.clicked.connect(self._start)
        self._mode_changed()

    def _lay_out(self) -> None:
        self.body.addWidget(label(WORDS, "body", "text2", wrap=True))
        self._drawing, self._choosing = QWidget(), QWidget()
        number_of = ("trials", self.draws, "Number of trials")
        seeded = ("seed", self.seed, "Seed of the draws")
        ended = ("pruner", self.pruner, "What ends bad trials early")
        seeds = ("seeds", self.seeds, "Seeds of each trial")
        chosen = ("sampler", self.sampler, "What chooses the values")
        self._line(self._drawing, number_of, seeded)
        self._line(self._choosing, chosen)
        every = QWidget()
        self._line(every, ended, seeds)
        how = QWidget()
        chosen_by = hbox(self.mode, self._choosing, 1, spacing=16)
        vbox(
            chosen_by,
            hbox(self._drawing, every, 1, spacing=16),
            on=how,
            margins=0,
            spacing=8,
        )
        how.setVisible(self._edited is None)
        self.body.addWidget(how)
        self.body.addWidget(self.hint)
        inside = QWidget()
        self._column = vbox(1, on=inside, margins=(0, 0, 4, 0), spacing=6)
        self.area = QScrollArea()
        self.area.setWidgetResizable(True)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(inside)
        self.body.addWidget(self.area)
        self.add = Button("Add a setting", "link", icon="add")
        self.add.clicked.connect(lambda: self.add_row(self._unused()))
        self.body.addWidget(self.add, 0, Qt.AlignmentFlag.AlignLeft)
        self.body.addWidget(self.count)
        self.body.addStretch(1)

    def _line(self, on: QWidget, *fields: tuple[str, QWidget, str]) -> None:
        """Lay out fields with their names."""
        parts: list[QWidget] = []
        for text, field, name in fields:
            field.setAccessibleName(name)
            if isinstance(field, NumberField):
                field.setFixedWidth(70)
                field.textChanged.connect(lambda _text: self._changed())
            parts += [label(text, "code", "text2"), field]
        hbox(*parts, on=on, margins=0, spacing=6)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def add_row(self, name: str) -> SettingRow:
        """Add a row for a setting, and put the focus into its values."""
        row = SettingRow(self._params, name)
        row.changed.connect(self._changed)
        row.renamed.connect(row.values.setFocus)
        row.removed.connect(lambda: self._remove(row))
        self._column.insertWidget(len(self.rows), row)
        self.rows.append(row)
        self._fit()
        row.values.setFocus(Qt.FocusReason.OtherFocusReason)
        QTimer.singleShot(0, row, lambda: self.area.ensureWidgetVisible(row))
        self._changed()
        return row

    def _remove(self, row: SettingRow) -> None:
        index = self.rows.index(row)
        self.rows.remove(row)
        self._column.removeWidget(row)
        row.hide()
        row.deleteLater()
        (
            self.rows[min(index, len(self.rows) - 1)].values if self.rows else self.add
        ).setFocus()
        self._fit()
        self._changed()

    def _unused(self) -> str:
        used = [row.name.value() for row in self.rows]
        candidates = [FIRST, "batch_size", *(param.name for param in self._params)]
        names = [param.name for param in self._params]
        return next(
            (name for name in candidates if name in names and name not in used),
            used[0] if used else FIRST,
        )

    def _fit(self) -> None:
        """Make room for the rows, up to some; more are scrolled to."""
        heights = [row.sizeHint().height() + 6 for row in self.rows]
        inside = present(
            self.area.widget()
        )  # an error that wraps wants more than its row's hint
        least = inside.minimumSizeHint().height() if len(heights) <= ROWS else 0
        self.area.setFixedHeight(max(sum(heights[:ROWS]) + 2, least))
        self.add.setEnabled(bool(self._params) and len(self.rows) < len(self._params))
        self._grow()

    def _grow(self) -> None:
        """Make room for all words; they wrap, so that a layout does not do it by itself."""
        if self.isVisible():
            self.resize(
                self.width(),
                max(
                    self.height(),
                    present(self.layout()).totalHeightForWidth(self.width()),
                ),
            )

    def _mode_changed(self) -> None:
        self._drawing.setVisible(self._draws)
        self._choosing.setVisible(self.mode.value() == "search")
        self.hint.setText(VALUES[self.mode.value()])
        self._changed()

    @property
    def _draws(self) -> bool:
        return bool(self.mode.value() != "grid")

    # -- the runs -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._plan = None
        self._wanted = False
        self._typing.start()

    def _settings(self) -> tuple[SweepSetting, ...] | None:
        """Return the settings, None if one of them cannot be read, which is shown at it."""
        settings, wrong = list[SweepSetting](), False
        for row in self.rows:
            row.show_problem("")
            if row.empty:
                continue
            try:
                settings.append(row.setting())
            except SweepError as error:
                row.show_problem(f"{error}.")
                wrong = True
        self._fit()
        return None if wrong else tuple(settings)

    def _ask(self) -> None:
        """Have the engine check the runs."""
        self._typing.stop()
        settings = self._settings()
        if settings is None:
            self._show("")
            return
        self._search = self._wanted_search(settings)
        request = PlanSweep(self._project, self._analysis, self._fact, self._search)
        self._engine.ask(KEY, request, on_answer=self._answered, on_error=self._failed)

    def _wanted_search(self, settings: tuple[SweepSetting, ...]) -> Search:
        if self._edited is not None:
            return replace(self._edited, settings=settings)
        return Search(
            settings,
            self.sampler.value()
            if self.mode.value() == "search"
            else self.mode.value(),
            self.pruner.value(),
            self.draws.pending() if self._draws else None,
            self.seed.pending(),
            self.seeds.pending(),
        )

    def _answered(self, plan: SweepPlan) -> None:
        self._plan, self._params = plan, plan.params
        for setting in self._edited.settings if self._edited and not self.rows else ():
            self.add_row(setting.name).values.setText(setting.text)
        if not self.rows:
            self.add_row(self._unused())
        for row in self.rows:
            row.set_names(plan.params, row.name.value())
        blamed = next(
            (row for row in self.rows if row.name.value() == plan.blamed), None
        )
        problem = f"{plan.problem[:1].upper()}{plan.problem[1:].rstrip('.')}."
        if blamed is not None:
            blamed.show_problem(f"{plan.problem.rstrip('.')}.")
        self._fit()
        if plan.problem:
            self._show("" if blamed is not None else problem, "error")
        elif plan.trials:
            self._show(self._summary(plan))
        else:
            self._show("Give at least one setting its values.", "text3")
        if self._wanted:
            self._start()

    def _failed(self, failure: WorkerFailure) -> None:
        self._wanted = False
        self._show(failure.message, "error")

    def _summary(self, plan: SweepPlan) -> str:
        varies = any(row.name.value() == "epochs" for row in self.rows)
        epochs = counted(self._project.training.epochs, "epoch")
        each = "" if varies else f" of {epochs}{' each' if plan.trials > 1 else ''}"
        seeds = self._search.seeds
        more = f", each with {counted(seeds, 'seed')}" if seeds > 1 else ""
        return f"{counted(plan.trials, 'run')}{each}{more}"

    def _show(self, count: str, tone: str = "text") -> None:
        self.count.setText(count)
        set_property(self.count, "tone", tone)
        self._grow()

    def _start(self) -> None:
        """Start the sweep, once its runs are checked; else show which setting is missing or wrong."""
        if self._plan is None:
            self._ask()
            self._wanted = self._settings() is not None
        elif self._plan.trials:
            self.started.emit(self._search)
            self.accept()
        else:
            self._wanted = False
            self._show_first_problem()
        if self._plan is None and not self._wanted:
            self._show_first_problem()

    def _show_first_problem(self) -> None:
        wrong = next((row for row in self.rows if row.problem.text()), None)
        empty = next((row for row in self.rows if row.empty), None)
        if (row := wrong or empty) is not None:
            row.values.setFocus()
            row.values.selectAll()
        else:
            self.add.setFocus()

    def done(self, result: int) -> None:
        self._engine.forget(KEY)
        super().done(result)
