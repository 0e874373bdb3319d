"""Importing a model in the window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, QTimer

from app.builder.arrange import Arrangement, Size
from app.builder.catalog.catalog import Catalog
from app.builder.layout import used_part, with_uncalled
from app.builder.sheet import S, changed
from app.features.importing.dialogs import ImportDialog, RedrawDialog
from app.features.importing.process import ImportedModel
from app.features.importing.values import UNCHECKED, ImportModel, remarks
from app.project import custom_layers
from app.project.project import Project
from app.util.formatting import counted
from app.util.frozen import FrozenMap
from app.views.canvas.items.faces import face_of
from app.views.canvas.items.node_shapes import shape_of
from app.views.feature import Action, Feature
from app.views.ui.background import WorkerFailure
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.banner import Banner
from app.views.workspace import Workspace

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.engine.requests.observe import Observe

# --- Importing a model: the dialog, and the project that comes of it, laid out as the canvas will draw it

# --- An imported drawing that is shown while it is compared with its model: its progress and its result

POLL_INTERVAL = 200  # ms between two polls of the progress
STOP, OPEN = "Stop comparing", "Open the corrected network"


class ComparingControl(QObject):
    """Waits for the comparison of the imported project that was opened last.

    Until it has ended, and for good if it is stopped, the project's notes say that the drawing was not checked.
    """

    def __init__(
        self,
        workspace: Workspace,
        show: Callable[[ImportedModel, ImportModel], object],
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._show = workspace, show
        self._work: BackgroundTask | None = None
        self._early = self._corrected = Project()
        self._wanted: ImportModel | None = None
        self.banner = Banner(parent=workspace.window)
        workspace.notifier.add_banner(self.banner)
        self.banner.chosen.connect(self._chosen)
        self.banner.closed.connect(self.stop)
        self._timer = QTimer(self, interval=POLL_INTERVAL)
        self._timer.timeout.connect(self._poll_progress)
        workspace.document.replaced.connect(lambda _project: self._forget())

    @property
    def running(self) -> bool:
        return self._work is not None

    def begin(self, drawn: ImportedModel, request: ImportModel) -> None:
        """Wait for what comes of the project that was just opened."""
        assert drawn.rest is not None
        self._early, self._wanted = drawn.project, request
        self._work = BackgroundTask(drawn.rest)
        self._work.ended.connect(self._ended, Qt.ConnectionType.QueuedConnection)
        self._poll_progress()
        self.banner.show()
        self._work.begin()
        self._timer.start()

    def stop(self) -> None:
        """Cancel a running comparison without waiting for its answer."""
        if self.running:
            self._workspace.notifier.say("The comparison was stopped", UNCHECKED)
        self._forget()

    def _forget(self) -> None:
        work, self._work = self._work, None
        self._timer.stop()
        if work is not None:
            work.ended.disconnect(self._ended)
            work.abandon()
        self.banner.hide()

    def _poll_progress(self) -> None:
        if self._work is not None and self._wanted is not None:
            reason = f"{self._work.progress or 'Starting'}. Until it ends, the network counts as not verified."
            title = f"Comparing {self._wanted.name} with its original model"
            self.banner.set("info", title, reason, STOP)

    def _ended(self, answer: Project | WorkerFailure) -> None:
        request, document = self._wanted, self._workspace.document
        assert request is not None
        self._work = None
        self._timer.stop()
        early, name = self._early, request.name
        if isinstance(answer, WorkerFailure):
            message = answer.message.strip() or type(answer.error).__name__
            self._set_notes(None, message)
            self.banner.set(
                "error", f"This network is not verified against {name}", message
            )
        elif _drawing(answer) != _drawing(early):
            message = " ".join(remarks(answer))
            self._corrected = answer
            self._set_notes(None, "The network differs from the original model.")
            self.banner.set("error", f"This network differs from {name}", message, OPEN)
        else:
            more = [
                remark for remark in remarks(answer) if remark not in remarks(early)
            ]
            checked = answer.origin.checked if answer.origin else ""
            self._set_notes(answer, checked)
            self.banner.hide()
            self._workspace.notifier.say(
                f"Compared {name}", " ".join(filter(None, (checked, *more)))
            )
        document.mark_unsaved()

    def _set_notes(self, compared: Project | None, message: str) -> None:
        """Replace the notes in the project and every undo step by the result of the comparison, or `message` if it
        failed."""
        early = self._early

        def revised(project: Project) -> Project:
            if project.origin is None or _drawing(project) != _drawing(early):
                return project
            if compared is None or compared.origin is None:
                return replace(project, notes=project.notes.replace(UNCHECKED, message))
            compared_origin = compared.origin
            origin = replace(
                project.origin,
                checked=compared_origin.checked,
                reference=compared_origin.reference,
                inits=compared_origin.inits,
            )
            unedited = early.notes in project.notes  # False if the user has edited them
            replacement = (
                (early.notes, compared.notes) if unedited else (UNCHECKED, message)
            )
            return replace(
                project, origin=origin, notes=project.notes.replace(*replacement)
            )

        self._workspace.document.revise(revised)

    def _chosen(self, text: str) -> None:
        if text == STOP:
            self.stop()
        elif text == OPEN and self._wanted is not None:
            self._show(ImportedModel(self._corrected), self._wanted)


def _drawing(project: Project) -> str:
    """Return the digest of the imported net."""
    return project.origin.drawing if project.origin else ""


def laid_out(project: Project, room: Size) -> Project:
    """Lay out every sheet of a project with the sizes of its drawn nodes, to fit a viewport."""
    ops = custom_layers.ops_of(project)
    blocks = {
        name: _with_places(block, ops, room) for name, block in project.blocks.items()
    }
    laid = replace(_with_places(project, ops, room), blocks=FrozenMap(blocks))
    custom_layers.ops_of(
        laid
    )  # remembered: the window asks for the same, and is not held up by it
    return laid


def _with_places(sheet: S, ops: Catalog, room: Size) -> S:
    """Lay out a sheet at the row width that shows it largest; uncalled modules are below."""
    graph = sheet.graph
    sizes = {
        node: shape_of(face_of(graph, node, ops, None, {})).size for node in graph.nodes
    }
    arrangement = Arrangement(used_part(graph), sizes)
    positions, comments = with_uncalled(
        graph, arrangement.places(arrangement.best_width(room)), sizes
    )
    return changed(sheet, positions=positions, comments=comments)


SHOWN = 50  # ms to paint the drawing before results are shown


class ImportControl(QObject):
    """Asks what to import, and opens it."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self._telling: ImportModel | None = None
        self.comparing: ComparingControl | None = None
        workspace.live.analysed.connect(self._analysed)
        workspace.document.replaced.connect(self._replaced)

    def ask(self, file: Path | None = None) -> ImportDialog:
        """Show the dialog, with a Python file already chosen if there is one."""

        workspace, lay_out = (
            self._workspace,
            partial(laid_out, room=self._workspace.drawing.room),
        )
        dialog = ImportDialog(
            workspace.background, workspace.layers, lay_out, self.show, workspace.window
        )
        if file is not None:
            dialog.choose_file(file)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def redraw(self, model: Observe, path: str, sha256: str) -> RedrawDialog:
        """Show the dialog that redraws an opened model, or the module at a path of it; `sha256` is the digest of its
        files as they were when it was opened."""
        request = ImportModel(
            model.source,
            dict(model.arguments),
            model.inputs,
            where=model.folder,
            opened=True,
            part=path,
            sha256=sha256,
        )
        lay_out = partial(laid_out, room=self._workspace.drawing.room)
        dialog = RedrawDialog(request, lay_out, self.show, self._workspace.window)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def open(self, project: Project, request: ImportModel) -> bool:
        """Lay out an imported project and show it."""

        return self.show(
            ImportedModel(laid_out(project, self._workspace.drawing.room)), request
        )

    def show(self, drawn: ImportedModel, request: ImportModel) -> bool:
        """Open an imported project after asking about unsaved work; False if the user cancels."""
        workspace = self._workspace
        if not workspace.files.may_leave():
            return False
        workspace.document.new(drawn.project)
        workspace.document.undo_stack.resetClean()  # it has no file yet, so leaving it asks
        workspace.pages.show("network")
        self._telling = request
        if drawn.rest is not None:
            self._compare(drawn, request)
        if (
            workspace.live.up_to_date and workspace.live.analysis is not None
        ):  # no further signal will come
            self._analysed(workspace.live.analysis)
        return True

    def _compare(self, drawn: ImportedModel, request: ImportModel) -> None:
        self.comparing = self.comparing or ComparingControl(self._workspace, self.show)
        self.comparing.begin(drawn, request)

    def _replaced(self, _project: Project) -> None:
        self._telling = None

    def _analysed(self, analysis: Analysis) -> None:
        """Report the result once its parameters are counted."""
        request, self._telling = self._telling, None
        if request is None:
            return
        project = self._workspace.document.project
        nodes = len(project.graph.nodes) + sum(
            len(block.graph.nodes) for block in project.blocks.values()
        )
        counts = [
            counted(nodes, "node"),
            counted(len(project.blocks), "block"),
            counted(analysis.total_parameters, "parameter"),
        ]
        origin, start = project.origin, project.training.start
        weights_note = (
            "A run starts from the model's weights."
            if start is not None and not start.keys
            else ""
        )
        summary = " ".join(
            filter(
                None,
                (
                    f"{', '.join(counts)}.",
                    origin.checked if origin else "",
                    weights_note,
                ),
            )
        )
        QTimer.singleShot(
            0, self, self._workspace.drawing.put_callout_away
        )  # after the canvas has handled it too
        QTimer.singleShot(
            SHOWN,
            self,
            lambda: self._workspace.notifier.say(
                f"Imported {request.source.name}", summary
            ),
        )


class ImportingFeature(Feature):
    rank = 80

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.import_control = ImportControl(workspace)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "import",
            "&Import a model…",
            self.import_control.ask,
            "Ctrl+Shift+I",
            "layers",
            menu="file.project",
            after="open",
        )
        yield Action("import-file", "", self.import_control.ask)
        yield Action("redraw", "", self.import_control.redraw)
