"""Figures of the open net on a page and as an overlay: marked once the net is another, taken away with its project.

A feature derives from it what measures, and what is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject

from app.views.shown_layer import show_layer

if TYPE_CHECKING:
    from app.project.project import Project
    from app.source.generated import Source
    from app.views.workspace import Workspace


class FiguresPage(Protocol):
    """What a page of figures does with what this tells it."""

    def show_message(self, text: str) -> None:
        """Show a sentence in place of figures."""

    def note(self, text: str) -> None:
        """Put a sentence before the figures."""


class MeasuredNet(QObject):
    """`page` has the figures of `key`, `overlay` draws them; `changed` is said once the net is another.

    `source` is that of the measured net, None for a model from code, which has no nodes to draw on.
    """

    def __init__(
        self,
        workspace: Workspace,
        page: FiguresPage,
        key: str,
        overlay: str,
        changed: str,
    ) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self._figures, self._key, self._overlay = page, key, overlay
        self._changed = changed
        self._project: Project | None = None
        self.source: Source | None = None
        workspace.overlays.changed.connect(lambda _name: self.paint())
        workspace.place.changed.connect(lambda _before, _after: self.paint())
        workspace.document.changed.connect(lambda _before, _after: self.follow())
        workspace.document.replaced.connect(lambda _project: self._leave())

    @property
    def current(self) -> bool:
        """Whether the open net is the one that was measured."""
        project = self._project
        return project is not None and self._workspace.document.project.has_net_of(
            project
        )

    def open_page(self) -> None:
        """Show the page, without the figures of before."""
        self.forget()
        self._workspace.pages.set_offered(self._key, True)
        self._workspace.pages.show(self._key)

    def measured(self, project: Project, source: Source | None) -> None:
        """Take over which net the figures on the page are of."""
        self._project = project
        self.source = source if project.opened is None else None
        self.follow()

    def forget(self) -> None:
        """Have no figures."""
        self._project = self.source = None
        self._workspace.overlays.offer(self._overlay, False)

    def follow(self) -> None:
        """Say on the page that the net is another, and offer the overlay while it is not."""
        if self._project is not None and not self.current:
            self._figures.note(self._changed)
        drawable = self.current and self.source is not None and self.has_marks()
        self._workspace.overlays.offer(self._overlay, drawable)
        self.paint()

    def _leave(self) -> None:
        """Forget the figures of another project."""
        self.stop()
        self.forget()
        self._figures.show_message("")
        self._workspace.pages.set_offered(self._key, False)

    def jump(self, path: str, file: str = "", line: int = 0) -> None:
        """Show a layer, or the layer of a line, of the net that was measured."""
        if self.current:
            show_layer(self._workspace, path, file, line)

    def paint(self) -> None:
        """Draw the overlay on the sheet in view, if the net is the one that was measured."""
        if self.source is not None and self.current:
            self.draw(self.source)
        else:
            self._workspace.overlays.draw_costs(self._overlay, {}, {})

    def stop(self) -> None:
        """End what is being measured."""

    def has_marks(self) -> bool:
        """Return whether there is something to draw."""
        return True

    def draw(self, source: Source) -> None:
        """Draw the figures on the nodes of the sheet in view."""
        raise NotImplementedError
