"""Evaluation in the window: the page "Evaluation"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.views.feature import Feature, Page, Steps

if TYPE_CHECKING:
    from app.views.training.evaluation.control import EvaluationControl
    from app.views.training.evaluation.page import EvaluationPage


class EvaluationFeature(Feature):
    rank = 160
    evaluation: EvaluationPage
    evaluation_control: EvaluationControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "evaluation",
            "Evaluation",
            "check",
            "bottom",
            self._make,
            words="E&valuation",
        )

    def _make(self) -> Steps:
        from app.views.training.evaluation.page import EvaluationPage

        yield
        from app.views.training.evaluation.control import EvaluationControl

        yield
        self.evaluation = EvaluationPage()
        yield
        self.evaluation_control = EvaluationControl(self.evaluation, self.workspace)
        return self.evaluation
