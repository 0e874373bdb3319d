"""Who hears whom once all pages are there: code, outline, autograd, and everything that follows a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.project.project import Project
from app.views.training.charts.gradients import GradientOverlay
from app.views.training.form.download_dialog import DownloadDialog
from app.views.ui.turns import Turns

if TYPE_CHECKING:
    from app.engine.requests.shapes import Torch
    from app.views.main_window import MainWindow
    from app.views.training.runs.session import Run

FEW = 300  # nodes; of a net with more, one page a turn hears what is known of it
STRIPS = 1.0  # seconds between two paintings of the gradient strips
MOVED_ON = "The drawing has moved on"

STATES = {
    "starting": ("Starting", "run"),
    "running": ("Training", "run"),
    "paused": ("Paused", "warn"),
    "stopping": ("Stopping", "text2"),
    "failed": ("Stopped by an error", "error"),
}


class PageLinks(QObject):
    """Connects the later pages, and brings them up to date with what happened before they were there."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._painted = 0.0
        self._gradients: GradientOverlay | None = None
        # Once the canvas has been told: all at once would hold the window for the sum of them.
        self.later = Turns(self, self._show_code, self._show_fit, self._show_layers, self._show_outline)
        self._pages()
        self._runs()
        self._words()
        if window.live.torch is not None:
            self._torch_loaded(window.live.torch)
        self.later.now()

    # -- code, outline, autograd --------------------------------------------------------------------------------------

    def _pages(self) -> None:
        window = self._window
        window.live.torch_loaded.connect(self._torch_loaded)
        window.live.analysed.connect(lambda analysis: self.later.begin(len(analysis.graph.nodes) <= FEW))
        window.document.replaced.connect(self._project_replaced)
        window.outline.jump_requested.connect(window.show_node)
        window.network_selection.changed.connect(self._selected)
        window.place.changed.connect(lambda _before, _after: self._paint_gradients())
        window.centre.shown.connect(self._centre_shown)
        window.room.nodeSelected.connect(self._backward_selected)
        window.room.nodeHovered.connect(window.network_selection.hover)
        window.room.detail.connect(window.tape_control.inspect)
        window.curves.layerSelected.connect(lambda node: window.network_selection.set([node], window.curves))
        window.curves.layerHovered.connect(window.network_selection.hover)
        window.training_form.set_data_root(window.settings.data_folder)
        window.training_form.download_requested.connect(self._download)
        window.training_form.asked.connect(lambda key: window.actions_by_key[key].trigger())
        window.training_form.data.trust_requested.connect(self._look_at_dataset)
        window.training_form.data.fit.cure_requested.connect(window.cure_network)
        window.training_form.data.facts_changed.connect(window.live.refresh)

    def _torch_loaded(self, torch: Torch) -> None:
        self._window.training_form.set_devices(torch.devices)

    def _show_code(self) -> None:
        window, analysis = self._window, self._window.live.analysis
        if analysis is not None:
            in_front = window.live.in_front
            here = in_front.source if in_front is not None else analysis.source.within(window.place.path)
            window.code.set_source(here)
            window.room.set_source_text(analysis.source.text)

    def _show_fit(self) -> None:
        if self._window.live.analysis is not None:
            self._window.training_form.set_fit(self._window.live.analysis)

    def _show_layers(self) -> None:
        if self._window.live.analysis is not None:
            self._window.training_form.set_layers(self._window.live.analysis)

    def _show_outline(self) -> None:
        if self._window.live.in_front is not None:
            self._window.outline.set_analysis(self._window.live.in_front)

    def _project_replaced(self, _project: Project) -> None:
        """The tape and the curves were another project's; a run that still goes on keeps its curves."""
        window = self._window
        window.room.set_tape(None)
        if not window.session.active:
            self._gradients = None
            if window.curves.has_run:
                window.curves.set_history(None)
            window.canvas.set_gradients({}, 1e-3, 10.0)
            window.status.set_state("")
            window.status.set_run("")
            window.toolbar.deck.set_state("idle")
            window.toolbar.deck.show_progress(None)

    def _selected(self, ids: frozenset[str], origin: object) -> None:
        window = self._window
        if origin is not window.room:
            window.room.select_nodes(ids)
        window.curves.select_nodes(ids)

    def _backward_selected(self, node: str | None) -> None:
        if node is not None:
            self._window.network_selection.set([node], self._window.room)

    def _centre_shown(self, key: str) -> None:
        window = self._window
        window.inspectors.setCurrentWidget(window.tape_inspector if key == "autograd" else window.inspector)

    def _look_at_dataset(self, path: str) -> None:
        from app.views.custom_layers.trust_dataset import DatasetTrustDialog

        self._window.layers.look_at(Path(path), self._window.training_form.refresh_data, DatasetTrustDialog)

    def _download(self, source: str) -> None:
        """Ask before anything is fetched; the dialog says how much and from where."""
        window = self._window
        dialog = DownloadDialog(source, window.settings.data_folder, window)
        dialog.downloaded.connect(lambda _source: window.training_form.refresh_data())
        dialog.open()

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _runs(self) -> None:
        window, control, session = self._window, self._window.run_control, self._window.session
        window.curves.runRequested.connect(control.run)
        window.runs.runRequested.connect(control.run)
        window.runs.set_session(session)
        window.overlay.changed.connect(self._paint_gradients)
        window.training_form.live_rate.rate_requested.connect(control.set_rate)
        control.started.connect(self._run_started)
        control.moved_on.connect(self._moved_on)
        control.download_wanted.connect(self._download)
        session.stateChanged.connect(self._run_state)
        session.progressed.connect(self._progressed)
        session.told.connect(window.console.write_events)

    def _run_started(self, run: Run) -> None:
        window = self._window
        window.banner.hide()
        window.toasts.clear()
        self._gradients = GradientOverlay(run.job.source, run.history)
        window.curves.set_run(run)
        window.curves.room = window.session.room
        window.console.begin(run)
        if run.job.training.start is not None:
            window.weights_control.tell_start(
                "weights.console", run.job.training.start, run.job.source,
                lambda words, _whole: window.console.log(f"{words}.", "text3"),
            )  # fmt: skip
        window.show_page("curves")
        window.canvas.set_running(True)
        window.training_form.set_running(True)

    def _run_state(self, state: str) -> None:
        window, run = self._window, self._window.session.current
        text, color = STATES.get(state, ("", "text2"))
        device = run.history.started.device if run and run.history.started else ""
        window.status.set_state(f"{text} on {device}" if device and text else text, color)
        window.status.set_run(f"Run {run.display_number}" if run else "")
        if not window.session.active:
            window.canvas.set_running(False)
            window.training_form.set_running(False)
            self._progressed()

    def _moved_on(self, moved: bool) -> None:
        """The drawing is no longer the one that is being trained."""
        banner = self._window.banner
        if moved:
            reason = "The run goes on with the network as it was when it began; your edits are for the next run."
            banner.set("info", MOVED_ON, reason)
            banner.show()
        elif banner.title() == MOVED_ON:
            banner.hide()

    def _progressed(self) -> None:
        window, session = self._window, self._window.session
        if session.current is None:
            return
        window.curves.refresh()
        window.runs.refresh()
        window.training_form.live_rate.show_rates(session.current.history.newest_rates())
        now = time.monotonic()
        if now - self._painted > STRIPS / session.room or not session.active:
            self._painted = now
            self._paint_gradients()

    def _paint_gradients(self, _overlay: str = "") -> None:
        """Strips on the nodes that are as they were when the run began."""
        window, run = self._window, self._window.session.current
        wanted = self._gradients is not None and window.overlay.value() == "Gradients"
        shown = self._gradients.read(within=window.place.path) if self._gradients and wanted else None
        if run is None or shown is None:
            window.canvas.set_gradients({}, 1e-3, 10.0)
            return
        same = window.run_control.unchanged(run, window.place.block)
        norms = {node: values for node, values in shown.norms.items() if node in same}
        window.canvas.set_gradients(norms, shown.low, shown.high)

    def close(self) -> None:
        """What the later pages keep is let go of: the window closes."""
        self._window.tape_control.close()

    # -- words --------------------------------------------------------------------------------------------------------

    def _words(self) -> None:
        window = self._window
        for control in (window.export_control, window.autograd_control):
            control.said.connect(window.say)
            control.refused.connect(window.refuse)
