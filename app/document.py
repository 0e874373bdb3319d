"""The open project, its file and its undo stack: the only thing that changes."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from app import project_file
from app.project import Project


class Document(QObject):
    """Holds one project. Every edit is `apply`, every view listens to `changed(before, after)`.

    `changed` also comes on undo, redo and when another project is opened. `path_changed` and `dirty_changed` tell the
    title bar. `backed_up(copy)` comes when a file of an older version was copied before it was saved over.
    """

    changed = Signal(object, object)
    replaced = Signal(object)
    path_changed = Signal(object)
    backed_up = Signal(object)
    dirty_changed = Signal(bool)

    def __init__(self, project: Project | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._project = project or Project()
        self.path: Path | None = None
        self.undo_stack = QUndoStack(self)
        self.undo_stack.cleanChanged.connect(self._clean_changed)

    @property
    def project(self) -> Project:
        return self._project

    @property
    def dirty(self) -> bool:
        return not self.undo_stack.isClean()

    def apply(self, text: str, project: Project, merge: str | None = None) -> None:
        """Make `project` the open one, as one undo step called `text`; does nothing if it is equal to the open one.

        Steps in a row with the same `merge` key become one (a burst of typing in one field).
        """
        if not _same(project, self._project):
            self.undo_stack.push(_Edit(self, text, self._project, project, merge))

    def new(self, project: Project | None = None) -> None:
        """Open an empty project, or the one given, that has no file yet."""
        self._replace(project or Project(), None)

    def open(self, path: Path) -> None:
        """Open a file. Raises `project_file.ProjectFileError` or OSError, and then the open project stays."""
        self._replace(project_file.read(path), path)

    def save(self, path: Path | None = None) -> None:
        """Write to `path`, or to the file it came from.

        Raises OSError, or ProjectFileError if it could not be opened again, and then the file is as it was.
        """
        target = path or self.path
        if target is None:
            raise ValueError("the project has no file yet; save it under a name")
        backup = project_file.write(self._project, target)
        self.path = target
        self.undo_stack.setClean()
        self.path_changed.emit(target)
        if backup is not None:
            self.backed_up.emit(backup)

    def _replace(self, project: Project, path: Path | None) -> None:
        before, self._project = self._project, project
        self.path = path
        self.undo_stack.clear()
        self.replaced.emit(project)
        self.changed.emit(before, project)
        self.path_changed.emit(path)

    def _set(self, project: Project) -> None:
        before, self._project = self._project, project
        self.changed.emit(before, project)

    def _clean_changed(self, clean: bool) -> None:
        self.dirty_changed.emit(not clean)


class _Edit(QUndoCommand):
    """One step: swaps two references."""

    def __init__(self, document: Document, text: str, before: Project, after: Project, merge: str | None) -> None:
        super().__init__(text)
        self._document, self._before, self._after, self._merge = document, before, after, merge

    def id(self) -> int:
        return -1 if self._merge is None else hash(self._merge) & 0x7FFFFFFF

    def mergeWith(self, other: QUndoCommand) -> bool:
        if not isinstance(other, _Edit) or other._merge != self._merge:
            return False
        self._after = other._after
        self.setObsolete(_same(self._before, self._after))
        return True

    def redo(self) -> None:
        self._document._set(self._after)

    def undo(self) -> None:
        self._document._set(self._before)


def _same(a: Project, b: Project) -> bool:
    """Whether nothing differs, not even 1 from 1.0 and True in what is written into the code."""
    return a is b or (a == b and repr((a.graph.nodes, a.blocks)) == repr((b.graph.nodes, b.blocks)))
