"""The section of the Training tab with the metrics of a run."""

from __future__ import annotations

from app.data.config import DataConfig
from app.data.sources import DataError, spec_of
from app.training.config import TrainingConfig
from app.training.metrics import SCORES, fitting, refusal
from app.views.fields.settings_section import KnobSection
from app.views.ui.layouts import vbox
from app.views.ui.widgets.focus import keeping_focus
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.toggle import Toggle

WORDS = "Measured on the validation samples after every epoch, beside loss and accuracy, by torchmetrics."


class MetricsSection(KnobSection):
    """A switch for each metric that applies to the data, and for other chosen ones."""

    def __init__(self) -> None:
        super().__init__("Metrics")
        self.body_layout.addWidget(label(WORDS, "label", "text3", wrap=True))
        self.toggles: dict[str, Toggle] = {}
        self._rows = vbox(spacing=5)
        self.body_layout.addLayout(self._rows)
        self._chosen: tuple[str, ...] = ()
        self._task = ("", 0)

    @property
    def names(self) -> tuple[str, ...]:
        return ("metrics",)

    def set_data(self, data: DataConfig) -> None:
        """Set the data, which determine the metrics on offer."""
        try:
            spec = spec_of(data)
        except DataError:
            return
        self._task = (spec.task if spec.is_read else "", len(spec.classes))
        self._make()

    def show_config(self, training: TrainingConfig) -> None:
        self._chosen = training.metrics
        self._make()
        super().show_config(training)

    def summary_texts(self, training: TrainingConfig) -> list[str]:
        return [
            SCORES[name].label if name in SCORES else name for name in training.metrics
        ]

    def _make(self) -> None:
        fit = [score.name for score in fitting(*self._task)]
        names = [*fit, *(name for name in self._chosen if name not in fit)]
        if list(self.toggles) != names:
            with keeping_focus(self):
                for toggle in self.toggles.values():
                    self._rows.removeWidget(toggle)
                    toggle.hide()
                    toggle.deleteLater()
                self.toggles = {name: self._toggle(name) for name in names}
        for name, toggle in self.toggles.items():
            toggle.set_value(name in self._chosen)
            toggle.set_invalid(refusal(name, *self._task) or None)
            if name in fit:
                toggle.setToolTip(SCORES[name].doc)

    def _toggle(self, name: str) -> Toggle:
        toggle = Toggle(SCORES[name].label if name in SCORES else name, self)
        toggle.edited.connect(lambda on, name=name: self.choose(name, bool(on)))
        self._rows.addWidget(toggle)
        return toggle

    def choose(self, name: str, on: bool) -> None:
        """Measure a metric, or no longer."""
        chosen = {*self._chosen, name} if on else {*self._chosen} - {name}
        order = [*SCORES, *(other for other in self._chosen if other not in SCORES)]
        self.edited.emit(
            "metrics", tuple(metric for metric in order if metric in chosen), None
        )
