"""Controller of captures: where batch and weights come from, and export of the graph's picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from app.autograd.capture_options import PLAIN_OPTIONS, CaptureOptions
from app.autograd.playback.memory_timeline import prepare
from app.data.sources import DataError
from app.diagram.diagram import Drawing
from app.engine.protocol import EngineDiedError
from app.engine.requests.capture import (
    Captured,
    CapturedStep,
    CaptureRequest,
    HeldStep,
    WeightsChoice,
    node_labels,
)
from app.engine.requests.observe import CapturedModel, ModelCapture
from app.preflight import preflight
from app.training.job import JobError
from app.util import formatting, leftovers
from app.views.autograd.opened_model import OpenedModel
from app.views.autograd.script_step import HELD, NONE, WAITING, ScriptStep
from app.views.pictures.picture_export import Pages, PictureExport
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.autograd.tape import Tape
    from app.engine.client import Engine
    from app.engine.requests.observe import AnyCapture, Observe
    from app.views.autograd.page import AutogradPage
    from app.views.engine_service import EngineService, OwnEngineService
    from app.views.workspace import Workspace


CAPTURE = "capture"  # the key of the question
NET, MODEL, SCRIPT = (
    "net",
    "model",
    "script",
)  # what is captured: the drawn net, the opened model, a script's step
GO_ON, NEXT = "Continue", "Capture next step"
STEP_HINT = "The script runs until it calls backward and pauses there."
STANDS = (
    "It continues when you choose Continue, capture something else or close the window."
)
LEFT = "Its tape and the steps played so far stay here."
FEW = 500  # nodes whose steps are described within a few milliseconds


class AutogradControl(QObject):
    """Captures graphs, of the drawn net, of an opened model and of a watched script. `captured(tape, batch)` emits a
    graph and the request of its batch, `failed` a WorkerFailure, `turned` the `subject` that is shown from then on,
    `measured` the `CapturedModel` of a model, `left` that the graph that is shown can no longer be played.
    """

    captured = Signal(object, object)
    failed = Signal(object)
    turned = Signal(str)
    measured = Signal(object)
    left = Signal()

    def __init__(self, workspace: Workspace, room: AutogradPage) -> None:
        super().__init__(workspace.window)
        self._room, self._document, self._catalog = (
            room,
            workspace.document,
            workspace.catalog,
        )
        self._live, self._newest, self._background = (
            workspace.live,
            workspace.newest_weights,
            workspace.background,
        )
        self._engine, self._settings = workspace.engine, workspace.settings
        self.options = PLAIN_OPTIONS
        self._folder = (
            leftovers.TemporaryFolder()
        )  # a run's weights, as they were at a capture
        # The request of the newest graph, as the diagnostics run it. None before a capture.
        self.diagnosed: AnyCapture | None = None
        self.shows_step = (
            False  # that of a script or of a stored run, which ran as it did
        )
        self.left_out = ""  # what of the options of that capture the diagnostics leave out, as a sentence
        self.pictures = PictureExport(workspace)
        self._formats: Pages = {}  # formats of the net's own graph besides pictures
        self.subject = NET
        self.opened: OpenedModel | None = None
        self._session, self._run_control = workspace.session, workspace.run_control
        self.script = ScriptStep(workspace.session, workspace.background, self)
        workspace.session.stateChanged.connect(self._run_state)
        self.script.captured.connect(self._step_captured)
        self.script.refused.connect(self._step_refused)
        self.script.gone.connect(self._script_gone)
        room.standing.chosen.connect(self._standing_chosen)
        self._step: HeldStep | None = None  # the newest of a script
        # The newest graph of each subject, with its request and the words on its weights.
        self._newest_of: dict[str, tuple[Tape, AnyCapture, str]] = {}
        self._refused = (
            False  # the page says that the drawing as it was could not be captured
        )
        room.captureRequested.connect(self.capture)
        room.cancelled.connect(self.cancel)
        room.placeRequested.connect(workspace.jump_to)
        room.exportRequested.connect(self.choose_file)

    def add_format(
        self, ending: str, title: str, write: Callable[[Path], None]
    ) -> None:
        """Offer another form of file for the net's own graph."""
        self._formats[ending] = (title, write)

    def set_options(self, options: CaptureOptions) -> None:
        """Capture with other options from now on."""
        self.options = options

    @property
    def waits(self) -> bool:
        """Return whether a capture is running or queued."""
        return self._background.pending(CAPTURE) or self._engine.pending(CAPTURE)

    def forget(self) -> None:
        """Drop the captured request, and a batch under way, of another project."""
        self._drop_capture()
        self.diagnosed = None
        self._newest_of.clear()

    # -- subjects

    @property
    def asks(self) -> EngineService:
        """The engine that has what the newest graph came from."""
        return self._own or self._engine

    @property
    def engine(self) -> Engine | None:
        """The engine of an opened model or of a script while that is shown; None for the shared one."""
        service = self._own
        return service.engine if service is not None else None

    @property
    def _own(self) -> OwnEngineService | None:
        services = {
            MODEL: self.opened.service if self.opened is not None else None,
            SCRIPT: self.script.service,
        }
        return services.get(self.subject)

    @property
    def name(self) -> str:
        """The name of what is captured, for files."""
        if self.opened is not None and self.subject == MODEL:
            return self.opened.model.source.name.rpartition("/")[2]
        if self.subject == SCRIPT and self._step is not None:
            return Path(self._step.script).stem
        return self._document.title

    def turn_to(self, subject: str) -> None:
        """Show the newest graph of the net, of the opened model or of a script."""
        if subject == self.subject or (subject == MODEL and self.opened is None):
            return
        self._drop_capture()
        self.subject = subject
        self.turned.emit(subject)
        self._room.standing.setVisible(
            subject == SCRIPT and bool(self._room.standing.title())
        )
        if (newest := self._newest_of.get(subject)) is not None:
            self._show(*newest)
        else:
            self.diagnosed, self.left_out = None, ""

    def open(self, model: Observe, train: bool) -> None:
        """Capture an opened model, in the mode in which it was observed."""
        if self.opened is None or self.opened.model != model:
            self._close_model()
            self.subject = (
                NET  # so that what the page shows of another model is emptied
            )
            self.opened = OpenedModel(model, self._background, self)
            self._newest_of.pop(MODEL, None)
        self.turn_to(MODEL)
        self._room.head.set_mode(train)
        self.capture(train)

    def close(self) -> None:
        """End the process of an opened model, and let a script continue."""
        self.script.close()
        self._close_model()

    def _close_model(self) -> None:
        if self.opened is not None:
            self.opened.close()
            self.opened.deleteLater()
            self.opened = None

    def capture(self, train: bool = True) -> None:
        """Run the opened model, or one batch forward through the net, with the weights of the newest run that trained
        this very net; where there is a script and no net, capture its next step."""
        if self.subject == SCRIPT or (
            self.subject == NET and self._run_control.script_alone
        ):
            self.capture_step()
            return
        self.go_on()
        if self.subject == MODEL and self.opened is not None:
            self._room.show_busy("Constructing the model…")
            model = ModelCapture(self.opened.model, train, self.options)
            self.opened.capture(
                model,
                self._model_captured,
                partial(self._failed, model),
                self._room.show_busy,
            )
            return
        if self._live.unfinished is not None:
            self._room.show_busy(f"{self._live.unfinished[0]}…")
        self._live.when_checked(
            CAPTURE, partial(self._capture_net, train), self._not_checked
        )

    def _not_checked(self, reason: str) -> None:
        self._room.show_error("No batch was run", reason)

    def _drop_capture(self) -> None:
        """Cancel the capture under way, wherever it is."""
        for requests in (self._live, self._background, self._engine, self.asks):
            requests.forget(CAPTURE)

    def _capture_net(self, train: bool) -> None:
        analysis = self._live.analysis
        if self._refuses() or analysis is None:
            return
        job = preflight.job(
            self._document.project, analysis, str(self._settings.data_folder)
        )
        self._room.show_busy("Running the forward pass…")
        labels = node_labels(self._document.project.graph, self._catalog)
        request = CaptureRequest(job, labels, train, options=self.options)
        self._drop_capture()
        if not self._newest.of_this_window(job.source):
            self._ask(
                request, self._newest.choice(job.source, Path(self._folder.name))()
            )
            return
        self._background.ask(
            CAPTURE,
            self._newest.choice(job.source, Path(self._folder.name)),
            on_answer=partial(self._ask, request),
            on_error=partial(self._failed, request),
        )

    def _refuses(self) -> bool:
        """Return whether the drawing cannot be captured as it is, and say why."""
        self._refused = True
        random = self.options.data == "random"
        if errors := self._live.net_errors if random else self._live.errors:
            first, fits = (
                errors[0],
                self._live.net_runs,
            )  # then it is the data, or the loss, that it does not go with
            title = (
                "Network and data do not match"
                if fits
                else "The network cannot run yet"
            )
            node = (
                self._document.project.graph.nodes.get(first.node)
                if first.node is not None
                else None
            )
            self._room.show_error(
                title,
                f"{first.message}. {first.reason}",
                random=fits and not random,
                node=node.id if node is not None else "",
                name=node.name if node is not None else "",
            )
            return True
        self._refused = False
        return False

    def check_again(self) -> None:
        """After another analysis of the drawing say no longer what was wrong with it before."""
        if self._refused and self.subject == NET and self._live.up_to_date:
            if not self._room.banner.isVisibleTo(self._room):
                self._refused = False
            elif not self._refuses():
                self._room.banner.hide()

    def cancel(self) -> None:
        """End the capture under way: the engine stops at the next operation, and the page is as it was before."""
        if self.subject == SCRIPT:
            if self.script.state == WAITING:
                self.script.release()
        else:
            self._drop_capture()
            if self.subject == MODEL and self.opened is not None:
                self.opened.cancel()
        self._room.show_idle()

    def _ask(self, request: CaptureRequest, weights: WeightsChoice) -> None:
        request_with_weights = replace(request, weights=weights)
        self._engine.ask(
            CAPTURE,
            request_with_weights,
            on_answer=self._on_answer,
            on_error=partial(self._failed, request_with_weights),
        )

    def _on_answer(self, captured: Captured) -> None:
        """Describe all steps of the graph, of a large one on a worker."""
        if len(captured.tape.nodes) <= FEW:
            self._captured(captured)
            return
        self._background.ask(
            CAPTURE,
            prepare,
            captured.tape,
            on_answer=lambda _tape: self._captured(captured),
        )

    def _captured(self, captured: Captured) -> None:
        for file in Path(self._folder.name).iterdir():  # of captures before
            if str(file) != getattr(captured.batch.weights, "path", ""):
                file.unlink(missing_ok=True)
        self._show(captured.tape, captured.batch, captured.weights)

    def _model_captured(self, captured: CapturedModel) -> None:
        description = f"{captured.batch.model.source}, weights from its constructor"
        show = partial(self._show, captured.tape, captured.batch, description)
        self.measured.emit(captured)
        if len(captured.tape.nodes) <= FEW:
            show()
        else:
            self._background.ask(
                CAPTURE, prepare, captured.tape, on_answer=lambda _tape: show()
            )

    # -- steps of runs and scripts

    def show_step(self, tape: Tape, step_handle: HeldStep) -> None:
        """Show a step of a run as it was recomputed, in place of the drawn net's newest graph."""
        self.turn_to(NET)
        self.go_on()
        self._drop_capture()
        description = f"step {step_handle.step:,} of {step_handle.script}"
        show = partial(self._show, tape, step_handle, description)
        if len(tape.nodes) <= FEW:
            show()
        else:
            self._background.ask(CAPTURE, prepare, tape, on_answer=lambda _tape: show())

    def capture_step(self) -> None:
        """Capture the next step of the watched script, which pauses there until `go_on`."""
        self.turn_to(SCRIPT)
        self._keep_played()
        self._room.standing.hide()
        self._room.show_busy("Waiting for the next backward of the script…", STEP_HINT)
        self.script.capture()

    def go_on(self) -> None:
        """Let a paused script, or one about to pause, continue; the steps played so far stay."""
        if self.script.state == HELD:
            self._keep_played()
        elif self.script.state == WAITING:
            self._room.show_idle()
        self.script.release()

    def _keep_played(self) -> None:
        if self.subject == SCRIPT:
            self.left.emit()

    def _step_captured(self, step: CapturedStep, step_handle: HeldStep) -> None:
        self._step = step_handle
        self.turn_to(SCRIPT)
        if len(step.tape.nodes) <= FEW:
            self._show_step(step, step_handle)
        else:
            self._background.ask(
                CAPTURE,
                prepare,
                step.tape,
                on_answer=lambda _tape: self._show_step(step, step_handle),
            )

    def _show_step(self, step: CapturedStep, step_handle: HeldStep) -> None:
        self._show(
            step.tape, step_handle, f"step {step_handle.step:,} of {step_handle.script}"
        )
        loss = (
            f", loss {formatting.figure(step.tape.loss)}"
            if step.tape.loss is not None
            else ""
        )
        title = f"{step_handle.script} is paused before backward of step {step_handle.step:,}{loss}"
        reason = " ".join(f"{note[0].upper()}{note[1:]}." for note in step.notes)
        self._room.show_standing(
            "warning", title, f"{reason} {STANDS}".strip(), GO_ON, NEXT
        )

    def _script_gone(self) -> None:
        step_handle = self._step
        assert step_handle is not None
        self._newest_of.pop(SCRIPT, None)
        title = f"{step_handle.script} has continued after step {step_handle.step:,}"
        self._room.show_standing("info", title, LEFT, NEXT)
        self._room.standing.setVisible(self.subject == SCRIPT)
        if self.subject == SCRIPT:
            self.left.emit()

    def _run_state(self, state: str) -> None:
        """Withdraw the message that the script has continued after a step once it is paused at a later one."""
        progress = self._session.progress() if state == "paused" else None
        if (
            progress is not None
            and self.script.state == NONE
            and self._step is not None
        ):
            if progress.step != self._step.step:
                self._room.standing.hide()

    def _step_refused(self, reason: str) -> None:
        self._room.standing.hide()
        self._room.show_error("No step was captured", reason)

    def _standing_chosen(self, text: str) -> None:
        if text == GO_ON:
            self.go_on()
        else:
            self.capture_step()

    def _show(self, tape: Tape, batch: AnyCapture, weights: str) -> None:
        self._newest_of[self.subject] = tape, batch, weights
        self.shows_step = isinstance(batch, HeldStep)
        self.diagnosed, self.left_out = batch.diagnosed, batch.options.left_out
        self._room.set_weights(weights)
        self.captured.emit(tape, batch)

    def _failed(self, request: AnyCapture, failure: WorkerFailure) -> None:
        if isinstance(failure.error, EngineDiedError):
            self._room.show_error(
                "The forward pass did not finish", f"{failure.message} Capture again."
            )
            return
        self.diagnosed, self.left_out = request.diagnosed, request.options.left_out
        self.failed.emit(failure)
        random = (
            isinstance(failure.error, DataError | JobError)
            and self.options.data != "random"
        )
        self._room.show_error("Forward pass failed", failure.message, random=random)

    def choose_file(self, drawing: Drawing) -> None:
        """Ask for a path, then draw the current view."""
        pages = (
            self._formats if drawing is self._room.drawing() else None
        )  # a snippet's graph asks here too
        project = (
            self._document.project
            if pages is not None and not self.shows_step
            else None
        )
        self.pictures.choose_file(
            drawing, "Export the graph", f"{self.name}-autograd", pages, project
        )
