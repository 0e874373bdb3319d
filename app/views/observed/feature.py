"""Feature "observed": the command that opens any model, and the page "Model" that shows its calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.sources.finding import digest_of
from app.views.feature import Action, Feature, Page

if TYPE_CHECKING:
    from app.engine.requests.observe import CapturedModel, Observe
    from app.observe.folding import Part
    from app.observe.observation import CallPlace, Observation
    from app.sources.spec import AskedModel
    from app.views.observed.inspector import CallInspector
    from app.views.observed.open_dialog import OpenModelDialog
    from app.views.observed.page import ObservedPage


class ObservedFeature(Feature):
    rank = 185
    _asked: AskedModel | None = None
    _model: Observe | None = None  # of the observation that is shown
    _digest = ""  # of its file, as it was run
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
        yield Action("capture-observed", "", self._capture)
        yield Action("show-figures", "", self._show_figures)
        yield Action("show-call", "", self._show_call)

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

    def show(self, found: Observation, model: Observe) -> None:
        """Show what a model called."""
        self._model, self._digest = model, digest_of(model.source, model.folder)
        self.call_inspector.figures = {}
        self.workspace.pages.set_offered("observed", True)
        self.workspace.pages.show("observed")
        self.observed.set_observation(found, str(model.source))
        if model.source.looked_at:  # nothing of it was run
            self.observed.capture.setEnabled(False)

    # -- its backward graph --------------------------------------------------------------------------------------------

    def _capture(self, train: bool | None = None) -> None:
        """Capture the model, in the mode in which it was observed if none is given."""
        if self._model is not None and (found := self.observed.observation) is not None:
            if digest_of(self._model.source, self._model.folder) != self._digest:
                changed = f"{self._model.source} has changed since it was opened"
                self.workspace.notifier.refuse(changed, "Open it again to capture it.")
                return
            mode = found.train if train is None else train
            self.workspace.commands.trigger("capture-model", self._model, mode)

    def _show_figures(self, captured: CapturedModel) -> None:
        if captured.batch.model == self._model:
            self.call_inspector.figures = {one.path: one for one in captured.figures}
            self.observed.set_figures(captured.figures)

    def _show_call(self, place: CallPlace) -> None:
        self.observed.show_call(place)

    def _chosen(self, places: tuple[CallPlace, ...]) -> None:
        self.workspace.commands.trigger("show-backward", places, False)

    def _show_backward(self, part: Part) -> None:
        self.workspace.commands.trigger("show-backward", self.observed.places_of(part), True)

    def _make(self) -> ObservedPage:
        from app.views.observed.inspector import CallInspector
        from app.views.observed.page import ObservedPage

        self.observed, self.call_inspector = ObservedPage(), CallInspector()
        self.workspace.pages.stand_in("inspector", self.call_inspector, while_front="observed")
        self.observed.detail.connect(self.call_inspector.show_part)
        self.observed.chosen.connect(self._chosen)
        self.observed.captureRequested.connect(lambda: self._capture())
        self.call_inspector.backwardRequested.connect(self._show_backward)
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
