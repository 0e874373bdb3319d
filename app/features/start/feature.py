"""Feature "start": the page with which the program begins, which goes once a project is opened or begun."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app.features.start.page import Offer, StartPage
from app.views.feature import Action, Feature, Page
from app.views.ui.dialogs.search import SearchEntry

PAGE = "start"
MOST = 6  # rows of a list: what a window of 1280 x 800 shows beside the frame of a window manager


class StartFeature(Feature):
    rank = 5  # its tab is the first
    start: StartPage

    def pages(self) -> Iterable[Page]:
        yield Page(
            PAGE, "Start", "tapedeck", "centre", self._make, home=lambda: self._home()
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "start-page",
            "S&tart page",
            self.show,
            icon="tapedeck",
            tip="Recent projects, examples, lessons, a model or data of yours",
            menu="file.project",
        )

    def begin(self) -> None:
        workspace = self.workspace
        workspace.pages.put_in_front("centre", "network")  # until it is asked for
        workspace.pages.set_offered(PAGE, False)
        workspace.document.replaced.connect(lambda _project: self._leave())
        workspace.document.changed.connect(lambda _before, _after: self._leave())

    def show(self) -> None:
        """Show the page, with the projects that were opened last."""
        pages = self.workspace.pages
        pages.set_offered(PAGE, True)
        pages.show(PAGE)
        self._list_recent()
        self.start.home().setFocus()
        # Lessons are read from their files: after the page is painted.
        QTimer.singleShot(0, self.start, self._list_others)

    def _leave(self) -> None:
        """Show the network in place of the page."""
        pages = self.workspace.pages
        if pages.is_front(PAGE):
            pages.show("network")
        pages.set_offered(PAGE, False)

    def _home(self) -> QWidget:
        return self.start.home()

    def _make(self) -> StartPage:
        page = self.start = StartPage()
        commands = self.workspace.commands
        page.newRequested.connect(self._begin_new)
        page.openRequested.connect(lambda: commands.trigger("open"))
        page.modelRequested.connect(lambda: commands.trigger("open-model"))
        page.dataRequested.connect(self._choose_data)
        page.examples.moreRequested.connect(lambda: commands.trigger("gallery"))
        page.lessons.moreRequested.connect(lambda: commands.trigger("lessons"))
        page.model.setVisible(commands.has("open-model"))
        page.examples.more.setVisible(commands.has("gallery"))
        page.lessons.setVisible(commands.has("lessons"))
        return page

    def _begin_new(self) -> None:
        """Begin a network; one without a node is there already."""
        document = self.workspace.document
        if document.path is not None or document.dirty or document.project.graph.nodes:
            self.workspace.commands.trigger("new")
        else:
            self._leave()

    def _choose_data(self) -> None:
        """Show the list of data, and the canvas, which then offers a net that fits them."""
        self._begin_new()
        self.workspace.commands.trigger("choose-data")

    def _list_recent(self) -> None:
        files = self.workspace.files
        recent = [
            path for path in self.workspace.settings.recent_files if path.is_file()
        ]
        self.start.recent.set_offers(
            Offer(path.stem, partial(files.open_asking, path), _folder(path))
            for path in recent[:MOST]
        )
        self.start.home().setFocus()

    def _list_others(self) -> None:
        by_kind: dict[str, list[SearchEntry]] = {}
        for beginnings in self.workspace.beginnings:
            for entry in beginnings():
                by_kind.setdefault(entry.kind, []).append(entry)
        for kind, offers in (
            ("Example", self.start.examples),
            ("Lesson", self.start.lessons),
        ):
            offers.set_offers(
                Offer(entry.names[-1], entry.does)
                for entry in by_kind.get(kind, ())[:MOST]
            )


def _folder(path: Path) -> str:
    """Return the folder of a project, with ~ for that of the user."""
    folder = path.parent
    return (
        str(Path("~") / folder.relative_to(Path.home()))
        if folder.is_relative_to(Path.home())
        else str(folder)
    )
