"""What applying the edits to a run does, before it is done: a row for each layer."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QHeaderView, QWidget

from app.features.surgery.fates import LAYERS, function_words, summary
from app.features.surgery.values import SurgeryPlan
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label

WHERE = "on random inputs with new weights"
RULES = (
    "Remaining layers keep their weights, moments and learning rates. Data, loss, schedule and random numbers of the "
    "run do not change; train.py reproduces the run including this edit."
)


class SurgeryDialog(Dialog):
    """`applied` is emitted with the button “Apply edits”; the dialog stays open until it gets the result."""

    applied = Signal()

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(f"Apply edits to {title}", parent)
        self.plan: SurgeryPlan | None = None
        self.summary = label(
            "Comparing the canvas with the network of the run…",
            "label",
            "text",
            wrap=True,
        )
        self.function = label("", "label", "text2", wrap=True)
        self.table = Table(LAYERS, "Layers")
        self.every = QCheckBox("Show &unchanged layers")
        self.every.toggled.connect(self._show_rows)
        for widget in (self.summary, self.function):
            self.body.addWidget(widget)
        self.body.addWidget(self.table, 1)
        self.body.addWidget(self.every)
        self.body.addWidget(label(RULES, "caption", "text3", wrap=True))
        self.add_button("Cancel").clicked.connect(self.reject)
        self.button = self.add_button("Apply edits", "primary", default=True)
        self.button.clicked.connect(self._apply)
        self.button.setEnabled(False)
        self.every.setEnabled(False)
        self.resize(760, 520)

    def show_plan(self, plan: SurgeryPlan) -> None:
        """Show what will happen, which can be applied from now on."""
        self.plan = plan
        self.summary.setText(
            f"{plan.surgery.description}. {summary(plan.outcome.fates)}"
        )
        self.function.setText(function_words(plan.outcome, WHERE))
        self.every.setEnabled(True)
        self._show_rows()
        self.button.setEnabled(True)
        self.button.setFocus()

    def _show_rows(self) -> None:
        if self.plan is None:
            return
        fates = self.plan.outcome.fates
        shown = [
            fate
            for fate in fates
            if self.every.isChecked()
            or fate.what != "kept"
            or fate.before != fate.after
        ]
        self.table.cells.set_rows(shown)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)

    def _apply(self) -> None:
        """Emit `applied` once; the run answers when its step has ended."""
        if self.plan is not None and self.button.isEnabled():
            self.button.setEnabled(False)
            self.function.setText(
                "Applying: trying the edited network on a batch of the run first…"
            )
            self.applied.emit()
