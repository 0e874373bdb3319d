"""The page "Snippet" of the tab Autograd, and the process in which a snippet runs."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.builder.catalog.custom import CustomFile
from app.features.snippets import process
from app.features.snippets.page import SnippetPage
from app.features.snippets.values import Limits, SnippetAnswer, ready_snippet
from app.source import layer_files
from app.util import atomic
from app.util.formatting import plural
from app.views.autograd.gradient_sections import GradientSections
from app.views.autograd.tape.replay_control import FILTER as REPLAY
from app.views.pictures.picture_export import PictureExport
from app.views.trust_dialog import TrustDialog
from app.views.ui.background import WorkerFailure
from app.views.ui.task import BackgroundTask

if TYPE_CHECKING:
    from app.autograd.grouping import LayerGroup
    from app.autograd.tape import TapeNode
    from app.diagram.diagram import Drawing
    from app.views.autograd.graph_tab import GraphTab, WriteReplay
    from app.views.ui.inspector import TapeInspector
    from app.views.workspace import Workspace

FILTER = "Python file (*.py)"
LIMITS = Limits()
KEY = "snippet"  # of the subject in the tab
POLL_INTERVAL = 100  # ms between two polls of the output
REFRESH = 0.3  # seconds between updates of the inspector while a pass is played


class SnippetTrustDialog(TrustDialog):
    """Like the review of a layer file, for lines to run."""

    warning = (
        "A snippet runs in a separate process with a time and a memory limit, but with all your permissions: it can "
        "read and change your files and use the network. Trust it only if you know what it does. It runs when you "
        "press Run, not before."
    )
    agree = "Trust this snippet"

    def __init__(
        self, file: CustomFile, before: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(file, before, parent)
        self.setWindowTitle("PyTorch snippet")

    def contents(self) -> str:
        assert self.file.file is not None
        lines = sum(bool(line.strip()) for line in self.file.file.text.splitlines())
        return f"{lines} {plural(lines, 'line')} to be run"


class SnippetControl(QObject):
    """Runs the snippet of the page "Snippet", which is made when it is first asked for.

    Text from a file waits for trust, as another author may have written it.
    """

    changed = Signal()  # a run began or ended, or there is another text

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace, self._pictures = workspace, PictureExport(workspace)
        self._page: SnippetPage | None = None
        self._task: BackgroundTask | None = None
        self._stop = threading.Event()
        self._told = 0.0
        self._poll = QTimer(self, interval=POLL_INTERVAL)
        self._poll.timeout.connect(self._poll_output)

    def follow(
        self, tab: GraphTab, inspector: TapeInspector, write: WriteReplay
    ) -> None:
        """Take the tab Autograd with its inspector, and what writes HTML replays."""
        self.tab, self._inspector, self._write = tab, inspector, write
        application = QCoreApplication.instance()
        assert application is not None
        application.aboutToQuit.connect(self.close)
        self._workspace.window.installEventFilter(self)

    def eventFilter(self, _window: QObject, event: QEvent) -> bool:
        """End the process when the window is closed; minimised windows are hidden spontaneously."""
        if event.type() == QEvent.Type.Hide and not event.spontaneous():
            self.close()
        return False

    @property
    def page(self) -> SnippetPage:
        """The page "Snippet", made when it is first asked for."""
        if self._page is None:
            self._page = page = SnippetPage(LIMITS)
            page.runRequested.connect(lambda: self.run())
            page.answered.connect(self.changed)
            page.stopRequested.connect(self.stop)
            page.openRequested.connect(self.choose_file)
            page.saveRequested.connect(self.save)
            page.lookRequested.connect(self._review_file)
            page.detail.connect(self._inspect)
            norms = GradientSections(page.player)
            self._inspector.above.append(
                lambda tape, item: norms(tape, item) if tape is page.room.tape else ()
            )
            page.player.moved.connect(lambda _before, _now: self._moved(REFRESH))
            page.player.moved.connect(lambda _before, _now: self._report_played())
            page.player.stood.connect(lambda _stop: self._moved(0.0))
            activity = self._workspace.activity
            activity.concealed.connect(page.conceal)
            page.conceal(activity.parameters, activity.tensors)
            page.room.exportRequested.connect(self._export)
            if saved_text := self._workspace.settings.snippet:
                page.load(saved_text, "Your lines from last time.")
        return self._page

    @property
    def running(self) -> bool:
        return self._task is not None

    # -- the page ------------------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Bring the page to the front."""
        self._workspace.pages.show("autograd")
        self.tab.show(KEY)

    @property
    def is_shown(self) -> bool:
        """Return whether the page "Snippet" is what the centre of the window shows."""
        return self.tab.shows(KEY)

    def _inspect(self, item: TapeNode | LayerGroup | None) -> None:
        """Show the selection in the snippet's graph; without one the next node."""
        if self.tab.toggle.value() != KEY:
            return
        player, tape, inspector = self.page.player, self.page.room.tape, self._inspector
        if (
            item is None
            and player.keeps
            and tape is not None
            and player.next_node is not None
        ):
            item = tape.nodes[player.next_node]
        if item is not None and item is inspector.shown_item():
            inspector.refresh()
        else:
            inspector.show_item(tape, item)

    def _export(self, drawing: Drawing) -> None:
        """Ask for a path, then draw the snippet's graph as shown, or write a page that plays it."""

        graph, pages = self.page.shown, {}
        if graph is not None and (played := graph.played) is not None:
            write, room, stopped = self._write, self.page.room, graph.stopped
            title = f"{graph.name}: backward"
            pages[".html"] = (
                REPLAY,
                lambda path: write(path, title, room, played, stopped),
            )
        self._pictures.choose_file(
            drawing, "Export the graph", "snippet-autograd", pages
        )

    def _moved(self, every: float) -> None:
        """Update the inspector with new numbers, at a limited rate during playback."""
        now = time.monotonic()
        if now - self._told >= every:
            self._told = now
            self._inspect(self.page.room.item_of(self.page.room.scene.current_key()))

    # -- running -------------------------------------------------------------------------------------------------------

    def diagnose(self) -> None:
        """Run the text in the editor as `run` does, and its forward pass again for the diagnostics."""
        self.run(diagnose=True)

    def run(self, diagnose: bool = False) -> None:
        """Run the text in the editor, unless it is from a file that is not trusted yet; with the diagnostics too if
        their page is in front."""
        if self.running:
            return
        if self.page.foreign is not None:
            self._review_file()
            return
        self._stop = threading.Event()
        snippet = self.page.snippet(
            diagnose or self._workspace.pages.is_front("findings")
        )
        run = partial(process.run, snippet, LIMITS, self._stop.is_set)
        self._task = task = BackgroundTask(lambda report, _: run(report))
        task.ended.connect(partial(self._ended, snippet.text))
        self.page.set_running(True)
        self._poll.start()
        task.begin()
        self.changed.emit()

    def stop(self) -> None:
        """End the process of a snippet that runs."""
        self._stop.set()

    def _poll_output(self) -> None:
        if self._task is not None and self._task.progress:
            self.page.show_output(self._task.progress)

    def _ended(self, text: str, answer: SnippetAnswer | WorkerFailure) -> None:
        self._poll.stop()
        self._task = None
        self.page.set_running(False)
        if isinstance(answer, WorkerFailure):
            answer = SnippetAnswer(
                "died", f"The snippet process cannot be started: {answer.message}."
            )
        self.page.set_answer(answer, text)
        key = str(self.page.ready.value() or "")
        error = answer.error.kind if answer.error is not None else ""
        tensors = {tensor.name: tensor.described for tensor in answer.tensors}
        self._workspace.activity.ran.emit(key, error, tensors)

    def _report_played(self) -> None:
        player = self.page.player
        if len(player):
            share = player.position / len(player)
            self._workspace.activity.played.emit(share, {})

    def open_ready(self, key: str) -> None:
        """Show a bundled snippet. Raises KeyError."""
        snippet = ready_snippet(key)
        self.show()
        self.page.load_ready(snippet)

    def close(self) -> None:
        """End what runs, and keep the person's own lines for the next time."""
        self._stop.set()
        page = self._page
        if page is not None and page.foreign is None:
            hand_written = page.ready.value() is None
            self._workspace.settings.snippet = page.edit.text() if hand_written else ""

    # -- files ---------------------------------------------------------------------------------------------------------

    def choose_file(self) -> None:
        """Ask for a file to put into the editor."""
        start = str(self._workspace.settings.export_folder)
        name, _ = QFileDialog.getOpenFileName(
            self._workspace.window, "Open a snippet", start, FILTER
        )
        if name:
            self.open(Path(name))

    def open(self, path: Path) -> None:
        """Load the text of a file into the editor; it waits for trust unless it is trusted."""
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._workspace.notifier.refuse(
                f"{path.name} cannot be opened",
                getattr(error, "strerror", None) or "It is not UTF-8 text.",
            )
            return
        self.show()
        self.page.load(
            text,
            path.name,
            None if layer_files.allowed(layer_files.digest(text)) else path,
        )

    def _review_file(self) -> None:
        path = self.page.foreign
        if path is not None:
            self._workspace.layers.review_file(
                path, lambda: self.open(path), SnippetTrustDialog
            )

    def save(self) -> None:
        """Ask for a path, then write the text."""
        start = self._workspace.settings.export_folder / "snippet.py"
        name, _ = QFileDialog.getSaveFileName(
            self._workspace.window, "Save the snippet", str(start), FILTER
        )
        if not name:
            return
        path = Path(name) if Path(name).suffix else Path(name).with_suffix(".py")
        try:
            text = f"{self.page.edit.text()}\n"
            atomic.write_text(path, text)
        except OSError as error:
            self._workspace.notifier.refuse(
                f"{path.name} was not written", error.strerror or str(error)
            )
            return
        self._workspace.settings.export_folder = path.parent
        self._workspace.notifier.say(
            f"Saved {path.name}",
            "Here torch, nn and F are imported already; a file must import them.",
        )
