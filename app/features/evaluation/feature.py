"""Evaluation in the window: the page "Evaluation"."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.evaluation.control import EvaluationControl
from app.features.evaluation.page import EvaluationPage
from app.views.feature import Action, Feature, Page


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

    def actions(self) -> Iterable[Action]:
        yield Action(
            "predict",
            "Predict on an input of my own",
            lambda: self.evaluation_control.predict(),
            icon="flask",
            late=True,
            menu="run.past",
        )

    def _make(self) -> EvaluationPage:
        self.evaluation = EvaluationPage()
        self.evaluation_control = EvaluationControl(self.evaluation, self.workspace)
        return self.evaluation
