"""The page "Playground": the plane with its units and sliders, or of a net that sees pictures its filters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QImage, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QScrollArea, QSlider, QStackedWidget, QWidget

from app.data.own_points import OwnPoint
from app.features.playground.pictures import (
    filter_images,
    picture_image,
    unit_images,
)
from app.features.playground.plane_view import GAP, PlaneView
from app.features.playground.values import Filters, Plane
from app.util.formatting import significant
from app.util.language import marked, tr
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, ChoiceField, EmptyState, Toggle
from app.views.ui.widgets.painting import label

UNIT = 84  # px of the map of a unit
FILTER = 56  # px of a filter, and of what it answers
NOTHING = (
    marked("No plane yet"),
    marked(
        "Run the network, or wait for its weights: each point of the plane gets the colour of the class that the net "
        "sees there."
    ),
)
_gestures = itertools.count()


class GestureSlider(QWidget):
    """A slider over values with its name and the value. `moved(value, gesture)`: a drag is one gesture."""

    moved = Signal(float, str)

    def __init__(self, name: str, values: Sequence[float], tip: str) -> None:
        super().__init__()
        self._values = tuple(values)
        self._gesture = 0
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(0, len(values) - 1)
        self.slider.setAccessibleName(name)
        self.slider.setToolTip(tip)
        self.slider.setMinimumWidth(60)
        self._shown = label("", "caption", "text2")
        self._name = name
        hbox(
            label(name, "caption", "text3"),
            (self.slider, 1),
            self._shown,
            on=self,
            margins=0,
            spacing=6,
        )
        self.slider.sliderPressed.connect(self._begin)
        self.slider.sliderReleased.connect(self._begin)
        self.slider.valueChanged.connect(self._move)
        self._begin()

    def _begin(self) -> None:
        self._gesture = next(_gestures)

    def show_value(self, value: float) -> None:
        """Put the slider at the nearest value, without a word."""
        nearest = min(
            range(len(self._values)), key=lambda at: abs(self._values[at] - value)
        )
        self.slider.blockSignals(True)
        if not self.slider.isSliderDown():
            self.slider.setValue(nearest)
        self.slider.blockSignals(False)
        self._shown.setText(significant(value, 3))

    def _move(self, at: int) -> None:
        value = self._values[at]
        self._shown.setText(significant(value, 3))
        self.moved.emit(value, f"playground {self._name} {self._gesture}")


class PicturesView(QWidget):
    """Small pictures, in rows."""

    def __init__(self, name: str, side: int) -> None:
        super().__init__()
        self._side = side
        self._images: list[QImage] = []
        self._make: Callable[[], list[QImage]] = list
        self.setAccessibleName(name)
        theme.manager().changed.connect(self._draw)

    def show_pictures(self, make: Callable[[], list[QImage]], what: str) -> None:
        """Show the pictures that `make` makes in the theme in force; `what` describes them."""
        self._make = make
        self._draw()
        self.setAccessibleDescription(f"{len(self._images)} {what}")

    def _draw(self) -> None:
        self._images = self._make()
        self.setMinimumHeight(self._rows() * (self._side + GAP))
        self.update()

    @property
    def _across(self) -> int:
        return max(1, (self.width() + GAP) // (self._side + GAP))

    def _rows(self) -> int:
        return math.ceil(len(self._images) / self._across)

    def sizeHint(self) -> QSize:
        return QSize(4 * (self._side + GAP), self._rows() * (self._side + GAP))

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, side = QPainter(self), self._side
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, side >= UNIT)
        painter.setPen(theme.current().line3)
        for number, image in enumerate(self._images):
            row, column = divmod(number, self._across)
            rect = QRectF(column * (side + GAP), row * (side + GAP), side, side)
            painter.drawImage(rect, image)
            painter.drawRect(rect)
        painter.end()


def _scrolled(widget: QWidget) -> QScrollArea:
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(widget)
    return area


class PlaygroundPage(QStackedWidget):
    """The plane, and beside it the units of a chosen layer; or filters.

    `drawing_wanted` asks for points of one's own, `cleared` for none of them, `restart_wanted` for another run.
    """

    drawing_wanted = Signal()
    cleared = Signal()
    restart_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._has_layers = False  # once there were some, the choice is the user's
        self.view = PlaneView()
        self.units = PicturesView("Units of the layer", UNIT)
        self.layer = ChoiceField([("", "No layer")], "", pairs=True)
        self.layer.setAccessibleName("Layer whose units are shown")
        self.points = Toggle("Points")
        self.points.set_value(True)
        self.points.edited.connect(self._show_points)
        self.note = label("", "caption", "text3")
        self.empty = EmptyState("curves", tr(NOTHING[0]), tr(NOTHING[1]))
        self.draw = Button("Draw points", "flat")
        self.draw.setToolTip(
            tr("Points of your own in place of the data, saved in the project")
        )
        self.draw.clicked.connect(lambda: self.drawing_wanted.emit())
        self.clear = Button("Erase all", "flat")
        self.clear.clicked.connect(lambda: self.cleared.emit())
        self.anew = Button("Restart", "flat")
        self.anew.setToolTip(tr("Runs again from new weights (R)"))
        self.anew.clicked.connect(lambda: self.restart_wanted.emit())
        self.rate = GestureSlider(
            "Rate", _rates(), tr("Learning rate, also of a run under way")
        )
        self.noise = GestureSlider(
            "Noise",
            [n / 50 for n in range(51)],
            tr("Noise of the points that are made"),
        )
        self.widths = GestureSlider(
            "Width", range(1, 65), tr("Units of each hidden linear layer")
        )
        area = _scrolled(self.units)
        area.setMinimumWidth(2 * (UNIT + GAP) + 12)  # with the scroll bar
        side = vbox(
            label("Units of", "caption", "text3"), self.layer, (area, 1), spacing=6
        )
        head = hbox(
            self.note, 1, self.draw, self.clear, self.anew, self.points, spacing=8
        )
        sliders = hbox((self.rate, 1), (self.noise, 1), (self.widths, 1), spacing=16)
        plane = hbox((self.view, 3), (side, 1), spacing=16)
        inside = QWidget()
        vbox(head, sliders, (plane, 1), on=inside, margins=12, spacing=4)
        self.addWidget(self.empty)
        self.addWidget(inside)
        self.addWidget(self._make_filters())
        self.set_own(None)

    def _make_filters(self) -> QWidget:
        self.filters = PicturesView("Filters", FILTER)
        self.answers = PicturesView("Answers of the filters", FILTER)
        self.sample = PicturesView("Picture", FILTER)
        self.filters_note = label("", "caption", "text3")
        inside = QWidget()
        vbox(
            self.filters_note,
            label("Filters", "section"),
            self.filters,
            label(tr("What they answer to this picture"), "section"),
            self.sample,
            self.answers,
            1,
            on=inside,
            margins=12,
            spacing=8,
        )
        return _scrolled(inside)

    def _show_points(self, on: bool) -> None:
        self.view.shows_points = on
        self.view.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_R and not event.modifiers():
            self.restart_wanted.emit()
        else:
            super().keyPressEvent(event)

    def set_own(self, points: Sequence[OwnPoint] | None) -> None:
        """Have points of one's own drawn; None for other data."""
        self.view.set_own(points)
        self.draw.setVisible(points is None)
        self.clear.setVisible(points is not None)
        if points is not None and not self.currentIndex():
            self.setCurrentIndex(1)

    def show_plane(self, plane: Plane, names: tuple[str, str], weights: str) -> None:
        """Show a plane; `weights` says whose it is."""
        self.setCurrentIndex(1)
        self.note.setText(weights)
        self.view.show_plane(plane, names)

        def images() -> list[QImage]:
            now = theme.current()
            if plane.units is None:
                return []
            return unit_images(plane.units, now.series, now.plot)

        self.units.show_pictures(images, "units")

    def show_filters(self, shown: Filters, weights: str) -> None:
        """Show filters and what they answer; `weights` says whose they are."""
        self.setCurrentIndex(2)
        self.filters_note.setText(weights)

        def of_weights() -> list[QImage]:
            now = theme.current()
            return filter_images(shown.weights, now.series, now.plot)

        def of_answers() -> list[QImage]:
            now = theme.current()
            return filter_images(shown.answers[..., None], now.series, now.plot)

        self.filters.show_pictures(of_weights, "filters")
        self.answers.show_pictures(of_answers, "answers")
        self.sample.show_pictures(lambda: [picture_image(shown.sample)], "picture")

    def show_reason(self, title: str, reason: str) -> None:
        """Show why there is no plane; points of one's own stay, so that more can be drawn."""
        self.empty.set_text(title, reason)
        if self.view.own is None:
            self.setCurrentIndex(0)
        else:
            self.note.setText(reason)
            self.view.show_plane(None, ("x", "y"))
            self.units.show_pictures(list, "units")

    def set_layers(self, paths: Sequence[str]) -> None:
        """Offer the layers of the net, the first one at first; one that is gone is no longer chosen."""
        chosen = self.layer.value()
        if self.layer.choices() == ("", *paths):
            return
        self.layer.clear_choices()
        self.layer.add_choice("", "No layer")
        for path in paths:
            self.layer.add_choice(path)
        is_first = not self._has_layers and bool(paths)
        self._has_layers = self._has_layers or bool(paths)
        self.layer.set_value(
            paths[0] if is_first else chosen if chosen in paths else ""
        )


def _rates() -> list[float]:
    """Return learning rates from 1e-5 to 10, three a decade."""
    return [digit * 10.0**power for power in range(-5, 1) for digit in (1, 2, 5)] + [
        10.0
    ]
