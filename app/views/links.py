"""Who hears whom. Signals of views go to controls, words of controls go to the person."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt

from app.project import Project
from app.views.dialogs.download import DownloadDialog
from app.views.palette import summaries
from app.views.training.gradients import GradientOverlay

if TYPE_CHECKING:
    from app.background import Failure
    from app.builder.analysis import Analysis
    from app.training.events import Failed
    from app.views.live import Torch
    from app.views.main_window import MainWindow
    from app.views.training.session import Run

STRIPS = 0.25  # seconds between two paintings of the gradient strips

STATES = {
    "starting": ("Starting", "run"),
    "running": ("Training", "run"),
    "paused": ("Paused", "warn"),
    "stopping": ("Stopping", "text2"),
    "failed": ("Stopped by an error", "error"),
}


class Links(QObject):
    """The wiring of one window. Every slot is short; what takes thought is in a control."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._painted = 0.0
        self._gradients: GradientOverlay | None = None
        self._document()
        self._analysis()
        self._runs()
        self._words()

    # -- the project --------------------------------------------------------------------------------------------------

    def _document(self) -> None:
        window, document = self._window, self._window.document
        document.changed.connect(self._project_changed)
        document.replaced.connect(self._project_replaced)
        document.path_changed.connect(self._show_title)
        document.dirty_changed.connect(self._show_title)
        window.palette_view.activated.connect(window.canvas.add_op)
        window.outline.jump_requested.connect(window.jump_to)
        window.canvas.cureRequested.connect(window.cure)
        window.canvas.editRequested.connect(self._edit)
        window.canvas.exampleRequested.connect(lambda: window.files.open_example("digits.tape"))
        window.inspector.cure_requested.connect(window.cure)
        window.inspector.frame_requested.connect(window.jump_to)
        window.problems_panel.cure_requested.connect(window.cure)
        window.problems_panel.jump_requested.connect(window.jump_to)
        window.problems_panel.count_changed.connect(self._problem_count)
        window.overlay.changed.connect(self._overlay_changed)
        window.centre.shown.connect(self._centre_shown)
        window.selection.changed.connect(self._selected)
        window.room.nodeSelected.connect(self._backward_selected)
        window.room.nodeHovered.connect(window.selection.hover)
        window.room.detail.connect(lambda item: window.tape_inspector.show_item(window.room.tape, item))

    def _project_changed(self, before: Project, after: Project) -> None:
        if before.name != after.name:
            self._show_title()
        if before.training.device != after.training.device:
            self._window.toolbar.show_device(after.training.device)

    def _project_replaced(self, project: Project) -> None:
        window = self._window
        window.selection.set(())
        window.room.set_tape(None)
        window.canvas.frame_all()
        window.toolbar.show_device(project.training.device)
        window.banner.hide()

    def _show_title(self, *_: object) -> None:
        window = self._window
        name, dirty = window.document.project.name, window.document.dirty
        window.toolbar.set_project(name, dirty)
        window.setWindowTitle(f"{name}[*] – Tapedeck")
        window.setWindowModified(dirty)

    def _edit(self, node: str) -> None:
        """Enter on a node: its form."""
        self._window.right.show()
        self._window.right.pane.show_page("inspector")
        self._window.inspector.edit()

    def _selected(self, ids: frozenset[str], origin: object) -> None:
        window = self._window
        if origin is not window.room:
            window.room.select_nodes(ids)
        window.curves.select_nodes(ids)
        if ids:
            window.right.pane.show_page("inspector")

    def _backward_selected(self, node: str | None) -> None:
        if node is not None:
            self._window.selection.set([node], self._window.room)

    def _centre_shown(self, key: str) -> None:
        on_canvas = key == "network"
        self._window.overlay.setVisible(on_canvas)
        self._window.overlay_caption.setVisible(on_canvas)
        inspectors = self._window.inspectors
        inspectors.setCurrentWidget(self._window.tape_inspector if key == "autograd" else self._window.inspector)

    # -- what is known of it ------------------------------------------------------------------------------------------

    def _analysis(self) -> None:
        window, live = self._window, self._window.live
        live.torch_loaded.connect(self._torch_loaded)
        live.torch_failed.connect(self._torch_failed)
        live.analysed.connect(self._analysed)
        live.analysis_failed.connect(self._analysis_failed)
        window.toolbar.device_chosen.connect(window.run_control.choose_device)

    def _torch_loaded(self, torch: Torch) -> None:
        window = self._window
        window.status.set_torch(f"PyTorch {torch.version}")
        device = window.document.project.training.device
        window.toolbar.set_devices(torch.devices, device)
        window.training_form.set_devices(torch.devices)
        window.inspector.set_torch_loaded()
        window.background.ask(
            "summaries", summaries, tuple(window.catalog), on_answer=window.palette_view.set_summaries
        )

    def _torch_failed(self, failure: Failure) -> None:
        self._window.status.set_torch("PyTorch is not there")
        reason = f"{failure.error}. You can draw; to check and to train, install it: pip install torch"
        self._window.refuse("PyTorch cannot be loaded", reason)

    def _analysed(self, analysis: Analysis) -> None:
        window = self._window
        for view in (window.canvas, window.inspector, window.problems_panel):
            view.set_analysis(analysis)
        window.code.set_source(analysis.source)
        window.room.set_source_text(analysis.source.text)
        window.outline.set_parameters(analysis.parameters)
        window.status.set_checked(analysis.milliseconds)
        window.status.set_parameters(analysis.total_parameters)

    def _analysis_failed(self, failure: Failure) -> None:
        self._window.show_unexpected(f"The drawing could not be checked: {failure.error}", failure.traceback)

    def _problem_count(self, errors: int, warnings: int) -> None:
        self._window.bottom.pane.tabs.set_badge("problems", errors or warnings, "errorFill" if errors else "warnBg")
        self._window.status.set_problems(errors, warnings)

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _runs(self) -> None:
        window, control, session = self._window, self._window.run_control, self._window.session
        deck = window.toolbar.deck
        deck.run.connect(control.run)
        deck.pause.connect(control.pause)
        deck.step.connect(control.step)
        deck.stop.connect(control.stop)
        window.curves.runRequested.connect(control.run)
        window.curves.layerSelected.connect(lambda node: window.selection.set([node], window.curves))
        window.curves.layerHovered.connect(window.selection.hover)
        window.runs.runRequested.connect(control.run)
        window.runs.runChosen.connect(window.curves.set_run)
        control.blocked_changed.connect(self._blocked)
        control.download_wanted.connect(self._download)
        window.training_form.set_data_root(window.settings.data_folder)
        window.training_form.download_requested.connect(self._download)
        control.started.connect(self._run_started)
        control.moved_on.connect(self._moved_on)
        session.stateChanged.connect(self._run_state)
        session.progressed.connect(self._progressed)
        session.told.connect(window.console.tell)
        window.runs.set_session(session)
        deck.follow(session)
        self._blocked(control.blocked)

    def _blocked(self, reason: str) -> None:
        session, deck = self._window.session, self._window.toolbar.deck
        if not session.active:
            errors = bool(self._window.live.errors)
            deck.set_blocked(reason, "error" if errors else "", "error" if errors else "text2")

    def _download(self, source: str) -> None:
        """Ask before anything is fetched; the dialog says how much and from where."""
        window = self._window
        dialog = DownloadDialog(source, window.settings.data_folder, window)
        dialog.downloaded.connect(lambda _source: window.training_form.refresh_data())
        dialog.open()

    def _moved_on(self, moved: bool) -> None:
        """The drawing is no longer the one that is being trained."""
        window = self._window
        if moved:
            text = "The run goes on with the network as it was when it began; your edits are for the next run."
            window.banner.set("info", "The drawing has moved on", text)
            window.banner.show()
        elif window.banner.title() == "The drawing has moved on":
            window.banner.hide()

    def _run_started(self, run: Run) -> None:
        window = self._window
        window.banner.hide()
        self._gradients = GradientOverlay(run.job.source, run.history)
        window.curves.set_run(run)
        window.console.begin(run)
        window.show_page("curves")
        if window.bottom.height() < 300:
            window.resizeDocks([window.bottom], [338], Qt.Orientation.Vertical)
        window.canvas.set_running(True)
        window.training_form.set_running(True)

    def _run_state(self, state: str) -> None:
        window = self._window
        text, color = STATES.get(state, ("", "text2"))
        run = window.session.current
        device = run.history.started.device if run and run.history.started else ""
        window.status.set_state(f"{text} on {device}" if device and text else text, color)
        window.status.set_run(f"Run {run.number}" if run else "")
        if not window.session.active:
            window.canvas.set_running(False)
            window.training_form.set_running(False)
            self._progressed()
            self._blocked(window.run_control.blocked)

    def _progressed(self) -> None:
        window, session = self._window, self._window.session
        if session.current is None:
            return
        window.curves.refresh()
        window.runs.refresh()
        now = time.monotonic()
        if window.overlay.value() == "Gradients" and (now - self._painted > STRIPS or not session.active):
            self._painted = now
            self._paint_gradients()

    def _overlay_changed(self, _overlay: str) -> None:
        self._paint_gradients()

    def _paint_gradients(self) -> None:
        window, run = self._window, self._window.session.current
        shown = self._gradients.read() if self._gradients and window.overlay.value() == "Gradients" else None
        if run is None or shown is None:
            window.canvas.set_gradients({}, 1e-3, 10.0)
            return
        same = window.run_control.unchanged(run)
        norms = {node: values for node, values in shown.norms.items() if node in same}
        window.canvas.set_gradients(norms, shown.low, shown.high)

    # -- words --------------------------------------------------------------------------------------------------------

    def _words(self) -> None:
        window = self._window
        window.files.refused.connect(window.refuse)
        window.files.saved.connect(lambda path: window.say(f"Saved {path.name}", str(path.parent)))
        window.export_control.said.connect(window.say)
        window.export_control.refused.connect(window.refuse)
        window.autograd_control.said.connect(window.say)
        window.autograd_control.refused.connect(window.refuse)
        window.run_control.said.connect(window.say)
        window.run_control.refused.connect(window.refuse)
        window.run_control.failed.connect(self._run_failed)
        window.banner.acted.connect(window.banner_acted)
        window.toolbar.exported.connect(window.export_control.ask)

    def _run_failed(self, failed: Failed) -> None:
        self._window.show_failure(failed)
