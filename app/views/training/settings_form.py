"""The Training tab: the data, the run, the optimizer and the loss of the open project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget

from app.background import Background, Failure
from app.data.config import DataConfig
from app.document import Document
from app.frozen import FrozenMap
from app.project import Project
from app.source import Source
from app.training import choices
from app.training.choices import LOSSES, OPTIMIZERS, ChoiceError, Param
from app.training.config import Choice, TrainingConfig
from app.training.job import Job, JobError, check_numbers
from app.views.inspector.form import ParamForm
from app.views.inspector.sections import emptied
from app.views.inspector.values import same
from app.views.training.data_section import DataSection
from app.views.widgets import Banner, ChoiceField, Section
from app.views.widgets.painting import label

if TYPE_CHECKING:
    from app.training.devices import Device

_RUN = (
    Param("epochs", "int", TrainingConfig.epochs, minimum=1, doc="How often the run sees all training samples."),
    Param("batch_size", "int", TrainingConfig.batch_size, minimum=1, doc="Samples in one step of the optimizer."),
    Param("seed", "int", TrainingConfig.seed, minimum=0, doc="Decides the first weights, the order and the dropout."),
)
_DEFAULT_DEVICE = "auto"


class ChoiceSection(Section):
    """A class by name, and the form of its parameters, which torch is asked for in the background.

    `chosen(Choice, merge)` gives choices that torch accepts: it has made the thing once.
    """

    chosen = Signal(object, object)

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        ask_params: Callable[[str], tuple[Param, ...]],
        check: Callable[[Choice], None],
        background: Background,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(title, parent=parent)
        self._ask_params, self._check, self._background = ask_params, check, background
        self._key = f"training.{title.lower()}"
        self._choice = Choice("")
        self._shown_name = ""
        self._loaded = False
        self.form: ParamForm | None = None
        self.name = ChoiceField(names)
        self.name.setAccessibleName(title)
        self.name.edited.connect(lambda name: self.chosen.emit(Choice(name), None))
        self.place = QVBoxLayout()
        self.words = label("PyTorch is loading; the parameters come with it.", "label", "text3", wrap=True)
        self.body_layout.addWidget(self.name)
        self.body_layout.addWidget(self.words)
        self.body_layout.addLayout(self.place)
        self.set_action("Reset to defaults", quiet=True)
        self.acted.connect(lambda: self.chosen.emit(Choice(self._choice.name), None))

    def set_torch_loaded(self) -> None:
        """From here on torch may be asked."""
        self._loaded = True
        self._ask()

    def show_choice(self, choice: Choice) -> None:
        """Show what the project holds."""
        self._choice = choice
        self.name.set_value(choice.name)
        if self._shown_name != choice.name:
            self._ask()
        elif self.form is not None:
            self.form.set_values(choice.params)

    def _ask(self) -> None:
        if self._loaded and self._shown_name != self._choice.name:
            name = self._choice.name
            self._background.ask(
                f"{self._key}.params", self._ask_params, name,
                on_answer=lambda params: self._make_form(name, params), on_error=self._no_params,
            )  # fmt: skip

    def _make_form(self, name: str, params: tuple[Param, ...]) -> None:
        if name != self._choice.name:
            return
        if self.form is not None:
            self.place.removeWidget(self.form)
            self.form.hide()
            self.form.deleteLater()
        self._shown_name = name
        self.form = ParamForm(params)
        self.form.edited.connect(self._edited)
        self.form.reset.connect(lambda param: self.chosen.emit(self._with(param, self._default(param)), None))
        self.form.set_docs({param.name: param.doc for param in params})
        self.form.set_values(self._choice.params)
        self.place.addWidget(self.form)
        self.words.hide()

    def _no_params(self, failure: Failure) -> None:
        self.words.setText(str(failure.error))
        self.words.show()

    def _default(self, name: str) -> Any:
        assert self.form is not None
        return self.form.rows[name].param.default

    def _with(self, name: str, value: Any) -> Choice:
        """The choice with one parameter set; what is the default is left out."""
        params = self._choice.params
        params = params.without(name) if same(value, self._default(name)) else params.set(name, value)
        return Choice(self._choice.name, FrozenMap(params))

    def _edited(self, name: str, value: Any, merge: str | None) -> None:
        """Have torch make it; only what it makes goes into the project."""
        choice = self._with(name, value)
        self._background.ask(
            f"{self._key}.check", self._check, choice,
            on_answer=lambda _none: self._accepted(choice, name, merge),
            on_error=lambda failure: self._refused(name, failure),
        )  # fmt: skip

    def _accepted(self, choice: Choice, name: str, merge: str | None) -> None:
        if choice.name == self._choice.name:
            if self.form is not None:
                self.form.set_problem(name, "")
            self.chosen.emit(choice, f"{self._key}/{merge}" if merge else None)

    def _refused(self, name: str, failure: Failure) -> None:
        if self.form is not None:
            blamed = failure.error.param if isinstance(failure.error, ChoiceError) else None
            words = str(failure.error)
            self.form.set_problem(blamed if blamed in self.form.rows else name, words)


class DeviceField(ChoiceField):
    """Where the run goes: auto, or one of the devices that are present."""

    def __init__(self, devices: Sequence[Device], parent: QWidget | None = None) -> None:
        fastest = f"auto ({devices[0].id})" if devices else _DEFAULT_DEVICE
        pairs = [(_DEFAULT_DEVICE, fastest), *((each.id, _device_text(each)) for each in devices)]
        super().__init__(pairs, _DEFAULT_DEVICE, parent=parent, pairs=True)
        self.setAccessibleName("Device")
        self.set_hint("auto takes the fastest device that is present when the run starts.")


def _device_text(device: Device) -> str:
    memory = f", {device.memory / 2**30:.0f} GiB" if device.memory else ""
    return f"{device.id} · {device.name}{memory}" if device.name != device.id else device.id


class TrainingForm(QWidget):
    """What decides a run. Every edit is one undo step of the project, or one for a visit to a field.

    `download_requested(source)` asks for data that are not on this machine.
    """

    download_requested = Signal(str)

    def __init__(self, document: Document, background: Background, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._document = document
        reason = "It keeps the values it was started with, so that it can be repeated. Edits here are for the next run."
        self.running = Banner("info", "A run goes on", reason)
        self._banner = QWidget()
        self.data = DataSection()
        self.run = Section("Run")
        self.numbers = ParamForm(_RUN)
        self.numbers.set_docs({param.name: param.doc for param in _RUN})
        self.optimizer = ChoiceSection(
            "Optimizer", OPTIMIZERS, choices.optimizer_params, choices.check_optimizer, background
        )
        self.loss = ChoiceSection("Loss", tuple(LOSSES), choices.loss_params, choices.check_loss, background)
        self.device = DeviceField(())
        self._device_place = QVBoxLayout()
        self._lay_out()
        self.data.chosen.connect(self._set_data)
        self.data.download_requested.connect(self.download_requested)
        self.numbers.edited.connect(self._set_training)
        self.numbers.reset.connect(lambda name: self._set_training(name, getattr(TrainingConfig, name), None))
        self.optimizer.chosen.connect(lambda choice, merge: self._set_training("optimizer", choice, merge))
        self.loss.chosen.connect(lambda choice, merge: self._set_training("loss", choice, merge))
        document.changed.connect(self._changed)
        self._put_device(self.device)
        self._show(document.project)

    def _lay_out(self) -> None:
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        banner = QVBoxLayout(self._banner)
        banner.setContentsMargins(12, 8, 12, 8)
        banner.addWidget(self.running)
        self.running.closed.connect(self._banner.hide)
        self._banner.hide()
        column.addWidget(self._banner)
        body = emptied(self.run)
        body.addWidget(self.numbers)
        caption = label("device", "code", "text2")
        body.addWidget(caption)
        body.addLayout(self._device_place)
        for part in (self.data, self.run, self.optimizer, self.loss):
            column.addWidget(part)
        column.addStretch(1)
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(inside)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(area)

    # --- What others tell

    def set_devices(self, devices: Sequence[Device]) -> None:
        """The devices that torch found, fastest first; torch is there from now on."""
        old = self.device
        self._device_place.removeWidget(old)
        old.hide()
        old.deleteLater()
        self._put_device(DeviceField(devices))
        self.optimizer.set_torch_loaded()
        self.loss.set_torch_loaded()

    def set_data_root(self, root: Path) -> None:
        """The folder of downloaded data."""
        self.data.set_root(root)

    def refresh_data(self) -> None:
        """Look again whether the data are here, as after a download."""
        self.data.show_config(self._document.project.data)

    def set_running(self, running: bool) -> None:
        """Say that a run keeps its values. The fields stay open: what they hold is for the next run."""
        self.running.setVisible(running)
        self._banner.setVisible(running)

    def _put_device(self, field: DeviceField) -> None:
        self.device = field
        self._device_place.addWidget(field)
        field.set_value(self._document.project.training.device)
        field.edited.connect(lambda device: self._set_training("device", device, None))

    # --- The project

    def _changed(self, before: Project, after: Project) -> None:
        if before.data != after.data or before.training != after.training:
            self._show(after)

    def _show(self, project: Project) -> None:
        training = project.training
        self.data.show_config(project.data)
        self.numbers.set_values({"epochs": training.epochs, "batch_size": training.batch_size, "seed": training.seed})
        self.device.set_value(training.device)
        self.optimizer.show_choice(training.optimizer)
        self.loss.show_choice(training.loss)

    def _set_data(self, config: DataConfig, words: str, merge: str | None) -> None:
        project = replace(self._document.project, data=config)
        self._document.apply(words, project, merge=f"training/{merge}" if merge else None)

    def _set_training(self, name: str, value: Any, merge: str | None) -> None:
        project = self._document.project
        self._apply(name, replace(project, training=replace(project.training, **{name: value})), merge, self.numbers)

    def _apply(self, name: str, project: Project, merge: str | None, form: ParamForm) -> None:
        try:
            check_numbers(Job(Source(""), project.data, project.training))
        except JobError as error:
            # Another field may be at fault, in a file that was edited by hand; that is no reason to refuse this one.
            if str(error).startswith(f"{name} is "):
                form.set_problem(name, str(error))
                return
        form.set_problem(name, "")
        words = name.replace("_", " ")
        self._document.apply(f"Set {words}", project, merge=f"training/{merge}" if merge else None)
