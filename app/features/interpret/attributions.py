"""Attributions of some samples: each one's picture, or tokens, under what speaks for the class and against it."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

from app.features.interpret.values import Attribution, SampleLook
from app.util.formatting import figure
from app.util.language import tr
from app.views.run.picture_grid import image_of
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
    return image_of(pixels)


class _Rows(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.attributions: tuple[Attribution, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Attributions")
        theme.manager().changed.connect(self.update)

    def show_found(self, attributions: tuple[Attribution, ...]) -> None:
        self.attributions = attributions
        self.setAccessibleDescription(
            "; ".join(" ".join(describe(attribution)) for attribution in attributions)
        )
        self._fit()
        self.update()

    def _lines_about(self, attribution: Attribution) -> tuple[list[str], list[str]]:
        """Return the lines on an attribution: the sample and its values."""
        first, second = describe(attribution)
        width = self.width() - 2 * PAD
        return in_lines(first, "label", width).split("\n"), in_lines(
            second, "caption", width
        ).split("\n")

    @staticmethod
    def _line() -> int:
        return round(LINE * theme.manager().scale)

    def _height(self, attribution: Attribution) -> int:
        lines = sum(map(len, self._lines_about(attribution))) + 1
        return lines * self._line() + (
            SIDE
            if attribution.sample.picture is not None or attribution.values.ndim > 1
            else self._lines(attribution) * TOKEN
        )

    def _lines(self, attribution: Attribution) -> int:
        return max(1, -(-len(np.ravel(attribution.values)) // self._tokens_across))

    @property
    def _tokens_across(self) -> int:
        return max((self.width() - 2 * PAD) // 74, 1)

    def _fit(self) -> None:
        self.setFixedHeight(
            max(
                sum(
                    self._height(attribution) + GAP for attribution in self.attributions
                )
                + PAD,
                1,
            )
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, look, top = start(self), theme.current(), float(PAD)
        for attribution in self.attributions:
            height = self._height(attribution)
            if QRectF(0, top, self.width(), height).intersects(QRectF(event.rect())):
                self._paint_one(painter, look, attribution, top)
            top += height + GAP
        painter.end()

    def _paint_one(
        self, painter: QPainter, look: theme.Theme, attribution: Attribution, top: float
    ) -> None:
        tone = (
            look.warn if attribution.steps and not attribution.complete else look.text3
        )
        for lines, role, color in zip(
            self._lines_about(attribution),
            ("label", "caption"),
            (look.text, tone),
            strict=True,
        ):
            for line in lines:
                TextLine(line, role).draw(painter, PAD, top, color)
                top += self._line()
        top += 4
        if attribution.values.ndim == 1:
            self._paint_tokens(painter, look, attribution, top)
            return
        flat = (
            attribution.values.sum(0)
            if attribution.values.ndim == 3
            else attribution.values
        )
        flat = flat.reshape(flat.shape[0], -1)
        left = PAD
        picture = attribution.sample.picture
        over = picture is not None and picture.shape[:2] == flat.shape
        if picture is not None:
            left = self._paint_picture(painter, image_of(picture), None, left, top)
        left = self._paint_picture(painter, signed_image(flat, True), None, left, top)
        if picture is not None and over:
            grey = np.repeat(
                (picture.mean(-1, keepdims=True) * 0.55 + 60).astype(np.uint8), 3, -1
            )
            self._paint_picture(
                painter, image_of(grey), signed_image(flat, False), left, top
            )

    def _paint_picture(
        self,
        painter: QPainter,
        image: QImage,
        over: QImage | None,
        left: float,
        top: float,
    ) -> int:
        scale = SIDE / max(image.width(), image.height())
        area = QRectF(left, top, image.width() * scale, image.height() * scale)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, scale < 1)
        painter.drawImage(area, image)
        if over is not None:
            painter.drawImage(area, over)
        painter.setPen(theme.current().line2)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(area)
        return round(area.right() + GAP)

    def _paint_tokens(
        self, painter: QPainter, look: theme.Theme, attribution: Attribution, top: float
    ) -> None:
        values = np.ravel(attribution.values)
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
                attribution.sample.tokens[number]
                if number < len(attribution.sample.tokens)
                else str(number)
            )
            elided(f"{name}  {value:+.2g}", "caption", 64).draw_in(
                painter, area.left() + 4, area, look.text
            )


def describe(attribution: Attribution) -> tuple[str, str]:
    """Return two lines on an attribution: the sample with its class, and its values."""
    sample = attribution.sample
    first = describe_sample(sample, sample.prediction or attribution.target)
    second = tr(
        "Score of {target}: {score}, strongest colour ±{largest}",
        target=attribution.target,
        score=figure(attribution.score),
        largest=figure(largest_of(attribution)),
    )
    if attribution.layer:
        second += f", {tr('at {layer}', layer=attribution.layer)}"
    parts = [second]
    if attribution.steps:
        sums = tr(
            "they sum to {total}, and the score is {difference} above that at {against}: an error of {error:.2f} % in "
            "{steps:,} steps",
            total=figure(attribution.total),
            difference=figure(attribution.score - attribution.baseline),
            against=attribution.against,
            error=100 * attribution.incompleteness,
            steps=attribution.steps,
        )
        parts.append(sums)
    return first, "; ".join(filter(None, (*parts, attribution.remark)))


def describe_sample(sample: SampleLook, prediction: str) -> str:
    """Return a line on a sample: its number, its label and its prediction; a text that is "" is left out."""
    parts = [tr("Sample {number}", number=sample.number)]
    parts += [tr("labelled {label}", label=sample.label)] if sample.label else []
    parts += [tr("predicted {label}", label=prediction)] if prediction else []
    return ", ".join(parts)


def largest_of(attribution: Attribution) -> float:
    """Return the magnitude that has the strongest colour: of pictures that of the sum over channels."""
    shown = (
        attribution.values.sum(0)
        if attribution.values.ndim == 3
        else attribution.values
    )
    return float(np.abs(shown).max(initial=0.0))


class AttributionView(QScrollArea):
    """The attributions one below the other, under their controls, all scrolled together."""

    def __init__(self, above: QWidget) -> None:
        super().__init__()
        self.rows = _Rows()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        column = QWidget()
        vbox(above, self.rows, 1, on=column, margins=0, spacing=2)
        self.setWidget(column)

    @property
    def attributions(self) -> tuple[Attribution, ...]:
        """What is shown."""
        return self.rows.attributions

    def show_found(self, attributions: tuple[Attribution, ...]) -> None:
        """Show attributions, in their order."""
        self.rows.show_found(attributions)
        self.verticalScrollBar().setValue(0)

    def sizeHint(self) -> QSize:
        return QSize(480, 300)
