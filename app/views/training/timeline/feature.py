"""The timeline of the shown run: a step is chosen, all pages show what was recorded of it, and it can be re-lived."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature

if TYPE_CHECKING:
    from app.views.training.charts.curves import Curves
    from app.views.training.timeline.relive_control import ReliveControl
    from app.views.training.timeline.timeline_bar import TimelineBar


class TimelineFeature(Feature):
    """The bar is made for the page Curves, when that is."""

    rank = 151
    relive_control: ReliveControl
    timeline: TimelineBar

    def actions(self) -> Iterable[Action]:
        return (Action("timeline-of-curves", "", self._furnish),)

    def _furnish(self, curves: Curves) -> None:
        """Put the bar under the charts of a page."""
        from app.views.training.timeline.relive_control import ReliveControl
        from app.views.training.timeline.timeline_bar import TimelineBar

        self.timeline = bar = TimelineBar()
        shown = self.workspace.shown_run
        curves.add_below(bar)
        bar.stepChosen.connect(shown.choose_step)
        curves.stepChosen.connect(shown.choose_step)
        shown.stepped.connect(bar.show_step)
        shown.stepped.connect(curves.set_step)
        shown.changed.connect(lambda _figures: self._show())
        self.workspace.session.progressed.connect(self._refresh)
        self.relive_control = ReliveControl(self.workspace, bar)
        self._show()

    def _show(self) -> None:
        from app.views.training.timeline.relive_control import NOT_STORED

        figures = self.workspace.shown_run.figures
        history = figures.history if figures is not None else None
        self.timeline.show_run(history, figures is not None and figures.folder is not None, NOT_STORED)

    def _refresh(self) -> None:
        if self.timeline.isVisible():
            self.timeline.refresh()
