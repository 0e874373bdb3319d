"""Parameter groups: layers with their own learning rate or weight decay, and frozen ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QWidget

from app.engine.requests.choices import CheckGroup, GroupParams
from app.project.module_paths import Layers, NetModule
from app.training.choices import ChoiceError, ChoiceParam
from app.training.config import GROUPS, Choice, ParameterGroup, TrainingConfig
from app.util.formatting import grouped_digits, plural
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.settings_section import KnobSection
from app.views.fields.values import equal_values, show
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.pick_box import Picker, PickRow
from app.views.ui.widgets import Button, icon_button
from app.views.ui.widgets.focus import keeping_focus
from app.views.ui.widgets.painting import label, set_property, show_or_hide

# --- A list of chosen modules of the net: one per line, with a button to add; missing ones are marked

MOST = 2_000  # layers to choose from
GONE = "The network no longer has a module with this name."


def pick_layer(
    title: str,
    layers: Iterable[NetModule],
    below: QWidget,
    take: Callable[[NetModule], None],
    nothing: str,
) -> Picker:
    """Open a picker of layers below a widget; of very many only the first are listed."""
    picks = [
        PickRow(layer.path, "", layer, _about(layer)) for layer in islice(layers, MOST)
    ]
    picker = Picker(title, picks, nothing, below)
    picker.picked.connect(take)
    picker.open_below(below)
    return picker


def _about(layer: NetModule) -> str:
    if layer.frozen:
        return "frozen"
    return f"{grouped_digits(layer.parameters)} parameters" if layer.parameters else ""


class PathLine(QWidget):
    """A path with the button that takes it away; marked where the net has no such module."""

    removed = Signal(str)

    def __init__(self, path: str, what: str) -> None:
        super().__init__()
        self.path = path
        self.name = label(path, "code", "text")
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.remove = icon_button("close", f"Remove {what} {path}")
        self.remove.setFixedSize(22, 22)
        self.remove.clicked.connect(lambda: self.removed.emit(path))
        hbox((self.name, 1), self.remove, on=self, margins=0, spacing=6)

    def set_known(self, exists: bool) -> None:
        set_property(self.name, "tone", "text" if exists else "error")
        self.name.setToolTip("" if exists else GONE)


class PathList(QWidget):
    """`changed(paths)` carries an edit."""

    changed = Signal(object)

    def __init__(self, caption: str, words: str, what: str) -> None:
        super().__init__()
        self._what = what
        self._paths: tuple[str, ...] = ()
        self._layers: Layers | None = None
        self.lines: dict[str, PathLine] = {}
        self.add = Button("Add a layer…", "link", "add")
        self.add.setAccessibleName(f"Add a layer to {caption}")
        self.add.clicked.connect(self.open_picker)
        title = label(caption, "code", "text2")
        title.setToolTip(words)
        self._rows = vbox(spacing=2)
        vbox(
            title,
            label(words, "label", "text3", wrap=True),
            self._rows,
            (self.add, 0, Qt.AlignmentFlag.AlignLeft),
            on=self,
            margins=(0, 4, 0, 0),
            spacing=3,
        )

    def set_layers(self, layers: Layers) -> None:
        """Set the layers of the net."""
        self._layers = layers
        self._mark()

    def show_paths(self, paths: tuple[str, ...]) -> None:
        if paths == self._paths:
            return
        self._paths = paths
        with keeping_focus(self):
            for line in self.lines.values():
                self._rows.removeWidget(line)
                line.hide()
                line.deleteLater()
            self.lines = {path: PathLine(path, self._what) for path in paths}
            for line in self.lines.values():
                line.removed.connect(
                    lambda path: self.changed.emit(
                        tuple(p for p in self._paths if p != path)
                    )
                )
                self._rows.addWidget(line)
        self._mark()

    def _mark(self) -> None:
        for path, line in self.lines.items():
            line.set_known(self._layers is None or self._layers.has(path))

    def open_picker(self) -> Picker:
        """Open a list of layers to add."""
        chosen = set(self._paths)
        left = (
            layer
            for layer in self._layers or ()
            if not chosen.issuperset(layer.modules)
        )
        return pick_layer(
            "Layers of the network", left, self.add, self._add, "No other layers."
        )

    def _add(self, layer: NetModule) -> None:
        self.changed.emit(
            (*self._paths, *(path for path in layer.modules if path not in self._paths))
        )


FEW = 40  # frozen layers that are named
RATES = (
    "OneCycleLR",
    "CyclicLR",
)  # schedules that set the rate of every group themselves


class GroupBox(QFrame):
    """One group: its path, and the optimizer's numbers of which some are its own."""

    edited = Signal(str, str, object, object)  # path, name, value, merge
    removed = Signal(str)

    def __init__(self, group: ParameterGroup, params: tuple[ChoiceParam, ...]) -> None:
        super().__init__()
        self.group = group
        self.head = PathLine(group.path, "the group of")
        self.head.removed.connect(self.removed)
        self.form = ParamForm(params, defaults=True)
        self.form.edited.connect(
            lambda name, value, merge: self.edited.emit(group.path, name, value, merge)
        )
        self.form.reset.connect(
            lambda name: self.edited.emit(group.path, name, self.default(name), None)
        )
        vbox(self.head, self.form, on=self, margins=(0, 4, 0, 4), spacing=2)
        self.show_group(group)

    def default(self, name: str) -> Any:
        return self.form.rows[name].param.default

    def show_group(self, group: ParameterGroup) -> None:
        self.group = group
        self.form.set_values(group.options)


class GroupsSection(KnobSection):
    """`made(groups, words, merge)` are groups that the optimizer takes."""

    made = Signal(object, str, object)

    def __init__(self, engine: EngineService) -> None:
        super().__init__(GROUPS)
        self._engine = engine
        self._loaded = False
        self._training = TrainingConfig()
        self._asked: Choice | None = None
        self._params: tuple[ChoiceParam, ...] = ()
        self._layers: Layers | None = None
        self.boxes: dict[str, GroupBox] = {}
        self.words = label("", "label", "text3", wrap=True)
        self.frozen = label("", "label", "text3", wrap=True)
        self.add = Button("Add a group…", "link", "add")
        self.add.clicked.connect(self.open_picker)
        self._place = vbox(spacing=6)
        self.body_layout.addLayout(self._place)
        self.body_layout.addWidget(self.add, 0, Qt.AlignmentFlag.AlignLeft)
        self.body_layout.addWidget(self.words)
        self.body_layout.addWidget(self.frozen)
        self.frozen.hide()
        self._update_text()

    @property
    def names(self) -> tuple[str, ...]:
        return ("no_decay", "groups")

    def set_torch_loaded(self) -> None:
        """Enable requests to torch."""
        self._loaded = True
        self._ask_params()

    def set_layers(self, layers: Layers) -> None:
        """Set the layers of the net."""
        self._layers = layers
        outer = list(islice(layers.frozen(), FEW + 1))
        names = ", ".join(outer[:FEW]) + (" and others" if len(outer) > FEW else "")
        self.frozen.setText(f"Ignored, because it is frozen: {names}." if outer else "")
        self.frozen.setVisible(bool(outer))
        self._mark()

    def summary_texts(self, training: TrainingConfig) -> list[str]:
        count = len(training.groups)
        return [f"{count} {plural(count, 'group')}"] * bool(
            count
        ) + super().summary_texts(training)

    def show_config(self, training: TrainingConfig) -> None:
        super().show_config(training)
        self._training = training
        self._ask_params()
        self._show_groups()
        self._update_text()

    def forget(self) -> None:
        """Drop open questions: the next groups are those of another project."""
        for path, box in self.boxes.items():
            for name in box.form.rows:
                self._engine.forget(f"training.groups.check.{path}.{name}")

    # --- Groups

    def _ask_params(self) -> None:
        choice = self._training.optimizer
        if self._loaded and choice != self._asked:
            self._asked = choice
            self._engine.ask(
                "training.groups.params",
                GroupParams(choice),
                on_answer=self._take_params,
                on_error=self._no_groups,
            )

    def _take_params(self, params: tuple[ChoiceParam, ...]) -> None:
        self._params = params
        with keeping_focus(self):  # the user may be typing in a box
            self._clear()
            self._show_groups()
        self._update_text()

    def _no_groups(self, failure: WorkerFailure) -> None:
        self._params = ()
        self._clear()
        self._update_text(failure.message)

    def _clear(self) -> None:
        for box in self.boxes.values():
            self._place.removeWidget(box)
            box.hide()
            box.deleteLater()
        self.boxes = {}

    def _show_groups(self) -> None:
        groups = self._training.groups
        if [*self.boxes] != [group.path for group in groups]:
            with keeping_focus(self):
                self._clear()
                self._make_boxes(groups)
        for group in groups:
            if group.path in self.boxes:
                self.boxes[group.path].show_group(group)
        self._mark()

    def _make_boxes(self, groups: tuple[ParameterGroup, ...]) -> None:
        if self._params:
            self.boxes = {group.path: GroupBox(group, self._params) for group in groups}
        for box in self.boxes.values():
            box.removed.connect(self._remove)
            box.edited.connect(self._option_edited)
            self._place.addWidget(box)

    def _mark(self) -> None:
        for path, box in self.boxes.items():
            box.head.set_known(self._layers is None or self._layers.has(path))

    def _update_text(self, problem: str = "") -> None:
        """Explain groups, or why there can be none."""
        schedule = self._training.schedule
        text = problem
        if not text and not self._training.groups:
            text = "Overrides learning rate or weight decay for some layers; the first matching group applies."
        elif not text and schedule is not None and schedule.choice.name in RATES:
            text = f"{schedule.choice.name} sets the rate of every group, so a group's own lr has no effect."
        show_or_hide(self.words, text)
        self.add.setEnabled(not problem)

    def open_picker(self) -> Picker:
        """Open a list of layers to add a group for."""
        grouped_paths = {group.path for group in self._training.groups}
        left = (
            layer
            for layer in self._layers or ()
            if layer.trains and not layer.frozen and layer.path not in grouped_paths
        )
        nothing = "No other layer has trainable parameters."
        return pick_layer("Layers with parameters", left, self.add, self._add, nothing)

    def _add(self, layer: NetModule) -> None:
        rate = next(
            (param.default for param in self._params if param.name == "lr"), None
        )
        options: FrozenMap[str, Any] = FrozenMap(
            {"lr": rate / 10} if isinstance(rate, int | float) else {}
        )
        groups = list(self._training.groups)
        # The first matching group counts, so one inside another must come before it.
        around = (
            i
            for i, group in enumerate(groups)
            if f"{layer.path}.".startswith(f"{group.path}.")
        )
        groups.insert(next(around, len(groups)), ParameterGroup(layer.path, options))
        self.made.emit(tuple(groups), f"Add a group for {layer.path}", None)

    def _remove(self, path: str) -> None:
        groups = tuple(group for group in self._training.groups if group.path != path)
        self.made.emit(groups, f"Remove the group of {path}", None)

    def _option_edited(
        self, path: str, name: str, value: Any, merge: str | None
    ) -> None:
        """Have torch validate the option; change the project only if it is accepted."""
        box = self.boxes[path]
        before = box.group.options
        options = FrozenMap(
            before.without(name)
            if equal_values(value, box.default(name))
            else before.set(name, value)
        )

        def accept(_none: None) -> None:
            if path in self.boxes and self.boxes[path].group.options != before:
                self._option_edited(
                    path, name, value, merge
                )  # another option changed meanwhile
            else:
                self._accepted(path, name, options, merge)

        self._engine.ask(
            f"training.groups.check.{path}.{name}",
            CheckGroup(self._training.optimizer, options),
            on_answer=accept,
            on_error=lambda failure: self._refused(path, name, failure),
        )

    def _accepted(
        self, path: str, name: str, options: FrozenMap[str, Any], merge: str | None
    ) -> None:
        if path in self.boxes:
            self.boxes[path].form.set_problem(name, "")
            groups = tuple(
                replace(group, options=options) if group.path == path else group
                for group in self._training.groups
            )
            change = (
                f"Set {name} of {path} to {show(options[name])}"
                if name in options
                else f"Reset {name} of {path}"
            )
            self.made.emit(groups, change, f"groups/{path}/{merge}" if merge else None)

    def _refused(self, path: str, name: str, failure: WorkerFailure) -> None:
        if path in self.boxes:
            form = self.boxes[path].form
            blamed = (
                failure.error.param if isinstance(failure.error, ChoiceError) else None
            )
            for marked in {name, blamed or name} & form.rows.keys():
                form.set_problem(marked, failure.message)
