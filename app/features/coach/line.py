"""The line above the curves on which the coach says its sentence, and what opens from it."""

from __future__ import annotations

import math

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QHeaderView, QWidget

from app.features.coach.values import Evidence, Remark, SamplePair
from app.util.columns import Column
from app.util.formatting import grouped_digits
from app.util.language import marked, tr, trn
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.tables import Table
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import Glyph, announce, label, set_property

SILENT = marked("No remarks on this run")
LOOKED_FOR = marked(
    "Looked for during a run and at its end: divergence, a loss that stays where it began, dead units, a loss or a "
    "target that does not fit, shuffled labels, classes that are never predicted, samples in both training and "
    "validation, and overfitting. Nothing is said unless it is sure."
)
EXAMINING = marked("Looking at the data and the net…")
HEIGHT = (
    30  # px at the designed text size: the line is as high with a remark as without
)


class CoachLine(QWidget):
    """One sentence with its button: `acted`, `explained` and `shown` are emitted with the remark. It has its room
    without a remark too, so nothing moves when one comes."""

    acted = Signal(object)
    explained = Signal(object)
    shown = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.remark: Remark | None = None
        self._icon = Glyph("info", "text3", 14)
        self.sentence = FittingLabel("", "label", at_right=True)
        self.action = Button()
        self.why = Button(tr("Why?"), "link")
        self.why.setToolTip(tr("The numbers and the curve that it rests on"))
        self.show_me = Button(tr("Show me"), "link")
        self.show_me.setToolTip(tr("Go to where it is"))
        hbox(
            self._icon,
            (self.sentence, 1),
            self.action,
            self.why,
            self.show_me,
            on=self,
            margins=(12, 2, 12, 2),
            spacing=8,
        )
        for button, signal in (
            (self.action, self.acted),
            (self.why, self.explained),
            (self.show_me, self.shown),
        ):
            button.clicked.connect(
                lambda _=False, signal=signal: signal.emit(self.remark)
            )
        self.setAccessibleName("Coach")
        self.setMinimumWidth(1)
        self._measure()
        theme.manager().scaled.connect(self._measure)
        self.show_remark(None)

    def _measure(self) -> None:
        self.setFixedHeight(round(HEIGHT * theme.manager().scale))

    def show_remark(
        self, remark: Remark | None, action: str = "", silence: str = SILENT
    ) -> None:
        """Show a remark, with a button if it has an `action`, or that there is none."""
        is_new = remark is not None and (
            self.remark is None or self.remark.kind != remark.kind
        )
        self.remark = remark
        text = remark.sentence if remark is not None else tr(silence)
        self._icon.set(
            *(("warning", "warn") if remark is not None else ("info", "text3"))
        )
        self._icon.setVisible(bool(text))
        set_property(self.sentence, "tone", "text" if remark is not None else "text3")
        self.sentence.set_whole(text, text if remark is not None else tr(LOOKED_FOR))
        self.action.setText(action)
        self.action.setVisible(bool(action))
        self.why.setVisible(remark is not None)
        self.show_me.setVisible(remark is not None)
        if is_new:
            announce(self, text)


class WhyDialog(Dialog):
    """The numbers and the curve that a remark rests on."""

    def __init__(self, remark: Remark, parent: QWidget | None = None) -> None:
        super().__init__(remark.sentence, parent, icon="warning", color="warn")
        self.setWindowTitle(tr("Why?"))
        self.setMinimumWidth(520)
        self.remark = remark
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setColumnStretch(1, 1)
        for row, (name, number) in enumerate(remark.numbers):
            grid.addWidget(label(name, "label", "text2"), row, 0)
            grid.addWidget(label(number, "label", wrap=True), row, 1)
        self.body.addLayout(grid)
        if remark.evidence is not None:
            self._plot(remark.evidence)
        close = self.add_button(tr("Close"), default=True)
        close.clicked.connect(self.reject)

    def _plot(self, evidence: Evidence) -> None:
        """Draw each line of the evidence in a plot of its own scale."""
        if len(evidence.x) < 2:
            return
        self.body.addWidget(label(evidence.title, "section"))
        ends = tuple(
            f"{evidence.x_name} {grouped_digits(int(evidence.x[at]))}" for at in (0, -1)
        )
        for name, values in evidence.lines:
            y = [value if math.isfinite(value) else math.nan for value in values]
            finite = [value for value in y if not math.isnan(value)]
            if finite and 0 < 1000 * min(finite) < max(finite):
                y, name = (
                    [math.log10(value) for value in y],
                    tr("log10 of {name}", name=name),
                )
            plot = SmallPlot(f"{evidence.title}: {name}", 110)
            plot.show_lines(
                evidence.x,
                (PlotLine(tuple(y)),),
                ends=(ends[0], ends[1]),
                unit=(evidence.x_name, name),
                marks=[(mark, "warn") for mark in evidence.marks],
            )
            self.body.addWidget(plot)


def _pair_columns() -> tuple[Column, ...]:
    return (
        Column(
            tr("Validation sample"),
            lambda pair: f"{pair.validation:,}",
            tr("Its number in the validation part, from 0"),
            number=True,
            value=lambda pair: pair.validation,
        ),
        Column(
            tr("Training sample"),
            lambda pair: f"{pair.training:,}",
            tr("Its number in the training part, from 0"),
            number=True,
            value=lambda pair: pair.training,
        ),
        Column(
            tr("Rows of the data"),
            lambda pair: "–" if pair.rows is None else "{:,}; {:,}".format(*pair.rows),
            tr("Both rows among those that could be read, from 0"),
        ),
    )


class PairsDialog(Dialog):
    """Samples that are in the training and in the validation part."""

    def __init__(
        self, pairs: tuple[SamplePair, ...], total: int, parent: QWidget | None = None
    ) -> None:
        super().__init__(tr("Samples in both parts"), parent, icon="copy")
        self.setMinimumWidth(480)
        text = trn(
            "{count} validation sample has the very values of a training sample, so a net that has memorised these "
            "is right on it. Remove the copy from the data.",
            "{count} validation samples have the very values of a training sample, so a net that has memorised these "
            "is right on them. Remove the copies from the data.",
            total,
        )
        if total > len(pairs):
            text += " " + tr("The first {number:,} of them:", number=len(pairs))
        self.body.addWidget(label(text, "body", "text2", wrap=True))
        self.table = Table(_pair_columns(), tr("Samples in both parts"))
        self.table.cells.set_rows(list(pairs))
        stretch = QHeaderView.ResizeMode.Stretch
        self.table.horizontalHeader().setSectionResizeMode(stretch)
        self.table.setMinimumHeight(220)
        self.body.addWidget(self.table)
        close = self.add_button(tr("Close"), default=True)
        close.clicked.connect(self.reject)
