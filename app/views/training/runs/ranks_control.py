"""Which rank of a script on several ranks is watched: a menu of them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu

from app.views.actions import Actions
from app.views.run.session import RunSession

TIP = "Rank 0 reports its steps; another rank reports once it is selected"


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
        action.setToolTip(TIP)
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
