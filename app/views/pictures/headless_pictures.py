"""Pictures for the command line: the network, the curves of a run, the autograd graph."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import (
    QEvent,
    QMessageLogContext,
    QSize,
    Qt,
    QtMsgType,
    qInstallMessageHandler,
)
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.diagram.diagram import Drawing
from app.project import file
from app.project.custom_layers import ops_of
from app.project.project import Project
from app.training.history import History
from app.training.job import Job
from app.util import atomic, gc_pause
from app.util.errors import speak_english
from app.views.pictures.printing.painted import png_bytes
from app.views.pictures.printing.paper import Arranged, Choice, Purpose
from app.views.ui import theme

if TYPE_CHECKING:
    from app.autograd.tape import Tape
    from app.builder.results import Analysis

CURVES = QSize(1600, 360)


def application() -> QApplication:
    """Return the QApplication of a command, on the offscreen platform."""
    existing = QApplication.instance()
    if isinstance(existing, QApplication):
        return existing
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    qInstallMessageHandler(_filter_qt_message)
    qt_application = QApplication(["tapedeck"])
    speak_english()
    theme.apply(qt_application, "light")
    return qt_application


def _filter_qt_message(
    _kind: QtMsgType, _context: QMessageLogContext, text: str
) -> None:
    """Print the messages of Qt but two: one that this platform repeats for every window, and that on the locale C."""
    if "propagateSizeHints" not in text and not text.startswith("Detected locale"):
        print(text, file=sys.stderr)


def write_picture(
    drawing: Drawing,
    path: Path,
    purpose: Purpose = "page",
    arranged: Arranged | None = None,
    project: bytes = b"",
) -> str:
    """Write a picture of a drawing; return its size in words. Raises ExportError, OSError."""
    application()
    from app.views.pictures.picture import write

    with _collected_here():
        return write(drawing, path, Choice(purpose, arranged), project).note


def first_that_fits(
    drawings: Sequence[Callable[[], Drawing]],
    purpose: Purpose,
    arranged: Arranged | None,
) -> Drawing:
    """Return the first drawing that fits its paper with readable text; the first of all if none does.

    Each is made by a call, and has fewer boxes than the one before it: of many, few are made and laid out.
    """
    application()
    from app.views.pictures.printing.plate import printed

    choice = Choice(purpose, arranged)
    first = drawings[0]()

    def fits(drawing: Drawing) -> bool:
        return not drawing.boxes or printed(drawing, choice).fits_readably

    if fits(first):
        return first
    fitting, low, high = first, 1, len(drawings)
    while low < high:
        middle = (low + high) // 2
        drawing = drawings[middle]()
        if fits(drawing):
            fitting, high = drawing, middle
        else:
            low = middle + 1
    return fitting


@contextmanager
def _collected_here() -> Iterator[None]:
    """Collect the scenes of a picture on this thread.

    They are reference cycles, and Qt crashes when the collection of another thread, such as a writer of checkpoints,
    destroys them.
    """
    with gc_pause.put_off():
        try:
            yield
        finally:
            gc.collect()


def run_pictures(
    project: Project,
    job: Job,
    history: History,
    folder: Path,
    write_file: Callable[[str, Callable[[], object]], None],
    analyse: Callable[[], Analysis] | None,
    capture: Callable[[], Tape],
) -> None:
    """Draw the network, the curves and the autograd graph of a run into a folder; `write_file(name, draw)` calls each.

    `analyse` and `capture` compute the input of the first, which an opened model does not have, and the last.
    """
    application()
    with _collected_here():
        if analyse is not None:
            write_file(
                "network.png",
                lambda: _network(project, analyse(), folder / "network.png"),
            )
        write_file("curves.png", lambda: _curves(history, job, folder / "curves.png"))
        write_file(
            "autograd.svg", lambda: _autograd(capture(), folder / "autograd.svg")
        )


def _autograd(tape: Tape, path: Path) -> None:
    from app.autograd.pictures.diagram import to_drawing

    write_picture(to_drawing(tape), path)


def _network(project: Project, analysis: Analysis, path: Path) -> None:
    from app.builder.diagram import to_drawing

    drawing = to_drawing(project, ops_of(project), analysis, title=project.name)
    write_picture(drawing, path, project=file.bytes_for(project, path))


def _curves(history: History, job: Job, path: Path) -> None:
    from app.views.training.charts.curves import Curves

    curves = Curves()
    curves.set_history(history, job.source)
    curves.controls.hide()
    _grab(curves, CURVES, path, curves.refresh)


def _grab(widget: Any, size: QSize, path: Path, ready: Callable[[], object]) -> None:
    """Write the widget as a picture, once it has its size."""
    widget.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    widget.resize(size)
    widget.show()
    QGuiApplication.processEvents()
    ready()
    QGuiApplication.processEvents()
    picture = png_bytes(widget.grab())
    widget.close()
    widget.deleteLater()  # else it stays, and a theme that is put on later styles it too
    QGuiApplication.sendPostedEvents(widget, QEvent.Type.DeferredDelete)
    atomic.write_bytes(path, picture)
