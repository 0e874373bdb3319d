"""Where runs are: the target of the next one, a run elsewhere that is watched, and which rank of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QFileDialog, QInputDialog, QMenu

from app.engine import pool
from app.engine.placement import RunPlacement
from app.engine.watched.follow import stand_in
from app.views.actions import Actions
from app.views.run.session import RunSession
from app.views.settings import MOST_PROCESSES
from tapedeck import frames

if TYPE_CHECKING:
    from app.views.workspace import Workspace

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
