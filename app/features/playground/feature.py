"""The playground in the window: the page "Playground", offered where the data are two numbers a sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.features.playground.control import PlaygroundControl, has_plane
from app.views.feature import Feature, Page

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

    def begin(self) -> None:
        self.workspace.document.changed.connect(lambda *_: self._offer())
        self.workspace.document.replaced.connect(lambda _project: self._offer())
        # A tab in front stays until another page is shown.
        self.workspace.pages.shown.connect(lambda _key: self._offer())
        self._offer()

    def _offer(self) -> None:
        self.workspace.pages.set_offered("playground", has_plane(self.workspace))

    def _make(self) -> PlaygroundPage:
        from app.features.playground.page import PlaygroundPage

        self.playground = PlaygroundPage()
        return self.playground

    def finish(self) -> None:
        self.control = PlaygroundControl(self.workspace, self.playground)
