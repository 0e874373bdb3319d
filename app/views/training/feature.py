"""Runs in the window: the Run menu, and messages about the run under way."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from app.training.events import Noticed
from app.views.feature import Action, Feature, Submenu
from app.views.run.failures import show_failure
from app.views.training.places import PlacesControl, RanksControl

if TYPE_CHECKING:
    from app.training.events import Event, Failed, Finished
    from app.views.run.session import Run
    from app.views.workspace import Workspace

MOVED_ON = "The network was edited during the run"
WATCH = "A script under `tapedeck run`, which can be paused from here, or the file that train.py --json writes"
PREDICT = "predict"  # the command
LEFT = "The script is no longer watched"
STOPPED_WATCHING = "It continues where it was started. Run, Interrupt the script ends it while it is watched."
STATES = {
    "starting": ("Starting", "run"),
    "waiting": ("Waiting for the first step", "run"),
    "running": ("Training", "run"),
    "paused": ("Paused", "warn"),
    "stopping": ("Stopping", "text2"),
    "failed": ("Stopped by an error", "error"),
    "left": ("No longer watched", "text2"),
}


class RunFeature(Feature):
    rank = 154

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._notice: Noticed | None = None  # the newest of a run elsewhere
        self._said = ""  # of the newest run
        self.places = PlacesControl(workspace)
        self.ranks = RanksControl(
            workspace.session, self.places.watch, workspace.window
        )

    def actions(self) -> Iterable[Action | Submenu]:
        control, placement = self.workspace.run_control, self.places
        return (
            Action(
                "run", "&Run or resume", control.run, "F5", "run", menu="run.control"
            ),
            Action("pause", "&Pause", control.pause, "F6", "pause", menu="run.control"),
            Action(
                "step",
                "&Step one batch",
                control.step,
                "F7",
                "step",
                menu="run.control",
            ),
            Action("stop", "S&top", control.stop, "F8", "stop", menu="run.control"),
            Action(
                "watch-again",
                "&Watch the script again",
                control.watch_again,
                tip="Take up the watching of the newest script, which continues where it was started",
                menu="run.script",
            ),
            Action(
                "script-interrupt",
                "&Interrupt the script",
                control.interrupt_script,
                tip="As Ctrl+C in its terminal does, between two steps",
                menu="run.script",
            ),
            Action(
                "script-save",
                "Save a chec&kpoint of the script",
                control.save_script,
                tip="The state_dicts of its models and optimizers, beside its frames",
                menu="run.script",
            ),
            Action(
                "script-batch",
                "Describe the next &batch of the script",
                control.describe_batch,
                tip="Shapes, dtypes and ranges of the next inputs of its models",
                menu="run.script",
            ),
            Submenu("ranks", "Rank of the s&cript", self.ranks.fill, menu="run.script"),
            Submenu("places", "Run i&n", placement.fill, menu="run.place"),
            Action(
                "watch-run",
                "&Attach to a running job…",
                placement.ask_file,
                tip=WATCH,
                menu="run.place",
            ),
            Action("watch-file", "", placement.watch),
        )

    def begin(self) -> None:
        workspace, notifier, control = (
            self.workspace,
            self.workspace.notifier,
            self.workspace.run_control,
        )
        control.said.connect(self._say)
        workspace.runs_keeper.said.connect(notifier.say)
        for teller in (control, workspace.runs_keeper):
            teller.refused.connect(notifier.refuse)
        control.failed.connect(self._failed)
        control.watch_wanted.connect(self.places.watch)
        workspace.session.finished.connect(self._left)
        control.started.connect(self._run_started)
        control.moved_on.connect(self._moved_on)
        workspace.session.stateChanged.connect(self._run_state)
        workspace.session.told.connect(self._show_notices)
        workspace.session.commandsChanged.connect(
            lambda: self._run_state(workspace.session.state)
        )
        workspace.document.replaced.connect(self._project_replaced)

    def _say(self, title: str, detail: str) -> None:
        """Say what became of a run, with the next step after one that is done."""
        workspace, commands = self.workspace, self.workspace.commands
        session, self._said = workspace.session, title
        done = session.state == "done" and session.owns
        leads = done and commands.has(PREDICT)
        workspace.notifier.say(
            title,
            detail,
            "Predict" * leads,
            (lambda: commands.trigger(PREDICT)) if leads else None,
        )

    def _show_notices(self, events: list[Event]) -> None:
        """Show the newest message about a run as a whole, or of one elsewhere; the console lists them all."""
        elsewhere = self.workspace.session.watched_last
        notices = [
            event
            for event in events
            if isinstance(event, Noticed) and (elsewhere or not event.layer)
        ]
        if notices:
            self._notice = notices[-1]
            self.workspace.notifier.say(self._notice.message)

    def _failed(self, failed: Failed) -> None:
        """Report a failure; those of a series are reported together at its end."""
        run = self.workspace.session.current
        if run is None or run.series is None:
            show_failure(self.workspace, failed, stored=True)

    def _left(self, finished: Finished) -> None:
        """Offer to take up the watching of a script that continues."""
        foreign = not self.workspace.session.owns
        if finished.reason == "left" and foreign and not self.ranks.changes:
            again = self.workspace.run_control.watch_again
            self.workspace.notifier.show(
                "info", LEFT, STOPPED_WATCHING, "Watch again", again
            )

    def _run_started(self, _run: Run) -> None:
        self.workspace.notifier.withdraw()
        self.workspace.notifier.clear()

    def _run_state(self, state: str) -> None:
        progress = self.workspace.session.progress() if state == "paused" else None
        if (
            self._notice is not None
            and progress is not None
            and progress.step != self._notice.step
        ):
            self.workspace.notifier.take_back(self._notice.message)
        status, run = self.workspace.status, self.workspace.session.current
        text, color = STATES.get(state, ("", "text2"))
        started = run.history.started if run else None
        device = started.device if started else ""
        session = self.workspace.session
        if started and started.host and session.owns and session.watched_last:
            device += f" of {started.host}"
        status.set_state(f"{text} on {device}" if device and text else text, color)
        series = (
            f", {run.series.place}"
            if run is not None and run.series is not None
            else ""
        )
        status.set_run(f"Run {run.display_number}{self._rank()}{series}" if run else "")

    def _rank(self) -> str:
        """Return which rank of a script is watched, "" where it has one process."""
        session = self.workspace.session
        watched_rank = next(
            (
                rank
                for rank, path in session.ranks.items()
                if path == session.watched_file
            ),
            None,
        )
        return (
            f", rank {watched_rank} of {len(session.ranks)}"
            if len(session.ranks) > 1 and watched_rank is not None
            else ""
        )

    def _moved_on(self, moved: bool) -> None:
        """Report that the drawing differs from the network in training."""
        if moved:
            reason = "The run continues with its own network. Apply the edits to it, or keep them for the next run."
            commands, key = self.workspace.commands, "apply-edits"
            action = "Apply edits…" if commands.has(key) else ""
            self.workspace.notifier.show(
                "info", MOVED_ON, reason, action, partial(commands.trigger, key)
            )
        else:
            self.workspace.notifier.withdraw(MOVED_ON)

    def _project_replaced(self, _project: object) -> None:
        self.workspace.notifier.take_back(self._said)
        if not self.workspace.session.active:
            self.workspace.status.set_state("")
            self.workspace.status.set_run("")
