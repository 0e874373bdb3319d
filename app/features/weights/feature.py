"""Feature "weights": loading and saving them, start weights, and the last layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import QMimeData

from app.features.weights.head_control import HeadControl
from app.features.weights.weights_control import WeightsControl
from app.views.feature import Action, Feature
from app.views.run.session import Run
from app.views.workspace import Workspace

INITS = "Initialises new weights as the imported model does"


class WeightsFeature(Feature):
    rank = 90

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.weights_control, self.head_control = (
            WeightsControl(workspace),
            HeadControl(workspace),
        )
        workspace.drawing.of_node.append(self.head_control.offered)
        workspace.run_control.started.connect(self._run_started)

    def actions(self) -> Iterable[Action]:
        weights, head = self.weights_control, self.head_control
        return (
            Action(
                "load-weights",
                "&Load weights…",
                weights.ask,
                "Ctrl+Shift+W",
                "folder",
                menu="file.weights",
            ),
            Action(
                "save-weights", "Save &weights…", weights.ask_save, menu="file.weights"
            ),
            Action(
                "forget-weights",
                "Start from random weights",
                weights.forget,
                enabled=False,
                menu="run.weights",
            ),
            Action(
                "take-inits",
                "Initialise as the imported model",
                weights.take_inits,
                tip=INITS,
                enabled=False,
                menu="run.weights",
            ),
            Action(
                "replace-last",
                "Replace the &last layer…",
                head.ask_replace,
                menu="layer.last",
            ),
            Action("drop-last", "&Remove the last layer", head.drop, menu="layer.last"),
            Action(
                "freeze-but-last",
                "Free&ze all but the last layer",
                head.freeze,
                icon="snowflake",
                menu="layer.last",
            ),
        )

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        path = self.weights_control.takes(data)
        return None if path is None else lambda: self.weights_control.offer(path)

    def _run_started(self, run: Run) -> None:
        start = run.job.training.start
        if start is not None:
            note = self.workspace.session.note
            self.weights_control.tell_start(
                "weights.console",
                start,
                run.job.source,
                lambda text, _whole: note(f"{text}."),
            )
