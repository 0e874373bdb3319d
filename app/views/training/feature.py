"""Runs in the window: the Run menu, and messages about the run under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QFileDialog, QInputDialog, QMenu

from app.engine import pool
from app.engine.placement import RunPlacement
from app.engine.watched.follow import stand_in
from app.training.events import Noticed
from app.util.language import tr
from app.views.actions import Actions
from app.views.feature import Action, Feature, Submenu
from app.views.run.failures import show_failure
from app.views.run.session import RunSession
from app.views.settings import MOST_PROCESSES
from tapedeck import frames

if TYPE_CHECKING:
    from app.training.events import Event, Failed, Finished
    from app.views.run.session import Run
    from app.views.workspace import Workspace

# --- Where runs are: the target of the next one, a run elsewhere that is watched, and which rank of it

PLACES = (
    ("own", "Runs in a separate &process"),
    ("several", "Runs on &several processes…"),
)
TIPS = {
    "own": "A separate process does not slow down the window. If it crashes, the window stays open and reports why",
    "several": "Splits each batch across several processes on this machine, reachable from it only. "
    "DistributedDataParallel averages their gradients (gloo on the CPU, nccl on CUDA)",
}
BLOCKING_TIP = "CUDA_LAUNCH_BLOCKING=1: errors are reported at the line that caused them, and runs are slower"
IDLE = 2000  # milliseconds after which the window counts as idle, and the fork server is started if none was needed
LINES = "Lines of a run (*.jsonl *.json *.log *.txt);;All files (*)"


class PlacesControl(QObject):
    """The commands of the Run menu for the execution target; it is stored, and applies to the next run."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self._places: dict[str, QAction] = {}
        self._blocking = QAction()
        pool.prepare(later=True)
        self._idle = QTimer(self, singleShot=True, interval=IDLE)
        self._idle.timeout.connect(pool.prepare)
        workspace.live.torch_loaded.connect(lambda _torch: self._idle.start())

    def fill(self, actions: Actions, menu: QMenu) -> None:
        """Put them into their menu."""
        menu.setToolTipsVisible(True)
        self._places = actions.choices(menu, "place", PLACES, self.choose)
        for key, action in self._places.items():
            action.setToolTip(TIPS[key])
        menu.addSeparator()
        self._blocking = actions.add(
            menu,
            "launch-blocking",
            "Wait for every CUDA &kernel",
            self._set_blocking,
            tip=BLOCKING_TIP,
        )
        self._blocking.setCheckable(True)
        self._blocking.setChecked(self._workspace.settings.launch_blocking)
        self._apply()
        self._workspace.settings.changed.connect(self._setting_changed)

    def choose(self, key: str) -> None:
        """Set the execution target of future runs; for several processes, ask how many."""
        settings = self._workspace.settings
        if key != "several":
            settings.processes = 1
        elif count := self._ask_count(max(2, settings.processes)):
            settings.processes = count
        self._apply()  # also where the question was cancelled

    def _ask_count(self, before: int) -> int:
        """Ask for the number of processes; 0 if cancelled."""
        prompt = "Each batch is split across this number of processes on this machine. On CUDA each uses its own GPU."
        count, chosen = QInputDialog.getInt(
            self._workspace.window,
            "Run on several processes",
            prompt,
            before,
            2,
            MOST_PROCESSES,
        )
        return count if chosen else 0

    def _set_blocking(self) -> None:
        self._workspace.settings.launch_blocking = self._blocking.isChecked()

    def _setting_changed(self, name: str) -> None:
        if name in ("processes", "launch_blocking"):
            self._apply()

    def _apply(self) -> None:
        settings = self._workspace.settings
        count = settings.processes
        self._workspace.session.run_next_at(
            RunPlacement(count, settings.launch_blocking)
        )
        self._blocking.setChecked(settings.launch_blocking)
        self._places["own" if count == 1 else "several"].setChecked(True)
        self._places["several"].setText(
            f"Runs on &several processes{f' ({count})' * (count > 1)}…"
        )

    def ask_file(self) -> None:
        """Ask for the file of a run elsewhere, which need not be there yet."""
        script = frames.newest()
        folder = (
            self._workspace.settings.export_folder if script is None else script.parent
        )
        dialog = QFileDialog(
            self._workspace.window, "Attach to a running job", str(folder), LINES
        )
        if script is not None:
            dialog.selectFile(script.name)
        dialog.setFileMode(QFileDialog.FileMode.AnyFile)
        dialog.setLabelText(QFileDialog.DialogLabel.Accept, "Watch")
        if dialog.exec():
            self.watch(Path(dialog.selectedFiles()[0]))
        dialog.deleteLater()

    def watch(self, path: Path) -> None:
        """Show the curves of a run by its JSON lines file."""
        workspace = self._workspace
        if workspace.session.active:
            workspace.notifier.refuse(
                f"{path.name} cannot be watched now",
                "A run is in progress. Stop it first.",
            )
            return

        run = workspace.session.start(stand_in(path), place=RunPlacement(watched=path))
        workspace.pages.show("curves")
        workspace.run_control.started.emit(run)


RANK_TIP = "Rank 0 reports its steps; another rank reports once it is selected"


class RanksControl(QObject):
    """Fills a menu with the ranks of the script that is watched; `watch(path)` watches another."""

    def __init__(
        self, session: RunSession, watch: Callable[[Path], object], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._watch = session, watch
        self._menu: QMenu | None = None
        self._group = QActionGroup(self)
        self._next: Path | None = (
            None  # what is watched once the run under way has ended
        )
        session.commandsChanged.connect(self._show)
        session.stateChanged.connect(self._show)
        session.runEnded.connect(self._go_over)

    @property
    def changes(self) -> bool:
        """Return whether another rank is about to be watched instead."""
        return self._next is not None

    def fill(self, _actions: Actions, menu: QMenu) -> None:
        """Put the ranks into their menu."""
        self._menu = menu
        menu.setToolTipsVisible(True)
        self._show()

    @Slot()
    def _show(self) -> None:
        """List the ranks; the menu is grey where there are none to choose from."""
        menu, session = self._menu, self._session
        if menu is None:
            return
        ranks = session.ranks if session.watches else {}
        menu.menuAction().setEnabled(len(ranks) > 1)
        shown = {action.data(): action for action in self._group.actions()}
        if set(shown) != set(ranks):
            for action in shown.values():
                self._group.removeAction(action)
                menu.removeAction(action)
                action.deleteLater()
            shown = {rank: self._made(rank, menu) for rank in ranks}
        for rank, action in shown.items():
            action.setChecked(ranks[rank] == session.watched_file)

    def _made(self, rank: int, menu: QMenu) -> QAction:
        action = QAction(f"Rank {rank}", menu, checkable=True)
        action.setData(rank)
        action.setToolTip(RANK_TIP)
        action.triggered.connect(lambda: self.choose(rank))
        self._group.addAction(action)
        menu.addAction(action)
        return action

    def choose(self, rank: int) -> None:
        """Watch a rank instead of the one that is watched."""
        path = self._session.ranks.get(rank)
        if path is None or path == self._session.watched_file:
            return
        self._next = path
        self._session.stop()

    @Slot(object)
    def _go_over(self, _run: object) -> None:
        path, self._next = self._next, None
        if path is not None:
            self._watch(path)


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
            tr("Predict") * leads,
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
            self.workspace.notifier.say(self._notice.message, icon="info")
        if self._notice is not None:
            self._run_state(self.workspace.session.state)

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
        self._notice = None
        self._run_state(self.workspace.session.state)

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
        text = f"{text} on {device}" if device and text else text
        status.set_state(self._waits_for(state) or text, color)
        series = (
            f", {run.series.place}"
            if run is not None and run.series is not None
            else ""
        )
        status.set_run(f"Run {run.display_number}{self._rank()}{series}" if run else "")

    def _waits_for(self, state: str) -> str:
        """Return what a run elsewhere has told since its newest step, such as that its job is queued; "" if nothing."""
        session = self.workspace.session
        if self._notice is None or state not in ("waiting", "running"):
            return ""
        progress = session.progress()
        steps = progress.step if progress is not None else 0
        waits = session.watched_last and self._notice.step == steps
        return self._notice.message.removesuffix(".") if waits else ""

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
