"""Importing a model: the dialog, and the project that comes of it, laid out as the canvas will draw it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer

from app.builder.arrange import Arrangement, Size
from app.builder.catalog.catalog import Catalog
from app.builder.layout import used_part, with_uncalled
from app.builder.sheet import S, changed
from app.features.importing.comparison import ComparingControl
from app.features.importing.dialogs import ImportDialog, RedrawDialog
from app.features.importing.process import ImportedModel
from app.features.importing.values import ImportModel
from app.project import custom_layers
from app.project.project import Project
from app.util.formatting import counted
from app.util.frozen import FrozenMap
from app.views.canvas.items.faces import face_of
from app.views.canvas.items.node_shapes import shape_of

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.engine.requests.observe import Observe
    from app.views.workspace import Workspace


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
