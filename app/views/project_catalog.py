"""The catalog of the open project: torch's ops, the user's own layers, the project's blocks, and blocks of the library
that it does not contain yet."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject, QTimer, Signal

from app.builder.blocks import Blocks, with_blocks
from app.builder.catalog.catalog import Catalog, OpSpec
from app.project.document import Document
from app.project.library import Library, offered
from app.project.project import Project

DRAWN = (
    40  # milliseconds in which another project is painted before lists are made for it
)


class _Voice(QObject):
    changed = Signal()


class ProjectCatalog(Catalog):
    """A catalog that follows the open project. Views keep a reference and query it each time.

    `changed` is emitted after ops were added, removed or changed; for another project, once that is drawn. `now` is the
    current catalog as an immutable value for other threads, without offers of the library, which no graph may use.
    """

    def __init__(self, base: Catalog, document: Document) -> None:
        super().__init__((), base.torch_version)
        self._base, self._own = base, base
        self._blocks: Blocks = document.project.blocks
        self._library = Library()
        self._voice = _Voice(document)
        self.changed = self._voice.changed
        self._later = QTimer(self._voice, singleShot=True, interval=DRAWN)
        self._later.timeout.connect(self.changed.emit)
        self._refill()
        # Views that draw another project query this catalog before `changed` is emitted.
        document.replaced.connect(self._replaced)
        document.changed.connect(lambda _before, after: self._follow(after))

    @property
    def now(self) -> Catalog:
        return self._now

    @property
    def library(self) -> Library:
        return self._library

    def set_custom(self, specs: Iterable[OpSpec]) -> None:
        """Set the layers of the user's own files."""
        specs = tuple(specs)
        self._own = self._base.plus(specs) if specs else self._base
        self._refresh()

    def set_library(self, library: Library) -> None:
        """Set the library."""
        if library != self._library:
            self._library = library
            self._refresh()

    def _replaced(self, project: Project) -> None:
        if project.blocks is not self._blocks:
            self._blocks = project.blocks
            self._refill()
            self._later.start()

    def _follow(self, project: Project) -> None:
        if project.blocks is not self._blocks:
            self._blocks = project.blocks
            self._refresh()

    def _refresh(self) -> None:
        self._refill()
        self._later.stop()
        self.changed.emit()

    def _refill(self) -> None:
        self._now = with_blocks(self._own, self._blocks)
        self._specs = {
            **self._now,
            **{spec.key: spec for spec in offered(self._library, self._blocks)},
        }
