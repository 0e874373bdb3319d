"""The page "Snippet": a few lines of PyTorch, their output, named tensors, and the autograd graph of each."""

from __future__ import annotations

import html
from pathlib import Path

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import (
    QKeyEvent,
    QPaintEvent,
    QResizeEvent,
    QTextCharFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy, QSplitter, QWidget

from app.autograd.grouping import LayerGroup
from app.autograd.tape import TapeNode
from app.features.snippets.deck import SnippetDeck
from app.features.snippets.editor import SnippetEdit
from app.features.snippets.process import WATCHED
from app.features.snippets.recorded_player import RecordedPlayer
from app.features.snippets.table import TensorTable
from app.features.snippets.values import (
    Limits,
    Ready,
    Snippet,
    SnippetAnswer,
    TensorGraph,
    ready,
)
from app.util.formatting import bytes_text
from app.views.autograd.graph.playback_state import PlayedGraph
from app.views.autograd.page import AutogradPage
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.scrolled import Scrolled
from app.views.ui.widgets import Banner, Button, ChoiceField, icon_button
from app.views.ui.widgets.painting import Divider, label, set_property, start

NONE = (
    "No graph yet",
    "Run the snippet: every operation on a tensor that requires a gradient adds a node here.",
)
OWN = "My snippet"
EDITED = "Edited since this run: Ctrl+Enter runs it again."
AT_FIRST = "torch, nn and F are imported already; the seed of torch is 0."
WIDEST = 460  # px of the choice of a snippet
LEAST = 200  # px of the editor's column
SPLIT = (
    (340, 420),
    (420, 200),
    (420, 90),
)  # the first sizes: columns, editor over output, graph over tensors
ROOM, TABLE = (
    150,
    72,
)  # px, the least heights of graph and tensors: where there is less, they are scrolled
SHARE = 0.4  # of the column, the most that the tensors get by themselves
NARROW = 600  # px below which the limits are in the tool tip of Run alone


class SnippetPage(QWidget):
    """Editor and output at the left, graph and named tensors at the right.

    `runRequested()`, `stopRequested()`, `openRequested()` and `saveRequested()` are emitted by their buttons,
    `lookRequested()` requests to review the file that the text came from. `detail` carries the `TapeNode` or
    `LayerGroup` for the inspector (or None). `answered` is emitted when `answer` is another.
    """

    runRequested = Signal()
    stopRequested = Signal()
    openRequested = Signal()
    saveRequested = Signal()
    lookRequested = Signal()
    detail = Signal(object)
    answered = Signal()

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.answer: SnippetAnswer | None = None
        self.shown: TensorGraph | None = None
        self._loaded = ""
        self._ran = ""  # the text that the answer is of
        self._edited = False  # since then
        self.foreign: Path | None = None
        self.ready = ChoiceField(
            [(None, OWN), *((snippet.key, snippet.title) for snippet in ready())],
            pairs=True,
        )
        self.ready.setAccessibleName("Ready snippets")
        self.words = label("", "caption", "text2", wrap=True, whole=True)
        self.words.setTextFormat(Qt.TextFormat.RichText)
        self.open = icon_button("folder", "Open a snippet (.py)")
        self.save = icon_button("save", "Save this snippet (.py)")
        self.banner = Banner()
        self.banner.hide()
        self.edit = SnippetEdit()
        self.run = Button("Run", "primary", "run")
        self.stop = Button("Stop", icon="stop")
        self.stop.setToolTip("End the process of the snippet (Esc)")
        self.stop.setEnabled(False)
        memory = f", {bytes_text(limits.memory)}" if WATCHED else ""
        bound = f"up to {limits.seconds:g} s{memory}"
        self.run.setToolTip(
            f"Run these lines in a separate process (Ctrl+Enter), {bound}"
        )
        self.limits = label(bound, "caption", "text3")
        self.limits.setToolTip(
            "Limits of a snippet, not counting torch itself; a snippet that exceeds them is ended"
        )
        self.status = label("", "caption", "text3", wrap=True, whole=True)
        self.output = SnippetOutput()
        self.room = _SnippetRoom()
        self.player = RecordedPlayer(self)
        self.deck = SnippetDeck(self.player)
        self._graph = PlayedGraph(self.room, self.player, self)
        self.table = TensorTable()
        self._split = self._laid_out()
        self._arranged = False  # whether the user has given the tensors another height
        self._connect()
        self.load_ready(ready()[0])

    def _head_part(self) -> QWidget:
        """Return the row of examples and file buttons, with a description."""
        header = QWidget()
        row = hbox(
            (self.ready, 100),
            self.open,
            self.save,
            self.limits,
            1,
            self.stop,
            self.run,
            spacing=6,
        )
        vbox(row, self.words, on=header, margins=(12, 6, 10, 6), spacing=4)
        self.ready.setMinimumContentsLength(24)
        self.ready.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.ready.setMaximumWidth(WIDEST)
        self.ready.currentTextChanged.connect(self.ready.setToolTip)
        return header

    def _laid_out(self) -> tuple[QSplitter, ...]:
        left = QSplitter(Qt.Orientation.Vertical)
        left.addWidget(self.edit)
        left.addWidget(self._output_part())
        right = QSplitter(Qt.Orientation.Vertical)
        right.addWidget(self._graph_part())
        right.addWidget(self.table)
        both = QSplitter(Qt.Orientation.Horizontal)
        both.addWidget(left)
        both.addWidget(right)
        both.setStretchFactor(0, 2)
        both.setStretchFactor(1, 3)
        for splitter, sizes in zip((both, left, right), SPLIT, strict=True):
            splitter.setChildrenCollapsible(False)
            splitter.setHandleWidth(1)
            splitter.setSizes(list(sizes))
        left.setStretchFactor(0, 1)
        right.setStretchFactor(0, 1)
        self.columns = Scrolled(both)
        vbox(
            self._head_part(),
            self.banner,
            Divider(),
            (self.columns, 1),
            on=self,
            margins=0,
            spacing=0,
        )
        return both, left, right

    def _graph_part(self) -> QWidget:
        """Return the graph with its playback controls."""
        widget = QWidget()
        vbox((self.room, 1), self.deck, on=widget, margins=0, spacing=0)
        return widget

    def _output_part(self) -> QWidget:
        widget = QWidget()
        status_row = hbox(self.status, margins=(12, 6, 10, 6))
        vbox(status_row, Divider(), (self.output, 1), on=widget, margins=0, spacing=0)
        self.edit.setMinimumSize(LEAST, 70)
        return widget

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.limits.setVisible(self.width() >= NARROW * theme.manager().scale)
        self._share_column()

    def _share_column(self) -> None:
        """Give the tensors the height of their rows, and the graph the rest, unless the user chose heights."""
        right = self._split[2]
        if self._arranged:
            return
        tensors = min(self.table.wanted_height(), round(right.height() * SHARE))
        right.setSizes([max(right.height() - tensors, 0), tensors])

    def _connect(self) -> None:
        self.ready.edited.connect(self._choose_ready)
        self.open.clicked.connect(self.openRequested)
        self.save.clicked.connect(self.saveRequested)
        self.run.clicked.connect(self.runRequested)
        self.stop.clicked.connect(self.stopRequested)
        self.banner.acted.connect(self.lookRequested)
        self.edit.run_wanted.connect(self.runRequested)
        self.edit.left.connect(self._leave_editor)
        self.edit.textChanged.connect(self._text_changed)
        self.edit.textChanged.connect(self._show_age)
        self.edit.line_chosen.connect(self._line_chosen)
        self.table.chosen.connect(lambda tensor: self.show_graph(tensor.name))
        self.room.detail.connect(self._detail)
        self.room.nodeHovered.connect(self._hovered)
        self.room.captureRequested.connect(lambda _train: self.runRequested.emit())
        self.player.moved.connect(lambda _before, _now: self._played())
        self._split[2].splitterMoved.connect(
            lambda _place, _handle: setattr(self, "_arranged", True)
        )

    # -- the text ------------------------------------------------------------------------------------------------------

    def snippet(self, diagnose: bool = False) -> Snippet:
        """Return the snippet to run."""
        return Snippet(self.edit.text(), play=True, diagnose=diagnose)

    def load_ready(self, snippet: Ready) -> None:
        """Load an example into the editor; undo restores the previous text."""
        self.load(snippet.text, snippet.words)
        self.ready.set_value(snippet.key)

    def load(
        self, text: str, description: str = "", foreign: Path | None = None
    ) -> None:
        """Load a text into the editor with a description. `foreign` is the file that it came from, not trusted yet.

        Undo restores the previous text, but never one that is not trusted.
        """
        self._loaded = ""
        self.edit.set_text(text, undo=foreign is None and self.foreign is None)
        self.foreign = foreign
        self._loaded = self.edit.text()
        self.ready.set_value(None)
        self.words.setText(_with_code(description))
        self.words.setVisible(bool(description))
        self.banner.setVisible(foreign is not None)
        if foreign is not None:
            reason = "None of it has been run. View it, and trust it to run it."
            self.banner.set(
                "warning",
                f"{foreign.name} is not trusted yet",
                reason,
                "View and trust…",
            )
        self.set_answer(None)

    def _choose_ready(self, key: str | None) -> None:
        snippet = next(
            (candidate for candidate in ready() if candidate.key == key), None
        )
        if snippet is None:
            self.words.setText("")
            self.words.hide()
        else:
            self.load_ready(snippet)

    def _text_changed(self) -> None:
        """Deselect the example once its text was edited; its description goes with its last line."""
        if (
            self._loaded
            and self.edit.text() != self._loaded
            and self.ready.value() is not None
        ):
            self.ready.set_value(None)
        if self._loaded and self.words.text():
            common_lines = set(self._loaded.split("\n")) & set(
                self.edit.text().split("\n")
            ) - {""}
            self.words.setVisible(bool(common_lines))
        if self._loaded and self.foreign is not None and not self.edit.text().strip():
            QTimer.singleShot(
                0, self, self._drop_foreign
            )  # not during the key event that deletes it

    def _drop_foreign(self) -> None:
        """Forget an untrusted file once its text was deleted; undo cannot bring the text back."""
        if self.foreign is not None and not self.edit.text().strip():
            self.load("")

    def _show_age(self) -> None:
        """Show whether the answer is still of this text; an error is as long as its line is the one that raised it."""
        answer = self.answer
        if answer is None or not self.run.isEnabled():
            return
        error, edited = answer.error, self.edit.text() != self._ran
        if error is not None and edited:
            edited = self.edit.error_line == 0
        if edited == self._edited:
            return
        self._edited = edited
        if error is not None:
            self.output.show_output(answer.output, error.traceback, outdated=edited)
            self.edit.mark_error(None if edited else error.line)
        self._show_status(*self._summary(answer))

    # -- running -------------------------------------------------------------------------------------------------------

    def set_running(self, running: bool) -> None:
        """Set whether a snippet runs; its output arrives through `show_output`."""
        self.run.setEnabled(not running)
        self.stop.setEnabled(running)
        self.room.set_runnable(not running)
        if running:
            self.edit.mark_error(None)
            self.output.show_output("")
            self._show_status("Running…")

    def conceal(self, _parameters: frozenset[str], tensors: frozenset[str]) -> None:
        """Hide the gradients of these tensors, in the table and where the graph is played."""
        self.table.conceal(tensors)
        self.player.conceal(tensors)

    def show_output(self, text: str) -> None:
        """Show the output so far."""
        self.output.show_output(text)

    def set_answer(self, answer: SnippetAnswer | None, text: str | None = None) -> None:
        """Show the result of a text, None for that in the editor; without an answer empty the page."""
        self.answer, self._edited = answer, False
        self._ran = self.edit.text() if text is None else text
        self.table.set_answer(answer)
        self._share_column()
        if answer is None:
            self.output.show_output("")
            self.edit.mark_error(None)
            self._show_status(AT_FIRST, "text3")
            self._show(None)
            self.answered.emit()
            return
        error = answer.error
        self.output.show_output(answer.output, error.traceback if error else "")
        self._show(answer.graph)
        self._show_status(*self._summary(answer))
        self.edit.mark_error(
            error.line if error and self._ran == self.edit.text() else None
        )
        self._show_age()
        self.answered.emit()

    def _summary(self, answer: SnippetAnswer) -> tuple[str, str]:
        """Describe the end of the run in a line or two, with the tone of the text."""
        error = answer.error
        if self._edited:
            return EDITED, "text2"
        if answer.words and answer.ended != "done":
            where = f" It was line {error.line}." if error and error.line else ""
            return (
                answer.words + where,
                "text2" if answer.ended == "stopped" else "error",
            )
        if error is not None:
            return error.sentence(
                self._changed() or _first_line(error.message)
            ), "error"
        summary = (
            f"Done in {answer.seconds:.2f} s." if answer.seconds >= 0.005 else "Done."
        )
        return f"{summary} {answer.words or self._freed()}".strip(), "text2"

    def _freed(self) -> str:
        if self.shown is None or self.shown.freed_at is None:
            return ""
        at = self.shown.freed_at
        by = f"backward in line {at}" if at else "a backward pass"
        state = (
            "it is shown as it was before"
            if at
            else "the tensors that its nodes had saved are freed"
        )
        whose = (
            "The graph"
            if self.shown.name.startswith("backward()")
            else f"The graph of {self.shown.name}"
        )
        return f"{whose} was freed by {by}: {state}."

    def _changed(self) -> str:
        """Name the saved tensor whose in-place change made backward fail, if that is the reason."""
        for node in self.shown.tape.nodes if self.shown is not None else ():
            for saved in node.saved:
                if saved.version != saved.version_now and saved.version is not None:
                    where = f" (line {node.line})" if node.line else ""
                    return (
                        f"{node.name}{where} saved {saved.name} at version {saved.version}; "
                        f"it is at version {saved.version_now} now."
                    )
        return ""

    def _show_status(self, message: str, tone: str = "text2") -> None:
        self.status.setText(message)
        set_property(self.status, "tone", tone)

    # -- the graph -----------------------------------------------------------------------------------------------------

    def show_graph(self, name: str) -> None:
        """Show the graph below the tensor of this name, if it has one."""
        graph = self.answer.graph_of(name) if self.answer else None
        if graph is not None and graph is not self.shown:
            self._show(graph)
            if self.answer is not None and self.answer.ended == "done":
                self._show_status(*self._summary(self.answer))

    def _show(self, graph: TensorGraph | None) -> None:
        self.shown = graph
        self.player.set_pass(None, None)  # before the graph is another one
        self.room.set_graph(graph)
        self.deck.set_graph(graph)
        self.table.choose(graph.name if graph else "")

    def show_line(self, line: int) -> None:
        """Mark a line of the text and scroll to it."""
        self.edit.mark([line], ())
        self.edit.reveal([line])

    def _line_chosen(self, line: int) -> None:
        """Outline the nodes that a line created."""
        if self.shown is None:
            return
        tape = self.shown.tape
        links = frozenset(
            node.node
            for node in tape.nodes
            if node.line == line and node.node is not None
        )
        self.room.select_nodes(links)

    def _detail(self, item: TapeNode | LayerGroup | None) -> None:
        self.edit.mark(self._lines(item), ())
        self.edit.reveal(self._lines(item))
        self.detail.emit(item)

    def _lines(self, item: TapeNode | LayerGroup | None) -> list[int]:
        if item is None or self.shown is None:
            return []
        nodes = (
            [item]
            if isinstance(item, TapeNode)
            else [self.shown.tape.nodes[node] for node in item.nodes]
        )
        return sorted({node.line for node in nodes if node.line is not None})

    def _hovered(self, link: str | None) -> None:
        line = link.removeprefix("line:").partition("#")[0] if link else ""
        chosen = self._lines(self.room.item_of(self.room.scene.current_key()))
        self.edit.mark(chosen, [int(line)] if line.isdecimal() else [])

    def _played(self) -> None:
        """Mark the line of the next node and scroll to it."""
        node = self.player.next_node if self.player.keeps else None
        line = (
            self.player.tape.nodes[node].line
            if node is not None and self.player.tape is not None
            else None
        )
        self.edit.mark(
            self._lines(self.room.item_of(self.room.scene.current_key())),
            [line] if line else [],
        )
        if line:
            self.edit.reveal([line])

    # -- keys ----------------------------------------------------------------------------------------------------------

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and _runs(event)
        ):
            event.accept()  # the window's own Ctrl+Enter captures the net
            return True
        return super().event(event)

    def _leave_editor(self) -> None:
        """Stop what runs, or else move the focus to the button that runs it."""
        if self.stop.isEnabled():
            self.stopRequested.emit()
        else:
            self.run.setFocus(Qt.FocusReason.TabFocusReason)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if _runs(event):
            self.runRequested.emit()
        elif event.key() == Qt.Key.Key_Escape and self.stop.isEnabled():
            self.stopRequested.emit()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        painter.fillRect(self.rect(), theme.current().panel)
        painter.end()


class _SnippetRoom(AutogradPage):
    """The room of a snippet's graph: no net is captured in it."""

    def __init__(self) -> None:
        super().__init__()
        head = self.head
        for widget in (head.mode, head.capture):
            present(head.layout()).removeWidget(widget)
            widget.hide()
        head._spare = tuple(widget for widget in head._spare if widget is not head.mode)
        head.two_lines = False  # the inspector and the status say the same, and the graph needs the room
        self.offer.set_text(*NONE)
        self.offer.button.setText("Run")
        self.setMinimumHeight(ROOM)

    def set_runnable(self, runnable: bool) -> None:
        """Offer to run the snippet where no graph is shown, unless it runs."""
        self.offer.button.setVisible(runnable)

    def set_graph(self, graph: TensorGraph | None) -> None:
        """Show the graph below one tensor; None empties the room."""
        self.set_tape(graph.tape if graph else None)
        if graph is not None:
            unnamed = graph.name.startswith("backward()")
            self.head.root.setText(graph.name if unnamed else f"{graph.name}.grad_fn")


def _with_code(text: str) -> str:
    """Convert text to HTML with the parts between backticks in the code font."""
    parts = html.escape(text).split("`")
    family = theme.font("formula").family()
    return "".join(
        f'<span style="font-family:{family}">{fragment}</span>' if odd % 2 else fragment
        for odd, fragment in enumerate(parts)
    )


def _first_line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 200 else f"{first[:199]}…"


def _runs(event: QKeyEvent) -> bool:
    enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
    return enter and bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)


class SnippetOutput(QPlainTextEdit):
    """Printed text, followed by the error."""

    def __init__(self) -> None:
        super().__init__()
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(theme.font("formula"))
        self.setTabChangesFocus(True)
        self.setUndoRedoEnabled(False)
        self.setStyleSheet("QPlainTextEdit { border: none; border-radius: 0; }")
        self.setAccessibleName("Output of the snippet")
        self.setPlaceholderText("What the snippet prints")
        self.setMinimumHeight(48)
        self.document().setDocumentMargin(8)
        self._words = ("", "")
        self._outdated = False
        theme.manager().changed.connect(self._theme_changed)

    def _theme_changed(self) -> None:
        self.show_output(*self._words, outdated=self._outdated)

    def show_output(
        self, printed: str, error: str = "", outdated: bool = False
    ) -> None:
        """Show a text, and an error in its colour behind it; its end is in sight.

        An `outdated` error is that of a line that is another by now.
        """
        self._words, self._outdated = (printed, error), outdated
        self.setCurrentCharFormat(
            QTextCharFormat()
        )  # else it is in the colour of the last error
        self.setPlainText(printed)
        if error:
            form = QTextCharFormat()
            form.setForeground(
                theme.current().text3 if outdated else theme.current().error
            )
            cursor = QTextCursor(self.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            gap = "" if not printed or printed.endswith("\n") else "\n"
            cursor.insertText(gap + error.rstrip("\n"), form)
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
