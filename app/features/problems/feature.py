"""The problems in the window: the page "Problems", and how many there are."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.problems.problems import ProblemsPanel
from app.views.feature import Action, Feature, Page
from app.views.workspace import Workspace


class ProblemsFeature(Feature):
    rank = 40

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.problems_panel = ProblemsPanel(
            workspace.catalog, workspace.network_selection
        )

    def pages(self) -> Iterable[Page]:
        yield Page(
            "problems",
            "Problems",
            "error",
            "bottom",
            lambda: self.problems_panel,
            early=True,
            counts=True,
            words="&Problems",
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "next-problem",
            "Go to the next problem",
            self._go_to_next,
            "F4",
            "error",
            menu="view.problems",
        )
        yield Action(
            "fix-problem",
            "Fix the problem",
            self._offer_fixes,
            "Ctrl+.",
            "error",
            menu="view.problems",
        )

    def _go_to_next(self) -> None:
        """Show a problem where it is: its node on the canvas, else its row in the list."""
        self.workspace.pages.show("problems")
        if self.problems_panel.go_to_next():
            self.workspace.drawing.take_focus()

    def _offer_fixes(self) -> None:
        self.workspace.pages.show("problems")
        self.problems_panel.offer_fixes()

    def begin(self) -> None:
        workspace, panel = self.workspace, self.problems_panel
        panel.cure_requested.connect(workspace.cures.apply_to_network)
        panel.jump_requested.connect(workspace.jump_to)
        panel.enter_requested.connect(workspace.place.go_to)
        panel.count_changed.connect(self._count)
        workspace.status.problem_followed.connect(self._go_to_next)
        workspace.hearers.add(self._on_analysis)
        workspace.document.replaced.connect(self._forget)

    def _on_analysis(self) -> None:
        live = self.workspace.live
        if live.analysis is not None and live.up_to_date:
            self.problems_panel.set_analysis(live.analysis)
            self._count(*self.problems_panel.counts)
            if not (
                live.analysis.graph.nodes
                or live.analysis.source.opened
                or any(self.problems_panel.counts)
            ):
                self.workspace.status.forget_check()  # nothing is there that could be fine

    def _forget(self, _project: object) -> None:
        """Another project is open: what was wrong with the last one is shown no more, nor that anything is fine."""
        self.problems_panel.forget()
        self.workspace.pages.set_badge("problems", 0, "line3")
        self.workspace.status.forget_check()

    def _count(self, errors: int, warnings: int) -> None:
        self.workspace.pages.set_badge(
            "problems", errors or warnings, "errorFill" if errors else "line3"
        )
        self.workspace.status.set_problems(errors, warnings)
