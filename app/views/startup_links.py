"""Who hears whom among the views that stand from the start. The pages behind them are connected in `page_links`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QWidget

from app.builder.catalog.catalog import catalog
from app.builder.catalog.custom import documentation, is_custom
from app.engine.requests.documentation import Summaries
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.blocks.block_menu import show_op_menu
from app.views.files.saving_control import SavingControl
from app.views.ui.turns import Turns
from app.views.ui.widgets.focus import FocusHome

FEW = 300  # nodes; of a net with more, one view a turn hears what is known of it
OLD_FORMAT = "It was of an older format, which this version saves over with a newer one."

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.engine.requests.shapes import Torch
    from app.views.main_window import MainWindow
    from app.views.ui.background import Failure


class Links(QObject):
    """The wiring of one window. Every slot is short; what takes thought is in a control."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        # Windows tell every widget in them when they are modified, which can wait until an edit has been painted.
        self._title = QTimer(self, singleShot=True, interval=0)
        self._title.timeout.connect(self._show_title)
        self._document()
        self._analysis()
        self._deck()
        self._words()
        self._show_title()
        self._focus = FocusHome(window, self._home)

    def _home(self) -> QWidget | None:
        """Where the keys go when the widget is gone that had them: the canvas, or the graph in front of it."""
        window = self._window
        if window.centre.page == "network":
            return window.canvas.view
        return window.room.view if window.centre.page == "autograd" else window.centre.tabs

    # -- the project --------------------------------------------------------------------------------------------------

    def _document(self) -> None:
        window, document = self._window, self._window.document
        document.changed.connect(self._project_changed)
        document.replaced.connect(self._project_replaced)
        document.path_changed.connect(self._title.start)
        document.dirty_changed.connect(lambda _dirty: self._title.start())
        window.palette_view.activated.connect(window.canvas.add_op)
        window.canvas.cureRequested.connect(window.cure)
        window.canvas.editRequested.connect(self._edit)
        window.canvas.insideRequested.connect(window.block_control.go_to)
        window.canvas.exampleRequested.connect(window.actions_by_key["gallery"].trigger)
        window.inspector.cure_requested.connect(window.cure)
        window.inspector.frame_requested.connect(window.show_node)
        window.problems_panel.cure_requested.connect(window.cure_network)
        window.problems_panel.jump_requested.connect(window.jump_to)
        window.problems_panel.enter_requested.connect(window.place.go_to)
        window.problems_panel.count_changed.connect(self._problem_count)
        window.centre.shown.connect(self._centre_shown)
        window.selection.changed.connect(self._selected)
        self._blocks()

    def _blocks(self) -> None:
        window = self._window
        window.sheet.refused.connect(window.canvas.say)
        window.sheet.leaving.connect(self._forget_analysis)
        window.canvas.leaveRequested.connect(window.place.leave)
        window.palette_view.menu_wanted.connect(lambda key, spot: show_op_menu(window, key, spot))
        window.catalog.changed.connect(window.palette_view.refill)
        window.catalog.changed.connect(self._ops_changed)
        for signal in (window.selection.changed, window.sheet.changed):
            signal.connect(lambda *_: window.block_control.enable(window.actions_by_key))
        window.block_control.enable(window.actions_by_key)

    def _ops_changed(self) -> None:
        """Blocks or layers of the person's own are others: their nodes may have other ports."""
        scene, torchs = self._window.canvas.scene, catalog()
        scene.refresh_faces({node.op for node in scene.graph.nodes.values() if node.op not in torchs})

    def _forget_analysis(self) -> None:
        """What is known is of the sheet that was in front; the nodes of another may have the same ids."""
        scene = self._window.canvas.scene
        scene.analysis, scene.problems = None, {}

    def _project_changed(self, before: Project, after: Project) -> None:
        if before.name != after.name:
            self._title.start()
        if before.training.device != after.training.device:
            self._window.toolbar.show_device(after.training.device)

    def _project_replaced(self, project: Project) -> None:
        window = self._window
        window.selection.set(())
        window.toolbar.show_device(project.training.device)
        window.banner.hide()

    def _show_title(self) -> None:
        window = self._window
        name, dirty = window.document.project.name, window.document.dirty
        name = f"{name} (read-only)" if window.document.read_only else name
        window.toolbar.set_project(name, dirty)
        window.setWindowTitle(f"{name}[*] – Tapedeck")
        window.setWindowModified(dirty)

    def _edit(self, node: str) -> None:
        """Enter on a node: its inside, if it is an instance of a block, else its form."""
        if self._window.block_control.open(node):
            return
        self._window.edit_node()

    def _selected(self, ids: frozenset[str], _origin: object) -> None:
        if ids:
            self._window.right.pane.show_page("inspector")

    def _centre_shown(self, key: str) -> None:
        self._window.overlay.setVisible(key == "network")
        self._window.overlay_caption.setVisible(key == "network")

    # -- what is known of it ------------------------------------------------------------------------------------------

    def _analysis(self) -> None:
        window, live = self._window, self._window.live
        self._told = Turns(self, self._tell_canvas, self._tell_inspector, self._tell_problems)
        window.canvas.growth.busy.connect(live.pause)
        live.torch_loaded.connect(self._torch_loaded)
        live.torch_failed.connect(self._torch_failed)
        live.shapes_ready.connect(self._shapes_ready)
        live.analysed.connect(self._analysed)
        live.analysis_failed.connect(self._analysis_failed)
        window.engine.ended.connect(self._engine_ended)
        window.toolbar.device_chosen.connect(window.run_control.choose_device)

    def _torch_loaded(self, torch: Torch) -> None:
        window = self._window
        window.status.set_torch(f"PyTorch {torch.version}")
        window.toolbar.set_devices(torch.devices, window.document.project.training.device)
        window.inspector.set_torch_loaded()
        keys = tuple(key for key, spec in window.catalog.now.items() if spec.definition is None)
        own = {key: documentation(key)[0] for key in keys if is_custom(key)}
        torchs = tuple(key for key in keys if key not in own)

        def show(found: FrozenMap[str, str]) -> None:
            window.palette_view.set_summaries(found.update(own))

        window.engine.ask("summaries", Summaries(torchs), on_answer=show)

    def _torch_failed(self, failure: Failure) -> None:
        self._window.status.set_torch("PyTorch is not there")
        reason = f"{failure.error}. You can draw; to check and to train, install it: pip install torch"
        self._window.refuse("PyTorch cannot be loaded", reason)

    def _engine_ended(self, words: str) -> None:
        room = getattr(self._window, "room", None)  # its page is made late
        if room is not None and room.isVisible() and words in room.banner.reason():
            return  # it is said there, with the graph that went along
        reason = f"{words} Nothing of the project is lost, and the next question starts another."
        self._window.refuse("The engine has ended", reason)

    def _shapes_ready(self, shapes: Analysis) -> None:
        """The canvas shows them at once; the others wait until the whole answer is there."""
        in_front = self._window.live.front_of(shapes)
        if in_front is not None:
            self._window.canvas.set_analysis(in_front)

    def _analysed(self, analysis: Analysis) -> None:
        window = self._window
        if len(analysis.graph.nodes) <= FEW:
            self._told.now()
        else:
            self._told.begin()
        window.status.set_checked(analysis.milliseconds)
        window.status.set_parameters(analysis.total_parameters)

    def _tell_canvas(self) -> None:
        in_front = self._window.live.in_front
        if in_front is not None and self._window.live.up_to_date:
            self._window.canvas.set_analysis(in_front)

    def _tell_inspector(self) -> None:
        in_front = self._window.live.in_front
        if in_front is not None and self._window.live.up_to_date:
            self._window.inspector.set_analysis(in_front)

    def _tell_problems(self) -> None:
        window, analysis = self._window, self._window.live.analysis
        if analysis is not None and window.live.up_to_date:
            window.problems_panel.set_analysis(analysis)
            self._problem_count(*window.problems_panel.counts)

    def _analysis_failed(self, failure: Failure) -> None:
        self._window.show_unexpected(f"The drawing could not be checked: {failure.error}", failure.traceback)

    def _problem_count(self, errors: int, warnings: int) -> None:
        self._window.bottom.pane.tabs.set_badge("problems", errors or warnings, "errorFill" if errors else "line3")
        self._window.status.set_problems(errors, warnings)

    # -- the deck and words -------------------------------------------------------------------------------------------

    def _deck(self) -> None:
        window, control = self._window, self._window.run_control
        deck = window.toolbar.deck
        for name in ("run", "pause", "step", "stop"):
            getattr(deck, name).connect(getattr(control, name))
        deck.follow(window.session)
        SavingControl(window)
        control.blocked_changed.connect(self._blocked)
        self._blocked(control.blocked)

    def _blocked(self, reason: str) -> None:
        if not self._window.session.active:
            errors = bool(self._window.live.errors) and self._window.live.up_to_date
            icon, color = ("error", "error") if errors else ("", "text2")
            self._window.toolbar.deck.set_blocked(reason, icon, color)

    def _words(self) -> None:
        window = self._window
        window.files.refused.connect(window.refuse)
        window.files.saved.connect(lambda path: window.say(f"Saved {path.name}", str(path.parent)))
        window.document.backed_up.connect(lambda copy: window.say(f"The original is kept as {copy.name}", OLD_FORMAT))
        window.runs_keeper.said.connect(window.say)
        window.runs_keeper.refused.connect(window.refuse)
        window.run_control.said.connect(window.say)
        window.run_control.refused.connect(window.refuse)
        window.run_control.failed.connect(window.show_failure)
        window.banner.acted.connect(window.banner_acted)
        window.toolbar.exported.connect(window.ask_export)
