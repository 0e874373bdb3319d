"""A section of numbers and switches of the training settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.training.choices import ChoiceParam
from app.training.config import TrainingConfig
from app.views.inspector.fields.form import ParamForm
from app.views.training.form import settings_fields
from app.views.training.form.folding_section import FoldingSection
from app.views.ui.widgets.painting import label


class KnobSection(FoldingSection):
    """`edited(name, value, merge)` carries an edit of a value of the config."""

    edited = Signal(str, object, object)

    def __init__(
        self,
        title: str,
        params: Sequence[ChoiceParam],
        parent: QWidget | None = None,
        *,
        opened: bool = False,
    ) -> None:
        super().__init__(title, parent, opened=opened)
        self.params = tuple(params)
        if title in settings_fields.WORDS:
            self.body_layout.addWidget(
                label(settings_fields.WORDS[title], "label", "text3", wrap=True)
            )
        self.form = ParamForm(params)
        self.form.set_docs({param.name: param.doc for param in params})
        self.form.edited.connect(self._emit_edited)
        self.form.reset.connect(
            lambda name: self.edited.emit(name, getattr(TrainingConfig(), name), None)
        )
        self.body_layout.addWidget(self.form)
        self._shown = TrainingConfig()
        self.toggled.connect(self._fill)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of the config that "Reset" puts back."""
        return tuple(param.name for param in self.params)

    def show_config(self, training: TrainingConfig) -> None:
        """Show the project's settings. A folded section creates its editors when it is opened."""
        self._shown = training
        self._fill(self.is_open())
        summary_texts = self.summary_texts(training)
        self.set_summary(
            ", ".join(summary_texts) or settings_fields.PLAIN.get(self.title(), "none"),
            bool(summary_texts),
        )

    def _fill(self, opened: bool) -> None:
        if opened:
            values = {
                name: settings_fields.of_field(name, getattr(self._shown, name))
                for name in self.form.rows
            }
            self.form.set_values(values)

    def summary_texts(self, training: TrainingConfig) -> list[str]:
        """Return the values that differ from the defaults."""
        return settings_fields.differing(self.params, training)

    def _emit_edited(self, name: str, value: Any, merge: str | None) -> None:
        # Store 1 of a float field as 1.0: equal to the user, but not in the file.
        kind = next(param.kind for param in self.params if param.name == name)
        if kind == "float" and type(value) is int:
            value = float(value)
        self.edited.emit(name, settings_fields.of_config(name, value), merge)
