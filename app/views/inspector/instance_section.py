"""The section of a block instance: open the block, or make it unique."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.util.formatting import counted
from app.views.ui.layouts import hbox
from app.views.ui.widgets import Button, Section
from app.views.ui.widgets.painting import label


class InstanceSection(Section):
    """`enter_requested()` and `unique_requested()`."""

    enter_requested = Signal()
    unique_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Block", parent=parent)
        self.words = label("", "label", "text2", wrap=True)
        self.enter = Button("Edit block", icon="block")
        self.unique = Button("Make unique")
        self.unique.setToolTip("Copy the block for this instance, so that edits do not affect the others.")
        row = hbox(self.enter, self.unique, 1, spacing=8)
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        self.body_layout.addWidget(self.words)
        self.body_layout.addLayout(row)
        self.body_layout.addWidget(self.problem)
        self.enter.clicked.connect(self.enter_requested)
        self.unique.clicked.connect(self.unique_requested)
        self.hide()

    def show_instance(self, block: str, count: int, note: str) -> None:
        """Show an instance of a block with `count` instances, and the note of the block."""
        alike = counted(count, "instance")
        self.words.setText(note or (f"{alike} of {block}. Editing the block changes all of them." if count > 1 else
                                    f"The only instance of {block}."))  # fmt: skip
        self.set_caption(alike)
        self.unique.setEnabled(count > 1)
        self.show_problem("")

    def show_problem(self, problem: str) -> None:
        """Show why an action was refused; "" clears it."""
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
