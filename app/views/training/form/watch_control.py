"""Watch points in the window: the section that sets them, the run that has them, and the banner when one holds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from app.training.choices import ChoiceParam
from app.training.events import Caught, Event, StepDone
from app.training.monitoring.looks import BatchPeek
from app.training.monitoring.watch_points import WatchPoints, from_text, to_text
from app.training.run_requests import ShowCaught
from app.views.fields.form import ParamForm
from app.views.fields.settings_section import FoldingSection
from app.views.run.batch_dialog import BatchDialog
from app.views.run.session import Run
from app.views.training.form.settings_form import TrainingForm
from app.views.ui.deferred_answer import when_done
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.views.workspace import Workspace

LOOK = "Show the batch"


class WatchControl(QObject):
    """Sets the watch points of every run, and reports when one is triggered."""

    def __init__(self, workspace: Workspace, form: TrainingForm) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self.section = WatchSection()
        self.section.show_points(from_text(workspace.settings.watch_points))
        self.section.changed.connect(self._changed)
        self.dialog: BatchDialog | None = None
        self._caught: Caught | None = None
        self._asked: Future | None = None
        self._title = ""
        form.add_section(self.section)
        workspace.session.runStarted.connect(self._run_started)
        workspace.session.told.connect(self._on_events)
        workspace.session.stateChanged.connect(self._state)

    def _changed(self, points: WatchPoints) -> None:
        self._workspace.settings.watch_points = to_text(points)
        self._give()

    def _run_started(self, _run: Run) -> None:
        self._caught = None
        self._give()

    def _give(self) -> None:
        thread = self._workspace.session.training_thread
        if thread is not None:
            thread.pause_at(self.section.points)

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            # Of several at one step the first is shown; the console lists them all.
            if (
                isinstance(event, StepDone)
                and self._caught is not None
                and event.step > self._caught.step
            ):
                self._withdraw()  # another batch was trained on, by Step
            if isinstance(event, Caught) and (
                self._caught is None or self._caught.step != event.step
            ):
                self._show(event)

    def _show(self, caught: Caught) -> None:
        self._caught, self._title = caught, caught.message
        workspace = self._workspace
        reason = "The run is paused. Run resumes it, Step trains one more batch."
        shown, step = workspace.shown_run.figures, caught.step
        stored = shown is not None and shown.folder is not None
        debug: dict[str, Callable[[], object]] = {}
        if stored and workspace.commands.has(key := "debug-this-step"):
            debug[f"Debug step {step:,}"] = lambda: workspace.commands.trigger(
                key, step
            )
        workspace.notifier.warn(self._title, reason, LOOK, self._acted, debug)
        if (
            caught.node is not None
            and caught.node in workspace.document.project.graph.nodes
        ):
            workspace.network_selection.set([caught.node], self)

    def _state(self, state: str) -> None:
        if state != "paused":
            self._withdraw()

    def _withdraw(self) -> None:
        if self._title:
            self._workspace.notifier.withdraw(self._title)
            self._title = ""

    def _acted(self) -> None:
        thread = self._workspace.session.training_thread
        if thread is None or self._asked is not None:
            return
        self._asked = thread.run_between_steps(ShowCaught())
        when_done(self._asked, self, self._show_caught, self._refuse)

    def _refuse(self, error: BaseException | str) -> None:
        self._asked = None
        self._workspace.notifier.refuse("The batch cannot be shown", str(error))

    def _show_caught(self, batch_peek: BatchPeek | None) -> None:
        """Open the dialog once the run has answered."""
        self._asked = None
        if batch_peek is None or self._caught is None:
            self._refuse("The run has resumed and released it.")
            return
        self.dialog = BatchDialog(
            batch_peek, self._caught.message, self._workspace.window
        )
        self.dialog.open()


MEBIBYTE = 1024 * 1024
LOSS = "loss_not_finite"  # in the form, where `not_finite` is a setting of the run
PARAMS = (
    ChoiceParam(
        LOSS,
        "bool",
        False,
        doc="Pauses if the loss is NaN or infinite. The batch is skipped.",
    ),
    ChoiceParam(
        "gradient_norm",
        "float",
        None,
        optional=True,
        minimum=0,
        doc="Pauses if a layer's gradient norm exceeds this; None to disable.",
    ),
    ChoiceParam(
        "dead",
        "float",
        None,
        optional=True,
        minimum=0,
        doc="Pauses if this fraction of a ReLU's units, such as 0.9, is 0 for a whole batch; None to disable.",
    ),
    ChoiceParam(
        "memory_mib",
        "int",
        None,
        optional=True,
        minimum=1,
        doc="Pauses if memory exceeds this many MiB: allocated on the device, or resident for a CPU run; None to "
        "disable.",
    ),
)
WORDS = "The run pauses and reports where. Gradients, dead units and memory are checked on sampled steps."


class WatchSection(FoldingSection):
    """Edits watch points. `changed(WatchPoints)` emits an edit, which applies to an active run immediately."""

    changed = Signal(object)

    def __init__(self) -> None:
        super().__init__("Watch points")
        self.points = WatchPoints()
        self.body_layout.addWidget(label(WORDS, "label", "text3", wrap=True))
        self.form = ParamForm(PARAMS)
        self.form.edited.connect(self._edit)
        self.form.reset.connect(
            lambda name: self._edit(name, False if name == LOSS else None, None)
        )
        self.body_layout.addWidget(self.form)
        self.acted.connect(lambda: self._set_points(WatchPoints()))
        self.show_points(self.points)

    def show_points(self, points: WatchPoints) -> None:
        """Show watch points without emitting `changed`."""
        self.points = points
        memory = None if points.memory is None else points.memory // MEBIBYTE
        self.form.set_values(
            {
                LOSS: points.not_finite,
                "gradient_norm": points.gradient_norm,
                "dead": points.dead,
                "memory_mib": memory,
            }
        )
        texts = ["nan"] * points.not_finite
        texts += (
            [f"gradient {points.gradient_norm:g}"]
            if points.gradient_norm is not None
            else []
        )
        texts += [f"{100 * points.dead:g} % dead"] if points.dead is not None else []
        texts += [f"{memory:,} MiB"] if memory is not None else []
        self.set_summary(", ".join(texts) or "none", bool(texts))

    def _edit(self, name: str, value: Any, _merge: object) -> None:
        if name == "memory_mib":
            points = replace(
                self.points, memory=None if value is None else value * MEBIBYTE
            )
        else:
            threshold = float(value) if type(value) is int else value
            change: dict[str, Any] = {"not_finite" if name == LOSS else name: threshold}
            points = replace(self.points, **change)
        problem = points.problem()
        self.form.set_problem(name, problem)
        if not problem:
            self._set_points(points)

    def _set_points(self, points: WatchPoints) -> None:
        self.show_points(points)
        self.changed.emit(points)
