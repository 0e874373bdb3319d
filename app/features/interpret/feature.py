"""What the net looks at, in the window: the page "Attention", with attributions of the same samples."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.interpret.control import InterpretControl
from app.features.interpret.page import InterpretPage
from app.views.feature import Feature, Page


class InterpretFeature(Feature):
    rank = 187
    interpreted: InterpretPage
    interpret_control: InterpretControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "attention",
            "Attention",
            "eye",
            "centre",
            self._make,
            words="A&ttention",
            home=lambda: self.interpreted.heads,
        )

    def _make(self) -> InterpretPage:
        self.interpreted = InterpretPage()
        self.interpret_control = InterpretControl(self.interpreted, self.workspace)
        return self.interpreted
