"""What the net looks at, in the window: the page "Attention", with attributions of the same samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.views.feature import Feature, Page, Steps

if TYPE_CHECKING:
    from app.views.interpret.control import InterpretControl
    from app.views.interpret.page import InterpretPage


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
            on_demand=True,
            words="A&ttention",
            home=lambda: self.interpreted.heads,
        )

    def _make(self) -> Steps:
        from app.views.interpret.page import InterpretPage

        yield
        from app.views.interpret.control import InterpretControl

        yield
        self.interpreted = InterpretPage()
        self.interpret_control = InterpretControl(self.interpreted, self.workspace)
        return self.interpreted
