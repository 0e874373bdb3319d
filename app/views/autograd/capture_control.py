"""The Autograd tab's dealings with the rest: where its batch and its weights come from, and where its pictures go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.autograd.capture_options import PLAIN_OPTIONS
from app.autograd.playback.memory_timeline import prepare
from app.builder.catalog.catalog import Catalog
from app.data.sources import DataError
from app.diagram.diagram import Drawing
from app.engine.tasks.capture import batch_subject, capture_batch, hold_batch, node_labels
from app.preflight import preflight
from app.project.document import Document
from app.training.job import JobError
from app.views.analysis_service import Live
from app.views.export.picture_export import Pages, PictureExport
from app.views.newest_weights import NewestWeights
from app.views.settings import Settings
from app.views.ui.background import Background, Failure

if TYPE_CHECKING:
    from torch import Tensor

    from app.autograd.batch import Subject
    from app.autograd.tape import Tape
    from app.export.weights_choice import ExportWeights
    from app.training.job import Job
    from app.views.autograd.page import AutogradRoom
    from app.views.autograd.tape.player import Hold


class AutogradControl(QObject):
    """`captured(tape, hold)` brings a graph, and how to run the same batch again and keep it for playing; `failed` a
    Failure where there is none. `said(title, detail)` tells what was done, `refused(title, reason)` what could not be.
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
        # Makes what the newest graph came from ready for detectives: `subject(batch=2)`. None before a capture.
        self.subject: Callable[..., Subject] | None = None
        self.left_out = ""  # what of the options of that capture detectives leave out, as a sentence
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
        newest = cache(self._newest.of(job.source))  # as a run goes on, what looks later has those of the capture
        weights = partial(_state, newest)
        options = self.options
        hold = partial(hold_batch, job, labels, train=train, weights=weights, options=options)
        subject = partial(batch_subject, job, labels, train=train, weights=weights, options=options.looked_into)
        self._background.ask(
            "capture",
            partial(_prepared, newest, train=train, weights=weights, options=options),
            job,
            labels,
            on_answer=partial(self._captured, hold, subject, options.left_out),
            on_error=partial(self._failed, subject, options.left_out),
        )

    def _captured(
        self, hold: Hold, subject: Callable[..., Subject], left_out: str, captured: tuple[Tape, str]
    ) -> None:
        tape, words = captured
        self.subject, self.left_out = subject, left_out
        self._room.set_weights(words)
        self.captured.emit(tape, hold)

    def _failed(self, subject: Callable[..., Subject], left_out: str, failure: Failure) -> None:
        self.subject, self.left_out = subject, left_out
        self.failed.emit(failure)
        random = isinstance(failure.error, DataError | JobError) and self.options.data != "random"
        self._room.show_error("Forward pass failed", str(failure.error), random=random)

    def choose_file(self, drawing: Drawing) -> None:
        """Ask where to, then draw the view as it stands."""
        pages = self.pages if drawing is self._room.drawing() else None  # a snippet's graph asks here too
        self.pictures.choose_file(drawing, "Export the graph", f"{self._document.project.name}-autograd", pages)


def _prepared(
    newest: Callable[[], ExportWeights | None], job: Job, labels: Any, **choices: Any
) -> tuple[Tape, str]:
    """A batch's tape with all that is said of its steps, which the window's thread need not work out then; and which
    weights were taken, in words."""
    from app.export.weights_choice import untrained_words

    tape, found = prepare(capture_batch(job, labels, **choices)), newest()
    words = found.words if found is not None else untrained_words(job.training.seed, job.training.start)
    return tape, f"weights {words}"


def _state(newest: Callable[[], ExportWeights | None]) -> Mapping[str, Tensor] | None:
    found = newest()
    return found.state_dict if found is not None else None
