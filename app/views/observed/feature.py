"""Feature "observed": the command that opens any model, and the page "Model" that shows its calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature, Page

if TYPE_CHECKING:
    from app.observe.observation import Observation
    from app.sources.spec import AskedModel
    from app.views.observed.inspector import CallInspector
    from app.views.observed.open_dialog import OpenModelDialog
    from app.views.observed.page import ObservedPage


class ObservedFeature(Feature):
    rank = 185
    _asked: AskedModel | None = None
    _finished = False
    observed: ObservedPage
    call_inspector: CallInspector

    def pages(self) -> Iterable[Page]:
        yield Page("observed", "Model", "layers", "centre", self._make, after="autograd", words="&Model",
                   home=lambda: self.observed.view)  # fmt: skip

    def actions(self) -> Iterable[Action]:
        yield Action("open-model", "Open a &model…", self.ask, "Ctrl+Shift+O", "layers", "Draw any model that runs",
                     late=True)  # fmt: skip
        yield Action("open-source", "", self.open)

    def begin(self) -> None:
        self.workspace.pages.set_offered("observed", False)

    def finish(self) -> None:
        self._finished = True
        if (asked := self._asked) is not None:
            self._asked = None
            self.open(asked)

    def open(self, asked: AskedModel) -> None:
        """Open a model that was named when the program was started, once the pages exist."""
        if self._finished:
            self.ask().open_model(asked)
        else:
            self._asked = asked

    def ask(self) -> OpenModelDialog:
        """Show the dialog that asks which model to open."""
        from app.views.observed.open_dialog import OpenModelDialog

        dialog = OpenModelDialog(self.workspace.layers, self.show, self.workspace.window)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def show(self, found: Observation, source: str) -> None:
        """Show what a model called."""
        self.workspace.pages.set_offered("observed", True)
        self.workspace.pages.show("observed")
        self.observed.set_observation(found, source)

    def _make(self) -> ObservedPage:
        from app.views.observed.inspector import CallInspector
        from app.views.observed.page import ObservedPage

        self.observed, self.call_inspector = ObservedPage(), CallInspector()
        self.workspace.pages.stand_in("inspector", self.call_inspector, while_front="observed")
        self.observed.detail.connect(self.call_inspector.show_part)
        self.observed.openRequested.connect(self.ask)
        self.observed.exportRequested.connect(self._export)
        return self.observed

    def _export(self) -> None:
        from app.views.export.picture_export import PictureExport

        pictures = PictureExport(self.workspace.background, self.workspace.settings, self.workspace.window)
        pictures.said.connect(self.workspace.notifier.say)
        pictures.refused.connect(self.workspace.notifier.refuse)
        if (drawing := self.observed.drawing()) is not None and (found := self.observed.observation) is not None:
            pictures.choose_file(drawing, "Export this picture", found.name)
