"""torch.compile in the window: the page "Compile", and the overlay "Breaks" on the canvas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, QTimer

from app.engine import observe_process, pool
from app.engine.own_engine import OwnEngine
from app.engine.requests.observe import Observe
from app.features.compile.page import CompilePage, CompileRow, rows_of, script_row
from app.features.compile.values import Compile, Compiled
from app.source.generated import Path, Source
from app.source.node_location import node_location
from app.training.events import Event, GraphBreak, Recompiled
from app.util.language import marked, tr, trn
from app.views.feature import Action, Feature, Page
from app.views.measured_net import MeasuredNet
from app.views.ui.background import WorkerFailure
from app.views.ui.task import BackgroundTask, Cancelled, Report

if TYPE_CHECKING:
    from app.views.workspace import Workspace

KEY, OVERLAY = "compile", "Breaks"
POLL = 100  # milliseconds
WAITS = marked("Compiling has to wait")
VIEWED = marked("The open model was opened for viewing only")
CHECKED = marked("The network is still being checked")
CHANGED = marked("The network has changed since; compile again.")
CAPTION = marked("Share of graph breaks and recompiles")


def line_of(row: CompileRow) -> tuple[str, int]:
    """Return the file and the number of a row's line, 0 for none.

    >>> line_of(CompileRow("", "", "model.py:12", "", ""))
    ('model.py', 12)
    """
    file, _, number = row.line.rpartition(":")
    return file, int(number) if number.isdigit() else 0


class CompileControl(MeasuredNet):
    """Compiles the open net or model in a process of its own, and marks the nodes with graph breaks or recompiles."""

    def __init__(self, workspace: Workspace, page: CompilePage) -> None:
        super().__init__(workspace, page, KEY, OVERLAY, tr(CHANGED))
        self._page = page
        self._work: BackgroundTask | None = None
        self._poll = QTimer(self, interval=POLL)
        self._poll.timeout.connect(self._show_progress)
        page.start.clicked.connect(self.compile)
        page.stop.clicked.connect(self.cancel)
        page.jump_requested.connect(self._jump)

    def _request(self) -> Compile | str:
        """Return the request about the open project, or why there is none."""
        workspace, train = self._workspace, self._page.train_mode.isChecked()
        project, live = workspace.document.project, workspace.live
        if (opened := project.opened) is not None:
            if opened.source.looked_at:
                return tr(VIEWED)
            model = Observe(
                opened.source,
                opened.arguments,
                opened.inputs,
                opened.folder,
                example=opened.example,
            )
            return Compile(model, train)
        if live.analysis is None or not live.up_to_date:
            return tr(CHECKED)
        if live.net_errors:  # the data do not matter here
            return live.net_errors[0].message
        return Compile(live.analysis.source, train)

    def compile(self) -> None:
        """Compile what is open, or say why not."""
        workspace, request = self._workspace, self._request()
        if isinstance(request, str):
            workspace.notifier.refuse(tr(WAITS), f"{request}.")
            return
        self.stop()
        self.open_page()
        self._page.show_message(tr("Starting…"), busy=True)
        project = workspace.document.project
        work = self._work = BackgroundTask(partial(_compiled, request))

        def ended(answer: Any) -> None:
            if work is not self._work:
                return
            self._rest()
            if isinstance(answer, WorkerFailure):
                self._page.show_message(answer.message)
                return
            self._page.show_result(answer)
            model = request.model
            self.measured(project, model if isinstance(model, Source) else None)

        work.ended.connect(ended, Qt.ConnectionType.QueuedConnection)
        work.begin()
        self._poll.start()

    def show_logged(self, rows: tuple[CompileRow, ...]) -> None:
        """Show what a watched script has told, unless something is being compiled here."""
        if self._work is None:
            self.forget()
            self._page.show_logged(rows)

    def cancel(self) -> None:
        """Stop compiling, and say so."""
        if self._work is not None:
            self.stop()
            self._page.show_message(tr("Cancelled."))

    def stop(self) -> None:
        if self._work is not None:
            self._work.abandon()
            self._rest()

    def _rest(self) -> None:
        self._work = None
        self._poll.stop()

    def _show_progress(self) -> None:
        if self._work is not None and self._work.progress:
            self._page.show_message(f"{self._work.progress}…", busy=True)

    def _rows(self) -> list[CompileRow]:
        result = self._page.result
        return [] if result is None else rows_of(result.breaks, result.recompiles)

    def has_marks(self) -> bool:
        return bool(self._rows())

    def _jump(self, row: CompileRow) -> None:
        file, line = line_of(row)
        self.jump(row.path, "" if self.source is not None else file, line)

    def draw(self, source: Source) -> None:
        """Mark each node with its graph breaks and recompiles."""
        rows = self._rows()
        counts = Counter(_nodes(rows, source, self._workspace.place.path))
        shares = {node: count / len(rows) for node, count in counts.items()}
        texts = {
            node: trn("{count} break", "{count} breaks", count)
            for node, count in counts.items()
        }
        self._workspace.overlays.draw_costs(OVERLAY, shares, texts, tr(CAPTION))


def _nodes(rows: list[CompileRow], source: Source, sheet: Path) -> Iterator[str]:
    """Yield the node of each row in a sheet: itself, or the block that it is in."""
    for row in rows:
        location = node_location(source, row.path, line_of(row)[1])
        if location is None:
            continue
        way, node = location
        if way == sheet:
            yield node
        elif way[: len(sheet)] == sheet:
            yield way[len(sheet)][0]


def _compiled(request: Compile, tell: Report, cancelled: Cancelled) -> Compiled:
    """Compile in a process of its own: what dynamo caches and patches stays in it."""
    model = request.model
    if isinstance(model, Observe) and model.runs_own_code:
        return observe_process.answer(
            request, model, cancelled=cancelled, tell=tell, patience=float("inf")
        )
    engine = OwnEngine(partial(pool.start, "engine"))
    return observe_process.answer_in(engine, request, cancelled=cancelled, tell=tell)


class CompileFeature(Feature):
    rank = 154  # its overlay comes after that of the times
    page: CompilePage
    control: CompileControl | None = None
    _logged: tuple[CompileRow, ...] = ()  # of the watched script

    def pages(self) -> Iterable[Page]:
        yield Page(
            KEY,
            "Compile",
            "chip",
            "bottom",
            self._make,
            after="times",
            words="Compile",
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "compile",
            "Compile with torch.compile",
            self._compile,
            tip="Graph breaks and recompiles of torch.compile, each with its line and a cure, and what compiling gains",
            menu="run.memory",
        )

    def overlays(self) -> Iterable[str]:
        return (OVERLAY,)

    def begin(self) -> None:
        self.workspace.pages.set_offered(KEY, False)
        self.workspace.overlays.offer(OVERLAY, False)
        self.workspace.session.told.connect(self._take_events)
        self.workspace.session.runStarted.connect(self._run_started)

    def _run_started(self, _run: object) -> None:
        self._logged = ()

    def _take_events(self, events: Sequence[Event]) -> None:
        """Add what a watched script tells to its rows."""
        rows = tuple(
            script_row(event)
            for event in events
            if isinstance(event, GraphBreak | Recompiled)
        )
        run = self.workspace.session.current
        if not rows or run is None:
            return
        self._logged += rows
        self.workspace.pages.make(KEY)
        self.workspace.pages.set_offered(KEY, True)
        if self.control is not None:
            self.control.show_logged(self._logged)

    def _make(self) -> CompilePage:
        self.page = CompilePage()
        self.control = CompileControl(self.workspace, self.page)
        return self.page

    def _compile(self) -> None:
        self.workspace.pages.make(KEY)
        if self.control is not None:
            self.control.compile()

    def close(self) -> None:
        """End what runs: the window closes."""
        if self.control is not None:
            self.control.stop()
