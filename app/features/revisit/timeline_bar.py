"""Slider below the charts that selects a step of the shown run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import (
    QMenu,
    QSizePolicy,
    QSlider,
    QStyle,
    QStyleOptionSlider,
    QWidget,
)

from app.training.history import History
from app.util.language import tr
from app.views.ui import theme
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.training.columns import Array

RECOMPUTE, CANCEL = "Recompute step", "Cancel"
HINT = "Step of the run shown in charts, gradient strips and layers. Click a chart, drag here or type a step"
RECOMPUTE_HINT = (
    "Recompute this step from the nearest checkpoint, verify it and open its graph"
)


class StepSlider(QSlider):
    """A slider whose handle jumps to where its groove is pressed, and is dragged from there."""

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            option = QStyleOptionSlider()
            self.initStyleOption(option)
            style, slider = self.style(), QStyle.ComplexControl.CC_Slider
            handle = style.subControlRect(
                slider, option, QStyle.SubControl.SC_SliderHandle, self
            )
            if not handle.contains(event.position().toPoint()):
                groove = style.subControlRect(
                    slider, option, QStyle.SubControl.SC_SliderGroove, self
                )
                x = round(event.position().x()) - groove.x() - handle.width() // 2
                room = groove.width() - handle.width()
                self.setValue(
                    QStyle.sliderValueFromPosition(
                        self.minimum(), self.maximum(), x, room
                    )
                )
        super().mousePressEvent(event)


class TimelineBar(QWidget):
    """Selects a step of a run: emits `stepChosen(step)`, None for the newest, `recomputeRequested(step)`, and
    `cancelRequested` while one is recomputed.
    """

    stepChosen = Signal(object)
    recomputeRequested = Signal(int)
    cancelRequested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._history = History()
        self._step: int | None = None
        self._busy = False
        self._can_recompute = False
        self.slider = StepSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName("Step of the run")
        self.slider.setToolTip(HINT)
        self.field = NumberField(1, minimum=1)
        self.field.setAccessibleName("Step")
        self.field.setToolTip(HINT)
        self.field.setFixedWidth(86)
        self._of = label("", "caption", "text2")
        self.newest = Button("Newest", "link")
        self.newest.setToolTip("Show the newest step and follow the run (Esc)")
        self.recompute = Button(RECOMPUTE, "secondary", "step-back")
        self.recompute.setToolTip(RECOMPUTE_HINT)
        self.more = Button("This step")
        self.more.setToolTip(
            "Debug this step, find a first step, or fork the run without its batch"
        )
        self.menu = QMenu(self.more)
        self.more.setMenu(self.menu)
        self.words = label("", "caption", "text2")
        self.words.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self._name = label("Step", "caption", "text2")
        hbox(
            self._name,
            self.field,
            self._of,
            (self.slider, 3),
            self.newest,
            self.recompute,
            self.more,
            (self.words, 3),
            on=self,
            margins=(12, 2, 12, 4),
            spacing=8,
        )
        self.slider.setMinimumWidth(60)
        self.setMinimumWidth(1)
        self._measure()
        theme.manager().scaled.connect(self._measure)
        self.slider.valueChanged.connect(self._slid)
        self.field.edited.connect(self._typed)
        self.newest.clicked.connect(lambda: self.stepChosen.emit(None))
        self.recompute.clicked.connect(self._ask)
        self.show_run(None, False)

    def _measure(self) -> None:
        """Fix the size of each label and button whose text changes: the slider stays, nothing is laid out again."""
        metrics = self._of.fontMetrics()
        self._of.setFixedSize(
            metrics.horizontalAdvance("of 10,000,000"), metrics.height()
        )
        text = self.recompute.text()
        self.recompute.setText(RECOMPUTE)  # CANCEL is shorter
        self.recompute.setFixedWidth(self.recompute.sizeHint().width())
        self.recompute.setText(text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Hide what does not fit, the last that can be missed: Esc shows the newest, a command recomputes."""
        super().resizeEvent(event)
        fixed = self.slider, self.field, self.more
        room = self.width() - 24 - _least(fixed)
        for widgets in ((self.recompute,), (self.newest,), (self._name, self._of)):
            room -= _least(widgets)
            for widget in widgets:
                widget.setVisible(room >= 0)

    @property
    def _steps(self) -> Array:
        return self._history.steps["step"]

    @property
    def _newest(self) -> int:
        """Return the newest step, 0 before the first; one whose loss was not finite if there is no other."""
        return (
            int(self._steps[-1])
            if len(self._steps)
            else max(self._history.marks, default=0)
        )

    def show_run(
        self, history: History | None, can_recompute: bool, why_not: str = ""
    ) -> None:
        """Show another run, at its newest step; `why_not` says why its steps cannot be recomputed."""
        self._history = history or History()
        self._can_recompute = can_recompute
        self.recompute.setToolTip(
            RECOMPUTE_HINT if can_recompute else why_not or RECOMPUTE_HINT
        )
        self.words.setText("")
        self._step = None
        self.refresh()

    def refresh(self) -> None:
        """Update the range after new steps were recorded."""
        count = len(self._history.steps)
        last = self._newest
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, max(count - 1, 0))
            if self._step is None:
                self.slider.setValue(max(count - 1, 0))
        if self._step is None and not self.field.hasFocus():
            self.field.set_value(max(last, 1))
        self._of.setText(tr("of {number:,}", number=last) if last else "")
        self._enable()

    def _enable(self) -> None:
        there = bool(len(self._history.steps) or self._history.marks)
        for widget in (self.slider, self.field):
            widget.setEnabled(there)
        self.newest.setEnabled(self._step is not None)
        self.more.setEnabled(there)
        self.recompute.setEnabled(self._busy or there and self._can_recompute)

    def show_step(self, step: int | None) -> None:
        """Show the chosen step; None for the newest."""
        self._step = step
        if step is not None:
            with QSignalBlocker(self.slider):
                self.slider.setValue(self._index(step))
            if self.field.value() != step:
                self.field.set_value(step)
        self.refresh()

    def _index(self, step: int) -> int:
        """Return the index of the recorded step nearest to a step, 0 without any."""
        steps = self._steps
        if not len(steps):
            return 0
        right = min(int(np.searchsorted(steps, step)), len(steps) - 1)
        left = max(right - 1, 0)
        return left if step - steps[left] < steps[right] - step else right

    def _slid(self, index: int) -> None:
        if index < len(self._history.steps):
            self.stepChosen.emit(int(self._steps[index]))

    def _typed(self, value: object) -> None:
        if isinstance(value, int) and len(self._history.steps):
            step = (
                value
                if value in self._history.marks
                else int(self._steps[self._index(value)])
            )
            self.stepChosen.emit(step)

    def _ask(self) -> None:
        if self._busy:
            self.cancelRequested.emit()
            return
        step = self._step if self._step is not None else self._newest
        self.stepChosen.emit(step)
        self.recomputeRequested.emit(step)

    def show_busy(self, busy: bool, status: str = "") -> None:
        """Show that a step is being recomputed, or the result."""
        self._busy = busy
        self.recompute.setText(CANCEL if busy else RECOMPUTE)
        self.words.setText(status)
        self.words.setToolTip(status)
        self._enable()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._step is not None:
            self.stepChosen.emit(None)
            return
        super().keyPressEvent(event)


def _least(widgets: Iterable[QWidget]) -> int:
    """Return the width that widgets need in a row, with the gaps before them."""
    return sum(
        max(widget.minimumWidth(), widget.minimumSizeHint().width()) + 8
        for widget in widgets
    )
