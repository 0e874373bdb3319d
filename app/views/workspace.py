"""What every feature is made with: the models and services of one window, and how pages and words reach the person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from app.views.navigation import NETWORK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from PySide6.QtWidgets import QWidget

    from app.project.document import Document
    from app.views.actions import Actions
    from app.views.activity import Activity
    from app.views.analysis_service import AnalysisService, Hearers
    from app.views.autograd.findings.diagnostic import Diagnostic
    from app.views.autograd.graph_tab import GraphSubject
    from app.views.cure_control import CureControl
    from app.views.drawing import CanvasFacade
    from app.views.engine_service import EngineService
    from app.views.files import FileMenu
    from app.views.layers_control import LayersControl
    from app.views.navigation import Navigation, SheetDocument
    from app.views.notifier import Notifier
    from app.views.overlays import Overlays
    from app.views.pages import Pages
    from app.views.project_catalog import ProjectCatalog
    from app.views.run.keeper import RunsKeeper
    from app.views.run.newest_weights import NewestWeightsSource
    from app.views.run.run_control import RunControl
    from app.views.run.session import RunSession
    from app.views.selection import NetworkSelection, Selection
    from app.views.settings import Settings
    from app.views.shown_run import ShownRun
    from app.views.status import StatusLine
    from app.views.ui.background import Background
    from app.views.ui.dialogs.search import SearchEntry


class Workspace(Struct, frozen=True, weakref=True):
    """`window` is the parent of dialogs. Models report changes by signals; features change them by methods."""

    window: QWidget
    settings: Settings
    # The project, and where in it the person is.
    document: Document
    catalog: ProjectCatalog
    place: Navigation
    sheet: SheetDocument
    selection: Selection
    network_selection: NetworkSelection
    # Background computation, and the latest analysis.
    background: Background
    engine: EngineService
    live: AnalysisService
    hearers: Hearers
    # FileMenu, the person's own layers, and cures.
    files: FileMenu
    layers: LayersControl
    cures: CureControl
    # Runs.
    session: RunSession
    run_control: RunControl
    runs_keeper: RunsKeeper
    newest_weights: NewestWeightsSource
    shown_run: ShownRun
    # What features add: pages of Findings, graphs of the tab Autograd, what Ctrl+K finds, and what one can start from.
    diagnostics: list[Diagnostic]
    graph_subjects: list[GraphSubject]
    searched: list[Callable[[], Iterable[SearchEntry]]]
    beginnings: list[Callable[[], Iterable[SearchEntry]]]
    activity: Activity
    # What is visible.
    drawing: CanvasFacade
    overlays: Overlays
    pages: Pages
    commands: Actions
    notifier: Notifier
    status: StatusLine

    def show_node(self, node: str) -> None:
        """Select a node of the sheet in front and scroll to it."""
        if node in self.sheet.project.graph.nodes:
            self.pages.turn_to("network")
            self.selection.set([node])
            self.drawing.frame_selection()

    def jump_to(self, node: str) -> None:
        """Select a node of the network and scroll to it."""
        if node in self.document.project.graph.nodes:
            self.place.go_to(NETWORK)
            self.show_node(node)
