"""Opened models in the window: the command that opens one, the page "Model" that shows its calls, projects of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer, Signal

from app.builder.diagnostics.problems import Problem
from app.engine.requests.observe import opened_model
from app.features.opened.call_inspector import CallInspector
from app.features.opened.open_dialog import OpenModelDialog
from app.features.opened.page import ObservedPage
from app.features.opened.picture import module_paths
from app.preflight.opened import project_of
from app.sources.finding import digest_of, file_of, files_of
from app.sources.spec import AskedModel
from app.views.feature import Action, Feature, Page
from app.views.navigation import OPENED
from app.views.pictures.picture_export import PictureExport

if TYPE_CHECKING:
    from app.engine.requests.observe import CapturedModel, Observe
    from app.features.opened.folding import Part
    from app.observe.observation import CallPlace, Observation
    from app.project.project import Project
    from app.sources.opened import OpenedModel


# Commands that are about a drawing, but those that copy and move in lists, which other pages have too.
DRAWN = frozenset(
    ("replace-last", "drop-last", "freeze-but-last", "export-drawing", "find")
)
OF_ANY = frozenset(
    f"canvas.{name}"
    for name in (
        "cut",
        "copy",
        "paste",
        "delete",
        "select_all",
        "left",
        "right",
        "up",
        "down",
        "nudge_left",
        "nudge_right",
        "nudge_up",
        "nudge_down",
    )
)
STEP = 1.25  # of a command that zooms
_SETTLING = 150  # ms of debounce: programs may save a file in several steps


class ObservedFeature(Feature):
    rank = 185
    _model: Observe | None = None  # of the observation that is shown
    _digest = ""  # of its file, as it was run
    _opened: OpenedModel | None = None  # as it can be trained, None if it cannot
    observed: ObservedPage
    call_inspector: CallInspector

    def pages(self) -> Iterable[Page]:
        yield Page(
            "observed",
            "Model",
            "layers",
            "centre",
            self._make,
            after="autograd",
            words="&Model",
            home=lambda: self.observed.view,
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "open-model",
            "Open a &model…",
            self.ask,
            "Ctrl+Shift+O",
            "layers",
            "Draw any model that runs",
            late=True,
            menu="file.project",
            after="import",
        )
        yield Action("open-source", "", self.open)
        yield Action("capture-observed", "", self._capture)
        yield Action("show-figures", "", self._show_figures)
        yield Action("show-call", "", self._show_call)

    def begin(self) -> None:
        self._file = _ModelFileWatch(self.workspace.window)
        self._file.changed.connect(self._file_changed)
        self.workspace.pages.set_offered("observed", False)
        self.workspace.document.changed.connect(self._project_changed)
        self.workspace.sheet.refused.connect(self._refused)
        self.workspace.overlays.take_model_paths(self._module_paths)

    def finish(self) -> None:
        for key, action in self.workspace.commands.by_key.items():
            if (
                key.startswith(("canvas.", "block.")) and key not in OF_ANY
            ) or key in DRAWN:
                action.triggered.connect(partial(self._needs_drawing, key))

    def _module_paths(self) -> frozenset[str]:
        observation = self.observed.observation
        return module_paths(observation) if observation is not None else frozenset()

    def open(self, model: AskedModel) -> None:
        """Open a model that was named when the program was started, or before."""
        self.workspace.pages.make("observed")
        self.ask().open_model(model)

    def ask(self) -> OpenModelDialog:
        """Show the dialog that asks which model to open."""

        dialog = OpenModelDialog(
            self.workspace.layers, self.show, self.workspace.window
        )
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def show(self, observation: Observation, model: Observe) -> None:
        """Show what a model called."""
        self._withdraw_stale()
        files = files_of(model.source, model.folder)
        self._model, self._digest = model, files.digest if files is not None else ""
        self._file.follow(
            tuple(Path(file.path) for file in files.files) if files is not None else ()
        )
        self.call_inspector.figures = {}
        self.workspace.overlays.draw_numbers(None)
        self.workspace.pages.set_offered("observed", True)
        self.workspace.pages.show("observed")
        self.observed.set_observation(observation, str(model.source))
        title = (
            f"{model.source} raised in {observation.failed_at}"
            if observation.failed_at
            else ""
        )
        self.workspace.live.show_raised(
            Problem("error", None, title, observation.failure, code="model-raised")
            if title
            else None
        )
        if model.source.looked_at:  # nothing of it was run
            self.observed.capture.setEnabled(False)
            self.observed.redraw.setEnabled(False)
        self._opened = None
        if observation.interface is not None:
            self._opened = opened_model(model, observation, self._digest)
            self._take()
        self._offer_training()

    # -- its project ---------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Make the model the project where that takes nothing from the person: its own project, opened again, or one
        that has no file and no changes."""
        document, opened = self.workspace.document, self._opened
        now = document.project.opened
        assert opened is not None
        if now is not None and (now.source, now.arguments, now.folder) == (
            opened.source,
            opened.arguments,
            opened.folder,
        ):
            document.apply(
                "Open the model again", replace(document.project, opened=opened)
            )
        elif (
            document.path is None
            and not document.dirty
            and not self.workspace.session.active
        ):
            self._begin_project()

    def _begin_project(self) -> None:
        """Begin a project with the model in place of a drawing."""
        assert self._opened is not None
        self.workspace.document.new(project_of(self._opened))

    def _train(self) -> None:
        """Train the model: as the project, which it becomes once the open one may be left."""
        opened = self._opened
        if opened is None:
            return
        if self.workspace.document.project.opened != opened:
            if not self.workspace.files.may_leave():
                return
            self._begin_project()
        self.workspace.pages.show("training")

    def _offer_training(self) -> None:
        if hasattr(self, "observed"):
            self.observed.train.setVisible(self._opened is not None)
            self.observed.train.setEnabled(
                self._opened is not None and not self._opened.refusal
            )
            refusal = self._opened.refusal if self._opened is not None else ""
            self.observed.train.setToolTip(
                refusal or "Choose data, loss and optimizer for this model, then run"
            )

    def _needs_drawing(self, key: str) -> None:
        """Answer a command of the canvas where the project has no drawing: open the Model page, or report it."""
        if self.workspace.document.project.opened is None:
            return
        view = self.observed.view
        looks: dict[str, Callable[[], object]] = {
            "canvas.frame_all": view.frame_all,
            "canvas.frame_selection": view.frame_selection,
            "canvas.zoom_in": lambda: view.zoom_by(STEP),
            "canvas.zoom_out": lambda: view.zoom_by(1 / STEP),
            "canvas.zoom_100": lambda: view.zoom_to(1.0),
        }
        looks.get(key, lambda: self._refused(OPENED))()

    def _refused(self, message: str) -> None:
        """Say why an edit of the drawing was refused, where there is no drawing, and offer one."""
        if self.workspace.document.project.opened is not None:
            self.workspace.notifier.show(
                "error",
                "There is no drawing",
                message,
                "Redraw the model",
                self._redraw,
            )

    def _project_changed(self, before: Project, after: Project) -> None:
        """Offer the page of the project's net: the model's, or the drawing."""
        if (before.opened is None) == (
            after.opened is None
        ) and before.opened == after.opened:
            return
        pages, opened = self.workspace.pages, after.opened
        self.workspace.commands["show.network"].setEnabled(opened is None)
        here, other = (
            ("network", "observed") if opened is None else ("observed", "network")
        )
        pages.set_offered(here, True)
        pages.show(here)
        pages.set_offered(other, False)
        if opened is not None and pages.is_front("cost"):
            pages.turn_to("problems", "curves")
        if opened is not None and pages.is_front("layers"):
            pages.turn_to("outline", "layers")
        pages.set_offered("layers", opened is None)  # there is no canvas to put one on
        pages.set_offered(
            "cost", opened is None
        )  # of a model of code torch counts nothing without running it
        if opened is None:
            return
        if (
            opened != self._opened
            or digest_of(opened.source, opened.folder) != opened.sha256
        ):
            self.open(_asked(opened))

    def _redraw(self, path: str = "") -> None:
        """Ask whether to draw the model, or a module of it, as a network that can be edited."""

        if (model := self._model) is None or not self._unchanged("redraw"):
            return
        self.workspace.notifier.withdraw("There is no drawing")
        self.workspace.commands.trigger("redraw", model, path, self._digest)

    # -- its file ------------------------------------------------------------------------------------------------------

    def _file_changed(self) -> None:
        """Say that the file is not the one that ran, also as what prevents a run; take it back if it is again."""
        self._withdraw_stale()
        if not self.workspace.pages.is_offered("centre", "observed"):
            return
        self._unchanged("draw, capture or train")
        self.workspace.live.refresh()

    def _unchanged(self, verb: str) -> bool:
        """Return whether the model's file is as it was when it was opened; if it is not, say so."""
        assert self._model is not None
        source, folder = self._model.source, self._model.folder
        now = digest_of(source, folder)
        if now == self._digest:
            return True
        changed, gone = self._stale_titles()
        if now:
            self.workspace.notifier.show(
                "error",
                changed,
                f"Open it again to {verb} it.",
                "Open it again",
                self._open_again,
            )
        else:
            self.workspace.notifier.refuse(
                gone, f"Restore {file_of(source, folder) or source.where} to {verb} it."
            )
        return False

    def _stale_titles(self) -> tuple[str, str]:
        """Return the titles of banners about a file that has changed, and about one that is gone."""
        assert self._model is not None
        source = self._model.source
        short = (
            f"{Path(source.where).name}:{source.name}"
            if source.kind == "file"
            else str(source)
        )
        return (
            f"{short} has changed since it was opened",
            f"The file of {short} cannot be read",
        )

    def _withdraw_stale(self) -> None:
        for title in self._stale_titles() if self._model is not None else ():
            self.workspace.notifier.withdraw(title)

    def _open_again(self) -> None:
        model = self._model
        assert model is not None
        self.open(replace(_asked(model), train=model.train, meta=model.meta))

    # -- its backward graph --------------------------------------------------------------------------------------------

    def _capture(self, train: bool | None = None) -> None:
        """Capture the model, in the mode in which it was observed if none is given."""
        if (
            self._model is not None
            and (observation := self.observed.observation) is not None
        ):
            if not self._unchanged("capture"):
                return
            mode = observation.train if train is None else train
            self.workspace.commands.trigger("capture-model", self._model, mode)

    def _show_figures(self, captured: CapturedModel) -> None:
        if captured.batch.model == self._model:
            self.call_inspector.figures = {
                module_figures.path: module_figures
                for module_figures in captured.figures
            }
            self.observed.set_figures(captured.figures)

    def _show_call(self, location: CallPlace) -> None:
        self.workspace.pages.make("observed")
        self.observed.show_call(location)

    def _chosen(self, locations: tuple[CallPlace, ...]) -> None:
        self.workspace.commands.trigger("show-backward", locations, False)
        opened = self.workspace.document.project.opened
        if opened is not None and opened == self._opened and locations:
            self.workspace.commands.trigger("choose-layer", locations[0].path)

    def _show_backward(self, piece: Part) -> None:
        self.workspace.commands.trigger(
            "show-backward", self.observed.places_of(piece), True
        )

    def _make(self) -> ObservedPage:
        self.observed, self.call_inspector = ObservedPage(), CallInspector()
        self.workspace.pages.stand_in(
            "inspector", self.call_inspector, while_front="observed"
        )
        self.observed.detail.connect(self.call_inspector.show_part)
        self.observed.chosen.connect(self._chosen)
        self.observed.captureRequested.connect(lambda: self._capture())
        self.call_inspector.backwardRequested.connect(self._show_backward)
        self.observed.openRequested.connect(self.ask)
        self.observed.trainRequested.connect(self._train)
        self.observed.redrawRequested.connect(self._redraw)
        self.observed.exportRequested.connect(self._export)
        self.observed.numbersDropped.connect(
            lambda: self.workspace.overlays.draw_numbers(None)
        )
        self.workspace.overlays.numbers_drawn.connect(self.observed.set_numbers)
        return self.observed

    def _export(self) -> None:
        pictures = PictureExport(self.workspace)
        if (drawing := self.observed.drawing()) is not None and (
            observation := self.observed.observation
        ) is not None:
            project = self.workspace.document.project
            carried = project if project.opened is not None else None
            pictures.choose_file(
                drawing, "Export this picture", observation.name, project=carried
            )


def _asked(model: Observe | OpenedModel) -> AskedModel:
    """Return a model as it is asked for again."""
    return AskedModel(
        str(model.source),
        json.dumps(dict(model.arguments)) if model.arguments else "",
        tuple(map(str, model.inputs)),
        folder=model.folder,
        example=model.example,
    )


class _ModelFileWatch(QObject):
    """Notices changes of the files of an opened model.

    `changed` tells that one may have other contents, may have gone, or may be there again.
    """

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._paths: tuple[Path, ...] = ()
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=_SETTLING)
        self._settle.timeout.connect(self._settled)
        self._watcher.fileChanged.connect(lambda _path: self._settle.start())
        self._watcher.directoryChanged.connect(lambda _path: self._settle.start())

    def follow(self, paths: tuple[Path, ...]) -> None:
        """Watch these files in place of those before, with their folders: many editors replace a file by a new one."""
        self._paths = paths
        targets = {
            str(target)
            for path in paths
            for target in (path, path.parent)
            if target.exists()
        }
        watched = {*self._watcher.files(), *self._watcher.directories()}
        if gone := watched - targets:
            self._watcher.removePaths(sorted(gone))
        if new := targets - watched:
            self._watcher.addPaths(sorted(new))

    def _settled(self) -> None:
        self.follow(self._paths)
        self.changed.emit()
