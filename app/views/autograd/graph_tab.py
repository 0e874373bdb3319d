"""Whose graph the tab Autograd shows: of the network, the opened model, the watched script, or what a feature adds.

A feature adds a `GraphSubject` to `workspace.graph_subjects`, which is given the tab once it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from app.autograd.playback.steps import PassResult
from app.views.ui.widgets import Segmented

if TYPE_CHECKING:
    from app.views.autograd.page import AutogradPage
    from app.views.pages import Pages
    from app.views.ui.inspector import TapeInspector

WriteReplay = Callable[[Path, str, "AutogradPage", PassResult, str], None]
NET, MODEL, SCRIPT = "net", "model", "script"
OPTIONS = ((NET, "Network"), (MODEL, "Model"), (SCRIPT, "Script"))


class GraphSubject(Protocol):
    """A graph that a feature adds to the tab, on a page of its own: `title` of its option, and `description` of what it
    is the graph of."""

    key: str
    title: str
    description: str

    @property
    def widget(self) -> QWidget:
        """The page, made when it is first asked for."""

    @property
    def room(self) -> AutogradPage:
        """The graph on that page."""

    def follow(
        self, tab: GraphTab, inspector: TapeInspector, write: WriteReplay
    ) -> None:
        """Take the tab with its inspector, and what writes HTML replays."""

    def follow_findings(
        self, pages: QStackedWidget, came_back: Callable[[], object]
    ) -> None:
        """Take the pages under Findings; the first is of the network, which is told when it `came_back`."""

    def turned_to(self) -> None:
        """Take the keys: the page has come to the front."""


class GraphTab(QObject):
    """Turns the tab between the pages of its subjects. `subject_chosen` emits the net, the model or the script, which
    have one page, and `turned` follows every change."""

    subject_chosen = Signal(str)
    turned = Signal()

    def __init__(
        self,
        pages: Pages,
        added: Sequence[GraphSubject],
        room: AutogradPage,
        inspector: TapeInspector,
    ) -> None:
        super().__init__(room)
        self._pages, self._room, self._inspector = pages, room, inspector
        self._added = {subject.key: subject for subject in added}
        self.pages = QStackedWidget()
        self.pages.addWidget(room)
        self.toggle = Segmented(
            [*OPTIONS, *((subject.key, subject.title) for subject in added)],
            f"Source of the graph: {_any_of('network', 'model', 'script', *self._added)}",
        )
        descriptions = _any_of(
            "this project's network",
            "the opened model",
            "the watched script",
            *(subject.description for subject in added),
        )
        self.toggle.setToolTip(f"Shows the graph of {descriptions}")
        for key in (MODEL, SCRIPT):
            self.toggle.set_option_offered(key, False)
        self._subject = NET  # whose graph the net's page shows
        self.toggle.changed.connect(self.show)

    def show(self, key: str) -> None:
        """Show the graph of the "net", of the opened "model", of the "script" that is watched, or of one added."""
        self.toggle.set_value(key)
        added = self._added.get(key)
        if added is None and key != self._subject:
            self._subject = key
            self.subject_chosen.emit(key)
        page: QWidget = self._room
        room = self._room
        if added is not None:
            page, room = added.widget, added.room
            if self.pages.indexOf(page) < 0:
                self.pages.addWidget(page)
        self.pages.setCurrentWidget(page)
        self._inspector.show_item(room.tape, room.item_of(room.scene.current_key()))
        self.turned.emit()
        if added is not None:
            added.turned_to()

    @property
    def beside(self) -> bool:
        """Return whether the page of an added subject is in front of that of the net, the model and the script."""
        return self.pages.currentWidget() is not self._room

    def shows(self, key: str) -> bool:
        """Return whether the centre of the window shows the graph of a subject."""
        return self.toggle.value() == key and self._pages.is_front("autograd")

    @property
    def shows_added(self) -> bool:
        """Return whether the centre of the window shows the page of an added subject."""
        return self.beside and self._pages.is_front("autograd")

    def show_graph(self) -> None:
        """Show the graph of the net, of the opened model or of a script, whichever was shown last."""
        self.show(self._subject)

    def show_subject(self, subject: str) -> None:
        """Show that the page has the graph of another subject now."""
        self._subject = subject
        self.toggle.set_option_offered(subject, True)
        self.show(subject)


def _any_of(*names: str) -> str:
    """Return names as alternatives: `a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
