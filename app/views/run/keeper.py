"""Storage of the open project's runs: where their folders are, listing, moving and copying."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal, SignalInstance

from app.project.document import Document
from app.project.project import Project
from app.runs import record, store
from app.runs.record import Parent, RunError
from app.runs.recorder import EventSink, Recorder
from app.runs.store import Kept
from app.training.job import Job
from app.util.formatting import counted
from app.util.resources import path as resource_path
from app.views.run.run_files import EventFiles
from app.views.settings import Settings
from app.views.ui.background import Background, WorkerFailure
from app.views.ui.task import BackgroundTask

# Runs by their folders of before, and what went wrong, "" if nothing did.
Relocated = tuple[dict[Path, Kept], str]


class RunsKeeper(QObject):
    """Stores runs next to the project's file; those of an unsaved project in a folder of the user until it is saved.

    Saving a project as another file copies its runs; the first file keeps its own.

    `listed(list of Kept)` is emitted after the list was read again, newest first, `moved(dict)` when run folders have
    become others; `refused(title, reason)` and `said(title, detail)` carry messages for the user.
    """

    listed = Signal(object)
    moved = Signal(object)
    said = Signal(str, str)
    refused = Signal(str, str)

    def __init__(
        self,
        document: Document,
        background: Background,
        settings: Settings,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._document, self._background, self._settings = (
            document,
            background,
            settings,
        )
        self._made: list[
            Path
        ] = []  # runs of a project without a file, which move when it is saved
        self._busy: Callable[[], bool] = lambda: False
        self._waiting = False
        self._left: Path | None = (
            None  # the runs folder of the previous file, until they are copied after Save As
        )
        self._word: tuple[SignalInstance, str, str] | None = None
        self._event_files = False
        self._unsaved = self._new_folder()
        self.folder, self._own = self._home(), self._beside
        document.replaced.connect(self._replaced)
        document.path_changed.connect(self._path_changed)

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Set the predicate `busy`: a run's folder is not moved before it has ended."""
        self._busy = busy

    def write_event_files(self, enabled: bool) -> None:
        """Have each run write TensorBoard event files, or not, from the next one on."""
        self._event_files = enabled

    def recorder(
        self,
        project: Project,
        job: Job,
        parent: Parent | None = None,
        name: str = "",
        tags: tuple[str, ...] = (),
    ) -> Recorder | None:
        """Return the recorder of a starting run; None if no folder is writable, which `announce_start` reports."""
        stored_run: Kept | None
        try:
            stored_run = store.begin(self.folder, project, parent, name, tags)
        except OSError as error:
            stored_run = self._elsewhere(project, parent, name, tags, error)
        if stored_run is None:
            return None
        if not self._beside:
            self._made.append(stored_run.folder)
        return Recorder(stored_run, project, job.source.text, watch=self.watch(job))

    @property
    def unsaved(self) -> tuple[Path, ...]:
        """The folders of runs that move beside the project once it has a file."""
        return tuple(self._made)

    def take_over(self, folders: Iterable[Path]) -> None:
        """Have runs of a project without a file, which was restored, move with it too."""
        self._made = [*self._made, *(folder for folder in folders if folder.is_dir())]
        if self._made and self._document.path is None:
            self._unsaved = self.folder = self._made[-1].parent
        self.refresh()

    def watch(self, job: Job) -> Callable[[Path], EventSink] | None:
        """Return a factory, for the run's thread, of a further listener of its events; None if there is none."""
        if not self._event_files:
            return None

        def open_event_files(folder: Path) -> EventSink:
            return EventFiles(folder, job)

        return open_event_files

    def _elsewhere(
        self,
        project: Project,
        parent: Parent | None,
        name: str,
        tags: tuple[str, ...],
        error: OSError,
    ) -> Kept | None:
        folder = self._spare
        reason = f"{self.folder} cannot be written: {error.strerror or error}."
        try:
            stored_run = store.begin(folder, project, parent, name, tags)
        except OSError as again:
            nor = f"Neither can {folder}: {again.strerror or again}. Its weights can be exported."
            self._word = (self.refused, "This run is not saved", f"{reason} {nor}")
            return None
        self._word = (
            self.said,
            "This run is saved in another folder",
            f"{reason} It is saved in {stored_run.folder}.",
        )
        return stored_run

    def announce_start(self) -> None:
        """Emit the pending message about the run that has started: the start clears earlier messages."""
        word, self._word = self._word, None
        if word is not None:
            word[0].emit(*word[1:])

    def refresh(self) -> None:
        """Read the list again in the background."""
        folders = (
            (self.folder,)
            if self._writable or self.folder == self._spare
            else (self.folder, self._spare)
        )
        self._background.ask(
            "runs",
            _listed,
            folders,
            on_answer=self.listed.emit,
            on_error=self._not_listed,
        )

    def run_ended(self) -> None:
        """Carry out what waited for the end of a run."""
        if self._waiting:
            self._waiting = False
            self._follow()
        self.refresh()

    @property
    def _spare(self) -> Path:
        """The folder for runs if the usual one is not writable."""
        return store.runs_elsewhere(
            self._settings.runs_folder, self._document.project.name
        )

    def _new_folder(self) -> Path:
        """Return a folder for the runs of the open project while it has no file."""
        return store.runs_unsaved(
            self._settings.runs_folder, self._document.project.name
        )

    @property
    def _writable(self) -> bool:
        return (
            self.folder.is_dir()
            if self.folder.exists()
            else os.access(self.folder.parent, os.W_OK)
        )

    def _not_listed(self, failure: WorkerFailure) -> None:
        self.listed.emit([])
        self.refused.emit("The runs cannot be listed", failure.message)

    @property
    def _beside(self) -> bool:
        """Return whether runs belong next to the project's file: it has one, which is not one of the program's
        examples."""
        path = self._document.path
        return (
            path is not None
            and path.parent.resolve() != resource_path("examples").resolve()
        )

    def _home(self) -> Path:
        path = self._document.path
        if path is None:
            return self._unsaved
        return store.runs_beside(path) if self._beside else self._spare

    def _replaced(self, _project: object) -> None:
        self._unsaved = self._new_folder()
        self._made, self._waiting, self._left = [], False, None
        self.folder, self._own = self._home(), self._beside
        self.refresh()

    def _path_changed(self, _path: object) -> None:
        home = self._home()
        if home == self.folder:
            return
        if self._own:
            self._left = self.folder
        self.folder, self._own = home, self._beside
        if (self._made or self._left is not None) and self._busy():
            self._waiting = True
        else:
            self._follow()
        self.refresh()

    def _follow(self) -> None:
        """Move or copy the runs to the project's new file: those of an unsaved project move, those of another file are
        copied."""
        if self._made:
            self._move()
        if self._own and self._left is not None:
            source, self._left, target = self._left, None, self.folder
            copying = BackgroundTask(lambda *_: _copied(source, target))
            copying.ended.connect(partial(self._have_followed, source, target))
            copying.begin()

    def _have_followed(
        self, source: Path, target: Path, answer: Relocated | WorkerFailure
    ) -> None:
        copies, problem = (
            ({}, answer.message) if isinstance(answer, WorkerFailure) else answer
        )
        name = f"{target.stem}.tape"
        if problem:
            reason = f"{problem.rstrip('.')}. They are still in {source}."
            self.refused.emit(f"Not all runs were copied beside {name}", reason)
        elif copies:
            self.said.emit(
                f"Copied {counted(len(copies), 'run')} beside {name}",
                f"{source} keeps its own.",
            )
        if target == self.folder:
            self.moved.emit(copies)
            self.refresh()

    def _move(self) -> None:
        """Move the runs of an unsaved project to where it was saved."""
        folders, self._made = self._made, []
        self._background.ask(
            "moved runs", _moved, tuple(folders), self.folder, on_answer=self._has_moved
        )

    def _has_moved(self, answer: Relocated) -> None:
        moved, problem = answer
        self.moved.emit(moved)
        if problem:
            self.refused.emit("Not all runs were moved beside the project", problem)
        self.refresh()


def _listed(folders: tuple[Path, ...]) -> list[Kept]:
    return [stored_run for folder in folders for stored_run in store.listed(folder)]


def _copied(source: Path, target: Path) -> Relocated:
    """Copy the runs of a folder into another."""
    copies, problem = dict[Path, Kept](), ""
    for stored_run in reversed(store.listed(source)):
        try:
            copy = store.copy(stored_run, target)
        except (OSError, RunError) as error:
            problem = str(error)
        else:
            if copy is not None:
                copies[stored_run.folder] = copy
    return copies, problem


def _moved(folders: tuple[Path, ...], target: Path) -> Relocated:
    """Move runs into another folder."""
    moved, problem = dict[Path, Kept](), ""
    for folder in folders:
        if not folder.exists():  # it was deleted
            continue
        try:
            moved[folder] = store.move(Kept(folder, record.read(folder)), target)
        except (OSError, RunError) as error:
            problem = f"{error}"
    return moved, problem
