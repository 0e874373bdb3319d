"""Export an HTML replay of a backward pass: of the one that was played, else of the same batch recorded for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from app.autograd.blocks import group_by_block
from app.autograd.grouping import Folded, fold, group_by_layer
from app.autograd.pictures.diagram import draw
from app.autograd.pictures.replay_html import replay_html
from app.autograd.playback.steps import PassResult
from app.autograd.tape import Tape, same_graph
from app.diagram.diagram import Drawing
from app.engine.requests.playback import RecordedPass, RecordRequest
from app.util import atomic
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.autograd.capture_control import AutogradControl
    from app.views.autograd.page import AutogradPage
    from app.views.autograd.tape.player import Player
    from app.views.workspace import Workspace

FILTER = "HTML replay (*.html)"


class ReplayControl(QObject):
    """Writes the net's tape with its graph folded as shown; also offered by the graph's file dialog."""

    def __init__(
        self,
        workspace: Workspace,
        room: AutogradPage,
        player: Player,
        capture: AutogradControl,
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._room, self._player, self._capture = (
            workspace,
            room,
            player,
            capture,
        )
        capture.add_format(".html", FILTER, self.export)

    def ask(self) -> None:
        """Ask where to, then write it."""
        workspace = self._workspace
        if self._room.drawing() is None:
            subject = (
                "a step of the script"
                if workspace.run_control.shows_script
                else "one batch"
            )
            workspace.notifier.say(
                "No graph to replay yet", f"Capture {subject} first."
            )
            return
        start = workspace.settings.export_folder / f"{self._capture.name}-backward.html"
        name, _ = QFileDialog.getSaveFileName(
            workspace.window, "Export an HTML replay", str(start), FILTER
        )
        if name:
            path = Path(name)
            self.export(path if path.suffix else path.with_suffix(".html"))

    def export(self, path: Path) -> None:
        """Write the page: of the pass that was played to its end, edits and all, else of one that is played for it."""
        workspace, player = self._workspace, self._player
        tape, folded, drawing = self._room.tape, self._room.folded, self._room.drawing()
        if tape is None or folded is None or drawing is None:
            return
        workspace.settings.export_folder = path.parent
        write = partial(
            _write, path, f"{self._capture.name}: backward", tape, folded, drawing
        )
        if (
            player.tape is not None
            and same_graph(player.tape, tape)
            and player.position == len(player) > 0
        ):
            ask = partial(write, player.result(), player.tape)
        elif player.batch is not None:
            key = f"replay {path}"
            self._capture.asks.ask(
                key,
                RecordRequest(player.batch),
                on_answer=partial(self._recorded, key, write),
                on_error=self._failed,
            )
            return
        else:
            reason = "The script has continued. Capture its next step and play it to the end before you continue."
            workspace.notifier.refuse("The replay was not written", reason)
            return
        workspace.background.ask(
            f"replay {path}", ask, on_answer=self._written, on_error=self._failed
        )

    def _recorded(
        self, key: str, write: partial[tuple[Path, int, str]], recorded: RecordedPass
    ) -> None:
        ask = partial(_write_recorded, write, recorded)
        self._workspace.background.ask(
            key, ask, on_answer=self._written, on_error=self._failed
        )

    def write(
        self,
        path: Path,
        title: str,
        room: AutogradPage,
        passed: PassResult,
        stopped: str = "",
    ) -> None:
        """Write the page of a pass that is there already, of the graph that a room shows."""
        tape, folded, drawing = room.tape, room.folded, room.drawing()
        if tape is None or folded is None or drawing is None:
            return
        self._workspace.settings.export_folder = path.parent
        ask = partial(_write, path, title, tape, folded, drawing, passed, None, stopped)
        self._workspace.background.ask(
            f"replay {path}", ask, on_answer=self._written, on_error=self._failed
        )

    def _written(self, written: tuple[Path, int, str]) -> None:
        path, steps, stopped = written
        summary = f"{steps:,} steps of the backward pass, in {path.parent}"
        self._workspace.notifier.say(f"Saved {path.name}", stopped or summary)

    def _failed(self, failure: WorkerFailure) -> None:
        self._workspace.notifier.refuse("The replay was not written", failure.message)


def _write_recorded(
    write: partial[tuple[Path, int, str]], recorded: RecordedPass
) -> tuple[Path, int, str]:
    return write(PassResult(recorded.steps.records), recorded.tape, recorded.stopped)


def _write(
    path: Path,
    title: str,
    tape: Tape,
    folded: Folded,
    drawing: Drawing,
    passed: PassResult,
    played: Tape | None = None,
    stopped: str = "",
) -> tuple[Path, int, str]:
    """Write the page; return its path, the number of steps, and why it ended early.

    If another graph was played than was drawn (of a net with data-dependent control flow), that one is drawn.
    """
    if played is not None and not same_graph(played, tape):
        grouped = bool(drawing.groups)
        blocks = any(group.parent for group in folded.groups)
        groups = group_by_block(played) if blocks else group_by_layer(played)
        folded = fold(played, groups, folded.unfolded)
        drawing = draw(played, folded, grouped=grouped)
    text = replay_html(
        played or tape, folded, drawing, passed, title=title, failed=stopped
    )
    atomic.write_text(path, text)
    return path, len(passed.records), stopped
