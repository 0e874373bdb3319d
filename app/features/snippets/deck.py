"""Transport controls below a snippet's graph: play and step through its recorded backward pass."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.features.snippets.recorded_player import RecordedPlayer
from app.features.snippets.values import TensorGraph
from app.util.formatting import bytes_text, figure
from app.views.autograd.tape.player import EMPTY, PLAYING
from app.views.autograd.tape.tape_page import SPEEDS
from app.views.ui.layouts import hbox
from app.views.ui.present import present
from app.views.ui.widgets import BackwardTransport, ChoiceField
from app.views.ui.widgets.painting import label

SLOW = 4.0  # steps a second at first: graphs of snippets are small
NARROW = 440  # px below which what runs next is worth more than the choice of a speed


class SnippetDeck(QWidget):
    """Plays the shown graph, and shows what runs next, or why nothing can be played."""

    def __init__(self, player: RecordedPlayer) -> None:
        super().__init__()
        self.player = player
        self._stopped = ""
        self._parts: list[str] = []
        self.deck = BackwardTransport()
        self.count = label("", "counter")
        self.words = label("", "label", "text2")
        self.words.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.speed = ChoiceField(SPEEDS, SLOW, pairs=True)
        self.speed.setAccessibleName("Speed of playing")
        self.speed.setToolTip("Steps per second while playing")
        self.speed.setFixedWidth(78)
        self.speed.setMinimumContentsLength(3)
        player.set_speed(SLOW)
        hbox(
            self.deck,
            self.count,
            (self.words, 1),
            self.speed,
            on=self,
            margins=(10, 5, 10, 5),
            spacing=8,
        )
        self.deck.to_start.connect(lambda: player.seek(0))
        self.deck.step_back.connect(player.back)
        self.deck.step.connect(player.step)
        self.deck.run.connect(player.toggle)
        self.deck.to_end.connect(lambda: player.seek(len(player)))
        self.speed.edited.connect(player.set_speed)
        player.moved.connect(lambda _before, _now: self._update())
        player.state_changed.connect(lambda _state: self._update())
        player.changed.connect(self._update)
        self.set_graph(None)

    def set_graph(self, graph: TensorGraph | None) -> None:
        """Play the pass of this graph."""
        self._stopped = graph.stopped if graph is not None else ""
        played = graph.played if graph is not None else None
        if graph is not None and played is None and not self._stopped:
            self._stopped = "Name the tensor that backward() starts from to play it."
        self.setVisible(graph is not None)
        self.player.set_pass(graph.tape if graph is not None else None, played)
        self._update()

    def _update(self) -> None:
        player, tape = self.player, self.player.tape
        blocked = player.state == EMPTY or tape is None or not len(player)
        at_end = player.position >= len(player)
        state = (
            "running"
            if player.state == PLAYING
            else "at_start"
            if not player.position
            else "at_end"
            if at_end
            else "ready"
        )
        self.deck.set_state("blocked" if blocked else state)
        self.count.setVisible(not blocked)
        self.speed.setVisible(not blocked and self.width() >= NARROW)
        if blocked or tape is None:
            self._show_status([self._stopped])
            return
        self.count.setText(f"{min(player.position + 1, len(player)):,}/{len(player):,}")
        self._show_status(self._where())

    def _where(self) -> list[str]:
        """Describe what runs next and its incoming gradients, in parts; after the last step why it ended."""
        player, tape = self.player, self.player.tape
        assert tape is not None
        if player.next_node is None:
            if player.position < len(tape.order) and self._stopped:
                return ["The backward pass ended here.", f" {self._stopped}"]
            return [f"All nodes have run. {self._stopped}".strip()]
        node = tape.nodes[player.next_node]
        where = (
            f" of {node.parameters[0]}"
            if node.parameters
            else f", line {node.line}"
            if node.line
            else ""
        )
        norms = (
            [stats.norm for stats in player.arriving if stats is not None]
            if player.keeps and not player.is_concealed(node.id)
            else []
        )
        norms_text = f", grad_out {' and '.join(map(figure, norms))}" if norms else ""
        return [
            f"{node.name}{where}",
            " runs next",
            norms_text,
            f" · {bytes_text(player.held[player.position])} held",
        ]

    def _show_status(self, parts: list[str]) -> None:
        """Show as many parts as there is room for, and all as the tool tip."""
        self._parts = parts
        text, metrics = "".join(parts), self.words.fontMetrics()
        self.words.setToolTip(text)
        self.words.setAccessibleName(text)
        shown = parts
        while (
            len(shown) > 1
            and metrics.horizontalAdvance("".join(shown)) > self.words.width()
        ):
            shown = shown[:-1]
        self.words.setText(
            metrics.elidedText(
                "".join(shown), Qt.TextElideMode.ElideRight, self.words.width()
            )
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.speed.setVisible(self.count.isVisibleTo(self) and self.width() >= NARROW)
        present(self.layout()).activate()
        self._show_status(self._parts)
