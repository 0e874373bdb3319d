"""The training form in the window: the page "Training", downloads, and watch points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QObject, Signal
from PySide6.QtWidgets import QScrollArea, QWidget

from app.data.config import DataConfig
from app.data.known_sources import SOURCES
from app.data.sources import config_of, spec_of
from app.data.transform_list import KINDS
from app.preflight import starting_net
from app.training.choices import LOSSES, OPTIMIZERS, SCHEDULERS, ChoiceParam
from app.training.events import Caught, Event, StepDone
from app.training.metrics import SCORES
from app.training.monitoring.looks import BatchPeek
from app.training.monitoring.watch_points import WatchPoints, from_text, to_text
from app.training.run_requests import ShowCaught
from app.util.formatting import grouped_digits
from app.util.language import marked, tr
from app.views.feature import Action, Feature, Page
from app.views.fields.form import ParamForm
from app.views.fields.row import ParamRow
from app.views.fields.settings_section import FoldingSection
from app.views.navigation import NETWORK
from app.views.run.batch_dialog import BatchDialog
from app.views.run.session import Run
from app.views.training.form.data.download_dialog import DownloadDialog
from app.views.training.form.settings_form import RunSettings, TrainingForm
from app.views.ui.deferred_answer import when_done
from app.views.ui.dialogs.search import SearchEntry
from app.views.ui.widgets import Section
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.runs.store import Kept
    from app.views.workspace import Workspace

# --- What Ctrl+K finds of the page Training: its settings, and the classes, data and metrics that can be chosen there


def searched(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    """Yield the entries of a form; `show` brings its page to the front."""
    yield from _settings(form, show)
    yield SearchEntry(
        "setting.device",
        "Set device (Run)",
        partial(_edit, show, form.device),
        "Training setting",
        ("device",),
        icon="chip",
    )
    yield from _choices(form, show)
    yield from _data(form, show)


def _settings(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    for fields in form.findChildren(ParamForm):
        section = _around(fields, Section)
        title = section.title() if isinstance(section, Section) else ""
        for name, row in fields.rows.items():
            yield SearchEntry(
                f"setting.{name}",
                f"Set {name}" + (f" ({title})" if title else ""),
                partial(_edit, show, row),
                "Training setting",
                (name,),
                f"preferences {getattr(row.param, 'doc', '')}",
                "inspector",
            )


def _choices(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    for kind, names, section in (
        ("Optimizer", OPTIMIZERS, form.optimizer),
        ("Loss", tuple(LOSSES), form.loss),
        ("Schedule", SCHEDULERS, form.schedule),
    ):
        for name in names:
            yield _entry(
                f"{kind.lower()}.{name}",
                f"Use {name} as {kind.lower()}",
                kind,
                name,
                show,
                section.name,
                partial(section.choose, name),
            )
    for name, score in SCORES.items():
        yield _entry(
            f"metric.{name}",
            f"Measure {score.label} after each epoch",
            "Metric",
            score.label,
            show,
            form.metrics,
            partial(form.metrics.choose, name, True),
            score.doc,
        )


def _data(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    for key, spec in SOURCES.items():
        yield _entry(
            f"data.{key}",
            f"Train on {spec.label}",
            "Data",
            spec.label,
            show,
            form.data.source,
            partial(form.data.begin, key),
            spec.summary,
        )
    for name, kind in KINDS.items():
        yield _entry(
            f"transform.{name}",
            f"Add the transform {name}",
            "Transform",
            name,
            show,
            form.data.training_transforms,
            partial(form.data.training_transforms.put, name),
            f"augmentation {kind.doc}",
        )


def _entry(
    key: str,
    text: str,
    kind: str,
    name: str,
    show: Callable[[], object],
    widget: QWidget,
    choose: Callable[[], object],
    words: str = "",
) -> SearchEntry:
    def does() -> None:
        _edit(show, widget)
        choose()

    return SearchEntry(key, text, does, kind, (name,), words, "inspector")


def _edit(show: Callable[[], object], target: QWidget | ParamRow) -> None:
    """Bring a field of the page into sight, and put the caret into it; a folded section makes its editors as it
    opens."""
    show()
    inside = target.name if isinstance(target, ParamRow) else target
    section = inside if isinstance(inside, Section) else _around(inside, Section)
    if isinstance(section, Section):
        section.set_open(True)
    if isinstance(target, ParamRow):
        target.reveal()
    field = target.editor if isinstance(target, ParamRow) else target
    if field is None:
        return
    area = _around(field, QScrollArea)
    if isinstance(area, QScrollArea):
        area.ensureWidgetVisible(field)
    field.setFocus()


def _around(widget: QWidget, kind: type[QWidget]) -> QWidget | None:
    above = widget.parentWidget()
    while above is not None and not isinstance(above, kind):
        above = above.parentWidget()
    return above


# --- Watch points in the window: the section that sets them, the run that has them, and the banner when one holds

LOOK = "Show the batch"


class WatchControl(QObject):
    """Sets the watch points of every run, and reports when one is triggered."""

    def __init__(self, workspace: Workspace, form: TrainingForm) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self.section = WatchSection()
        self.section.show_points(from_text(workspace.settings.watch_points))
        self.section.changed.connect(self._changed)
        self.dialog: BatchDialog | None = None
        self._caught: Caught | None = None
        self._asked: Future | None = None
        self._title = ""
        form.add_section(self.section)
        workspace.session.runStarted.connect(self._run_started)
        workspace.session.told.connect(self._on_events)
        workspace.session.stateChanged.connect(self._state)

    def _changed(self, points: WatchPoints) -> None:
        self._workspace.settings.watch_points = to_text(points)
        self._give()

    def _run_started(self, _run: Run) -> None:
        self._caught = None
        self._give()

    def _give(self) -> None:
        thread = self._workspace.session.training_thread
        if thread is not None:
            thread.pause_at(self.section.points)

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            # Of several at one step the first is shown; the console lists them all.
            if (
                isinstance(event, StepDone)
                and self._caught is not None
                and event.step > self._caught.step
            ):
                self._withdraw()  # another batch was trained on, by Step
            if isinstance(event, Caught) and (
                self._caught is None or self._caught.step != event.step
            ):
                self._show(event)

    def _show(self, caught: Caught) -> None:
        self._caught, self._title = caught, caught.message
        workspace = self._workspace
        reason = "The run is paused. Run resumes it, Step trains one more batch."
        shown, step = workspace.shown_run.figures, caught.step
        stored = shown is not None and shown.folder is not None
        debug: dict[str, Callable[[], object]] = {}
        if stored and workspace.commands.has(key := "debug-this-step"):
            debug[f"Debug step {grouped_digits(step)}"] = lambda: (
                workspace.commands.trigger(key, step)
            )
        workspace.notifier.warn(self._title, reason, LOOK, self._acted, debug)
        if (
            caught.node is not None
            and caught.node in workspace.document.project.graph.nodes
        ):
            workspace.network_selection.set([caught.node], self)

    def _state(self, state: str) -> None:
        if state != "paused":
            self._withdraw()

    def _withdraw(self) -> None:
        if self._title:
            self._workspace.notifier.withdraw(self._title)
            self._title = ""

    def _acted(self) -> None:
        thread = self._workspace.session.training_thread
        if thread is None or self._asked is not None:
            return
        self._asked = thread.run_between_steps(ShowCaught())
        when_done(self._asked, self, self._show_caught, self._refuse)

    def _refuse(self, error: BaseException | str) -> None:
        self._asked = None
        self._workspace.notifier.refuse("The batch cannot be shown", str(error))

    def _show_caught(self, batch_peek: BatchPeek | None) -> None:
        """Open the dialog once the run has answered."""
        self._asked = None
        if batch_peek is None or self._caught is None:
            self._refuse("The run has resumed and released it.")
            return
        self.dialog = BatchDialog(
            batch_peek, self._caught.message, self._workspace.window
        )
        self.dialog.open()


MEBIBYTE = 1024 * 1024
LOSS = "loss_not_finite"  # in the form, where `not_finite` is a setting of the run
PARAMS = (
    ChoiceParam(
        LOSS,
        "bool",
        False,
        doc="Pauses if the loss is NaN or infinite. The batch is skipped.",
    ),
    ChoiceParam(
        "gradient_norm",
        "float",
        None,
        optional=True,
        minimum=0,
        doc="Pauses if a layer's gradient norm exceeds this; None to disable.",
    ),
    ChoiceParam(
        "dead",
        "float",
        None,
        optional=True,
        minimum=0,
        doc="Pauses if this fraction of a ReLU's units, such as 0.9, is 0 for a whole batch; None to disable.",
    ),
    ChoiceParam(
        "memory_mib",
        "int",
        None,
        optional=True,
        minimum=1,
        doc="Pauses if memory exceeds this many MiB: allocated on the device, or resident for a CPU run; None to "
        "disable.",
    ),
)
WORDS = "The run pauses and reports where. Gradients, dead units and memory are checked on sampled steps."


class WatchSection(FoldingSection):
    """Edits watch points. `changed(WatchPoints)` emits an edit, which applies to an active run immediately."""

    changed = Signal(object)

    def __init__(self) -> None:
        super().__init__("Watch points")
        self.points = WatchPoints()
        self.body_layout.addWidget(label(WORDS, "label", "text3", wrap=True))
        self.form = ParamForm(PARAMS)
        self.form.edited.connect(self._edit)
        self.form.reset.connect(
            lambda name: self._edit(name, False if name == LOSS else None, None)
        )
        self.body_layout.addWidget(self.form)
        self.acted.connect(lambda: self._set_points(WatchPoints()))
        self.show_points(self.points)

    def show_points(self, points: WatchPoints) -> None:
        """Show watch points without emitting `changed`."""
        self.points = points
        memory = None if points.memory is None else points.memory // MEBIBYTE
        self.form.set_values(
            {
                LOSS: points.not_finite,
                "gradient_norm": points.gradient_norm,
                "dead": points.dead,
                "memory_mib": memory,
            }
        )
        texts = ["nan"] * points.not_finite
        texts += (
            [f"gradient {points.gradient_norm:g}"]
            if points.gradient_norm is not None
            else []
        )
        texts += [f"{100 * points.dead:g} % dead"] if points.dead is not None else []
        texts += [f"{grouped_digits(memory)} MiB"] if memory is not None else []
        self.set_summary(", ".join(texts) or "none", bool(texts))

    def _edit(self, name: str, value: Any, _merge: object) -> None:
        if name == "memory_mib":
            points = replace(
                self.points, memory=None if value is None else value * MEBIBYTE
            )
        else:
            threshold = float(value) if type(value) is int else value
            change: dict[str, Any] = {"not_finite" if name == LOSS else name: threshold}
            points = replace(self.points, **change)
        problem = points.problem()
        self.form.set_problem(name, problem)
        if not problem:
            self._set_points(points)

    def _set_points(self, points: WatchPoints) -> None:
        self.show_points(points)
        self.changed.emit(points)


IS_BUILT = marked("A net is built already, and nothing of it is replaced.")
NO_NET = marked("Choose data that have been read: a table, images, a text or series.")


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
            reason = IS_BUILT if built else NO_NET
            workspace.notifier.say(tr("No net was started"), tr(reason))
            return
        workspace.place.go_to(NETWORK)
        workspace.pages.turn_to("network")
        workspace.drawing.take_focus()  # the button goes, and the page is to stay as it is scrolled
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
