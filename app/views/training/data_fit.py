"""What the data give beside what the net takes, with one click that mends what does not fit."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from app.builder.problems import Cure
from app.preflight import Fit
from app.views.widgets import Button
from app.views.widgets.painting import label, set_property


class FitBox(QWidget):
    """Two lines, and a button for the first cure of each problem. `cure_requested(Cure)` asks for one."""

    cure_requested = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.data, self.net = label("", "label", "text2", wrap=True), label("", "label", "text2", wrap=True)
        self.words = label("", "label", "text3", wrap=True)
        self.buttons: list[Button] = []
        self._cures: tuple[Cure, ...] = ()
        grid = QGridLayout()
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(1, 1)
        for line, (text, value) in enumerate((("Data give", self.data), ("The net takes", self.net))):
            grid.addWidget(label(text, "caption", "text3"), line, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(value, line, 1)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 4, 0, 0)
        self._column.setSpacing(4)
        self._column.addLayout(grid)
        self._column.addWidget(self.words)
        self.hide()

    def show_fit(self, fit: Fit | None) -> None:
        """Show both sides, or nothing while they are not known."""
        self._offer(tuple(one.cures[0] for one in fit.problems if one.cures) if fit is not None else ())
        self.setVisible(fit is not None)
        if fit is None:
            return
        self.data.setText(fit.data)
        self.net.setText(fit.net)
        set_property(self.words, "tone", "error" if fit.problems else "text3")
        self.words.setText(" ".join(f"{one.message}." for one in fit.problems) or "They fit.")

    def _offer(self, cures: tuple[Cure, ...]) -> None:
        """A button a cure, made anew only where the cures are others."""
        if cures == self._cures:
            return
        self._cures = cures
        for button in self.buttons:
            self._column.removeWidget(button)
            button.hide()
            button.deleteLater()
        self.buttons = []
        for cure in cures:
            button = Button(cure.label, "primary")
            button.clicked.connect(lambda _checked=False, cure=cure: self._ask(cure))
            self._column.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
            self.buttons.append(button)

    def _ask(self, cure: Cure) -> None:
        self.cure_requested.emit(cure)
