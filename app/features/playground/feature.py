"""The playground in the window: the page "Playground", offered where the data are two numbers a sample or pictures that
a convolution sees, and the overlay "Units"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.features.playground.control import (
    UNITS,
    PlaygroundControl,
    has_filters,
    has_plane,
)
from app.util.language import marked, tr
from app.views.feature import Feature, Page

NO_PLANE = marked(
    "They are drawn where the data are two numbers a sample, such as Two moons."
)

if TYPE_CHECKING:
    from app.features.playground.page import PlaygroundPage


class PlaygroundFeature(Feature):
    rank = 165
    playground: PlaygroundPage
    control: PlaygroundControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "playground",
            "Playground",
            "curves",
            "centre",
            self._make,
            words="Pla&yground",
        )

    def overlays(self) -> Iterable[str]:
        return (UNITS,)

    def begin(self) -> None:
        self.workspace.overlays.changed.connect(self._overlay_chosen)
        self.workspace.document.changed.connect(lambda *_: self._offer())
        self.workspace.document.replaced.connect(lambda _project: self._offer())
        # A tab in front stays until another page is shown.
        self.workspace.pages.shown.connect(lambda _key: self._offer())
        self._offer()

    def _offer(self) -> None:
        project = self.workspace.document.project
        offered = has_plane(project) or has_filters(project)
        self.workspace.pages.set_offered("playground", offered)
        self.workspace.overlays.offer(UNITS, has_plane(project))

    def _overlay_chosen(self, name: str) -> None:
        """Have the page made, which draws the overlay."""
        if name == UNITS:
            self.workspace.pages.make("playground")
            if not has_plane(self.workspace.document.project):
                self.workspace.notifier.say(tr("No units to draw"), tr(NO_PLANE))

    def _make(self) -> PlaygroundPage:
        from app.features.playground.page import PlaygroundPage

        self.playground = PlaygroundPage()
        return self.playground

    def finish(self) -> None:
        self.control = PlaygroundControl(self.workspace, self.playground)
