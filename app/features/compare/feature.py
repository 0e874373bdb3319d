"""Where two models part, in the window: the page "Compare", and the commands that fill it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.features.compare.control import DiffControl
from app.features.compare.page import DiffPage
from app.views.feature import Action, Feature, Page

if TYPE_CHECKING:
    from app.runs.store import Kept

TIP = "Finds the first layer at which two models, runs or checkpoints differ, or one model in two modes"


class DiffFeature(Feature):
    rank = 188
    diff: DiffPage
    diff_control: DiffControl
    _runs: tuple[Kept, ...] = ()

    def pages(self) -> Iterable[Page]:
        yield Page(
            "diff",
            "Compare",
            "compare",
            "centre",
            self._make,
            words="Compar&e",
            home=lambda: self.diff.home,
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "compare-with",
            "&Compare with…",
            self._ask,
            icon="compare",
            tip=TIP,
            menu="file.project",
            after="open-model",
        )
        yield Action("compare-runs", "", self._compare_runs)

    def begin(self) -> None:
        self.workspace.runs_keeper.listed.connect(self._set_runs)

    def _set_runs(self, runs: list[Kept]) -> None:
        self._runs = tuple(runs)
        if hasattr(self, "diff_control"):
            self.diff_control.runs = self._runs

    def _make(self) -> DiffPage:
        self.diff = DiffPage(self.workspace.background)
        self.diff_control = DiffControl(self.diff, self.workspace)
        self.diff_control.runs = self._runs
        return self.diff

    def _ask(self) -> None:
        self.workspace.pages.show("diff")
        self.diff_control.ask()

    def _compare_runs(self, a: Kept, b: Kept) -> None:
        self.workspace.pages.show("diff")
        self.diff_control.compare_runs(a, b)

    def close(self) -> None:
        if hasattr(self, "diff_control"):
            self.diff_control.close()
