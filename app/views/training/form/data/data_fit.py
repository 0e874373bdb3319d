"""Checks of the data against the net's inputs and outputs, with one-click fixes."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.builder.diagnostics.problems import Cure
from app.preflight.preflight import Fit
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import elided, label, set_property

MOST = 236  # px of the words on a button


def _offered(fit: Fit) -> tuple[Cure, ...]:
    """Return the cures of all problems in the order in which they are offered; other data are chosen above."""
    cures = [cure for problem in fit.problems for cure in problem.cures]
    by_label = {cure.label: cure for cure in reversed(cures) if not cure.chooses_data}
    return tuple(sorted(reversed(by_label.values()), key=lambda cure: cure.rank))


class FitBox(QWidget):
    """Two lines, and buttons that adapt the net or the data. `cure_requested(Cure)` requests one."""

    cure_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.data, self.net = (
            label("", "label", "text2", wrap=True),
            label("", "label", "text2", wrap=True),
        )
        self.words = label("", "label", "text3", wrap=True)
        self.buttons: list[Button] = []
        self._cures: tuple[Cure, ...] = ()
        grid = QGridLayout()
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(1, 1)
        for line, (text, value) in enumerate(
            (("The data provide", self.data), ("The network takes", self.net))
        ):
            grid.addWidget(
                label(text, "caption", "text3"), line, 0, Qt.AlignmentFlag.AlignTop
            )
            grid.addWidget(value, line, 1)
        self._column = vbox(grid, self.words, on=self, margins=(0, 4, 0, 0), spacing=4)
        self.hide()

    def show_fit(self, fit: Fit | None) -> None:
        """Show both sides, or nothing while they are not known."""
        self._offer(_offered(fit) if fit is not None else ())
        self.setVisible(fit is not None)
        if fit is None:
            return
        self.data.setText(fit.data)
        self.net.setText(fit.net)
        set_property(self.words, "tone", "error" if fit.problems else "text3")
        self.words.setText(
            " ".join(f"{problem.message}." for problem in fit.problems) or "They match."
        )

    def _offer(self, cures: tuple[Cure, ...]) -> None:
        """Show a button per cure, recreated only when the cures change."""
        if cures == self._cures:
            return
        self._cures = cures
        for button in self.buttons:
            self._column.removeWidget(button)
            button.hide()
            button.deleteLater()
        self.buttons = []
        for cure in cures:
            text = elided(cure.label, "tab", MOST).text
            first = "secondary" if self.buttons else "primary"
            button = Button(text.replace("&", "&&"), first)
            button.setToolTip(cure.label if text != cure.label else "")
            button.setAccessibleName(cure.label)
            button.clicked.connect(
                lambda _checked=False, cure=cure: self._request(cure)
            )
            self._column.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
            self.buttons.append(button)

    def _request(self, cure: Cure) -> None:
        self.cure_requested.emit(cure)
