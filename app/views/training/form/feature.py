"""The training form in the window: the page "Training", downloads, and watch points."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData

from app.data.config import DataConfig
from app.data.sources import config_of, spec_of
from app.preflight import starting_net
from app.views.feature import Action, Feature, Page
from app.views.navigation import NETWORK
from app.views.training.form.data.download_dialog import DownloadDialog
from app.views.training.form.searched import searched
from app.views.training.form.settings_form import RunSettings, TrainingForm
from app.views.training.form.watch_control import WatchControl
from app.views.ui.dialogs.search import SearchEntry

if TYPE_CHECKING:
    from app.runs.store import Kept
    from app.views.run.session import Run


IS_BUILT = "A net is built already, and nothing of it is replaced."
NO_NET = "Choose data that have been read: a table, images, a text or series."


def data_in(data: QMimeData) -> DataConfig | None:
    """Return the data that are dragged over the window: one table, text, array or folder of images; None otherwise."""
    urls = [url for url in data.urls() if url.isLocalFile()]
    config = config_of(Path(urls[0].toLocalFile())) if len(urls) == 1 else None
    return config if config is not None and not _is_code(config.path) else None


def _is_code(path: str) -> bool:
    """Return whether a file may be other than data: layers, or weights."""
    return path.endswith((".py", ".pt"))


class TrainingFormFeature(Feature):
    rank = 130
    follows = True  # what prevents a run is known from the facts about its data
    training_form: TrainingForm
    watch_control: WatchControl

    def pages(self) -> Iterable[Page]:
        yield Page("training", "Training", "runs", "right", self._make)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "set-rate",
            "Set the &learning rate",
            self.focus_rate,
            "Ctrl+Shift+L",
            "curves",
            "Of the current run, or of the next",
            late=True,
            menu="run.rate",
        )
        yield Action("choose-data", "", self.choose_data)
        yield Action(
            "start-net",
            "Start with a net for the &data",
            self.start_net,
            icon="network",
            menu="layer.edit",
            tip="Of the kind of the data, with their loss, while nothing is built",
        )

    def searched(self) -> Iterable[SearchEntry]:
        self.workspace.pages.widget("training")  # which makes the form
        return searched(
            self.training_form, lambda: self.workspace.pages.show("training")
        )

    def _setting_changed(self, name: str) -> None:
        if name == "data_folder":
            self.training_form.set_data_root(self.workspace.settings.data_folder)

    def _make(self) -> TrainingForm:
        self.training_form = TrainingForm(
            self.workspace.document, self.workspace.engine
        )
        return self.training_form

    def finish(self) -> None:
        workspace, form, control = (
            self.workspace,
            self.training_form,
            self.workspace.run_control,
        )
        form.set_data_root(workspace.settings.data_folder)
        workspace.document.path_changed.connect(self._file_changed)
        self._file_changed(workspace.document.path)
        workspace.settings.changed.connect(self._setting_changed)
        form.download_requested.connect(self.download)
        form.data.trust_requested.connect(self._review_dataset)
        form.data.net_requested.connect(self.start_net)
        form.data.fit.cure_requested.connect(workspace.cures.apply_to_network)
        form.data.facts_changed.connect(workspace.live.refresh)
        form.live_rate.rate_requested.connect(control.set_rate)
        control.started.connect(self._run_started)
        control.download_wanted.connect(self.download)
        workspace.session.stateChanged.connect(self._run_state)
        workspace.session.progressed.connect(self._progressed)
        workspace.live.torch_loaded.connect(
            lambda torch: form.set_devices(torch.devices)
        )
        if workspace.live.torch is not None:
            form.set_devices(workspace.live.torch.devices)
        for hear in (self._hear_fit, self._hear_layers):
            workspace.hearers.add(hear, later=True)
            hear()
        self.watch_control = WatchControl(workspace, form)
        workspace.runs_keeper.listed.connect(self._listed)

    def _file_changed(self, path: Path | None) -> None:
        self.training_form.data.folder = path.parent if path is not None else None

    def _listed(self, runs: list[Kept]) -> None:
        """Tell the form how long the newest run took that has ended."""
        newest = next(
            (
                stored_run.record
                for stored_run in runs
                if stored_run.record.state in ("done", "stopped")
            ),
            None,
        )
        title, seconds = (
            (newest.title, newest.summary.seconds) if newest is not None else ("", 0.0)
        )
        self.training_form.checkpoints.set_run(title, seconds)

    def focus_rate(self) -> None:
        """Focus the learning rate: that of the active run, or the optimizer's."""
        self.workspace.pages.show("training")
        self.training_form.focus_rate()

    def choose_data(self) -> None:
        """Open the list of data."""
        self.workspace.pages.show("training")
        self.training_form.choose_data()

    def start_net(self) -> None:
        """Draw a net for the data, with their loss and metrics, as one step; what is built is never replaced."""
        workspace = self.workspace
        project = workspace.document.project
        if not starting_net.offer(project):
            built = project.opened is not None or not starting_net.is_bare(
                project.graph
            )
            workspace.notifier.say("No net was started", IS_BUILT if built else NO_NET)
            return
        workspace.place.go_to(NETWORK)
        workspace.pages.turn_to("network")
        workspace.selection.set(())
        started = starting_net.start(project)
        name = spec_of(project.data).label
        workspace.sheet.apply(
            f"Start with a net for {name}", workspace.drawing.with_positions(started)
        )
        workspace.drawing.frame_selection()

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        config = data_in(data)
        return None if config is None else lambda: self.take_data(config)

    def take_data(self, config: DataConfig) -> None:
        """Choose data, and show them."""
        self.workspace.pages.show("training")
        self.training_form.take_data(config)

    def _hear_fit(self) -> None:
        if self.workspace.live.analysis is not None:
            self.training_form.set_fit(self.workspace.live.analysis)

    def _hear_layers(self) -> None:
        if self.workspace.live.analysis is not None:
            self.training_form.set_layers(self.workspace.live.analysis)

    def _run_started(self, run: Run) -> None:
        settings = (
            RunSettings(f"Run {run.display_number}", run.job.training, run.job.data)
            if self.workspace.session.owns
            else None  # of a script, which are not known
        )
        self.training_form.set_running(True, settings)

    def _run_state(self, _state: str) -> None:
        if not self.workspace.session.active:
            self.training_form.set_running(False)
            self._progressed()

    def _progressed(self) -> None:
        if (run := self.workspace.session.current) is not None:
            self.training_form.live_rate.show_rates(run.history.newest_rates())

    def _review_dataset(self, path: str) -> None:
        self.workspace.layers.review_dataset(
            Path(path), self.training_form.refresh_data
        )

    def download(self, source: str) -> None:
        """Open the download dialog, which states size and origin before it starts."""

        dialog = DownloadDialog(
            source, self.workspace.settings.data_folder, self.workspace.window
        )
        dialog.downloaded.connect(lambda _source: self.training_form.refresh_data())
        dialog.stand_in_chosen.connect(lambda _source: self._train_on_stand_in())
        dialog.open()

    def _train_on_stand_in(self) -> None:
        self.training_form.data.take_stand_in()
        self.workspace.run_control.run()
