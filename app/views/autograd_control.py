"""The Autograd tab's dealings with the rest: where its batch and its weights come from, and where its pictures go."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app import preflight
from app.autograd.options import PLAIN_OPTIONS
from app.autograd.stretches import prepare
from app.background import Background, Failure
from app.builder.catalog import Catalog
from app.data.sources import DataError
from app.document import Document
from app.drawing import Drawing
from app.inspection import batch_subject, capture_batch, hold_batch, node_labels
from app.settings import Settings
from app.training.job import JobError
from app.views.live import Live
from app.views.picture_export import Pages, PictureExport
from app.views.training.session import RunSession

if TYPE_CHECKING:
    from app.autograd.subject import Subject
    from app.autograd.tape import Tape
    from app.training.job import Job
    from app.views.autograd.player import Hold
    from app.views.autograd.room import AutogradRoom


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
        session: RunSession,
        background: Background,
        settings: Settings,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._room, self._document, self._catalog = room, document, catalog
        self._live, self._session, self._background = live, session, background
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
        """Run one batch forward, with the weights of the newest run if it trained this very net."""
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
        weights = self._weights(job)
        if weights is not None:
            weights = cache(weights)  # a run goes on: what looks at this batch later has the weights of the capture
        options = self.options
        hold = partial(hold_batch, job, labels, train=train, weights=weights, options=options)
        subject = partial(batch_subject, job, labels, train=train, weights=weights, options=options.looked_into)
        self._background.ask(
            "capture",
            partial(_prepared, train=train, weights=weights, options=options),
            job,
            labels,
            on_answer=partial(self._captured, hold, subject, options.left_out),
            on_error=partial(self._failed, subject, options.left_out),
        )

    def _captured(self, hold: Hold, subject: Callable[..., Subject], left_out: str, tape: Tape) -> None:
        self.subject, self.left_out = subject, left_out
        self.captured.emit(tape, hold)

    def _weights(self, job: Job) -> Any:
        """How to come by trained weights, or None where there are none for this source."""
        run, thread = self._session.current, self._session.thread
        if run is None or thread is None or not run.job.source.same_net(job.source) or run.state == "starting":
            return None
        if run.failed is not None and (thread.result is None or thread.result.state_dict is None):
            return None
        return thread.weights

    def _failed(self, subject: Callable[..., Subject], left_out: str, failure: Failure) -> None:
        self.subject, self.left_out = subject, left_out
        self.failed.emit(failure)
        random = isinstance(failure.error, DataError | JobError) and self.options.data != "random"
        self._room.show_error("Forward pass failed", str(failure.error), random=random)

    def choose_file(self, drawing: Drawing) -> None:
        """Ask where to, then draw the view as it stands."""
        pages = self.pages if drawing is self._room.drawing() else None  # a snippet's graph asks here too
        self.pictures.choose_file(drawing, "Export the graph", f"{self._document.project.name}-autograd", pages)


def _prepared(job: Job, labels: Any, **choices: Any) -> Tape:
    """A batch's tape with all that is said of its steps, which the window's thread need not work out then."""
    return prepare(capture_batch(job, labels, **choices))
