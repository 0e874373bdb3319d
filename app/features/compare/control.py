"""Controller of the page "Compare": runs a comparison in a separate process, and goes to lines and nodes."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.engine import observe_process, pool
from app.engine.own_engine import OwnEngine
from app.engine.protocol import EngineDiedError
from app.engine.requests.observe import Observe
from app.features.compare.ask_dialog import AskDiffDialog
from app.features.compare.layer_rows import rows_of
from app.features.compare.merged_tree import MergedTree
from app.features.compare.page import JSON, Compared, DiffPage
from app.features.compare.report import to_plain, to_text
from app.features.compare.side_reader import AskedSide, SideReader
from app.features.compare.source_lines import SourceLine, read_line
from app.features.compare.values import Diff, Difference, DiffSide, First, Layer
from app.source.generated import Source
from app.views.shown_layer import show_layer
from app.views.ui.background import WorkerFailure
from app.views.ui.task import BackgroundTask, Cancelled, Report

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.store import Kept
    from app.views.workspace import Workspace

LINES, COPY = "lines of two models", "copy of a comparison"
POLL = 100  # milliseconds
REST_OF_LIST = "; --json lists them all"
FAILED = "The comparison failed"


class DiffControl(QObject):
    """Compares one pair at a time; a result stays until the next one."""

    def __init__(self, page: DiffPage, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._page, self._workspace = page, workspace
        self._work: BackgroundTask | None = None
        self._request: Diff | None = None  # of what is shown
        self._of: Project | None = None  # the open project, as it was compared
        self._sides: frozenset[str] = frozenset()  # those that it is
        self._replaced = 0  # how often another project was opened
        self._generation = 0  # how often it had been when these were compared
        self.runs: tuple[Kept, ...] = ()
        self._reader = SideReader(workspace, workspace.window)
        self._poll = QTimer(self, interval=POLL)
        self._poll.timeout.connect(self._show_progress)
        page.askRequested.connect(self.ask)
        page.cancelRequested.connect(self.cancel)
        page.copyRequested.connect(self.copy)
        page.lineRequested.connect(self.follow)
        page.layerChosen.connect(self._show_lines)
        workspace.document.changed.connect(lambda *_: self._note())
        workspace.document.replaced.connect(self._project_replaced)

    # -- what is compared

    def current(self) -> tuple[DiffSide | None, str]:
        """Return the open project as a side, or why it is none."""
        workspace = self._workspace
        project, live = workspace.document.project, workspace.live
        name = (
            workspace.document.path.name
            if workspace.document.path is not None
            else project.name
        )
        if (opened := project.opened) is not None:
            model = Observe(
                opened.source, opened.arguments, opened.inputs, opened.folder
            )
            return DiffSide(str(opened.source), model, "", project.training.start), ""
        if live.analysis is None or not live.up_to_date:
            return None, "The network is still being checked."
        if live.errors:
            return None, f"The network cannot run: {live.errors[0].message}."
        if not project.graph.nodes:
            return None, "The open project is empty."
        return DiffSide(name, live.analysis.source, "", project.training.start), ""

    def ask(self) -> AskDiffDialog:
        """Show the dialog that asks what to compare."""
        dialog = AskDiffDialog(
            self._workspace, *self.current(), self.runs, self.compare
        )
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def compare_runs(self, a: Kept, b: Kept) -> None:
        """Compare the models of two stored runs, each with its best weights."""
        self._workspace.pages.show("diff")

        def refuse(side: int, message: str) -> None:
            self._page.set_busy("")
            self._page.refuse(
                f"{(a, b)[side].record.title} could not be compared", message
            )

        self._page.set_busy("Reading both runs")
        self._page.home.setFocus()
        requested, root = (
            [AskedSide(str(stored_run.folder)) for stored_run in (a, b)],
            str(self._workspace.settings.data_folder),
        )
        self._reader.read(
            requested,
            lambda sides: self.compare(Diff(sides[0], sides[1], data_root=root)),
            refuse,
        )

    def compare(self, request: Diff, sides: frozenset[str] = frozenset()) -> None:
        """Compare what a request names, on the page; `sides`, of "a" and "b", are the open project."""
        if self._work is not None:
            self._work.abandon()
        self._workspace.pages.show("diff")
        self._page.banner.hide()
        self._page.set_busy("Starting")
        self._page.home.setFocus()  # the button that asked is disabled meanwhile
        now, generation = self._workspace.document.project, self._replaced
        work = self._work = BackgroundTask(partial(_compared, request))

        def ended(answer: Any) -> None:
            if work is self._work:
                self._ended(answer, request)
                if not isinstance(answer, WorkerFailure):
                    self._of, self._sides, self._generation = now, sides, generation
                    self._note()

        work.ended.connect(ended, Qt.ConnectionType.QueuedConnection)
        work.begin()
        self._poll.start()

    def cancel(self) -> None:
        """Stop comparing; what is shown stays."""
        self._reader.forget()
        if self._work is not None:
            self._work.abandon()
            self._work = None
        self._rest()

    def close(self) -> None:
        """End what runs: the window closes."""
        self.cancel()

    def _rest(self) -> None:
        self._poll.stop()
        self._page.set_busy("")

    def _show_progress(self) -> None:
        if self._work is not None and (progress := self._work.progress):
            self._page.set_busy(progress)

    def _ended(self, answer: Any, request: Diff) -> None:
        self._work = None
        self._rest()
        if isinstance(answer, WorkerFailure):
            self._page.refuse(FAILED, _reason(answer.error))
            return
        self._request = request
        self._page.show_compared(answer)
        focused = QApplication.focusWidget()
        if self._page.isVisible() and (
            focused is None or self._page.isAncestorOf(focused)
        ):
            self._page.home.setFocus()

    def _note(self) -> None:
        """Say that the open project is another by now than the one that was compared."""
        note = ""
        if self._sides and self._generation != self._replaced:
            which = " and ".join(side.upper() for side in sorted(self._sides))
            note = f"{which} {'is' if len(self._sides) == 1 else 'are'} of the project that was open before."
        elif self._sides and not self._current:
            note = "The network has changed since; compare again."
        self._page.set_note(note)

    @property
    def _current(self) -> bool:
        """Whether the open project has the net that was compared."""
        of, now = self._of, self._workspace.document.project
        same = of is not None and now.has_net_of(of)
        return same and self._generation == self._replaced

    def _project_replaced(self, _project: object) -> None:
        self._replaced += 1
        self._note()

    # -- copies

    def copy(self, kind: str) -> None:
        """Put the result on the clipboard, as text or as JSON."""
        if self._page.compared is None:
            return
        difference = self._page.compared.found
        write = _json if kind == JSON else _text
        self._workspace.background.ask(
            COPY, write, difference, on_answer=QGuiApplication.clipboard().setText
        )

    # -- lines and nodes

    def _show_lines(self, layer: Layer | First) -> None:
        """Show the line of a layer in each model."""
        if (request := self._request) is None:
            return
        compared = self._page.compared
        first = compared.found.first if compared is not None else None
        if (
            first is not None
            and not layer.line_a
            and not layer.line_b
            and layer.a == first.a
        ):
            layer = (
                first  # the model itself has no line, the operation where both part has
            )
        texts = tuple(
            side.model.text if isinstance(side.model, Source) else ""
            for side in (request.a, request.b)
        )
        locations = (
            (
                layer.file_a,
                layer.line_a,
                texts[0] if layer.file_a.startswith("<") else "",
            ),
            (
                layer.file_b,
                layer.line_b,
                texts[1 if request.modes is None else 0]
                if layer.file_b.startswith("<")
                else "",
            ),
        )
        self._workspace.background.ask(
            LINES,
            _read_lines,
            locations,
            on_answer=lambda source_lines: self._page.lines.show_lines(*source_lines),
        )

    def follow(self, side: str, layer: Layer | First) -> None:
        """Go to a layer: its node on the canvas or its call in the model's picture where that side is open; else its
        row, with the lines."""
        if self._request is None:
            return
        path, file, line = (
            (layer.a, layer.file_a, layer.line_a)
            if side == "a"
            else (layer.b, layer.file_b, layer.line_b)
        )
        if not self._shows(side, path, file, line):
            self._page.show_layer(layer)
            (self._page.lines.a if side == "a" else self._page.lines.b).edit.setFocus()

    def _shows(self, side: str, path: str, file: str, line: int) -> bool:
        """Select a layer on the canvas or in the picture of the model; False if that side is not what is open."""
        if side not in self._sides or not self._current:
            return False
        return show_layer(self._workspace, path, file, line)


def _compared(request: Diff, tell: Report, cancelled: Cancelled) -> Compared:
    """Compare in a separate process, and prepare the results for the page."""
    models = (side.model for side in (request.a, request.b) if side.own_code)
    user_model = next((model for model in models if isinstance(model, Observe)), None)
    engine = (
        observe_process.engine_of(user_model)
        if user_model is not None
        else OwnEngine(lambda: pool.start("engine"))
    )
    difference = observe_process.answer_in(
        engine, request, cancelled=cancelled, tell=tell
    )
    tell("Preparing the page")
    return Compared(
        difference,
        rows_of(difference.layers, difference.distances),
        MergedTree(difference),
        _text(difference),
    )


def _text(difference: Difference) -> str:
    return "\n".join(to_text(difference)).replace(
        REST_OF_LIST, "; the copy as JSON has them all"
    )


def _json(difference: Difference) -> str:
    return json.dumps(
        to_plain(difference), ensure_ascii=False, allow_nan=False, indent=1
    )


def _read_lines(locations: tuple[tuple[str, int, str], ...]) -> tuple[SourceLine, ...]:
    return tuple(read_line(*location) for location in locations)


def _reason(error: BaseException) -> str:
    if isinstance(error, EngineDiedError):
        return f"{error} Nothing else was lost: compare again, perhaps with smaller inputs."
    message = str(error).strip() or type(error).__name__
    return f"{message[:1].upper()}{message[1:].removesuffix('.')}."
