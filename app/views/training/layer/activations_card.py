"""A layer's activations for one sample, and its filters, as images."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Signal

from app.training.monitoring.looks import Channels, LayerInside, StepLayer
from app.views.run.picture_grid import PictureGrid
from app.views.training.charts.card import ChartCard
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

CHOOSE = "Choose a layer on the canvas, in the gradient map or in the list."

WORDS = 110  # px, at least, for what sample it is


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
