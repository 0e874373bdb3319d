"""Attributions of some samples: each one's picture, or tokens, under what speaks for the class and against it."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

from app.features.interpret.values import Attribution
from app.util.formatting import figure
from app.views.ui import theme
from app.views.ui.layouts import vbox
from app.views.ui.widgets.painting import TextLine, box, elided, in_lines, start

SIDE, GAP, LINE, PAD = 132, 10, 17, 12
TOKEN = 22


def signed_image(values: np.ndarray, opaque: bool) -> QImage:
    """Return values (H, W) in the theme's two colours, symmetric about 0, where it is 0 transparent or the panel's."""
    look = theme.current()
    share = np.clip(
        np.nan_to_num(values) / max(float(np.abs(values).max(initial=0.0)), 1e-12),
        -1,
        1,
    )
    ends = np.where(
        (share < 0)[..., None],
        np.array(theme.channels(look.accent)[:3]),
        np.array(theme.channels(look.error)[:3]),
    )
    ground = np.array(theme.channels(look.panel)[:3])
    strength = np.abs(share)[..., None]
    pixels = np.empty((*values.shape, 4), np.uint8)
    pixels[..., :3] = ground + (ends - ground) * strength if opaque else ends
    pixels[..., 3] = 255 if opaque else (strength[..., 0] * 225).astype(np.uint8)
    pixels = np.ascontiguousarray(pixels)
    high, wide = values.shape
    return QImage(
        pixels.data, wide, high, 4 * wide, QImage.Format.Format_RGBA8888
    ).copy()


class _Rows(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[Attribution, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Attributions")
        theme.manager().changed.connect(self.update)

    def show_found(self, found: tuple[Attribution, ...]) -> None:
        self.found = found
        self.setAccessibleDescription(
            "; ".join(" ".join(describe(one)) for one in found)
        )
        self._fit()
        self.update()

    def _lines_about(self, one: Attribution) -> tuple[list[str], list[str]]:
        """Return the lines on an attribution: the sample and its values."""
        first, second = describe(one)
        width = self.width() - 2 * PAD
        return in_lines(first, "label", width).split("\n"), in_lines(
            second, "caption", width
        ).split("\n")

    @staticmethod
    def _line() -> int:
        return round(LINE * theme.manager().scale)

    def _height(self, one: Attribution) -> int:
        lines = sum(map(len, self._lines_about(one))) + 1
        return lines * self._line() + (
            SIDE
            if one.sample.picture is not None or one.values.ndim > 1
            else self._lines(one) * TOKEN
        )

    def _lines(self, one: Attribution) -> int:
        return max(1, -(-len(np.ravel(one.values)) // self._tokens_across))

    @property
    def _tokens_across(self) -> int:
        return max((self.width() - 2 * PAD) // 74, 1)

    def _fit(self) -> None:
        self.setFixedHeight(
            max(sum(self._height(one) + GAP for one in self.found) + PAD, 1)
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, look, top = start(self), theme.current(), float(PAD)
        for one in self.found:
            height = self._height(one)
            if QRectF(0, top, self.width(), height).intersects(QRectF(event.rect())):
                self._paint_one(painter, look, one, top)
            top += height + GAP
        painter.end()

    def _paint_one(
        self, painter: QPainter, look: theme.Theme, one: Attribution, top: float
    ) -> None:
        tone = look.warn if one.steps and not one.complete else look.text3
        for lines, role, color in zip(
            self._lines_about(one), ("label", "caption"), (look.text, tone), strict=True
        ):
            for line in lines:
                TextLine(line, role).draw(painter, PAD, top, color)
                top += self._line()
        top += 4
        if one.values.ndim == 1:
            self._paint_tokens(painter, look, one, top)
            return
        flat = one.values.sum(0) if one.values.ndim == 3 else one.values
        flat = flat.reshape(flat.shape[0], -1)
        place = PAD
        picture = one.sample.picture
        over = picture is not None and picture.shape[:2] == flat.shape
        if picture is not None:
            place = self._paint_picture(painter, _of_picture(picture), None, place, top)
        place = self._paint_picture(painter, signed_image(flat, True), None, place, top)
        if picture is not None and over:
            grey = np.repeat(
                (picture.mean(-1, keepdims=True) * 0.55 + 60).astype(np.uint8), 3, -1
            )
            self._paint_picture(
                painter, _of_picture(grey), signed_image(flat, False), place, top
            )

    def _paint_picture(
        self,
        painter: QPainter,
        image: QImage,
        over: QImage | None,
        place: float,
        top: float,
    ) -> int:
        scale = SIDE / max(image.width(), image.height())
        area = QRectF(place, top, image.width() * scale, image.height() * scale)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, scale < 1)
        painter.drawImage(area, image)
        if over is not None:
            painter.drawImage(area, over)
        painter.setPen(theme.current().line2)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(area)
        return round(area.right() + GAP)

    def _paint_tokens(
        self, painter: QPainter, look: theme.Theme, one: Attribution, top: float
    ) -> None:
        values = np.ravel(one.values)
        largest = max(float(np.abs(values).max(initial=0.0)), 1e-12)
        for number, value in enumerate(values.tolist()):
            row, column = divmod(number, self._tokens_across)
            area = QRectF(PAD + column * 74, top + row * TOKEN, 70, TOKEN - 3)
            color = look.error if value > 0 else look.accent
            box(
                painter,
                area,
                3,
                theme.mix(look.panel, color, 0.75 * abs(value) / largest),
            )
            name = (
                one.sample.tokens[number]
                if number < len(one.sample.tokens)
                else str(number)
            )
            elided(f"{name}  {value:+.2g}", "caption", 64).draw_in(
                painter, area.left() + 4, area, look.text
            )


def _of_picture(picture: np.ndarray) -> QImage:
    whole = np.ascontiguousarray(picture)
    high, wide = whole.shape[:2]
    return QImage(whole.data, wide, high, 3 * wide, QImage.Format.Format_RGB888).copy()


def describe(one: Attribution) -> tuple[str, str]:
    """Return two lines on an attribution: the sample with its class, and its values."""
    sample = one.sample
    label = f", labelled {sample.label}" if sample.label else ""
    first = (
        f"Sample {sample.number}{label}, predicted {sample.prediction or one.target}"
    )
    second = f"Score of {one.target}: {figure(one.score)}, strongest colour ±{figure(largest_of(one))}"
    if one.layer:
        second += f", at {one.layer}"
    if one.steps:
        second += (
            f"; they sum to {figure(one.total)}, and the score is {figure(one.score - one.baseline)} above that at "
            f"{one.against}: an error of {100 * one.incompleteness:.2f} % in {one.steps:,} steps"
        )
    return first, second + (f"; {one.remark}" if one.remark else "")


def largest_of(one: Attribution) -> float:
    """Return the magnitude that has the strongest colour: of pictures that of the sum over channels."""
    shown = one.values.sum(0) if one.values.ndim == 3 else one.values
    return float(np.abs(shown).max(initial=0.0))


class AttributionView(QScrollArea):
    """The attributions one below the other, under their controls, all scrolled together."""

    def __init__(self, above: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = _Rows()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        column = QWidget()
        vbox(above, self.rows, 1, on=column, margins=0, spacing=2)
        self.setWidget(column)

    @property
    def found(self) -> tuple[Attribution, ...]:
        """What is shown."""
        return self.rows.found

    def show_found(self, found: tuple[Attribution, ...]) -> None:
        """Show attributions, in their order."""
        self.rows.show_found(found)
        self.verticalScrollBar().setValue(0)

    def sizeHint(self) -> QSize:
        return QSize(480, 300)
