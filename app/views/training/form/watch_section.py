"""Watch points, at which a run pauses: a section of the Training tab. Stored in the settings, not in the project."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.training.choices import ChoiceParam
from app.training.monitoring.watch_points import WatchPoints
from app.views.fields.form import ParamForm
from app.views.fields.settings_section import FoldingSection
from app.views.ui.widgets.painting import label

MEBIBYTE = 1024 * 1024
LOSS = "loss_not_finite"  # in the form, where `not_finite` is a setting of the run
PARAMS = (
    ChoiceParam(
        LOSS,
        "bool",
        False,
        doc="Pauses if the loss is NaN or infinite. The batch is skipped.",
    ),
    ChoiceParam(
        "gradient_norm",
        "float",
        None,
        optional=True,
        minimum=0,
        doc="Pauses if a layer's gradient norm exceeds this; None to disable.",
    ),
    ChoiceParam(
        "dead",
        "float",
        None,
        optional=True,
        minimum=0,
        doc="Pauses if this fraction of a ReLU's units, such as 0.9, is 0 for a whole batch; None to disable.",
    ),
    ChoiceParam(
        "memory_mib",
        "int",
        None,
        optional=True,
        minimum=1,
        doc="Pauses if memory exceeds this many MiB: allocated on the device, or resident for a CPU run; None to "
        "disable.",
    ),
)
WORDS = "The run pauses and reports where. Gradients, dead units and memory are checked on sampled steps."


class WatchSection(FoldingSection):
    """Edits watch points. `changed(WatchPoints)` emits an edit, which applies to an active run immediately."""

    changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Watch points", parent)
        self.points = WatchPoints()
        self.body_layout.addWidget(label(WORDS, "label", "text3", wrap=True))
        self.form = ParamForm(PARAMS)
        self.form.edited.connect(self._edit)
        self.form.reset.connect(
            lambda name: self._edit(name, False if name == LOSS else None, None)
        )
        self.body_layout.addWidget(self.form)
        self.acted.connect(lambda: self._set_points(WatchPoints()))
        self.show_points(self.points)

    def show_points(self, points: WatchPoints) -> None:
        """Show watch points without emitting `changed`."""
        self.points = points
        memory = None if points.memory is None else points.memory // MEBIBYTE
        self.form.set_values(
            {
                LOSS: points.not_finite,
                "gradient_norm": points.gradient_norm,
                "dead": points.dead,
                "memory_mib": memory,
            }
        )
        texts = ["nan"] * points.not_finite
        texts += (
            [f"gradient {points.gradient_norm:g}"]
            if points.gradient_norm is not None
            else []
        )
        texts += [f"{100 * points.dead:g} % dead"] if points.dead is not None else []
        texts += [f"{memory:,} MiB"] if memory is not None else []
        self.set_summary(", ".join(texts) or "none", bool(texts))

    def _edit(self, name: str, value: Any, _merge: object) -> None:
        if name == "memory_mib":
            points = replace(
                self.points, memory=None if value is None else value * MEBIBYTE
            )
        else:
            threshold = float(value) if type(value) is int else value
            change: dict[str, Any] = {"not_finite" if name == LOSS else name: threshold}
            points = replace(self.points, **change)
        problem = points.problem()
        self.form.set_problem(name, problem)
        if not problem:
            self._set_points(points)

    def _set_points(self, points: WatchPoints) -> None:
        self.show_points(points)
        self.changed.emit(points)
