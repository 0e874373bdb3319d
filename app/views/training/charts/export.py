"""Export of the curves: PNG, SVG, or CSV with the numbers."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from PySide6.QtCore import QBuffer, QPoint, QRect, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from app.training.history import Columns, History
from app.util import atomic
from app.views.pictures.picture import png_bytes
from app.views.ui import theme

SCALE = 2  # pixels of the picture to one of the screen


def save(history: History, charts: QWidget, path: Path, kind: str) -> None:
    """Write a history as "csv", or its charts as "png" or "svg". Raises OSError."""
    atomic.write_bytes(
        path, to_csv(history).encode() if kind == "csv" else picture(charts, kind)
    )


def picture(charts: QWidget, kind: str, title: str = "curves of a run") -> bytes:
    """Return charts as "png" or "svg"."""
    return png(charts) if kind == "png" else svg(charts, title)


def png(charts: QWidget) -> bytes:
    """Return charts as a PNG at twice the screen's resolution."""
    image = QImage(charts.size() * SCALE, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(SCALE)
    image.fill(theme.current().panel)
    charts.render(image, QPoint())
    return png_bytes(image)


def svg(charts: QWidget, title: str) -> bytes:
    """Return charts as SVG with lines and text."""
    size: QSize = charts.size()
    buffer = QBuffer()
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    # Makes text sized in points as large as on the screen.
    generator.setResolution(charts.logicalDpiX())
    generator.setSize(size)
    generator.setViewBox(QRect(QPoint(), size))
    generator.setTitle(f"Tapedeck: {title}")
    painter = QPainter(generator)
    painter.fillRect(QRect(QPoint(), size), theme.current().panel)
    charts.render(painter, QPoint())
    painter.end()
    return bytes(buffer.data().data())


def to_csv(history: History) -> str:
    """Return a row per step in full precision; values measured less often leave the other cells empty.

    The columns are step, epoch, seconds, samples, loss, rate, `rate_<path>` of further parameter groups, the losses of
    several outputs; losses and accuracies at the last step of each epoch; memory in bytes; and `grad_norm:<layer>` for
    each layer.
    """
    steps = history.steps
    table: dict[str, list[str]] = {
        name: _texts(steps[name], whole=name in ("step", "epoch", "samples"))
        for name in ("step", "epoch", "seconds", "samples", "loss", "rate")
    }
    table |= {
        f"rate_{name}": _texts(history.rates_of(name)) for name in history.own_rates
    }
    rows = {int(step): row for row, step in enumerate(steps["step"])}
    for name in ("train_loss", "train_accuracy", "val_loss", "val_accuracy"):
        table[name] = _spread(rows, history.epochs["step"], history.epochs[name])
    for name in history.parts.names[1:]:
        table[name] = _spread(rows, history.parts["step"], history.parts[name])
    for name in history.metrics:
        table[f"val_{name}"] = _spread(
            rows, history.scores["step"], history.scores[name]
        )
    for name in ("allocated", "reserved", "peak", "resident"):
        if _any(history.memory, name):
            table[f"memory_{name}"] = _spread(
                rows, history.memory["step"], history.memory[name], whole=True
            )
    for layer, norms in zip(history.layers, history.gradients.matrix(), strict=True):
        table[f"grad_norm:{layer}"] = _spread(rows, history.gradient_steps, norms)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return out.getvalue()


def _any(columns: Columns, name: str) -> bool:
    return bool(len(columns) and np.isfinite(columns[name]).any())


def _texts(values: np.ndarray, whole: bool = False) -> list[str]:
    return [
        "" if np.isnan(v) else str(int(v)) if whole else repr(float(v))
        for v in values.tolist()
    ]


def _spread(
    rows: dict[int, int], steps: np.ndarray, values: np.ndarray, whole: bool = False
) -> list[str]:
    """Return a column of the table with `values` at their steps."""
    column = [""] * len(rows)
    for step, text in zip(steps.tolist(), _texts(values, whole), strict=True):
        if int(step) in rows:
            column[rows[int(step)]] = text
    return column
