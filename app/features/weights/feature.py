"""Feature "weights": loading and saving them, start weights, and the last layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QObject
from PySide6.QtGui import QAction

from app.builder.blocks import BlockError
from app.builder.catalog.catalog import Catalog, catalog
from app.features.weights import head as head_edits
from app.features.weights.head import Head, HeadError
from app.features.weights.weights_control import WeightsControl
from app.project.file import with_start
from app.project.project import Project
from app.training.setup.weights_header import StartError, header
from app.views.feature import Action, Feature
from app.views.run.session import Run
from app.views.workspace import Workspace

# --- The last layer of the net: replace it, remove it, or train it alone. Refusals are shown on the canvas


class HeadControl(QObject):
    """Commands on the whole project, each one undo step."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace

    def offered(self) -> list[QAction]:
        """Return the commands for the context menu of the last layer; none for other nodes."""
        project, workspace = self._workspace.document.project, self._workspace
        node = workspace.sheet.project.graph.nodes.get(workspace.selection.single or "")
        if node is None or workspace.place.path or node.op in ("input", "output"):
            return []
        try:
            head = head_edits.last_layer(project, self._ops)
        except (HeadError, BlockError):
            return []
        if (head.way or (head.node,))[0] != node.id:
            return []
        return [
            workspace.commands[key]
            for key in ("replace-last", "drop-last", "freeze-but-last")
        ]

    def ask_replace(self) -> None:
        """Ask for the number of outputs of a new last layer."""
        project = self._workspace.document.project
        try:
            head = head_edits.last_layer(project, self._ops)
            node, parameter = head_edits.size_of(project, self._ops)
        except (HeadError, BlockError) as error:
            self._workspace.drawing.say(str(error))
            return
        self._workspace.jump_to((*head.way, head.node)[0])
        now = node.params.get(parameter, "")
        hint = f"{parameter} of the new {catalog()[node.op].label}. It is trainable; everything else stays unchanged."
        self._workspace.drawing.ask(
            f"Replace {node.name}: outputs", str(now), hint, self._on_size_entered
        )

    def _on_size_entered(self, text: str) -> str:
        """Replace the last layer; return "" or why it was refused."""
        try:
            return self.replace(int(text))
        except ValueError:
            return f"{text!r} is not an integer."

    def replace(self, size: int) -> str:
        """Insert a new last layer without the old one's start weights. Return "" or why it was refused."""
        return self._do(
            "Replace the last layer",
            lambda project: head_edits.replace_last(project, self._ops, size),
        )

    def drop(self) -> None:
        edit = self._do(
            "Remove the last layer",
            lambda project: head_edits.drop_last(project, self._ops),
        )
        self._report_refusal(edit)

    def freeze(self) -> None:
        """Freeze all but the last layer."""

        def edit(project: Project) -> Project:
            return head_edits.freeze_all_but_last(project, self._ops)

        self._report_refusal(
            self._do("Freeze all but the last layer", edit, lets_go=False)
        )

    @property
    def _ops(self) -> Catalog:
        return self._workspace.catalog.now

    def _report_refusal(self, refusal: str) -> None:
        if refusal:
            self._workspace.drawing.say(refusal)

    def _do(
        self, text: str, edit: Callable[[Project], Project], lets_go: bool = True
    ) -> str:
        workspace, before = self._workspace, self._workspace.document.project
        try:
            head = head_edits.last_layer(before, self._ops)
            after = edit(before)
        except (HeadError, BlockError) as error:
            return str(error)
        gone = 0
        if lets_go:
            after, gone = self._without_weights_of(head, after)
        if after == before:
            return "Nothing changes: the last layer is like that already, and has no start weights."
        workspace.document.apply(text, after)
        if gone:
            workspace.notifier.say(
                text,
                f"{gone} of its start weights no longer apply; they are initialised from the seed.",
            )
        self._show(head)
        return ""

    def _show(self, head: Head) -> None:
        """Scroll to the last layer inside its blocks; if it was removed, show its sheet."""
        workspace = self._workspace
        workspace.place.go_to(tuple((node, 0) for node in head.way))
        workspace.show_node(head.node)

    def _without_weights_of(self, head: Head, project: Project) -> tuple[Project, int]:
        """Drop the removed layer's start weights; return the project and their number."""

        start, analysis = project.training.start, self._workspace.live.analysis
        if start is None or analysis is None or not self._workspace.live.up_to_date:
            return project, 0
        inside = analysis.source.within(tuple((node, 0) for node in head.way))
        module = inside.modules.get(head.node)
        try:
            start_keys = tuple(header(start))
        except StartError:
            return project, 0
        remaining_keys = tuple(
            key
            for key in start_keys
            if module is None or not key.startswith(f"{module}.")
        )
        if len(remaining_keys) == len(start_keys):
            return project, 0
        return with_start(
            project, replace(start, keys=remaining_keys) if remaining_keys else None
        ), len(start_keys) - len(remaining_keys)


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
