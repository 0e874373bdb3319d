"""The result of a dry run: whether it succeeded, time per step, memory."""

from __future__ import annotations

from PySide6.QtWidgets import QGridLayout, QWidget

from app.training.trials.results import DryRun
from app.util.formatting import bytes_text, figure, milliseconds, shape_text
from app.views.ui.dialogs.base import Dialog
from app.views.ui.widgets.painting import label


def facts(tried: DryRun) -> list[tuple[str, str]]:
    """Return the measured values with their names."""
    shape = shape_text((tried.batch_size, *tried.input_shape))
    first, *rest = tried.seconds
    rows = [
        ("Device", tried.device),
        ("Batch", shape),
        (
            "Step",
            f"{milliseconds(rest[-1] if rest else first)}, the first one {milliseconds(first)}",
        ),
        ("Validation batch", milliseconds(tried.validation_seconds)),
        ("Loss", " → ".join(map(figure, tried.losses))),
    ]
    if tried.memory is not None:
        name = (
            "Peak memory on the device"
            if tried.scope == "device"
            else "Process memory growth"
        )
        rows.append((name, bytes_text(tried.memory)))
    return rows


class DryRunDialog(Dialog):
    """The figures of a dry run that went well."""

    def __init__(self, tried: DryRun, parent: QWidget | None = None) -> None:
        super().__init__("Everything matches", parent, icon="check", color="run")
        self.setMinimumWidth(440)
        explanation = (
            "Ran forward, loss, backward, an optimizer step and a validation batch on synthetic data of the input's "
            "shape. All figures are measured; the losses say nothing about the real data."
        )
        self.body.addWidget(label(explanation, "body", "text2", wrap=True))
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 1)
        for row, (name, value) in enumerate(facts(tried)):
            grid.addWidget(label(name, "label", "text3"), row, 0)
            grid.addWidget(label(value, "label", "text"), row, 1)
        self.body.addLayout(grid)
        notes = [tried.note] if tried.note else []
        if tried.scope == "process" and tried.memory is not None:
            notes.append("Process memory growth includes libraries loaded meanwhile.")
        for note in notes:
            self.body.addWidget(label(note, "caption", "text3", wrap=True))
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
