"""Runs in the window: the pages "Console" and "Runs"."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtWidgets import QWidget

from app.features.runs.console import Console
from app.features.runs.control import RunsControl
from app.features.runs.page import RunPanel
from app.views.feature import Action, Feature, Page

RESUME = "Resume the run from its newest checkpoint, as if it had not stopped"


class RunsFeature(Feature):
    rank = 155
    follows = True  # the console has all that was said, the list all runs
    console: Console
    runs: RunPanel
    runs_control: RunsControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "console",
            "Console",
            "console",
            "bottom",
            self._make_console,
            words="C&onsole",
        )
        yield Page("runs", "Runs", "runs", "bottom", self._make_runs, words="&Runs")

    def actions(self) -> Iterable[Action]:
        yield Action(
            "continue",
            "Res&ume the newest run",
            lambda: self.runs_control.go_on_newest(),
            tip=RESUME,
            late=True,
            menu="run.control",
            after="stop",
        )
        yield Action("add-to-runs", "", self._add)
        yield Action("show-runs", "", self._show)

    def _add(self, button: QWidget, strip: QWidget) -> None:
        """Add a button and a strip of another feature to the page "Runs"."""
        self.workspace.pages.make("runs")
        self.runs.add_tool(button)
        self.runs.add_strip(strip)

    def _show(self, text: str, column: str) -> None:
        """Show the runs that a filter takes, sorted by the column of a key."""
        self.workspace.pages.show("runs")
        self.runs.show_runs(text, column)

    def _make_console(self) -> Console:
        self.console = Console()
        return self.console

    def _make_runs(self) -> RunPanel:
        self.runs = RunPanel()
        return self.runs

    def finish(self) -> None:
        workspace, session = self.workspace, self.workspace.session
        self.runs.runRequested.connect(workspace.run_control.run)
        self.runs.set_session(session)
        workspace.run_control.started.connect(self.console.begin)
        session.told.connect(self.console.write_events)
        session.noted.connect(lambda remark: self.console.log(remark, "text3"))
        session.progressed.connect(self._progressed)
        session.stateChanged.connect(self._ended)
        self.runs_control = RunsControl(workspace, self.runs)

    def _progressed(self) -> None:
        if self.workspace.session.current is not None:
            self.runs.refresh()

    def _ended(self, _state: str) -> None:
        if not self.workspace.session.active:
            self._progressed()
