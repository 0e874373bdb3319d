"""Sections of the Training tab that fold, and those of numbers and switches of the settings."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.training import settings
from app.training.config import (
    CHECKPOINTS,
    GRADIENTS,
    REGULAR,
    RUN,
    SPEED,
    TrainingConfig,
)
from app.views.fields.form import ParamForm
from app.views.ui.widgets import Section
from app.views.ui.widgets.painting import TextLine, elided, label

AROUND = 68  # chevron, margins and the room between title and summary, px


class FoldingSection(Section):
    """`acted` requests to reset the section to the defaults."""

    def __init__(
        self, title: str, parent: QWidget | None = None, *, opened: bool = False
    ) -> None:
        super().__init__(title, parent=parent, opened=opened)
        self._summary, self._differs = "", False
        self._caption.setMinimumWidth(
            1
        )  # it is cut, and so it must not hold the panel open
        self.toggled.connect(self._fit)

    @property
    def summary(self) -> str:
        return self._summary

    @property
    def differs(self) -> bool:
        """Return whether any value differs from the default."""
        return self._differs

    def set_summary(self, text: str, differs: bool) -> None:
        """Set the text of the folded header, and whether there is anything to reset."""
        if (text, differs) != (self._summary, self._differs):
            self._summary, self._differs = text, differs
            self._header.setAccessibleDescription(text)
            self._fit()

    def _fit(self) -> None:
        self.set_action("Reset" if self.is_open() and self._differs else "", quiet=True)
        room = self.width() - TextLine(self.title(), "section").width - AROUND
        self.set_caption(
            ""
            if self.is_open() or room < 20
            else elided(self._summary, "caption", room).text,
            "text2" if self._differs else "text3",
        )
        self._caption.setToolTip(self._summary)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


WORDS = {
    GRADIENTS: "Gradient processing between backward and optimizer step.",
    SPEED: "Speed, memory and reproducibility of a step.",
    REGULAR: "Label smoothing is a parameter of the loss, dropout is a layer, weight decay is set on the optimizer.",
    CHECKPOINTS: "Saves everything needed to resume the run.",
}
# Summary of a folded section without values that differ from the defaults.
PLAIN = {
    RUN: f"epochs {settings.DEFAULT.epochs}, batch_size {settings.DEFAULT.batch_size}",
    GRADIENTS: "unchanged",
    SPEED: "float32",
    CHECKPOINTS: "best and last epoch",
}


class KnobSection(FoldingSection):
    """`edited(name, value, merge)` carries an edit of a value of the config."""

    edited = Signal(str, object, object)

    def __init__(self, title: str, *, opened: bool = False) -> None:
        super().__init__(title, opened=opened)
        self.params = settings.section(title)
        if title in WORDS:
            words = label(WORDS[title], "label", "text3", wrap=True)
            self.body_layout.addWidget(words)
        self.form = ParamForm(self.params)
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
            ", ".join(summary_texts) or PLAIN.get(self.title(), "none"),
            bool(summary_texts),
        )

    def _fill(self, opened: bool) -> None:
        if opened:
            values = {
                name: settings.of_field(name, getattr(self._shown, name))
                for name in self.form.rows
            }
            self.form.set_values(values)

    def summary_texts(self, training: TrainingConfig) -> list[str]:
        """Return the values that differ from the defaults."""
        return settings.differing(self.params, training)

    def _emit_edited(self, name: str, value: Any, merge: str | None) -> None:
        self.edited.emit(name, settings.of_config(name, value), merge)
