"""The open project, its file and its undo stack: the only thing that changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from app.project import file
from app.project.project import Project


class Document(QObject):
    """Holds one project. Every edit is `apply`, every view listens to `changed(before, after)`.

    `changed` is also emitted on undo, redo and when another project is opened, `leaving` just before that.
    `path_changed` and `dirty_changed` are for the title bar. `backed_up(copy)` is emitted when a file of an older
    version was backed up before it was overwritten, `saving(path, digest)` just before a file gets that content.
    """

    changed = Signal(object, object)
    leaving = Signal()
    replaced = Signal(object)
    path_changed = Signal(object)
    backed_up = Signal(object)
    saving = Signal(object, str)
    dirty_changed = Signal(bool)

    def __init__(
        self, project: Project | None = None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._project = project or Project()
        self.path: Path | None = None
        self._on_disk: str | None = None
        self.read_only = False  # whether it is saved under another name alone
        self.undo_stack = QUndoStack(self)
        self.undo_stack.cleanChanged.connect(self._clean_changed)

    @property
    def project(self) -> Project:
        return self._project

    @property
    def title(self) -> str:
        """The name to show: that of the file, without its ending, or the project's own while it has no file."""
        return self.path.stem if self.path is not None else self._project.name

    @property
    def on_disk(self) -> str | None:
        """The digest of the file as it was last read, written or seen here."""
        return self._on_disk

    def note_on_disk(self, digest: str | None) -> None:
        """Record the current content of the file as seen by the user: a save may replace it."""
        self._on_disk = digest

    @property
    def dirty(self) -> bool:
        return not self.undo_stack.isClean()

    @property
    def whole(self) -> Document:
        """Return itself; an editor of one sheet returns its document here."""
        return self

    def apply(self, text: str, project: Project, merge: str | None = None) -> None:
        """Replace the open project as one undo step called `text`; does nothing if it is equal.

        Consecutive steps with the same `merge` key are merged (typing in one field).
        """
        if not _identical(project, self._project):
            self.undo_stack.push(_Edit(self, text, self._project, project, merge))

    def new(self, project: Project | None = None) -> None:
        """Open an empty project, or the one given, that has no file yet."""
        self._replace(project or Project(), None, None)

    def open(self, path: Path) -> None:
        """Open a file. Raises `project_file.ProjectFileError` or OSError; the current project is then kept."""
        self.take(path, *file.read_with_digest(path))

    def take(self, path: Path, project: Project, digest: str) -> None:
        """Open a project that was read from a file; `digest` is that of the file."""
        self._replace(project, path, digest)

    def restore(self, project: Project, path: Path | None, on_disk: str | None) -> None:
        """Open a project with changes that no file has; `on_disk` is the digest of the file that they were made to."""
        self._replace(project, path, on_disk)
        self.mark_unsaved()

    def revise(self, revised: Callable[[Project], Project]) -> None:
        """Amend the open project and every undo step: not an edit, but information about the net that became known
        later."""
        for number in range(self.undo_stack.count()):
            step = self.undo_stack.command(number)
            if isinstance(step, _Edit):
                step.revise(revised)
        self._set(revised(self._project))

    def reload(self, project: Project, on_disk: str) -> None:
        """Load the file's current content as one undo step."""
        self.apply("Reload from disk", project)
        self._on_disk = on_disk
        self.undo_stack.setClean()

    def mark_unsaved(self) -> None:
        """Mark as unsaved until the next save, since no file has this content."""
        self.undo_stack.resetClean()

    def detach(self) -> None:
        """Detach from the file, so that the project is an unsaved copy."""
        self.path, self._on_disk, self.read_only = None, None, False
        self.mark_unsaved()
        self.path_changed.emit(None)

    def set_read_only(self) -> None:
        """Require another file name for saving."""
        self.read_only = True
        self.path_changed.emit(self.path)

    def save(self, path: Path | None = None) -> None:
        """Write to `path`, or to the file it came from. A project that has not been given another name is called as its
        file.

        Raises OSError, ProjectFileError if it could not be opened again, and `project_file.ChangedOnDiskError` if the
        file that it came from has not the content `on_disk`; then the file is as it was.
        """
        target = path or self.path
        if target is None:
            raise ValueError("the project has no file yet; save it under a name")
        expected = (
            self._on_disk
            if self.path is not None and _one_file(target, self.path)
            else None
        )
        written: list[str] = []

        def before(digest: str) -> None:
            written.append(digest)
            self.saving.emit(target, digest)

        unnamed = (Project().name, self.path.stem if self.path is not None else "")
        named = target.stem if self._project.name in unnamed else self._project.name
        backup = file.write(
            replace(self._project, name=named), target, expected, before
        )
        if named != self._project.name:
            self.revise(lambda project: replace(project, name=named))
        self.path, self._on_disk, self.read_only = target, written[0], False
        self.undo_stack.setClean()
        self.path_changed.emit(target)
        if backup is not None:
            self.backed_up.emit(backup)

    def _replace(
        self, project: Project, path: Path | None, on_disk: str | None
    ) -> None:
        self.leaving.emit()
        before, self._project = self._project, project
        self.path, self._on_disk, self.read_only = path, on_disk, False
        self.undo_stack.clear()
        self.undo_stack.setClean()  # an empty stack that is not clean stays so in `clear`
        self.replaced.emit(project)
        self.changed.emit(before, project)
        self.path_changed.emit(path)

    def _set(self, project: Project) -> None:
        before, self._project = self._project, project
        self.changed.emit(before, project)

    def _clean_changed(self, clean: bool) -> None:
        self.dirty_changed.emit(not clean)


def _one_file(a: Path, b: Path) -> bool:
    return os.path.realpath(a) == os.path.realpath(b)


class _Edit(QUndoCommand):
    """One step: swaps two references."""

    def __init__(
        self,
        document: Document,
        text: str,
        before: Project,
        after: Project,
        merge: str | None,
    ) -> None:
        super().__init__(text)
        self._document, self._before, self._after, self._merge = (
            document,
            before,
            after,
            merge,
        )

    def revise(self, revised: Callable[[Project], Project]) -> None:
        self._before, self._after = revised(self._before), revised(self._after)

    def id(self) -> int:
        return -1 if self._merge is None else hash(self._merge) & 0x7FFFFFFF

    def mergeWith(self, other: QUndoCommand) -> bool:
        if not isinstance(other, _Edit) or other._merge != self._merge:
            return False
        self._after = other._after
        self.setObsolete(_identical(self._before, self._after))
        return True

    def redo(self) -> None:
        self._document._set(self._after)

    def undo(self) -> None:
        self._document._set(self._before)


def _identical(a: Project, b: Project) -> bool:
    """Return whether both are identical, even as source text, where 1, 1.0 and True differ."""
    return a is b or (
        a == b and repr((a.graph.nodes, a.blocks)) == repr((b.graph.nodes, b.blocks))
    )
