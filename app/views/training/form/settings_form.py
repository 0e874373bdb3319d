"""The Training tab: data and all settings of a run, in sections."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget

from app.data.config import DataConfig
from app.data.sources import DataError, spec_of
from app.engine.requests.choices import CheckOptimizer, Params
from app.preflight import (
    multi_output,
    opened,
    opened_losses,
    preflight,
    starting_net,
    synthetic_data,
)
from app.project.document import Document
from app.project.module_paths import Layers
from app.project.project import Project
from app.source.generated import Source
from app.training.checkpoints.disk_estimate import estimate_text
from app.training.choices import OPTIMIZERS
from app.training.config import (
    CHECKPOINTS,
    GRADIENTS,
    REGULAR,
    RUN,
    SPEED,
    Choice,
    TrainingConfig,
)
from app.training.job import Job, JobError, check_numbers
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.settings_section import FoldingSection, KnobSection
from app.views.fields.values import equal_values, show
from app.views.training.form.choice_section import ChoiceSection
from app.views.training.form.data.data_section import DataSection
from app.views.training.form.groups_section import GroupsSection, PathList
from app.views.training.form.live_lr import LiveRate
from app.views.training.form.losses_section import LossSection
from app.views.training.form.metrics_section import MetricsSection
from app.views.training.form.schedule_section import ScheduleSection, length_of
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Banner, Button, ChoiceField
from app.views.ui.widgets.painting import label, show_or_hide

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.training.setup.device import Device

_DEFAULT_DEVICE = "auto"


def _choice_of(data: DataConfig) -> str:
    """Return the key of the step that chooses these data."""
    return f"data/{data.source}/{data.path}"


# Title and reason of the banner while a run is active, of this window or of a script.
RUN_KEEPS = (
    "A run is in progress",
    "It keeps the settings it was started with. Edits here apply to the next run.",
)
SCRIPT_HAS = (
    "A script is running",
    "Its settings are in its code. Those below are of the network of this window.",
)


class DeviceField(ChoiceField):
    """Where the run goes: auto, or one of the devices that are present."""

    def __init__(self, devices: Sequence[Device]) -> None:
        fastest = f"auto ({devices[0].id})" if devices else _DEFAULT_DEVICE
        pairs = [
            (_DEFAULT_DEVICE, fastest),
            *((device.id, _device_text(device)) for device in devices),
        ]
        super().__init__(pairs, _DEFAULT_DEVICE, pairs=True)
        self.setAccessibleName("Device")
        self.set_hint("auto selects the fastest device available when the run starts.")


def _device_text(device: Device) -> str:
    memory = f", {device.memory / 2**30:.0f} GiB" if device.memory else ""
    return (
        f"{device.id} · {device.name}{memory}"
        if device.name != device.id
        else device.id
    )


class RunSection(KnobSection):
    """How long, with what, where."""

    def __init__(self) -> None:
        super().__init__(RUN, opened=True)
        self.device_place = QVBoxLayout()
        self.body_layout.addWidget(label("device", "code", "text2"))
        self.body_layout.addLayout(self.device_place)

    def summary_texts(self, training: TrainingConfig) -> list[str]:
        device = [] if training.device == _DEFAULT_DEVICE else [training.device]
        return super().summary_texts(training) + device

    @property
    def names(self) -> tuple[str, ...]:
        return (*super().names, "device")


class SpeedSection(KnobSection):
    """Precision, compilation, and layers with activation checkpointing."""

    def __init__(self) -> None:
        super().__init__(SPEED)
        doc = (
            "Activations of these modules are recomputed in backward: less memory, more time "
            "(gradient checkpointing)."
        )
        self.recompute = PathList("recompute", doc, "recompute of")
        self.recompute.changed.connect(
            lambda paths: self.edited.emit("recompute", paths, None)
        )
        self.body_layout.addWidget(self.recompute)
        self.blocking = label("", "label", "text3", wrap=True)
        self.blocking.hide()
        self.body_layout.addWidget(self.blocking)

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Show how CUDA was started, if there is a device."""
        now = os.environ.get("CUDA_LAUNCH_BLOCKING")
        self.blocking.setText(
            f"CUDA_LAUNCH_BLOCKING is {now or 'not set'}. With 1, kernels run synchronously, so that an error names "
            "its own line; runs are slower. CUDA reads it at start-up: set it before starting Tapedeck."
        )
        self.blocking.setVisible(
            any(device.id.startswith("cuda") for device in devices)
        )

    def show_config(self, training: TrainingConfig) -> None:
        self.recompute.show_paths(training.recompute)
        super().show_config(training)

    def summary_texts(self, training: TrainingConfig) -> list[str]:
        return super().summary_texts(training) + [
            f"recompute {len(training.recompute)}"
        ] * bool(training.recompute)

    @property
    def names(self) -> tuple[str, ...]:
        return (*super().names, "recompute")


class CheckpointSection(KnobSection):
    """When checkpoints are saved, and the disk space of those that are kept for revisiting."""

    def __init__(self) -> None:
        super().__init__(CHECKPOINTS)
        self.disk = label("", "label", "text3", wrap=True)
        self.disk.hide()
        self.body_layout.addWidget(self.disk)
        self._parameters, self._run, self._seconds = 0, "", 0.0

    def set_parameters(self, count: int) -> None:
        """Note how many parameters the net has."""
        self._parameters = count
        self._estimate()

    def set_run(self, title: str, seconds: float) -> None:
        """Note how long a run took, which the next may take as well; "" for none."""
        self._run, self._seconds = title, seconds
        self._estimate()

    def show_config(self, training: TrainingConfig) -> None:
        super().show_config(training)
        self._estimate()

    def _estimate(self) -> None:
        text = (
            estimate_text(self._shown, self._parameters, self._run, self._seconds)
            if self._parameters
            else ""
        )
        show_or_hide(self.disk, text)


NEXT = "The edit is for the next run."


class RunSettings(Struct, frozen=True):
    """What the active run was started with."""

    title: str
    training: TrainingConfig
    data: DataConfig


class TrainingForm(QWidget):
    """The settings of a run. Each edit is one undo step of the project; edits of one visit to a field are merged.

    `download_requested(source)` requests data that are not on this machine.
    """

    download_requested = Signal(str)

    def __init__(
        self,
        document: Document,
        engine: EngineService,
    ) -> None:
        super().__init__()
        self._document = document
        self._kept: RunSettings | None = None
        self._chosen = ""  # which data were chosen last, as the key of that step
        self._make_sections(engine)
        self._lay_out()
        self._connect()
        self._put_device(self.device)
        self._show(self._document.project)
        self._unfold()

    def _make_sections(self, engine: EngineService) -> None:
        self.running = Banner()
        self.live_rate = LiveRate()
        self._banner = QWidget()
        self.data = DataSection(engine)
        self.run = RunSection()
        self.loss = LossSection(engine)
        self.optimizer = ChoiceSection(
            "Optimizer",
            OPTIMIZERS,
            partial(Params, "optimizer"),
            CheckOptimizer,
            engine,
        )
        self.schedule = ScheduleSection(engine)
        self.groups = GroupsSection(engine)
        self.gradients = KnobSection(GRADIENTS)
        self.speed = SpeedSection()
        self.regular = KnobSection(REGULAR)
        self.checkpoints = CheckpointSection()
        self.metrics = MetricsSection()
        self.knobs: tuple[KnobSection, ...] = (
            self.run,
            self.groups,
            self.gradients,
            self.speed,
            self.regular,
            self.metrics,
            self.checkpoints,
        )
        self.sections: tuple[FoldingSection, ...] = (
            self.run,
            self.loss,
            self.optimizer,
            self.schedule,
            *self.knobs[1:],
        )
        self.device = DeviceField(())

    @property
    def numbers(self) -> ParamForm:
        """The form of the run's numbers."""
        return self.run.form

    def _connect(self) -> None:
        self.data.chosen.connect(self._set_data)
        self.data.download_requested.connect(self.download_requested)
        self.data.fields.edited.connect(
            lambda chosen: self._apply(
                "inputs", chosen, "Choose fields of inputs", None
            )
        )
        self.data.facts_changed.connect(self._learn_facts)
        self.optimizer.chosen.connect(
            lambda choice, merge: self._set_training("optimizer", choice, merge)
        )
        self.loss.chosen.connect(
            lambda choice, merge: self._set_training("loss", choice, merge)
        )
        self.loss.rows_made.connect(
            lambda rows, change, merge: self._apply("losses", rows, change, merge)
        )
        self.schedule.made.connect(
            lambda value, change, merge: self._apply("schedule", value, change, merge)
        )
        self.groups.made.connect(
            lambda value, change, merge: self._apply("groups", value, change, merge)
        )
        for knob in self.knobs:
            knob.edited.connect(self._set_training)
            knob.acted.connect(partial(self._reset, knob))
        self._document.changed.connect(self._changed)
        self._document.replaced.connect(self._replaced)

    def add_link(
        self, section: FoldingSection, text: str, does: Callable[[], object]
    ) -> None:
        """Append a link to a section, which calls `does` when it is clicked."""
        link = Button(text, "link")
        link.clicked.connect(lambda: does())
        section.body_layout.addWidget(link, 0, Qt.AlignmentFlag.AlignLeft)

    def _lay_out(self) -> None:
        # From the outside in: reparenting a widget restyles all widgets in it.
        outer = vbox(on=self, margins=0)
        self.area = QScrollArea()
        outer.addWidget(self.area)
        self.area.setWidgetResizable(True)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        inside = QWidget()
        self.area.setWidget(inside)
        column = vbox(on=inside, margins=0, spacing=0)
        vbox(self.running, self.live_rate, on=self._banner, margins=(12, 8, 12, 8))
        self._banner.hide()
        outer.addWidget(self._banner)  # below: no field moves as a run begins or ends
        for section in (self.data, *self.sections):
            column.addWidget(section)
        column.addStretch(1)
        self._column = column

    # --- Input from other views

    def add_section(self, section: FoldingSection) -> None:
        """Append a section that another part of the window provides."""
        self._column.insertWidget(self._column.count() - 1, section)

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Set the devices that torch found, fastest first."""
        old = self.device
        self.run.device_place.removeWidget(old)
        old.hide()
        old.deleteLater()
        self._put_device(DeviceField(devices))
        self.speed.set_devices(devices)
        for section in (self.optimizer, self.loss, self.schedule, self.groups):
            section.set_torch_loaded()

    def set_fit(self, analysis: Analysis) -> None:
        """Check whether the net fits the data."""
        self.data.set_offer(starting_net.offer(self._document.project))
        self.data.fit.show_fit(preflight.fit(self._document.project, analysis))
        self.data.synthetic = synthetic_data.fitting(self._document.project, analysis)
        self.data.net_size = _image_size(self._document.project)
        if self._document.project.opened is not None:
            self._show_arguments(self._document.project)
            return
        names, fields, field_names = preflight.taken_fields(
            self._document.project, analysis
        )
        self.data.fields.show_fields(
            names, fields, field_names, self._document.project.training.inputs
        )

    def _show_arguments(self, project: Project) -> None:
        """Show which fields of the data the arguments of an opened model get."""
        try:
            source = spec_of(project.data)
        except DataError:
            return
        if source.is_read:
            self.data.fields.show_arguments(*opened.choices(project, source))

    def set_layers(self, analysis: Analysis) -> None:
        """Update the module names of the net, and the number of its parameters."""
        self.checkpoints.set_parameters(analysis.total_parameters)
        if (
            not analysis.source.modules and self._document.project.opened is None
        ):  # an invalid net has no source
            return
        self._show_outputs(analysis)
        layers = Layers(self._document.project, analysis)
        self.groups.set_layers(layers)
        self.speed.recompute.set_layers(layers)

    def _show_outputs(self, analysis: Analysis) -> None:
        """Compare the net's outputs with the targets of the data."""
        project = self._document.project
        try:
            source = spec_of(project.data)
        except DataError:
            return
        if source.is_read and project.opened is not None:
            suggested, measured = (
                opened_losses.suggested(project, source),
                opened_losses.measured(project, source),
            )
            self.loss.set_returned(suggested, multi_output.targets_of(source), measured)
        elif source.is_read:
            rows, targets = (
                multi_output.suggested(project, analysis, source),
                multi_output.targets_of(source),
            )
            nodes = [
                node for node in project.graph.nodes.values() if node.op == "output"
            ]
            several = multi_output.need_names(nodes) or len(source.known_targets) > 1
            self.loss.set_outputs(rows, targets, several)

    def set_data_root(self, root: Path) -> None:
        """Set the folder of downloaded data."""
        self.data.set_root(root)

    def refresh_data(self) -> None:
        """Look again whether the data are here, as after a download."""
        self.data.show_config(self._document.project.data)

    def set_running(self, running: bool, settings: RunSettings | None = None) -> None:
        """Show that a running run keeps its settings, beside each field that is edited meanwhile; edits apply to the
        next run. Those of a script are not known: it has none to keep.
        """
        if running:
            self.running.set(
                "info", *(RUN_KEEPS if settings is not None else SCRIPT_HAS)
            )
            self.live_rate.begin()
        self._kept = settings if running else None
        self.running.setVisible(running)
        self._banner.setVisible(running)
        self._remark()

    def _remark(self) -> None:
        """Show beside each field that differs from the active run the value of that run."""
        run_settings, project = self._kept, self._document.project
        forms: list[tuple[ParamForm, Any, Any]] = [
            (
                section.form,
                run_settings.training if run_settings else None,
                project.training,
            )
            for section in self.knobs
        ]
        forms += [
            (form, run_settings.data if run_settings else None, project.data)
            for form in (self.data.split, self.data.loading, self.data.bad)
        ]
        for form, before, now in forms:
            for name, row in form.rows.items():
                value = getattr(before, name, None)
                differs = run_settings is not None and getattr(now, name, None) != value
                row.show_remark(
                    f"{run_settings.title} continues with {show(value)}. {NEXT}"
                    if run_settings and differs
                    else ""
                )
        if self.optimizer.form is None:
            return
        chosen = run_settings.training.optimizer if run_settings else Choice("")
        for name, row in self.optimizer.form.rows.items():
            value = chosen.params.get(name, row.param.default)
            same = (
                not run_settings
                or chosen.name != project.training.optimizer.name
                or equal_values(row.value, value)
            )
            cure = (
                "To change it now, use the field of the run at the bottom."
                if name == "lr"
                else NEXT
            )
            row.show_remark(
                ""
                if same or run_settings is None
                else f"{run_settings.title} continues with {show(value)}. {cure}"
            )

    def take_data(self, config: DataConfig) -> None:
        """Choose the user's file or folder, with the split and the loading as they are."""
        self.data.take(config)

    def choose_data(self) -> None:
        """Put the focus on the choice of the data and open its list."""
        self.area.ensureWidgetVisible(self.data.source)
        self.data.set_open(True)
        self.data.source.setFocus(Qt.FocusReason.OtherFocusReason)
        self.data.source.showPopup()

    def focus_rate(self) -> None:
        """Focus the learning rate: that of the active run, or the optimizer's."""
        if self.live_rate.isVisible():
            self.live_rate.focus()
        elif self.optimizer.form is not None and "lr" in self.optimizer.form.rows:
            self.optimizer.set_open(True)
            editor = self.optimizer.form.editor("lr")
            self.area.ensureWidgetVisible(editor)
            editor.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _put_device(self, field: DeviceField) -> None:
        self.device = field
        self.run.device_place.addWidget(field)
        field.set_value(self._document.project.training.device)
        field.edited.connect(lambda device: self._set_training("device", device, None))

    # --- The project

    def _changed(self, before: Project, after: Project) -> None:
        if before.data != after.data or before.training != after.training:
            self._show(after)
            self._remark()

    def _show(self, project: Project) -> None:
        training = project.training
        self.data.set_training(training)
        self.data.show_config(project.data)
        self.metrics.set_data(project.data)
        for section in self.knobs:
            section.show_config(training)
        self.device.set_value(training.device)
        self.optimizer.show_choice(training.optimizer)
        self.loss.show_config(training, project.data.class_weights)
        self.schedule.show_config(training, length_of(training, project.data))

    def _replaced(self, project: Project) -> None:
        for form in self.findChildren(ParamForm):
            form.forget()
        for section in (self.optimizer, self.loss, self.schedule, self.groups):
            section.forget()
        self._show(project)
        self._unfold()

    def _unfold(self) -> None:
        """Another project: open what every run has, and where something differs from the defaults."""
        for section in self.sections:
            section.propose_open(
                section.differs or section in (self.run, self.loss, self.optimizer)
            )

    def _set_data(self, config: DataConfig, change: str, merge: str | None) -> None:
        project = self._document.project
        key = f"training/{merge}" if merge else None
        if (config.source, config.path) != (project.data.source, project.data.path):
            key = self._chosen = _choice_of(config)
        project = starting_net.with_fitting_input(opened.with_data(project, config))
        self._document.apply(change, project, merge=key)

    def _learn_facts(self) -> None:
        """Follow data that have been read: an Input that is all of the net takes them, in the step that chose them."""
        project = self._document.project
        self.metrics.set_data(project.data)
        if self._chosen == _choice_of(project.data):
            fitted = starting_net.with_fitting_input(project)
            self._document.apply("Fit the Input", fitted, merge=self._chosen)

    def _set_training(self, name: str, value: Any, merge: str | None) -> None:
        self._apply(name, value, f"Set {name.replace('_', ' ')}", merge)

    def _apply(self, name: str, value: Any, change: str, merge: str | None) -> None:
        project = self._document.project
        project = replace(project, training=project.training.changed(**{name: value}))
        form = next(
            (section.form for section in self.knobs if name in section.form.rows),
            self.run.form,
        )
        try:
            check_numbers(Job(Source(""), project.data, project.training))
        except JobError as error:
            # Another field may be wrong, in a file that was edited by hand; that is no reason to refuse this one.
            if str(error).startswith(f"{name} is "):
                form.set_problem(name, str(error))
                return
        form.set_problem(name, "")
        self._document.apply(
            change, project, merge=f"training/{merge}" if merge else None
        )

    def _reset(self, section: KnobSection) -> None:
        """Put everything in a section back, as one step."""
        project = self._document.project
        plain = {name: getattr(TrainingConfig(), name) for name in section.names}
        self._document.apply(
            f"Reset {section.title()}",
            replace(project, training=replace(project.training, **plain)),
        )


def _image_size(project: Project) -> tuple[int, ...]:
    """Return height and width of the images that the net takes, () if it takes none or several inputs."""
    shapes = [
        node.params.get("shape")
        for node in project.graph.nodes.values()
        if node.op == "input"
    ]
    shape = shapes[0] if len(shapes) == 1 else None
    image_shaped = (
        isinstance(shape, tuple)
        and len(shape) == 3
        and all(isinstance(size, int) for size in shape[1:])
    )
    return tuple(shape[1:]) if image_shaped and isinstance(shape, tuple) else ()
