"""Controller of the backward tape: playback, its views, and the lifetime of its graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QObject

from app.autograd.grouping import LayerGroup
from app.autograd.pictures.diagram import summary
from app.autograd.playback.steps import Stop
from app.autograd.tape import Tape, TapeNode
from app.engine.requests.playback import Trouble
from app.util.formatting import bytes_text
from app.views.autograd.gradient_look import LookSections
from app.views.autograd.gradient_sections import GradientSections
from app.views.autograd.graph.playback_state import PlayedGraph
from app.views.autograd.playback_client import FREED
from app.views.autograd.tape.player import LOADING, PLAYING, Player
from app.views.autograd.tape.step_list import StepList
from app.views.autograd.tape.tape_page import TapePage

if TYPE_CHECKING:
    from app.engine.requests.observe import AnyCapture
    from app.views.autograd.capture_control import AutogradControl
    from app.views.autograd.graph_tab import GraphTab
    from app.views.autograd.page import AutogradPage
    from app.views.autograd.tape.replay_control import ReplayControl
    from app.views.ui.inspector import Sections, TapeInspector
    from app.views.workspace import Workspace

# What is in front of the net's tape beside an added subject: a feature's page, or the kernel's.
BESIDE = ("problems", "curves")
REFRESH = 0.3  # seconds between updates of the inspector while a tape is played


class TapeControl(QObject):
    """Plays the net's tape with a `Player`.

    Its graph is kept from the first step until another batch is captured, another project opened, the window closed, or
    it is released.
    """

    def __init__(
        self,
        workspace: Workspace,
        room: AutogradPage,
        inspector: TapeInspector,
        capture: AutogradControl,
        graphs: GraphTab,
        replay: ReplayControl,
        player: Player,
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._room, self._inspector, self._graphs = (
            workspace,
            room,
            inspector,
            graphs,
        )
        self.player, self.replay, self._capture = player, replay, capture
        self.page = TapePage(player)
        self.graph = PlayedGraph(room, player, self)
        self._norms, self._look = GradientSections(player), LookSections(player)
        inspector.above += [self._of_net(self._norms), self._of_net(self._look)]
        self._refreshed = 0.0
        player.moved.connect(lambda _before, _now: self._refresh())
        self.steps = StepList(player)
        self._before_steps = "layers"  # the page that Steps took the place of
        self._steps_wait = (
            False  # Steps was in front as an added subject took the place of the graph
        )
        self._tape_waits = False  # as was the tape
        workspace.pages.shown.connect(self._page_shown)
        graphs.turned.connect(self._page_shown)
        graphs.turned.connect(self._show_status)
        self._page_shown()
        capture.captured.connect(self._captured)
        workspace.document.replaced.connect(lambda _project: self._released())
        capture.turned.connect(lambda _subject: self._released())
        capture.left.connect(player.leave)
        self.page.captureRequested.connect(
            lambda: workspace.commands.trigger("capture")
        )
        activity = workspace.activity
        activity.concealed.connect(self._conceal)
        player.conceal(activity.parameters)
        player.replaced.connect(room.set_tape)
        player.tape_changed.connect(self._report_tape)
        player.moved.connect(lambda _before, _now: self._report_played())
        player.changed.connect(self._show_status)
        player.changed.connect(lambda: self._refresh(now=True))
        player.state_changed.connect(self._state)
        player.stood.connect(self._stood)
        player.troubled.connect(self._troubled)
        player.graph_released.connect(self._let_go_of)
        application = QCoreApplication.instance()
        if application is not None:  # the playback must end before the program
            application.aboutToQuit.connect(self.close)

    # -- commands ------------------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Bring the graph and the tape to the front."""
        workspace = self._workspace
        workspace.pages.show("autograd")
        self._graphs.show_graph()
        workspace.pages.show("tape")

    def play(self) -> None:
        """Play, or pause what plays; without a tape, capture one first."""
        self.show()
        if self.player.tape is None:
            self._workspace.commands.trigger("capture")
        else:
            self.player.toggle()

    def step(self) -> None:
        self._moving(self.player.step)

    def back(self) -> None:
        self._moving(self.player.back)

    def run_to_selected(self) -> None:
        """Go to where the selected node, or the selected layer's first, runs next."""
        node = self.selected_node()
        if node is not None:
            self._moving(lambda: self.player.run_to(node))

    def break_at_selected(self) -> None:
        """Stop before the selected node, or do so no more."""
        node = self.selected_node()
        if node is not None:
            self.player.toggle_break(node)

    def export_replay(self) -> None:
        """Write a page that plays the backward pass."""
        self.show()
        self.replay.ask()

    def _conceal(self, parameters: frozenset[str], _tensors: frozenset[str]) -> None:
        self.player.conceal(parameters)

    def _report_tape(self) -> None:
        if self.player.tape is not None:
            self._workspace.activity.captured.emit(self.player.tape)

    def _report_played(self) -> None:
        player, tape = self.player, self.player.tape
        if tape is None or not len(player):
            return
        norms = {
            name: record.norm
            for record in player.records
            for name in tape.nodes[record.node].parameters
            if record.norm is not None
        }
        self._workspace.activity.played.emit(player.position / len(player), norms)

    def _moving(self, move: Callable[[], None]) -> None:
        self.show()
        move()

    def selected_node(self) -> int | None:
        """Return the selected backward node; of a layer the one that runs first. Show a message and return None without
        one."""
        tape, room = self.player.tape, self._room
        item = room.item_of(room.scene.current_key())
        if tape is None or item is None:
            self._workspace.notifier.say(
                "Nothing selected",
                "Click a backward node or a layer of the graph first.",
            )
            return None
        return first_of(tape, item)

    def close(self) -> None:
        """Release the graph when the window closes."""
        self.player.release()

    # -- inspecting ----------------------------------------------------------------------------------------------------

    def inspect(self, item: TapeNode | LayerGroup | None) -> None:
        """Show the selection in the net's graph; without one the next node."""
        self._inspector.show_item(self._room.tape, self._item_to_show(item))

    def _item_to_show(
        self, item: TapeNode | LayerGroup | None
    ) -> TapeNode | LayerGroup | None:
        room, player = self._room, self.player
        if (
            item is None
            and player.keeps
            and room.tape is not None
            and player.next_node is not None
        ):
            return room.tape.nodes[player.next_node]
        return item

    def _of_net(self, give: Sections) -> Sections:
        """Limit sections to the net's own graph, not that of an added subject."""
        return lambda tape, item: give(tape, item) if tape is self._room.tape else ()

    def _refresh(self, now: bool = False) -> None:
        """Show new results: at once when paused, at a limited rate during playback."""
        workspace, player = self._workspace, self.player
        if not workspace.pages.is_front("autograd") or self._graphs.beside:
            return
        since = time.monotonic() - self._refreshed
        if not now and (
            player.state != PLAYING or player.speed is None or since < REFRESH
        ):
            return
        self._refreshed = time.monotonic()
        selected = self._room.item_of(self._room.scene.current_key())
        to_show = self._item_to_show(selected)
        if (
            to_show is self._inspector.shown_item() or not now
        ):  # while it plays, what is shown stays
            self._inspector.refresh()
        else:
            self._inspector.show_item(self._room.tape, to_show)

    # -- what happened -------------------------------------------------------------------------------------------------

    def _captured(self, tape: Tape, batch: AnyCapture) -> None:
        self.player.release()  # its reports are of the previous tape
        self._room.set_tape(tape)
        self.player.set_tape(tape, batch, self._capture.engine)

    def _released(self) -> None:
        """Release the graph of what was shown before; a process that ends with it says nothing more."""
        self.player.set_tape(None)
        self._workspace.status.set_graph_memory("")

    def _page_shown(self, key: str = "") -> None:
        """Show the steps with the graph and the outline with the canvas; there is no room for both."""
        pages = self._workspace.pages
        if key == "steps" and self._graphs.shows_added and not self._steps_wait:
            self._graphs.show_graph()
            return
        here = pages.is_front("autograd") and not self._graphs.beside
        if key in ("layers", "outline"):
            self._before_steps = key
        if here and pages.is_front("outline"):
            pages.turn_to("steps")
        elif not here and pages.is_front("steps"):
            added = pages.is_front("autograd")  # which replaces the graph
            self._steps_wait = added
            pages.turn_to("layers" if added else self._before_steps)
        elif here and self._steps_wait:
            self._steps_wait = False
            pages.turn_to("steps")
        self._turn_tape(key == "tape")
        pages.set_offered("steps", pages.is_front("autograd"))
        pages.set_offered("outline", not pages.is_front("autograd"))

    def _turn_tape(self, requested: bool) -> None:
        """Put the net's tape behind another page beside an added subject, which has its own; where it is `requested`,
        it comes with the net's graph."""
        pages = self._workspace.pages
        beside = self._graphs.shows_added
        if beside and requested and not self._tape_waits:
            self._graphs.show_graph()
            return
        if beside and pages.is_front("tape"):
            self._tape_waits = True
            pages.turn_to(*BESIDE)
        elif not beside and self._tape_waits:
            self._tape_waits = False
            if any(map(pages.is_front, BESIDE)):
                pages.turn_to("tape")

    def _state(self, state: str) -> None:
        pages = self._workspace.pages
        if state == LOADING and pages.is_front(
            "layers"
        ):  # nothing can be put into a graph that is played
            pages.turn_to("steps")
        self._show_status()

    def _stood(self, _stop: Stop) -> None:
        self._room.clear_error(
            FREED
        )  # it is there again, as another was run for the movement
        self._show_status()
        self._refresh(now=True)

    def _troubled(self, trouble: Trouble) -> None:
        self._room.show_error(trouble.title, trouble.reason)
        if trouble.traceback:
            self._workspace.notifier.show_unexpected(
                f"{trouble.title}: {trouble.reason}", trouble.traceback
            )
        if trouble.node is not None:
            self._room.reveal(trouble.node)

    def _let_go_of(self, alive: int) -> None:
        if (
            not self.player.keeps and self.player.tape is not None
        ):  # else it was of a project that is closed
            self._workspace.status.set_graph_memory(
                f"Inspection holds {bytes_text(alive)}"
            )

    def _show_status(self) -> None:
        """Update the status line, and the graph's header when its numbers are of a newer batch."""
        player, status, room = self.player, self._workspace.status, self._room
        tape = player.tape
        if (
            tape is not None
            and tape is not room.tape
            and player.state not in (LOADING,)
            and room.tape is not None
        ):
            room.head.set_summary(summary(tape), tape)
        if not player.keeps or self._graphs.beside:
            status.set_tape("")
            return
        status.set_tape(_where(player))
        if player.kept:
            status.set_graph_memory(
                f"Inspection holds {bytes_text(player.kept)} until the graph is freed"
            )


def first_of(tape: Tape, item: TapeNode | LayerGroup) -> int:
    """Return a node, or of a layer the one that runs first in backward."""
    if isinstance(item, TapeNode):
        return item.id
    return min(item.nodes, key=tape.steps.__getitem__)


def _where(player: Player) -> str:
    if player.state == LOADING:
        return "Running the batch again"
    if player.state == PLAYING:
        return "Playing backward"
    if player.next_node is None:
        return "Backward finished"
    return f"Paused before step {player.position + 1:,}"
