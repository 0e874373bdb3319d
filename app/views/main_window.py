"""The window: which views there are and where they stand.

Who hears whom is in `links`, the menus are in `menus`, behaviour lives in the controls.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QMenu, QStackedWidget, QVBoxLayout, QWidget

from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Cure
from app.project.document import Document
from app.views.actions import Actions
from app.views.analysis_service import AnalysisService
from app.views.blocks.block_control import BlockControl
from app.views.blocks.library_control import LibraryControl
from app.views.canvas.canvas import Canvas
from app.views.custom_layers.file_rows import OwnFiles, python_files
from app.views.custom_layers.layers_control import LayersControl
from app.views.custom_layers.signal_wiring import LayerLinks
from app.views.engine_service import EngineService
from app.views.files.files import FileMenu, project_in
from app.views.files.recovery_control import RecoveryControl
from app.views.importing.import_control import ImportControl
from app.views.inspector.inspector import Inspector
from app.views.late_pages import furnishing, load_modules
from app.views.menus import build_menus
from app.views.navigation import NETWORK, Navigation, SheetDocument
from app.views.newest_weights import NewestWeightsSource
from app.views.palette.palette import Palette
from app.views.problems.cure_control import CureControl
from app.views.problems.problems import ProblemsPanel
from app.views.project_catalog import ProjectCatalog
from app.views.selection import NetworkSelection, Selection
from app.views.settings import Settings
from app.views.startup_links import Links
from app.views.status import StatusLine
from app.views.toolbar import Toolbar
from app.views.training.runs.keeper import RunsKeeper
from app.views.training.runs.run_control import RunControl
from app.views.training.runs.session import RunSession
from app.views.ui import theme
from app.views.ui.background import Background
from app.views.ui.docks import PageHeights, TabbedDock, TabbedPane
from app.views.ui.gc_housekeeping import Housekeeping
from app.views.ui.present import present
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented
from app.views.ui.widgets.toast import ToastStack
from app.views.weights.head_control import HeadControl
from app.views.weights.weights_control import WeightsControl

if TYPE_CHECKING:
    from app.training.events import Failed
    from app.views.autograd.capture_control import AutogradControl
    from app.views.autograd.findings.findings_control import FindingsControl
    from app.views.autograd.inspector.inspector import TapeInspector
    from app.views.autograd.options_control import OptionsControl
    from app.views.autograd.page import AutogradPage
    from app.views.autograd.snippets.snippet_control import SnippetControl
    from app.views.autograd.tape.tape_control import TapeControl
    from app.views.code.code_view import CodeView
    from app.views.cost.cost_control import CostControl
    from app.views.cost.cost_table import CostTable
    from app.views.export.export_control import ExportControl
    from app.views.outline.outline import Outline
    from app.views.page_links import PageLinks
    from app.views.training.charts.curves import Curves
    from app.views.training.evaluation.control import EvaluationControl
    from app.views.training.evaluation.page import EvaluationPage
    from app.views.training.form.settings_form import TrainingForm
    from app.views.training.form.watch_control import WatchControl
    from app.views.training.layer.layer_control import LayerControl
    from app.views.training.layer.layer_page import LayerPage
    from app.views.training.memory.memory_control import MemoryControl
    from app.views.training.memory.profile_control import ProfileControl
    from app.views.training.runs.console import Console
    from app.views.training.runs.run_panel import RunPanel
    from app.views.training.runs.runs_control import RunsControl

EXAMPLE = "digits.tape"
LIST_HEIGHT, HEIGHTS = 176, {"cost": 262, "runs": 262, "curves": 338, "evaluation": 338}


class MainWindow(QMainWindow):
    """One window on one project. `start` loads torch behind it; before that the window draws and names already.

    The pages that are not in front are made after the first painting, by `furnish`.
    """

    room: AutogradPage
    code: CodeView
    outline: Outline
    tape_inspector: TapeInspector
    training_form: TrainingForm
    curves: Curves
    console: Console
    runs: RunPanel
    costs: CostTable
    evaluation: EvaluationPage
    layer_page: LayerPage
    autograd_control: AutogradControl
    evaluation_control: EvaluationControl
    findings_control: FindingsControl
    options_control: OptionsControl
    snippets: SnippetControl
    tape_control: TapeControl
    layer_control: LayerControl
    memory_control: MemoryControl
    profile_control: ProfileControl
    watch_control: WatchControl
    export_control: ExportControl
    cost_control: CostControl
    page_links: PageLinks
    runs_control: RunsControl
    file_menu: QMenu
    dock_menu: QMenu
    autograd_menu: QMenu

    def __init__(self, settings: Settings | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("window")
        self.setAcceptDrops(True)
        self.resize(1280, 800)
        self.setMinimumSize(960, 600)
        self.settings = settings or Settings()
        self.document = Document(parent=self)
        self.catalog = ProjectCatalog(catalog(), self.document)
        self.place = Navigation(self.document)
        self.sheet = SheetDocument(self.document, self.place, self.catalog)
        self.selection = Selection(self)
        self.network_selection = NetworkSelection(self.selection, self.place, self)
        self.background = Background(self)
        self.housekeeping = Housekeeping(self)
        self.engine = EngineService(self)
        self.live = AnalysisService(self.document, self.background, self.engine, self.catalog, self.place, self)
        self.session = RunSession(self)
        self._make_views()
        self._make_controls()
        self.actions_by_key: Actions = build_menus(self)
        self.toolbar = Toolbar(self.actions_by_key["undo"], self.actions_by_key["redo"], self)
        self.toolbar.set_project_menu(self.file_menu)
        self._lay_out()
        self.links = Links(self)
        self.layer_links = LayerLinks(self)
        self.recovery = RecoveryControl(self)
        self._steps = furnishing(self)
        self._restore()

    def _make_views(self) -> None:
        self.canvas = Canvas(self.sheet, self.selection, self.catalog)
        self.palette_view = Palette(self.catalog)
        self.own_files = OwnFiles()
        present(self.palette_view.layout()).addWidget(self.own_files)
        self.inspector = Inspector(self.sheet, self.selection, self.catalog, self.engine)
        self.inspectors = QStackedWidget()
        self.inspectors.addWidget(self.inspector)
        self.problems_panel = ProblemsPanel(self.catalog, self.network_selection)
        self.status = StatusLine(self)
        self.banner = Banner(parent=self)
        self.banner.hide()
        self.overlay = Segmented(["Shapes", "Gradients", "Cost"], "Overlay")

    def _make_controls(self) -> None:
        self.files = FileMenu(self.document, self.settings, self)
        self.layers = LayersControl(self.document, self.catalog, self.engine, self.settings, self)
        self.block_control, self.cures = BlockControl(self), CureControl(self)
        self.library_control = LibraryControl(self)
        self.import_control = ImportControl(self)
        self.weights_control, self.head_control = WeightsControl(self), HeadControl(self)
        self.run_control = RunControl(self.document, self.live, self.session, self.settings, self)
        self.runs_keeper = self.run_control.keep_with(RunsKeeper(self.document, self.background, self.settings, self))
        self.newest_weights = NewestWeightsSource(self.document, self.session, self.runs_keeper, self)

    def _lay_out(self) -> None:
        self.centre = TabbedPane(self, central=True)
        self.centre.add("network", "Network", "network", self.canvas)
        self.centre.add("autograd", "Autograd", "autograd", edge="back")
        self.centre.add("code", "Code", "code")
        self.overlay_caption = label("Overlay", "tab", "text3")
        self.centre.add_corner(self.overlay_caption)
        self.centre.add_corner(self.overlay)
        middle = QWidget(self)
        self.column = column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.banner)
        column.addWidget(self.centre, 1)
        self.setCentralWidget(middle)
        self.toasts = ToastStack(middle)
        self._make_docks()
        bar = self.addToolBar("Deck")
        bar.setObjectName("deck")
        bar.setMovable(False)
        bar.setFloatable(False)
        bar.toggleViewAction().setEnabled(False)
        bar.setContentsMargins(0, 0, 0, 0)
        bar.addWidget(self.toolbar)
        self.setStatusBar(self.status)

    def _make_docks(self) -> None:
        self.left = TabbedDock("left", "Layers", QSize(220, 600), 200, self)
        self.left.pane.add("layers", "Layers", "layers", self.palette_view)
        self.left.pane.add("outline", "Outline", "tree")
        self.right = TabbedDock("right", "Inspector", QSize(304, 700), 304, self)
        self.right.pane.add("inspector", "Inspector", "inspector", self.inspectors)
        self.right.pane.add("training", "Training", "runs")
        self.bottom = TabbedDock("bottom", "Problems and curves", QSize(800, LIST_HEIGHT), 400, self)
        self.bottom.pane.add("problems", "Problems", "error", self.problems_panel)
        self.bottom.pane.add("cost", "Cost", "memory")
        self.bottom.pane.add("curves", "Curves", "curves")
        self.bottom.pane.add("console", "Console", "console")
        self.bottom.pane.add("runs", "Runs", "runs")
        self.bottom.pane.add("evaluation", "Evaluation", "check")
        self.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, self.left)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.right)
        self.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self.bottom)
        for dock in (self.left, self.right, self.bottom):
            self.dock_menu.addAction(dock.toggleViewAction())
        # The right dock runs full height; the bottom dock spans left and centre.
        self.setCorner(Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.RightDockWidgetArea)
        self.setCorner(Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.BottomDockWidgetArea)
        self.resizeDocks([self.left, self.right], [220, 304], Qt.Orientation.Horizontal)
        self.resizeDocks([self.bottom], [LIST_HEIGHT], Qt.Orientation.Vertical)
        PageHeights(self, self.bottom, HEIGHTS, LIST_HEIGHT)

    def _restore(self) -> None:
        """Size, place and docks as they were left."""
        if self.settings.geometry is not None:
            self.restoreGeometry(self.settings.geometry)
        if self.settings.state is not None:
            self.restoreState(self.settings.state)

    # -- what others ask of the window --------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the other pages, one at a time so that the window answers in between, and load torch behind it."""
        self.status.set_torch("Loading PyTorch…")
        self.housekeeping.begin()
        self.background.ask("pages", load_modules, on_answer=self._furnish_one, on_error=self._furnish_one)

    def furnish(self) -> None:
        """Make all pages that are not there yet, now."""
        for _ in self._steps:
            pass

    def _furnish_one(self, *_: object) -> None:  # what cannot be imported is told by the step that needs it
        if next(self._steps, "done") == "done":
            self.live.start()
        else:
            QTimer.singleShot(1, self, self._furnish_one)

    def open_first(self) -> None:
        """What a person sees who opened no file: the example that trains in seconds, or the project opened last."""
        recent = [path for path in self.settings.recent_files if path.is_file()]
        if recent:
            self.files.open(recent[0])
        else:
            self.files.open_example(EXAMPLE)

    def open_path(self, path: Path) -> bool:
        return self.files.open(path)

    def start_run(self) -> None:
        self.furnish()
        self.run_control.run()

    def ask_export(self) -> None:
        self.furnish()
        self.export_control.ask()

    def show_page(self, key: str) -> None:
        """Bring a tab of the centre or of the bottom dock to the front."""
        self.furnish()
        pane = self.centre if key in ("network", "autograd", "code") else self.bottom.pane
        if pane is not self.centre:
            self.bottom.show()
        pane.show_page(key)

    def find_node(self) -> None:
        """Put the caret into the outline's search."""
        self.furnish()
        self.left.show()
        self.left.pane.show_page("outline")
        self.outline.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.outline.field.selectAll()

    def jump_to(self, node: str) -> None:
        """Select a node of the network and bring it into view."""
        if node in self.document.project.graph.nodes:
            self.place.go_to(NETWORK)
            self.show_node(node)

    def show_node(self, node: str) -> None:
        """Select a node of the sheet in front and bring it into view."""
        if node in self.sheet.project.graph.nodes:
            self.centre.show_page("network")
            self.selection.set([node])
            self.canvas.frame_selection()

    def edit_node(self) -> None:
        """Put the caret into the form of the selected node."""
        self.right.show()
        self.right.pane.show_page("inspector")
        self.inspector.focus_first_field()

    def cure(self, cure: Cure) -> None:
        """Mend a problem of the sheet in front."""
        self.cures.apply(cure)

    def cure_network(self, cure: Cure) -> None:
        """Mend a problem of the network, which comes to the front."""
        self.cures.apply_to_network(cure)

    def say(self, title: str, detail: str = "") -> None:
        self.toasts.show(title, detail)

    def refuse(self, title: str, reason: str) -> None:
        """A banner that stays until it is closed."""
        self.banner.set("error", title, reason)
        self.banner.show()

    def show_failure(self, failed: Failed) -> None:
        """A run that failed: what, where and the cure; the traceback is one click away."""
        self._failure = failed
        node = self.document.project.graph.nodes.get(failed.node or "")
        where = f"Show {node.name}" if node else "Details"
        self.banner.set("error", f"Training stopped: {failed.message}", failed.cure, where)
        self.banner.show()

    def banner_acted(self) -> None:
        """The banner's button: the layer that failed, or the whole story."""
        failed = getattr(self, "_failure", None)
        if failed is None or self.layer_links.speaks() or self.watch_control.speaks:
            return
        if failed.node in self.document.project.graph.nodes:
            self.jump_to(failed.node)
        else:
            self.show_details(failed.message, failed.cure, failed.traceback)

    def show_details(self, title: str, cure: str, trace: str) -> None:
        from app.views.ui.dialogs.message import ErrorDialog

        ErrorDialog(title, cure=cure, traceback=trace, parent=self).open()

    def show_unexpected(self, message: str, trace: str) -> None:
        """A fault of the program itself. The project is untouched: it is a value."""
        self.show_details("Something went wrong in Tapedeck", f"{message}. Your project is unchanged; save it.", trace)

    def set_reduced_motion(self, still: bool) -> None:
        """Reels and dashes stand still."""
        self.settings.reduced_motion = still
        theme.manager().set_reduced_motion(still)

    def set_theme(self, choice: str) -> None:
        self.settings.theme = choice
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        theme.apply(application, choice)

    # -- the window itself --------------------------------------------------------------------------------------------

    def closeEvent(self, event: QCloseEvent) -> None:
        """Ask while a run goes on or work is unsaved; then leave nothing running."""
        if self.session.active and not self._may_stop_run():
            event.ignore()
            return
        if not self.files.may_leave():
            event.ignore()
            return
        if not self.session.close_and_wait():
            self.refuse(
                "The run has not stopped yet", "The current batch is still being trained. Close again in a moment."
            )
            event.ignore()
            return
        self.settings.geometry = self.saveGeometry()
        self.settings.state = self.saveState()
        self.settings.sync()
        if hasattr(self, "page_links"):  # else it is closed before its pages are made
            self.page_links.close()
        self.background.close()
        self.engine.close()
        self.recovery.close()
        self.housekeeping.end()
        event.accept()

    def _may_stop_run(self) -> bool:
        """Ask whether the run under way may end."""
        from app.views.ui.dialogs.message import DialogAnswer, running_dialog

        progress = self.session.progress()
        where = f"epoch {progress.epoch} of {progress.epochs}" if progress else "its beginning"
        dialog = running_dialog(where, self)
        dialog.exec()
        dialog.deleteLater()
        return dialog.answer is DialogAnswer.DISCARD

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        data = event.mimeData()
        if project_in(event.mimeData()) is not None or python_files(data) or self.weights_control.takes(data):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = project_in(event.mimeData())
        if self.layer_links.drop(event.mimeData()) or self.weights_control.drop(event.mimeData()):
            event.acceptProposedAction()
        elif path is not None:
            event.acceptProposedAction()
            self.files.open_asking(path)
