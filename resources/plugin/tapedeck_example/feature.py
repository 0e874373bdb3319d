"""A page that counts the layers of the open network by their kind. It runs in the window, which imports no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from tapedeck.plugin import Feature, Page


class ExampleFeature(Feature):
    rank = 900

    def pages(self) -> Iterable[Page]:
        yield Page(
            "example", "Example", "layers", "bottom", self.make_page, words="Example"
        )

    def make_page(self) -> QLabel:
        self.label = QLabel()
        self.label.setContentsMargins(12, 12, 12, 12)
        self.label.setAlignment(Qt.AlignmentFlag.AlignTop)
        return self.label

    def finish(self) -> None:
        self.workspace.document.changed.connect(self.count)
        self.workspace.document.replaced.connect(self.count)
        self.count()

    def count(self, *_signalled: object) -> None:
        """Show the project as it is now; `workspace` has all that a feature may use."""
        nodes = self.workspace.document.project.graph.nodes.values()
        numbers = Counter(node.op for node in nodes).most_common()
        self.label.setText("\n".join(f"{number} × {op}" for op, number in numbers))
