"""The module of a node: how often it is repeated, and whether other nodes share it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout

from app.builder.edits.blocks import MOST_REPEATS
from app.util.formatting import number_text
from app.views.fields.line_edits import leaves_to_window
from app.views.ui import theme
from app.views.ui.layouts import hbox
from app.views.ui.widgets import Button, NumberField, Section
from app.views.ui.widgets.painting import label, set_property, show_or_hide

_NAMES_MOST = 3


def names(others: tuple[str, ...]) -> str:
    """Format names of nodes for a sentence.

    >>> names(("conv1",)), names(("a", "b", "c", "d", "e"))
    ('conv1', 'a, b, c and 2 more')
    """
    shown = ", ".join(others[:_NAMES_MOST])
    return (
        f"{shown} and {len(others) - _NAMES_MOST} more"
        if len(others) > _NAMES_MOST
        else shown
    )


class RepeatField(NumberField):
    """The number of repetitions in sequence, None if nodes differ. Undo is the project's.

    `visit` counts visits to the field.
    """

    def __init__(self) -> None:
        super().__init__(1, "int", 1, MOST_REPEATS)
        self._show = lambda count: "" if count is None else number_text(count)
        self.visit = 0
        self.setAccessibleName("Repeat")
        self.setFixedWidth(72)
        self.installEventFilter(self)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self.visit += 1
        super().focusInEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)


class ModuleSection(Section):
    """`repeat_requested(count, merge)`, `share_requested()` to choose a node to share with, `unshare_requested()`."""

    repeat_requested = Signal(int, object)
    share_requested = Signal()
    unshare_requested = Signal()

    def __init__(self) -> None:
        super().__init__("Module")
        self.repeat = RepeatField()
        self.repeat.setToolTip(
            "Repeat this module N times in sequence, each copy with its own weights."
        )
        self.repeat_note = label("", "caption", "text3", wrap=True)
        self.weights = label("", "label", "text2", wrap=True)
        self.share = Button("Share with…", "link")
        self.unshare = Button("Unshare", "link")
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        grid = QGridLayout()
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(5)
        grid.setColumnStretch(1, 1)
        grid.setColumnMinimumWidth(0, 62)
        again = hbox(self.repeat, (self.repeat_note, 1), spacing=8)
        acts = QHBoxLayout()
        acts.setContentsMargins(-3, 0, 0, 0)  # a link has 3 px of padding
        acts.setSpacing(12)
        acts.addWidget(self.share)
        acts.addWidget(self.unshare)
        acts.addStretch(1)
        self.repeat_name, self.weights_name = (
            label("Repeat ×", "label", "text2"),
            label("Weights", "label", "text2"),
        )
        self.repeat_name.setBuddy(self.repeat)
        grid.addWidget(self.repeat_name, 0, 0)
        grid.addLayout(again, 0, 1)
        grid.addWidget(self.weights_name, 1, 0)
        grid.addWidget(self.weights, 1, 1)
        grid.addLayout(acts, 2, 1)
        self.body_layout.addLayout(grid)
        self.body_layout.addWidget(self.problem)
        self.repeat.edited.connect(
            lambda count: self.repeat_requested.emit(
                count, f"repeat/{self.repeat.visit}"
            )
        )
        self.share.clicked.connect(self.share_requested)
        self.unshare.clicked.connect(self.unshare_requested)
        theme.manager().changed.connect(self.update)

    def show_module(
        self,
        repeat: int,
        others: tuple[str, ...],
        owner: str,
        can_share: bool,
        weighs: bool,
    ) -> None:
        """Show the module of a node: `others` call it too, `owner` is the one that has it, "" for the node itself.

        `weighs` says whether it is known to have weights.
        """
        if self.repeat.value() != repeat:
            self.repeat.set_value(repeat)
        more = "in sequence, each copy with its own weights" if repeat > 1 else ""
        self.repeat_note.setText(more)
        if others:
            had = (
                f"; it shares the module of {owner}"
                if owner and len(others) > 1
                else ""
            )
            self.weights.setText(f"shared with {names(others)}{had}")
        else:
            self.weights.setText("own" if weighs else "none")
        set_property(self.weights, "tone", "accent" if others else "text2")
        self.share.setVisible(can_share)
        self.unshare.setVisible(bool(others))
        self.set_caption(
            ", ".join(
                filter(
                    None,
                    (f"×{repeat}" if repeat > 1 else "", "shared" if others else ""),
                )
            )
        )
        self.show_problem("")

    def show_problem(self, problem: str) -> None:
        """Show why an action was refused; "" clears it."""
        show_or_hide(self.problem, problem)
