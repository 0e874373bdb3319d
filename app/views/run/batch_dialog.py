"""A batch, where a watch point paused or of a step that was recomputed: samples, labels and outputs of the net."""

from __future__ import annotations

import numpy as np
from PySide6.QtWidgets import QScrollArea, QWidget

from app.training.monitoring.looks import BatchPeek
from app.util import formatting
from app.util.columns import Column
from app.util.formatting import shape_text
from app.views.run.picture_grid import PictureGrid
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label

NUMBERS = 6  # of a sample or an output that are written out


class BatchDialog(Dialog):
    """Pictures where the samples are pictures, and a line for each sample in any case."""

    def __init__(
        self, peek: BatchPeek, message: str, parent: QWidget | None = None
    ) -> None:
        super().__init__("The batch", parent)
        self.body.addWidget(label(message, "label", "text2", wrap=True))
        self.notes = label(notes(peek), "caption", "text3", wrap=True)
        self.body.addWidget(self.notes)
        colors = pictures(peek.inputs)
        self.grid: PictureGrid | None = None
        if colors is not None:
            self.grid = PictureGrid()
            self.grid.show_colors(
                colors, [label_of(peek, i) for i in range(len(peek.inputs))]
            )
            area = QScrollArea()
            area.setWidgetResizable(True)
            area.setWidget(self.grid)
            area.setMinimumHeight(220)
            self.body.addWidget(area, 2)
        self.table = Table(columns_of(peek), "Samples of the batch")
        self.table.cells.set_rows(range(len(peek.inputs)))
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.fit_columns()
        self.body.addWidget(self.table, 3)
        self.add_button("Close", default=True).clicked.connect(self.accept)
        self.resize(720, 620)


def notes(peek: BatchPeek) -> str:
    """Return remarks about the batch as a whole."""
    bad = int((~np.isfinite(peek.inputs.reshape(len(peek.inputs), -1))).any(1).sum())
    shown = (
        f"The first {len(peek.inputs)} of {peek.count}"
        if peek.count > len(peek.inputs)
        else f"All {peek.count}"
    )
    texts = [
        f"{shown} samples, {shape_text(peek.inputs.shape[1:], 'one number')} each."
    ]
    if bad:
        texts.append(f"{bad} of them contain non-finite values.")
    if peek.problem:
        texts.append(f"The network failed on them: {peek.problem}")
    elif peek.exact:
        texts.append(
            "Outputs and losses are those of the step, computed again with its weights and random numbers."
        )
    else:
        texts.append(
            "Output and loss are computed with the current weights; dropout masks are resampled."
        )
    return " ".join(texts)


def pictures(inputs: np.ndarray) -> np.ndarray | None:
    """Return the samples as (n, h, w, 3) bytes, each scaled to its own range; None if they are not images."""
    if inputs.ndim == 3 and min(inputs.shape[1:]) > 3:
        inputs = inputs[:, None]
    if inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        return None
    flat = np.nan_to_num(inputs, nan=0.0, posinf=0.0, neginf=0.0).astype(float)
    low, high = flat.min((1, 2, 3), keepdims=True), flat.max((1, 2, 3), keepdims=True)
    scaled = (flat - low) / np.maximum(high - low, 1e-12) * 255
    return np.repeat(scaled.astype(np.uint8), 3 // inputs.shape[1], axis=1).transpose(
        0, 2, 3, 1
    )


def label_of(peek: BatchPeek, index: int) -> str:
    """Return the class or the numbers of a sample."""
    value = peek.labels[index]
    if peek.task == "classes" and np.ndim(value) == 0:
        return (
            peek.classes[int(value)]
            if int(value) < len(peek.classes)
            else str(int(value))
        )
    return _numbers(value)


def _numbers(value: np.ndarray) -> str:
    flat = np.atleast_1d(np.asarray(value)).reshape(-1)
    texts = [formatting.figure(float(number)) for number in flat[:NUMBERS]]
    return ", ".join(texts) + (f", … ({len(flat)})" if len(flat) > NUMBERS else "")


def _range(values: np.ndarray) -> str:
    if not values.size:
        return "no finite value"
    return f"{formatting.figure(float(values.min()))} to {formatting.figure(float(values.max()))}"


def _output_text(peek: BatchPeek, index: int) -> str:
    """Return the output as text: the class with the largest score, or the numbers."""
    output = peek.outputs[index]
    if peek.task == "classes" and np.ndim(output) == 1 and np.isfinite(output).all():
        best = int(output.argmax())
        name = peek.classes[best] if best < len(peek.classes) else str(best)
        return f"{name}: {formatting.figure(float(output[best]))}"
    return _numbers(output)


def columns_of(peek: BatchPeek) -> list[Column]:
    """Return the columns of the samples of a batch, whose rows are their places in it."""
    columns = [
        Column("", lambda at: str(at + 1), value=int),
        Column("Label", lambda at: label_of(peek, at)),
    ]
    if peek.outputs is not None:
        title = "Largest output" if peek.task == "classes" else "Output"
        columns.append(Column(title, lambda at: _output_text(peek, at)))
    if (losses := peek.losses) is not None:
        columns.append(Column("Loss", lambda at: formatting.figure(float(losses[at]))))
    return [*columns, Column("Input", lambda at: _input_text(peek.inputs[at]))]


def _input_text(sample: np.ndarray) -> str:
    finite = np.isfinite(sample)
    short = _numbers(sample) if sample.size <= NUMBERS else _range(sample[finite])
    return short if finite.all() else f"{short}, {int((~finite).sum())} non-finite"
