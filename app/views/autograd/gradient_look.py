"""Inspector section of a gradient: values, histogram, picture, and edits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPaintEvent
from PySide6.QtWidgets import (
    QSizePolicy,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)
from shiboken6 import isValid

from app.autograd.grouping import LayerGroup
from app.autograd.tape import Tape, TapeNode
from app.engine.requests.playback import Edit, GradientInspected
from app.util import formatting
from app.util.formatting import figure
from app.views.autograd.tape.player import Player
from app.views.training.charts.histograms import RunHistogram, RunHistograms
from app.views.ui.inspector import note
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.theme import current, font, mix
from app.views.ui.widgets import Button, ChoiceField, NumberField
from app.views.ui.widgets.numbers import read_number
from app.views.ui.widgets.painting import label, start
from app.views.ui.widgets.section import Section

if TYPE_CHECKING:
    from app.autograd.playback.steps import GradientLook, Picture

KINDS = (
    ("scale", "Scale by"),
    ("zero", "Set to zero"),
    ("clip", "Clip the norm to"),
    ("noise", "Add noise ×"),
    ("ones", "Set to ones"),
    ("value", "Set all to"),
)
WITHOUT = ("zero", "ones")
MOST_PLANES = 16


class PictureView(QWidget):
    """The last two dimensions of the gradient as images, one per channel: blue negative, orange positive, red not
    finite."""

    def __init__(self, pictures: tuple[Picture, ...]) -> None:
        super().__init__()
        self._pictures = pictures[:MOST_PLANES]
        self._images: list[QImage] | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Picture of the gradient")
        more = (
            f"; the first {MOST_PLANES} of {len(pictures)} channels"
            if len(pictures) > MOST_PLANES
            else ""
        )
        self.setToolTip(f"Blue is below 0, orange above, red is NaN or infinite{more}")

    def _cell(self) -> tuple[int, float, float]:
        """Return the number of columns, and the size of an image."""
        count = len(self._pictures)
        across = 1 if count == 1 else 4 if count <= 8 else 8
        width = (max(self.width(), 200) - 2 * (across - 1)) / across
        first = self._pictures[0]
        return (
            across,
            width,
            min(max(width * first.height / max(first.width, 1), 6), 200),
        )

    def sizeHint(self) -> QSize:
        across, _, height = self._cell()
        rows = -(-len(self._pictures) // across)
        return QSize(200, round(rows * (height + 2)))

    def resizeEvent(self, event: QEvent) -> None:
        self.setFixedHeight(self.sizeHint().height())

    def changeEvent(self, event: QEvent) -> None:
        self._images = None

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        if self._images is None:
            table = _colors()
            self._images = [_image(picture, table) for picture in self._pictures]
        across, width, height = self._cell()
        for index, image in enumerate(self._images):
            at = QPointF(index % across * (width + 2), index // across * (height + 2))
            painter.drawImage(QRectF(at.x(), at.y(), width, height), image)
        painter.end()


def _histogram(look: GradientLook) -> RunHistograms:
    view = RunHistograms("No finite value")
    view.setFixedHeight(90)
    view.setAccessibleName("Histogram of the gradient's values")
    view.show_histograms((RunHistogram("gradient", 1, None, look.histogram),))
    return view


def _colors() -> list[int]:
    """Return the colour table from negative to positive; the first entry is for non-finite values."""
    theme = current()
    low, high = theme.series[0], theme.back
    table = [theme.error.rgb()]
    for level in range(1, 256):
        away = (level - 128) / 127
        table.append(
            mix(theme.plot, high if away > 0 else low, min(abs(away), 1.0)).rgb()
        )
    return table


def _image(picture: Picture, table: list[int]) -> QImage:
    image = QImage(
        picture.data,
        picture.width,
        picture.height,
        picture.width,
        QImage.Format.Format_Indexed8,
    ).copy()
    image.setColorTable(table)
    return image


class LookSections:
    """Creates the section, for an inspector's `above`. The result of a request is shown when it arrives."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._open = False
        self._asked: tuple[int, int] | None = None
        self._at: tuple[int, ...] = ()
        self._section: Section | None = None
        player.looked.connect(self._show_stats)

    def __call__(self, tape: Tape, item: TapeNode | LayerGroup) -> Iterator[QWidget]:
        self._section = None
        if not self._player.keeps or isinstance(item, LayerGroup):
            return
        if self._player.is_concealed(item.id):
            return
        player, step = self._player, tape.steps.get(item.id)
        if step is None or step > player.position:
            return
        record = player.record_of(item.id)
        arriving = record.arriving if record is not None else player.arriving
        numbers = [number for number, stats in enumerate(arriving) if stats is not None]
        if not numbers:
            return
        number = (
            self._asked[1]
            if self._asked in [(item.id, output) for output in numbers] and self._asked
            else numbers[0]
        )
        if self._asked != (item.id, number):
            self._asked, self._at = (item.id, number), ()
        section = self._section = Section("Gradient to inspect", opened=self._open)
        section.toggled.connect(self._toggled)
        if len(numbers) > 1:
            choice = ChoiceField(
                [(output, f"output {output}") for output in numbers], number, pairs=True
            )
            choice.edited.connect(lambda chosen: self._request(item.id, chosen, ()))
            section.body_layout.addWidget(choice)
        if self._open:
            player.request_stats(item.id, number, self._at)
        yield section

    def _toggled(self, opened: bool) -> None:
        self._open = opened
        if opened and self._asked is not None:
            self._player.request_stats(*self._asked, self._at)

    def _request(self, node: int, number: int, at: tuple[int, ...]) -> None:
        self._asked, self._at = (node, number), at
        self._player.request_stats(node, number, at)

    def _show_stats(self, looked: GradientInspected) -> None:
        request, section = looked.asked, self._section
        if (
            section is None
            or not isValid(section)
            or self._asked != (request.node, request.output_nr)
        ):
            return
        body = QWidget()
        column = vbox(on=body, margins=0, spacing=6)
        look = looked.look
        if look is None:
            column.addWidget(
                note("This gradient was freed. Step back to this node to see it.")
            )
        else:
            for widget in self._parts(request.node, request.output_nr, look):
                column.addWidget(widget)
        section.set_body(body)

    def _parts(self, node: int, number: int, look: GradientLook) -> Iterator[QWidget]:
        stats = look.stats
        section = self._section
        assert section is not None
        section.set_caption(f"norm {figure(stats.unscaled)}")
        zeros = formatting.share(stats.zeros, 1)
        yield note(
            f"largest {figure(stats.absmax)} · mean {figure(stats.mean)} · {zeros} exactly 0"
        )
        if stats.nonfinite:
            yield label(
                f"{look.nan:,} NaN, {look.positive_inf + look.negative_inf:,} infinite",
                "caption",
                "error",
            )
        if look.leading:
            yield self._chooser(node, number, look)
        if look.pictures:
            yield PictureView(look.pictures)
        yield _histogram(look)
        tape = self._player.tape
        waits = tape is not None and tape.steps[node] >= self._player.position
        if look.rows:
            yield self._table(node, number, look, waits)
        if waits:
            yield self._edit_row(node, number)
            if any(edit[0] == self._player.position for edit in self._player.edits):
                undo = Button("Undo the last edit", icon="undo")
                undo.clicked.connect(self._player.undo_edit)
                yield undo
        else:
            yield note(
                "This node has run. Step back before it to edit its incoming gradient."
            )

    def _chooser(self, node: int, number: int, look: GradientLook) -> QWidget:
        """Return fields for the index into each leading dimension."""
        widget = QWidget()
        row = hbox(label("Shown:", "caption", "text3"), on=widget, margins=0, spacing=6)
        for dimension, size in enumerate(look.leading):
            field = NumberField(look.at[dimension], minimum=0, maximum=size - 1)
            field.setAccessibleName(f"Index in dimension {dimension}")
            field.setToolTip(f"0 to {size - 1} in dimension {dimension}")

            def chosen(value: int, axis: int = dimension) -> None:
                self._request(
                    node, number, (*look.at[:axis], value, *look.at[axis + 1 :])
                )

            field.edited.connect(chosen)
            row.addWidget(field)
        row.addWidget(label(look.where, "formula", "text3"), 1)
        return widget

    def _table(
        self, node: int, number: int, look: GradientLook, editable: bool
    ) -> QWidget:
        """Return a table of the first values, editable while the node has not run."""
        table = QTableWidget(len(look.rows), max(len(row) for row in look.rows))
        table.setFont(font("formula"))
        table.horizontalHeader().hide()
        table.verticalHeader().hide()
        table.setAccessibleName("First elements of the gradient")
        table.setToolTip("Double-click to type another value" if editable else "")
        for row, values in enumerate(look.rows):
            for column, text in enumerate(values):
                item = QTableWidgetItem(text)
                item.setTextAlignment(
                    Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                )
                if not editable:
                    item.setFlags(
                        Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
                    )
                table.setItem(row, column, item)
            table.setRowHeight(row, 20)
        table.resizeColumnsToContents()
        bar = table.horizontalScrollBar().sizeHint().height()
        table.setMinimumWidth(1)
        table.setFixedHeight(20 * len(look.rows) + bar + 4)
        dimensions = len(look.stats.shape)

        def typed(row: int, column: int) -> None:
            index = (
                (*look.at, *[0] * (dimensions - len(look.at) - 2), row, column)
                if dimensions > 1
                else (column,)
            )
            try:
                value = read_number(present(table.item(row, column)).text(), "float")
            except ValueError:
                value = None
            if value is None:  # restore the value
                self._player.request_stats(node, number, look.at)
            else:
                self._player.edit(
                    Edit(
                        node,
                        number,
                        "value",
                        float(value),
                        index[-dimensions:] if dimensions else (),
                    )
                )

        table.cellChanged.connect(typed)
        return table

    def _edit_row(self, node: int, number: int) -> QWidget:
        widget = QWidget()
        row = hbox(on=widget, margins=0, spacing=6)
        kind = ChoiceField(KINDS, "scale", pairs=True)
        kind.setAccessibleName("Change of the gradient")
        amount = NumberField(0.5, "float")
        amount.setAccessibleName("Amount")
        amount.setFixedWidth(66)
        kind.setMinimumWidth(84)
        kind.edited.connect(lambda chosen: amount.setEnabled(chosen not in WITHOUT))
        apply = Button("Change")
        apply.setToolTip("Edit the gradient at this node, then continue")
        apply.clicked.connect(
            lambda: self._player.edit(
                Edit(node, number, kind.value(), float(amount.value()))
            )
        )
        row.addWidget(kind, 1)
        row.addWidget(amount)
        row.addWidget(apply)
        return widget
