"""The learning rate schedule: class, interval, warmup, and a preview curve."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal

from app.data.config import DataConfig
from app.data.sample_counts import training_count
from app.engine.protocol import Request
from app.engine.requests.choices import (
    CheckOptimizer,
    CheckSchedule,
    FirstSchedule,
    Params,
    PreviewRate,
)
from app.training.choices import SCHEDULERS, ChoiceError, ChoiceParam
from app.training.config import MOST_COUNT, Choice, Schedule, TrainingConfig
from app.training.setup import schedule_length
from app.training.setup.schedule_length import RatePreview, Span
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.values import show
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.training.form.choice_section import ChoiceSection
from app.views.ui.background import WorkerFailure
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import label, set_property, show_or_hide

NONE = ""
_WHEN = (
    ChoiceParam(
        "per",
        "choice",
        "epoch",
        choices=("epoch", "step"),
        doc="When scheduler.step() is called: after every epoch, or after every optimizer step.",
    ),
    ChoiceParam(
        "warmup",
        "int",
        0,
        minimum=0,
        maximum=MOST_COUNT,
        doc="Linear warmup from 1/100 of the rate, over this number of epochs or steps.",
    ),
)


def length_of(training: TrainingConfig, data: DataConfig) -> Span:
    """Return the length of a run, as far as it is known before the data are read."""
    return schedule_length.span(training, training_count(data), data.drop_last)


class ScheduleSection(ChoiceSection):
    """`made(schedule, words, merge)` is a Schedule that torch has made once, or None."""

    made = Signal(object, str, object)

    def __init__(self, engine: EngineService) -> None:
        names = [(NONE, "None: constant rate"), *((name, name) for name in SCHEDULERS)]
        super().__init__(
            "Schedule",
            names,
            partial(Params, "schedule"),
            CheckOptimizer,
            engine,
            opened=False,
            pairs=True,
        )
        self._training = TrainingConfig()
        self._length = Span(1, None)
        self._previewed: object = None
        self.when = ParamForm(_WHEN)
        self.when.edited.connect(self._when_edited)
        self.when.reset.connect(
            lambda name: self._when_edited(
                name, getattr(Schedule(Choice("")), name), None
            )
        )
        self.said = label("", "label", "text3", wrap=True)
        self.said.hide()
        self.fit = Button("", "link")
        self.fit.clicked.connect(self._fit_to_run)
        self.plot = SmallPlot("Learning rate over the run")
        self.plot_words = label("", "caption", "text3", wrap=True)
        self.words.hide()
        for widget in (self.when, self.said):
            self.body_layout.addWidget(widget)
        self.body_layout.addWidget(self.fit, 0, Qt.AlignmentFlag.AlignLeft)
        for drawn in (self.plot, self.plot_words):
            self.body_layout.addWidget(drawn)
        self.chosen.connect(self._emit_choice)

    @property
    def schedule(self) -> Schedule | None:
        return self._training.schedule

    def set_torch_loaded(self) -> None:
        super().set_torch_loaded()
        self._ask_preview()

    def show_config(self, training: TrainingConfig, length: Span) -> None:
        """Show the project's schedule."""
        if (
            training.schedule is None
            or training.schedule.choice.name != self._choice.name
        ):
            self.said.hide()
            self.when.forget()  # refused beside another schedule
        self._training, self._length = training, length
        schedule = training.schedule
        self.show_choice(schedule.choice if schedule else Choice(NONE))
        self.when.setVisible(schedule is not None)
        if schedule is not None:
            self.when.set_values({"per": schedule.per, "warmup": schedule.warmup})
        self._summarise(schedule)
        self._offer_fit()
        self._ask_preview()

    def forget(self) -> None:
        super().forget()
        for question in ("first", *(f"when.{param.name}" for param in _WHEN)):
            self._engine.forget(f"{self._key}.{question}")

    def _summarise(self, schedule: Schedule | None) -> None:
        if schedule is None:
            self.set_summary("none", False)
            return
        texts = [
            schedule.choice.name,
            *(
                f"{name} {show(value)}"
                for name, value in schedule.choice.params.items()
            ),
        ]
        self.set_summary(
            ", ".join(
                [
                    texts[0],
                    *([f"warmup {schedule.warmup}"] if schedule.warmup else []),
                    *texts[1:],
                    f"per {schedule.per}",
                ]
            ),
            True,
        )

    # --- The form

    def _request_params(self) -> None:
        if self._choice.name != NONE:
            super()._request_params()
        else:
            self._engine.forget(f"{self._key}.params")
            self._drop_form()
            self.words.hide()

    def choose(self, name: str) -> None:
        """Choose another class, or none; required parameters get suggested values."""
        if name == NONE:
            self._engine.forget(
                f"{self._key}.first"
            )  # of one that was chosen just before
            self.made.emit(None, "Remove the schedule", None)
            return
        optimizer, length = self._training.optimizer, self._length
        self._engine.ask(
            f"{self._key}.first",
            FirstSchedule(name, optimizer, length),
            on_answer=lambda suggestion: self._show_suggestion(*suggestion),
            on_error=self._no_params,
        )

    def _show_suggestion(self, schedule: Schedule, note: str) -> None:
        self.made.emit(schedule, f"Choose {schedule.choice.name}", None)
        show_or_hide(self.said, note)

    def _with_param(self, name: str, value: Any) -> Choice:
        """Return the choice with one parameter changed; required parameters are always stored."""
        if self.form is not None and self.form.rows[name].param.required:
            return replace(
                self._choice, params=FrozenMap(self._choice.params.set(name, value))
            )
        return super()._with_param(name, value)

    def _question(self, choice: Choice) -> Request[None]:
        schedule = replace(self.schedule or Schedule(choice), choice=choice)
        return CheckSchedule(schedule, self._training.optimizer)

    def _emit_choice(self, choice: Choice, merge: str | None) -> None:
        if self.schedule is not None:
            self.said.hide()
            self.made.emit(
                replace(self.schedule, choice=choice), f"Set {choice.name}", merge
            )

    def _when_edited(self, name: str, value: Any, merge: str | None) -> None:
        if self.schedule is None:
            return
        before, schedule = self.schedule, replace(self.schedule, **{name: value})

        def accept(_none: None) -> None:
            if self.schedule == before:
                self._when_accepted(schedule, name, merge)
            else:
                self._when_edited(
                    name, value, merge
                )  # something else changed meanwhile

        self._engine.ask(
            f"{self._key}.when.{name}",
            CheckSchedule(schedule, self._training.optimizer),
            on_answer=accept,
            on_error=lambda failure: self.when.set_problem(name, failure.message),
        )

    def _when_accepted(self, schedule: Schedule, name: str, merge: str | None) -> None:
        self.when.set_problem(name, "")
        self.made.emit(
            schedule,
            f"Set {name} of the schedule",
            f"{self._key}/{merge}" if merge else None,
        )

    # --- The run

    def _offer_fit(self) -> None:
        fitted = (
            schedule_length.fitted(self.schedule, self._length)
            if self.schedule
            else None
        )
        self.fit.setVisible(fitted is not None)
        if fitted is not None:
            name = schedule_length.LENGTHS[fitted.choice.name]
            self.fit.setText(
                f"Set {name} to the run's {show(fitted.choice.params[name])}"
            )

    def _fit_to_run(self) -> None:
        fitted = (
            schedule_length.fitted(self.schedule, self._length)
            if self.schedule
            else None
        )
        if fitted is not None:
            self.said.hide()
            self.made.emit(fitted, "Fit the schedule to the run", None)

    def _ask_preview(self) -> None:
        """Request the preview curve, unless the inputs are unchanged."""
        question = (self._training.optimizer, self.schedule, self._length)
        if not self._loaded or question == self._previewed:
            return
        self._previewed = question
        self._engine.ask(
            f"{self._key}.preview",
            PreviewRate(self._training, self._length),
            on_answer=self._show_preview,
            on_error=self._no_preview,
        )

    def _show_preview(self, preview: RatePreview) -> None:
        many = len(preview.rates)
        self.plot.setVisible(many > 1)
        if many > 1:
            unit = preview.per
            self.plot.show_lines(
                range(1, many + 1),
                (PlotLine(preview.rates),),
                ends=(f"{unit} 1", f"{unit} {many:,}"),
                unit=(unit, "learning rate"),
            )
        stopped = preview.words.startswith("PyTorch")
        self.plot_words.setText(preview.words)
        set_property(self.plot_words, "tone", "error" if stopped else "text3")
        self.plot_words.setVisible(bool(preview.words))

    def _no_preview(self, failure: WorkerFailure) -> None:
        self.plot.hide()
        refused = isinstance(failure.error, ChoiceError)
        self.plot_words.setText(
            failure.message if refused else f"It cannot be plotted: {failure.message}"
        )
        set_property(self.plot_words, "tone", "error")
        self.plot_words.show()
