"""The code in the window: the page "Code"."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.code.code_view import CodeView
from app.views.feature import Feature, Page


class CodeFeature(Feature):
    rank = 120
    code: CodeView

    def pages(self) -> Iterable[Page]:
        yield Page(
            "code",
            "Code",
            "code",
            "centre",
            self._make,
            words="&Code",
            shortcut="Ctrl+3",
            home=lambda: self.code.edit,
        )

    def _make(self) -> CodeView:
        self.code = CodeView(self.workspace.selection)
        self.code.edits(self.workspace.sheet, self.workspace.catalog)
        return self.code

    def finish(self) -> None:
        self.workspace.hearers.add(self._on_analysis, later=True)
        self._on_analysis()

    def _on_analysis(self) -> None:
        live = self.workspace.live
        if live.analysis is not None:
            in_front = live.in_front
            path = self.workspace.place.path
            self.code.set_source(
                in_front.source
                if in_front is not None
                else live.analysis.source.within(path)
            )
