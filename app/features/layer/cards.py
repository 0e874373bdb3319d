"""The cards of a layer: its checks as a list, figures of values as a row, and activations and filters as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.features.layer.health import HealthCheck
from app.telemetry.histogram import Histogram
from app.training.monitoring.looks import Channels, LayerInside, StepLayer
from app.util.formatting import figure
from app.views.run.picture_grid import PictureGrid
from app.views.training.charts.card import ChartCard
from app.views.ui import icons, theme
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import TipAt, label, start
from app.views.ui.widgets.segmented import Segmented

LINE, ICON = 24, 14
SPACE = 12  # px between two figures
NARROWEST, WIDEST = 150, 260
MARKS = {True: ("check", "run"), False: ("warning", "warn"), None: ("info", "text3")}
EMPTY = "Measured while a run trains."
CHOOSE = "Choose a layer on the canvas, in the gradient map or in the list."
WORDS = 110  # px, at least, for what sample it is


class FiguresRow(QWidget):
    """Norm, mean, standard deviation and largest magnitude of a histogram's values, each under its name."""

    fits_text = True

    def __init__(self) -> None:
        super().__init__()
        self.figures: tuple[tuple[str, str], ...] = ()
        self._widths: list[float] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.manager().changed.connect(self._measure)
        self._measure()

    def _measure(self) -> None:
        """Have room for the figures at the text size in force."""
        names, values = (
            QFontMetricsF(theme.font(role)) for role in ("caption", "section")
        )
        self._lines = names.height(), values.height()
        self._widths = [
            max(names.horizontalAdvance(name), values.horizontalAdvance(value)) + SPACE
            for name, value in self.figures
        ]
        self.setMinimumWidth(round(sum(self._widths)))
        self.setFixedHeight(round(sum(self._lines)) + 6)
        self.update()

    def columns(self) -> list[float]:
        """Return the left edge of each figure; each is as wide as its text plus an equal share of the free width."""
        spare = max(self.width() - sum(self._widths), 0.0) / max(len(self._widths), 1)
        return [0.0, *accumulate(width + spare for width in self._widths)][
            : len(self._widths)
        ]

    def show_histogram(self, of: Histogram | None) -> None:
        """Show the figures; nothing without a histogram, or for one of a run that recorded none."""
        self.figures = (
            ()
            if of is None or not of.recorded
            else (
                ("norm", ("≈ " if of.sampled else "") + figure(of.norm)),
                ("mean", figure(of.mean)),
                ("std", figure(of.std)),
                ("largest", figure(of.largest)),
            )
        )
        sample = of is not None and of.recorded and of.sampled
        self.setToolTip(
            f"Of every n-th of {of.size:,} values; the norm is estimated from them"
            if of and sample
            else ""
        )
        self.setAccessibleName(
            ", ".join(f"{name} {value}" for name, value in self.figures)
        )
        self._measure()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, now = start(self), theme.current()
        first, second = self._lines
        for left, wide, (name, value) in zip(
            self.columns(), self._widths, self.figures, strict=True
        ):
            painter.setFont(theme.font("caption"))
            painter.setPen(now.text3)
            painter.drawText(
                QRectF(left, 2, wide, first), Qt.AlignmentFlag.AlignVCenter, name
            )
            painter.setFont(theme.font("section"))
            painter.setPen(now.text)
            painter.drawText(
                QRectF(left, 2 + first, wide, second),
                Qt.AlignmentFlag.AlignVCenter,
                value,
            )
        painter.end()


class HealthList(TipAt, QWidget):
    """A line for each check: a mark, its name and its value; the tooltip has the measured value."""

    def __init__(self) -> None:
        super().__init__()
        self._checks: tuple[HealthCheck, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        theme.manager().changed.connect(self._refit)
        self.set_checks(())

    @property
    def checks(self) -> tuple[HealthCheck, ...]:
        return self._checks

    def _refit(self) -> None:
        self.set_checks(self._checks)  # of which each may need more room

    def set_checks(self, checks: Sequence[HealthCheck]) -> None:
        self._checks = tuple(checks)
        self._line = max(LINE, round(QFontMetricsF(theme.font("section")).height()) + 4)
        verdicts = {True: "healthy", False: "warning", None: "not measured"}
        texts = [
            f"{check.name}: {check.value}, {verdicts[check.ok]}"
            for check in self._checks
        ]
        strong, plain = (
            QFontMetricsF(theme.font(name)) for name in ("section", "caption")
        )
        wide = [
            strong.horizontalAdvance(check.value) + plain.horizontalAdvance(check.name)
            for check in self._checks
        ]
        self.setMinimumWidth(
            min(
                max(NARROWEST, round(max(wide, default=0)) + ICON + 24),
                round(WIDEST * theme.manager().scale),
            )
        )
        self.setAccessibleName("Health: " + ("; ".join(texts) or EMPTY))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(220, self._line * 5)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, now = start(self), theme.current()
        if not self._checks:
            painter.setFont(theme.font("caption"))
            painter.setPen(now.text3)
            wrapped = (
                Qt.AlignmentFlag.AlignLeft
                | Qt.AlignmentFlag.AlignTop
                | Qt.TextFlag.TextWordWrap
            )
            painter.drawText(QRectF(self.rect()).adjusted(0, 4, -8, 0), wrapped, EMPTY)
        for row, check in enumerate(self._checks):
            self._paint_row(
                painter,
                QRectF(0, row * self._line, self.width() - 8, self._line),
                check,
            )
        painter.end()

    def _paint_row(self, painter: QPainter, area: QRectF, check: HealthCheck) -> None:
        now = theme.current()
        name, color = MARKS[check.ok]
        mark = icons.pixmap(name, color, ICON, self.devicePixelRatioF())
        painter.drawPixmap(
            int(area.left()), int(area.top() + (self._line - ICON) / 2), mark
        )
        strong, plain = theme.font("section"), theme.font("caption")
        painter.setFont(strong)
        painter.setPen(now.text)
        painter.drawText(
            area,
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            check.value,
        )
        room = (
            area.width()
            - ICON
            - 14
            - QFontMetricsF(strong).horizontalAdvance(check.value)
        )
        painter.setFont(plain)
        painter.setPen(now.text2)
        name_text = QFontMetricsF(plain).elidedText(
            check.name, Qt.TextElideMode.ElideRight, room
        )
        painter.drawText(
            area.adjusted(ICON + 6, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, name_text
        )

    def tip_at(self, at: QPoint) -> str:
        row = int(at.y() // self._line)
        if row >= len(self._checks):
            return ""
        check = self._checks[row]
        return f"{check.name}: {check.value}\n{check.detail}"


class HealthCard(ChartCard):
    """The checks of the layer that the page shows."""

    def __init__(self) -> None:
        super().__init__("Health", legend=False)
        self.list = HealthList()
        self.body.addWidget(self.list, 1)


class InsideCard(ChartCard):
    """`wanted(sample)` requests the images of a sample."""

    wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__("Inside", legend=False)
        self.inside: LayerInside | None = None
        self._past: StepLayer | None = None
        self.what = Segmented(
            [("activations", "Activations"), ("filters", "Filters")], "View"
        )
        self.what.changed.connect(lambda _key: self._show())
        self.sample = NumberField(0, minimum=0)
        self.sample.setAccessibleName("Training sample")
        self.sample.setFixedWidth(72)
        self.sample.edited.connect(lambda value: self.wanted.emit(int(value)))
        self.look = icon_button("redo", "Refresh")
        self.look.clicked.connect(lambda: self.wanted.emit(int(self.sample.value())))
        self.tools.addWidget(self.what)
        self.words = FittingLabel("", "caption", "text3", at_right=True)
        self.words.setMinimumWidth(WORDS)
        line = hbox(
            label("Sample", "caption", "text2"),
            self.sample,
            (self.words, 1),
            self.look,
            margins=(0, 2, 12, 4),
            spacing=8,
        )
        self.picture = PictureGrid()
        self.picture.setFixedWidth(78)
        self.grid = PictureGrid()
        self.body.addLayout(line)
        pictures = hbox(self.picture, (self.grid, 1), margins=(0, 0, 12, 4), spacing=12)
        self.body.addLayout(pictures, 1)
        self.show_reason(CHOOSE)

    def show_reason(self, text: str) -> None:
        """Show why there are no images."""
        self.inside = self._past = None
        self.grid.clear()
        self.picture.clear()
        self.words.set_whole(text)
        self.heading.set(note="")

    def show_inside(self, inside: LayerInside) -> None:
        self.inside, self._past = inside, None
        self._show()

    def show_past(self, past: StepLayer) -> None:
        """Show a sample of the batch of a step that was recomputed."""
        self.inside, self._past = past.inside, past
        self._show()

    @property
    def shown_channels(self) -> Channels | None:
        """The channels in the grid."""
        if self.inside is None:
            return None
        return (
            self.inside.channels
            if self.what.value() == "activations"
            else self.inside.filters
        )

    def _show(self) -> None:
        inside = self.inside
        if inside is None:
            return
        short = f"of {inside.count:,}, label {inside.label}"
        text = f"{short}; with {inside.weights}"
        if self._past:
            self.words.set_whole(self._past.note or short, self._past.note or text)
        else:
            self.words.set_whole(text, short=short)
        self._show_sample(inside.picture)
        channels = self.shown_channels
        if channels is None:
            self.grid.clear()
            self.heading.set(
                note="the layer was not executed"
                if self.what.value() == "activations"
                else "no filters to display"
            )
            return
        self.grid.show_numbers(channels.pictures)
        left_out = channels.count - len(channels.pictures)
        self.heading.set(
            note=channels.what + (f"; {left_out:,} more" if left_out else "")
        )

    def _show_sample(self, picture: np.ndarray | None) -> None:
        if (
            picture is None
            or picture.ndim not in (2, 3)
            or (picture.ndim == 3 and picture.shape[0] not in (1, 3))
        ):
            self.picture.setVisible(False)
            return
        self.picture.setVisible(True)
        image = picture[None] if picture.ndim == 2 else picture
        low, high = np.nanmin(image), np.nanmax(image)
        bytes_ = np.nan_to_num((image - low) / max(high - low, 1e-12) * 255).astype(
            np.uint8
        )
        self.picture.show_colors(
            np.repeat(bytes_, 3 // len(bytes_), axis=0).transpose(1, 2, 0)[None]
        )
