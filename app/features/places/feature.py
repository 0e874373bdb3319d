"""Places in the window: targets of runs, and a dialog that lists them."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.places.control import PlaceRuns
from app.features.places.dialog import PlacesDialog
from app.features.places.values import PlaceError
from app.views.feature import Action, Feature
from app.views.workspace import Workspace


class PlacesFeature(Feature):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.runs = PlaceRuns(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "places",
                "Pla&ces…",
                self._show,
                tip="The machines behind ssh that runs can be on",
                menu="run.place",
            ),
            Action(
                "take-up",
                "Watch the run that was left at a place",
                self.runs.take_up_newest,
                tip="The newest run of this project that goes on at a place is shown from its first step",
                menu="run.place",
            ),
        )

    def begin(self) -> None:
        try:
            self.runs.offer()
        except PlaceError as error:
            self.workspace.notifier.refuse("The places cannot be read", str(error))

    def _show(self) -> None:
        dialog = PlacesDialog(self.workspace.window)
        dialog.changed.connect(self.runs.offer)
        dialog.exec()
        dialog.deleteLater()
