"""The Autograd tab's dealings with the rest: where its batch and its weights come from, and where its pictures go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.autograd.capture_options import PLAIN_OPTIONS
from app.autograd.playback.memory_timeline import prepare
from app.builder.catalog.catalog import Catalog
from app.data.sources import DataError
from app.diagram.diagram import Drawing
from app.engine.requests.capture import Captured, CaptureRequest, WeightsChoice, node_labels
from app.preflight import preflight
from app.project.document import Document
from app.training.job import JobError
from app.util import leftovers
from app.views.analysis_service import Live
from app.views.export.picture_export import Pages, PictureExport
from app.views.newest_weights import NewestWeights
from app.views.settings import Settings
from app.views.ui.background import Background, Failure

if TYPE_CHECKING:
    from app.views.autograd.page import AutogradRoom


class AutogradControl(QObject):
    """`captured(tape, batch)` brings a graph, and the request of the very same batch; `failed` a Failure where there is
    none. `said(title, detail)` tells what was done, `refused(title, reason)` what could not be.
    """

    captured = Signal(object, object)
    failed = Signal(object)
    said = Signal(str, str)
    refused = Signal(str, str)

    def __init__(
        self,
        room: AutogradRoom,
        document: Document,
        catalog: Catalog,
        live: Live,
        newest: NewestWeights,
        background: Background,
        settings: Settings,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._room, self._document, self._catalog = room, document, catalog
        self._live, self._newest, self._background = live, newest, background
        self._settings, self._window = settings, window
        self.options = PLAIN_OPTIONS
        self._folder = leftovers.TemporaryFolder()  # weights of a run under way, as they were for a capture
        # What the newest graph came from, as the diagnostics run it. None before a capture.
        self.diagnosed: CaptureRequest | None = None
        self.left_out = ""  # what of the options of that capture the diagnostics leave out, as a sentence
        self.pictures = PictureExport(background, settings, window)
        self.pages: Pages = {}  # what the net's own graph can be written as beside a picture
        self.pictures.said.connect(self.said)
        self.pictures.refused.connect(self.refused)
        room.captureRequested.connect(self.capture)
        room.exportRequested.connect(self.choose_file)

    def capture(self, train: bool = True) -> None:
        """Run one batch forward, with the weights of the newest run that trained this very net."""
        analysis = self._live.analysis
        if analysis is None or not self._live.up_to_date:
            self._room.show_error("The drawing is still being checked", "Try again in a moment.")
            return
        random = self.options.data == "random"
        if errors := self._live.net_errors if random else self._live.errors:
            fits = self._live.net_runs  # then it is the data, or the loss, that it does not go with
            title = "Net and data do not go together" if fits else "The network cannot run yet"
            self._room.show_error(title, f"{errors[0].message}. {errors[0].reason}", random=fits and not random)
            return
        job = preflight.job(self._document.project, analysis, str(self._settings.data_folder))
        self._room.show_busy("Running one batch forward…")
        labels = node_labels(self._document.project.graph, self._catalog)
        request = CaptureRequest(job, labels, train, options=self.options)
        self._background.ask(
            "capture", _captured, request, self._newest.choice(job.source, Path(self._folder.name)),
            on_answer=self._captured, on_error=partial(self._failed, request),
        )  # fmt: skip

    def _captured(self, captured: Captured) -> None:
        self.diagnosed, self.left_out = captured.request.diagnosed, captured.request.options.left_out
        for file in Path(self._folder.name).iterdir():  # of captures before
            if str(file) != getattr(captured.request.weights, "path", ""):
                file.unlink(missing_ok=True)
        self._room.set_weights(captured.weights)
        self.captured.emit(captured.tape, captured.request)

    def _failed(self, request: CaptureRequest, failure: Failure) -> None:
        self.diagnosed, self.left_out = request.diagnosed, request.options.left_out
        self.failed.emit(failure)
        random = isinstance(failure.error, DataError | JobError) and self.options.data != "random"
        self._room.show_error("Forward pass failed", str(failure.error), random=random)

    def choose_file(self, drawing: Drawing) -> None:
        """Ask where to, then draw the view as it stands."""
        pages = self.pages if drawing is self._room.drawing() else None  # a snippet's graph asks here too
        self.pictures.choose_file(drawing, "Export the graph", f"{self._document.project.name}-autograd", pages)


def _captured(request: CaptureRequest, weights: Callable[[], WeightsChoice]) -> Captured:
    """Run the batch with the newest weights, and work out all that is said of its steps, off the window's thread."""
    from app.engine.tasks.capture import captured

    answer = captured(replace(request, weights=weights()))
    prepare(answer.tape)
    return answer
