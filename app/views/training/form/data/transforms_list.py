"""The transforms of images: an ordered list, each with its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.data.config import Transform
from app.data.transform_list import KINDS
from app.util.frozen import FrozenMap
from app.views.fields.form import ParamForm
from app.views.fields.values import equal_values
from app.views.ui.layouts import hbox, vbox
from app.views.ui.pick_box import Picker, PickRow
from app.views.ui.widgets import Button, icon_button
from app.views.ui.widgets.focus import keeping_focus
from app.views.ui.widgets.painting import label


class TransformItem(QWidget):
    """One transform. `changed(Transform, merge)`, `removed` and `raised` carry edits."""

    changed = Signal(object, object)
    removed = Signal()
    raised = Signal()

    def __init__(self, transform: Transform, first: bool) -> None:
        super().__init__()
        self._transform = transform
        kind = KINDS.get(transform.name)
        name = label(transform.name, "code", "text" if kind is not None else "error")
        name.setToolTip(kind.doc if kind is not None else "Unknown transform.")
        up, remove = (
            icon_button("chevron-up", f"Move up: {transform.name}"),
            icon_button("close", f"Remove {transform.name}"),
        )
        up.setEnabled(not first)
        up.clicked.connect(self.raised)
        remove.clicked.connect(self.removed)
        row = hbox((name, 1), spacing=4)
        for button in (up, remove):
            button.setFixedSize(22, 22)
            row.addWidget(button)
        column = vbox(row, on=self, margins=(0, 2, 0, 2), spacing=2)
        self.form: ParamForm | None = None
        if kind is not None and kind.options:
            self.form = ParamForm(kind.options)
            self.form.edited.connect(self._edited)
            self.form.reset.connect(lambda name: self._put(name, None, None))
            self.form.set_values(transform.params)
            column.addWidget(self.form)

    @property
    def transform(self) -> Transform:
        return self._transform

    def show_transform(self, transform: Transform) -> None:
        """Other values of the same transform."""
        self._transform = transform
        if self.form is not None:
            self.form.set_values(transform.params)

    def _edited(self, name: str, value: Any, merge: str | None) -> None:
        option = next(
            candidate
            for candidate in KINDS[self._transform.name].options
            if candidate.name == name
        )
        if option.kind == "float" and type(value) is int:
            value = float(value)
        refusal = option.refusal(value)
        assert self.form is not None
        self.form.set_problem(
            name, f"{name} is {value!r}; {refusal}." if refusal else ""
        )
        if not refusal:
            self._put(name, value, merge)

    def _put(self, name: str, value: Any, merge: str | None) -> None:
        default = next(
            option.default
            for option in KINDS[self._transform.name].options
            if option.name == name
        )
        params = self._transform.params
        plain = value is None or equal_values(value, default)
        params = params.without(name) if plain else params.set(name, value)
        self.changed.emit(replace(self._transform, params=FrozenMap(params)), merge)


class TransformsList(QWidget):
    """A list of transforms. `edited(tuple, words, merge)` carries the edited list."""

    edited = Signal(object, str, object)

    def __init__(self, title: str, random: bool) -> None:
        super().__init__()
        self._title, self._random = title, random
        self.shape: tuple[int, ...] = ()  # of the images
        self.initial_size: tuple[
            int, ...
        ] = ()  # height and width that a new transform has at first
        self.items: list[TransformItem] = []
        self.add = Button("Add…", "flat")
        self.add.setAccessibleName(f"Add a transform: {title}")
        self.add.clicked.connect(self._pick)
        top = hbox((label(title, "caption", "text3"), 1), self.add)
        self._place = vbox(spacing=2)
        vbox(top, self._place, on=self, margins=(0, 4, 0, 0), spacing=2)

    @property
    def transforms(self) -> tuple[Transform, ...]:
        return tuple(item.transform for item in self.items)

    def show_transforms(self, transforms: Sequence[Transform]) -> None:
        """Show the project's transforms; if only values changed, fields being typed in are kept."""
        if [entry.name for entry in transforms] == [
            entry.name for entry in self.transforms
        ]:
            for item, transform in zip(self.items, transforms, strict=True):
                item.show_transform(transform)
            return
        with keeping_focus(self):
            self._fill(transforms)

    def _fill(self, transforms: Sequence[Transform]) -> None:
        for item in self.items:
            self._place.removeWidget(item)
            item.hide()
            item.deleteLater()
        self.items = [
            TransformItem(transform, not number)
            for number, transform in enumerate(transforms)
        ]
        for number, item in enumerate(self.items):
            item.changed.connect(
                lambda changed, merge, number=number: self._replace(
                    number, changed, merge
                )
            )
            item.removed.connect(lambda number=number: self._remove(number))
            item.raised.connect(lambda number=number: self._raise(number))
            self._place.addWidget(item)

    def put(self, name: str) -> None:
        """Append a transform."""
        sized = any(option.name == "size" for option in KINDS[name].options)
        takes_size = sized and len(self.initial_size) == 2
        params: FrozenMap[str, Any] = (
            FrozenMap(size=self.initial_size) if takes_size else FrozenMap()
        )
        self.edited.emit(
            (*self.transforms, Transform(name, params)), f"Add {name}", None
        )

    def _pick(self) -> None:
        picks = [
            PickRow(kind.name, "", kind.name, kind.doc)
            for kind in KINDS.values()
            if self._random or not kind.random
        ]
        picker = Picker("Add a transform", picks, "Unknown transform.", self.add)
        picker.picked.connect(self.put)
        picker.open_below(self.add)

    def _replace(self, number: int, transform: Transform, merge: str | None) -> None:
        every = list(self.transforms)
        every[number] = transform
        self.edited.emit(
            tuple(every),
            f"Set {transform.name}",
            f"{self._title}/{number}/{merge}" if merge else None,
        )

    def _remove(self, number: int) -> None:
        every = list(self.transforms)
        gone = every.pop(number)
        self.edited.emit(tuple(every), f"Remove {gone.name}", None)

    def _raise(self, number: int) -> None:
        every = list(self.transforms)
        every.insert(number - 1, every.pop(number))
        self.edited.emit(tuple(every), f"Move {every[number - 1].name}", None)
