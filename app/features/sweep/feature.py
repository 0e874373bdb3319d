"""Sweeps in the window: a page, a button and a strip on the page Runs, and a command in the Run menu."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.features.sweep.control import SweepControl
from app.features.sweep.page import SweepPage
from app.features.sweep.values import ReadSweep, SweepTable, Values
from app.views.feature import Action, Feature, Page
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.workspace import Workspace

# --- The page "Sweep" kept up to date, and its buttons

LOOK = 3000  # milliseconds between two looks at a sweep of another process
TOGETHER = 200  # milliseconds in which changes are read at once


class PageControl(QObject):
    """Reads the sweep that the page shows while it can be seen: the newest, or the one that was chosen there."""

    def __init__(
        self, workspace: Workspace, sweeps: SweepControl, page: SweepPage
    ) -> None:
        super().__init__(page)
        self._workspace, self._sweeps, self._page = workspace, sweeps, page
        self._tag = ""
        self._timer = QTimer(self, interval=LOOK)
        self._timer.timeout.connect(self._look)
        self._timer.start()
        self._soon = QTimer(self, singleShot=True, interval=TOGETHER)
        self._soon.timeout.connect(self._read)
        page.begin.clicked.connect(sweeps.open)
        page.stop.clicked.connect(sweeps.stop_trial)
        page.pause.clicked.connect(self._pause)
        page.add.clicked.connect(self._add)
        page.space.clicked.connect(lambda: self._with_table(sweeps.edit_space))
        page.go_on.clicked.connect(lambda: self._with_table(sweeps.go_on))
        page.chosen.connect(self._choose)
        page.opened.connect(self._open)
        sweeps.changed.connect(self.refresh)
        workspace.pages.shown.connect(lambda _key: self.refresh())
        workspace.document.replaced.connect(lambda _project: self._choose(""))
        workspace.session.stateChanged.connect(lambda _state: self._show_buttons())
        self.refresh()

    def refresh(self) -> None:
        """Read the sweep soon, if the page or the list of runs, which has those of sweeps, can be seen."""
        in_sight = self._page.isVisible() or self._workspace.pages.is_front("runs")
        if in_sight and not self._soon.isActive():
            self._soon.start()

    def _read(self) -> None:
        request = ReadSweep(self._sweeps.folder, self._sweeps.tag or self._tag)
        self._workspace.engine.ask(
            "sweep read", request, on_answer=self._show, on_error=self._cannot_read
        )

    def _show(self, table: SweepTable | None) -> None:
        self._page.show_table(table)
        if table is not None:
            self._workspace.pages.set_offered("sweep", True)
        self._show_buttons()

    def _cannot_read(self, failure: WorkerFailure) -> None:
        message = failure.message
        self._page.show_table(None, f"{message[:1].upper()}{message[1:]}.")
        self._show_buttons()

    def _look(self) -> None:
        table = self._page.table
        if table is not None and table.held and not self._sweeps.tag:
            self.refresh()

    def _show_buttons(self) -> None:
        page, table, session = self._page, self._page.table, self._workspace.session
        here = bool(self._sweeps.tag) and session.active
        page.stop.setVisible(here)
        page.pause.setVisible(here)
        page.pause.setText("Resume" if session.state == "paused" else "Pause")
        steered = table is not None and not table.of_runs
        page.add.setVisible(steered)
        page.space.setVisible(steered)
        page.begin.setVisible(not self._sweeps.tag)
        left = table is not None and steered and page.ended < table.search.count
        elsewhere = table is not None and table.held
        page.go_on.setVisible(left and not self._sweeps.tag and not elsewhere)

    def _pause(self) -> None:
        session = self._workspace.session
        if session.state == "paused":
            session.resume()
        else:
            session.pause()

    def _with_table(self, does: Callable[[SweepTable], object]) -> None:
        if self._page.table is not None:
            does(self._page.table)

    def _add(self) -> None:
        table = self._page.table
        if table is None:
            return
        near = [row for row in table.trials if row.value is not None]
        best = min(near, key=lambda row: row.value or 0.0, default=None)
        first = {s.name: s.extremes[0] for s in table.search.settings}
        self._sweeps.add_trial(table, best.values if best else Values(first))

    def _choose(self, tag: str) -> None:
        self._tag = tag
        self.refresh()

    def _open(self, _runs: object) -> None:
        table = self._page.table
        if table is not None:
            filtered = f"tags:{table.tag}"
            self._workspace.commands.trigger("show-runs", filtered, "best_loss")


TIP = "Search for the best settings: run after run, chosen on a grid, at random or by what earlier runs reached"


class SweepFeature(Feature):
    follows = True  # its button stands in the list of runs, which does
    sweeps: SweepControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "sweep",
            "Sweep",
            "search",
            "bottom",
            self._make,
            after="runs",
            words="Sweep",
        )

    def _make(self) -> SweepPage:
        self.page = SweepPage()
        return self.page

    def begin(self) -> None:
        self.workspace.pages.set_offered("sweep", False)  # until it is asked for

    def actions(self) -> Iterable[Action]:
        yield Action(
            "sweep",
            "Sw&eep…",
            lambda: self.sweeps.open(),
            tip=TIP,
            late=True,
            menu="run.rate",
        )

    def finish(self) -> None:
        self.sweeps = SweepControl(self.workspace)
        self.page_control = PageControl(self.workspace, self.sweeps, self.page)
