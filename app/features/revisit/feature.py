"""Timeline of the shown run: selects the step that all pages display, and recomputes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from app.features.revisit.recompute_control import NOT_STORED, RecomputeControl
from app.features.revisit.step_control import StepControl
from app.features.revisit.timeline_bar import TimelineBar
from app.views.feature import Action, Feature

if TYPE_CHECKING:
    from app.views.training.charts.curves import Curves

DEBUG = "Recompute the selected step and open its graph and layers; its batch is a click away"
FIRST = "Search the shown run for the first step that exceeds a bound"
LEAVE = "Fork the shown run before the selected step, without its batch"


class TimelineFeature(Feature):
    """Creates the timeline bar together with the page Curves."""

    rank = 151
    recompute_control: RecomputeControl
    step_control: StepControl
    timeline: TimelineBar

    def actions(self) -> Iterable[Action]:
        with_step = self._with_step
        return (
            Action("timeline-of-curves", "", self._furnish),
            Action(
                "recompute-step",
                "",
                with_step(lambda step: self.recompute_control.recompute(step)),
            ),
            Action(
                "batch-of-step", "", with_step(lambda: self.step_control.show_batch())
            ),
            Action(
                "debug-this-step",
                "",
                with_step(lambda step: self.step_control.debug(step)),
            ),
            Action(
                "debug-step",
                "Debu&g step of the run",
                with_step(lambda: self.step_control.debug()),
                tip=DEBUG,
                menu="run.past",
            ),
            Action(
                "first-step",
                "Find first step w&here…",
                with_step(lambda: self.step_control.find_first()),
                tip=FIRST,
                menu="run.past",
            ),
            Action(
                "leave-out",
                "Lea&ve out the batch of the step…",
                with_step(lambda: self.step_control.ask_leave_out()),
                tip=LEAVE,
                menu="run.past",
            ),
        )

    def _with_step(self, does: Callable[..., object]) -> Callable[..., object]:
        """Return a command that first creates the page with the timeline."""

        def act(*arguments: Any) -> None:
            if not hasattr(self, "step_control"):
                if self.workspace.shown_run.figures is None:
                    self.workspace.notifier.say(
                        "No run is shown",
                        "Run the network first, or choose a stored run.",
                    )
                    return
                self.workspace.pages.show("curves")
            does(*arguments)

        return act

    def _furnish(self, curves: Curves) -> None:
        """Put the bar under the charts of a page."""
        self.timeline = bar = TimelineBar()
        shown = self.workspace.shown_run
        curves.add_below(bar)
        bar.stepChosen.connect(shown.choose_step)
        curves.stepChosen.connect(shown.choose_step)
        shown.stepped.connect(bar.show_step)
        shown.stepped.connect(curves.set_step)
        shown.changed.connect(lambda _figures: self._show())
        self.workspace.session.progressed.connect(self._refresh)
        self.recompute_control = RecomputeControl(self.workspace, bar)
        self.step_control = control = StepControl(
            self.workspace, self.recompute_control
        )
        curves.menuWanted.connect(control.show_menu)
        bar.menu.aboutToShow.connect(lambda: control.fill(bar.menu, control.step or 1))
        self._show()

    def _show(self) -> None:
        figures = self.workspace.shown_run.figures
        history = figures.history if figures is not None else None
        self.timeline.show_run(
            history, figures is not None and figures.folder is not None, NOT_STORED
        )

    def _refresh(self) -> None:
        if self.timeline.isVisible():
            self.timeline.refresh()
