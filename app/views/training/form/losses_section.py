"""The Loss section: one loss, or one per output with its weight and target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal

from app.data.spec import TargetInfo
from app.engine.requests.choices import CheckLoss, Params
from app.preflight.multi_output import target_label, usual_loss
from app.training.choices import LOSSES, OWN_LOSS, ChoiceParam
from app.training.config import INPUT, MOST_WEIGHT, OutputLoss, TrainingConfig
from app.training.setup import weighted_losses as balance
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.training.form.choice_section import ChoiceSection
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Button, ChoiceField
from app.views.ui.widgets.focus import keeping_focus
from app.views.ui.widgets.painting import label, show_or_hide

_WEIGHT = (
    ChoiceParam(
        "weight",
        "float",
        1.0,
        minimum=0,
        maximum=MOST_WEIGHT,
        doc="Weight of this loss in the total loss; 0 measures the output without training on it.",
    ),
)


def _pairs(targets: Sequence[TargetInfo]) -> list[tuple[str, str]]:
    return [(target.name, target_label(target.name)) for target in targets]


class OutputSection(ChoiceSection):
    """The loss of one output. `made(OutputLoss, merge)` carries an edit."""

    made = Signal(object, object)
    removed = Signal(str)
    put_first = Signal(str)

    def __init__(
        self, row: OutputLoss, targets: Sequence[TargetInfo], engine: EngineService
    ) -> None:
        names = (*LOSSES, OWN_LOSS) if row.loss.name == OWN_LOSS else tuple(LOSSES)
        super().__init__(
            row.output, names, partial(Params, "loss"), CheckLoss, engine, opened=False
        )
        self._key = f"training.loss of {row.output}"
        self.row = row
        self.target = ChoiceField(_pairs(targets), pairs=True)
        self.target.setAccessibleName(f"Target of {row.output}")
        self.weight = ParamForm(_WEIGHT)
        self.first = Button("Report accuracy of this output", "link")
        self.none = Button("No loss for this output", "link")
        self.body_layout.insertWidget(0, label("compared with", "code", "text2"))
        self.body_layout.insertWidget(1, self.target)
        self.body_layout.addWidget(self.weight)
        for button in (self.first, self.none):
            self.body_layout.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        self.chosen.connect(
            lambda choice, merge: self.made.emit(replace(self.row, loss=choice), merge)
        )
        self.target.edited.connect(self._compare)
        self.weight.edited.connect(self._weigh)
        self.weight.reset.connect(lambda _name: self._weigh("weight", 1.0, None))
        self.first.clicked.connect(lambda: self.put_first.emit(self.row.output))
        self.none.clicked.connect(lambda: self.removed.emit(self.row.output))
        self._targets = {target.name: target for target in targets}

    def show_row(self, row: OutputLoss, first: bool, alone: bool) -> None:
        """Show the project's loss; accuracy is measured for the `first`."""
        self.row = row
        self.target.set_value(
            row.target if row.target in self._targets else next(iter(self._targets))
        )
        self.weight.set_values({} if row.weight == 1.0 else {"weight": row.weight})
        self.first.setVisible(not first)
        self.none.setVisible(not alone)
        self.show_choice(row.loss)
        times = f" × {row.weight:g}" if row.weight != 1.0 else ""
        self.set_summary(f"{row.loss.name}{times}, {target_label(row.target)}", False)

    def _compare(self, name: str) -> None:
        """Another target: the loss goes along where it cannot compare with it."""
        self.made.emit(
            replace(
                self.row,
                target=name,
                loss=usual_loss(self._targets[name], self.row.loss),
            ),
            None,
        )

    def _weigh(self, _name: str, value: Any, merge: str | None) -> None:
        if not value >= 0:
            self.weight.set_problem(
                "weight", f"weight is {value!r}; it must be at least 0."
            )
            return
        self.weight.set_problem("weight", "")
        visit = f"weight of {self.row.output}/{merge}" if merge else None
        self.made.emit(replace(self.row, weight=float(value)), visit)


class LossSection(ChoiceSection):
    """`rows_made(rows, words, merge)` are losses of outputs, none for one loss."""

    rows_made = Signal(object, str, object)

    def __init__(self, engine: EngineService) -> None:
        super().__init__(
            "Loss", tuple(LOSSES), partial(Params, "loss"), CheckLoss, engine
        )
        self._rows: tuple[OutputLoss, ...] = ()
        self._suggested: tuple[OutputLoss, ...] = ()
        self._targets: tuple[TargetInfo, ...] = ()
        self._several = self._weighs = False
        self.outputs: dict[str, OutputSection] = {}
        self.target = ChoiceField(
            [("", "the target"), (INPUT, target_label(INPUT))], pairs=True
        )
        self.target.setAccessibleName("Target of the output")
        self.target.edited.connect(self._compare)
        self.compared = label("compared with", "code", "text2")
        self.told = label("", "label", "text3", wrap=True)
        self.give = Button("Give each output a loss", "primary")
        self.give.clicked.connect(
            lambda: self.rows_made.emit(
                self._suggested, "Give each output a loss", None
            )
        )
        self.missing = Button("", "link")
        self.missing.clicked.connect(self._give_missing)
        self.of = label("of the output", "code", "text2")
        self.output = ChoiceField([], pairs=True)
        self.output.setAccessibleName("Output that the loss takes")
        self.output.edited.connect(self._take)
        self._returned: tuple[str, ...] = ()
        self._measured: OutputLoss | None = None
        for widget in (self.of, self.output):
            self.body_layout.insertWidget(0, widget)
            widget.hide()
        self.whole = vbox(spacing=0)
        for widget in (self.compared, self.target, self.told):
            self.body_layout.addWidget(widget)
        self.body_layout.addLayout(self.whole)
        for button in (self.give, self.missing):
            self.body_layout.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        self._update_text()

    # --- Input from other views

    def set_torch_loaded(self) -> None:
        super().set_torch_loaded()
        for section in self.outputs.values():
            section.set_torch_loaded()

    def set_outputs(
        self,
        suggested: tuple[OutputLoss, ...],
        targets: Sequence[TargetInfo],
        several: bool,
    ) -> None:
        """Set the suggested loss for each output of the net, and the targets to choose from."""
        self._returned = ()
        self._set_outputs(suggested, targets, several)

    def _set_outputs(
        self,
        suggested: tuple[OutputLoss, ...],
        targets: Sequence[TargetInfo],
        several: bool,
    ) -> None:
        if (suggested, tuple(targets), several) == (
            self._suggested,
            self._targets,
            self._several,
        ):
            return
        if tuple(targets) != self._targets:
            self._drop()
        self._suggested, self._targets, self._several = (
            suggested,
            tuple(targets),
            several,
        )
        self._fill()

    def set_returned(
        self,
        suggested: tuple[OutputLoss, ...],
        targets: Sequence[TargetInfo],
        measured: OutputLoss | None = None,
    ) -> None:
        """Set the suggested losses of what an opened model returns; the loss takes one of them, the first if none is
        chosen, or several have one each. The output that is `measured` is so beside a loss of the model's own."""
        self._measured = measured
        names = tuple(row.output for row in suggested)
        if names != self._returned:
            self._returned = names
            self.output.clear_choices()
            for name in names:
                self.output.add_choice(name)
        self._set_outputs(suggested, targets, False)

    def show_config(
        self, training: TrainingConfig, class_weights: bool = False
    ) -> None:
        """Show the project's losses; `class_weights`: whether the data are imbalanced enough to suggest weights."""
        self._rows, self._weighs = training.losses, class_weights
        self.show_choice(training.loss)
        self._fill()

    def choose(self, name: str) -> None:
        if self._rows:  # "Reset" of several losses gives back the one
            self.rows_made.emit((), "Use a single loss", None)
        else:
            super().choose(name)

    # --- Rows

    def _drop(self) -> None:
        for section in self.outputs.values():
            self.whole.removeWidget(section)
            section.hide()
            section.forget()
            section.deleteLater()
        self.outputs = {}

    def _fill(self) -> None:
        with keeping_focus(self):
            self._make_sections()
        for number, row in enumerate(self._rows):
            if row.output in self.outputs:
                self.outputs[row.output].show_row(row, not number, len(self._rows) == 1)
        self._update_text()

    def _make_sections(self) -> None:
        """Create a section per row, unless the outputs are the same."""
        if [row.output for row in self._rows] != list(self.outputs):
            self._drop()
            for row in self._rows if self._targets else ():
                section = OutputSection(row, self._targets, self._engine)
                section.made.connect(self._put)
                section.removed.connect(self._remove)
                section.put_first.connect(self._first)
                if self._loaded:
                    section.set_torch_loaded()
                self.whole.addWidget(section)
                self.outputs[row.output] = section

    def _update_text(self) -> None:
        """Explain the loss or losses, and offer cures for outputs without one."""
        rows, single = self._rows, not self._rows
        without = [
            row.output
            for row in self._suggested
            if row.output not in {other.output for other in rows}
        ]
        for widget in (self.name, self.compared, self.target):
            widget.setVisible(single and not self._several)
        self.words.setVisible(single and not self._several and self.form is None)
        if self.form is not None:
            self.form.setVisible(single and not self._several)
        self.target.set_value("")
        for widget in (self.of, self.output):
            widget.setVisible(
                len(self._returned) > 1 and sum(row.weight > 0 for row in rows) < 2
            )
        if self._returned:
            trained = [row.output for row in rows if row.weight]
            self.output.set_value(trained[0] if trained else self._returned[0])
        self.give.setVisible(single and self._several and bool(self._suggested))
        self.missing.setText(f"Give {without[0]} a loss" if without else "")
        self.missing.setVisible(bool(rows and without))
        text = ""
        if single and self._several:
            text = (
                "The network has several outputs or returns a dictionary, or the data have several targets: each "
                "output is compared with one target."
            )
        elif rows:
            text = f"The total loss is the weighted sum. Accuracy and metrics are those of {rows[0].output}."
            text += f" {balance.summary_text(rows)}" if self._weighs else ""
        show_or_hide(self.told, text)
        if rows:
            texts = [
                f"{row.output} {row.loss.name}"
                + f" × {row.weight:g}" * (row.weight != 1)
                for row in rows
            ]
            self.set_summary(", ".join(texts), True)

    def _make_form(self, name: str, params: tuple[ChoiceParam, ...]) -> None:
        super()._make_form(name, params)
        self._update_text()

    # --- Edits

    def _take(self, output: str) -> None:
        """Have the loss take another output of an opened model."""
        row = next(row for row in self._suggested if row.output == output)
        rows: tuple[OutputLoss, ...] = (row,)
        if output == self._returned[0] and row.loss.name != OWN_LOSS:
            rows = ()
        if row.loss.name == OWN_LOSS and self._measured is not None:
            rows = (self._measured, row)
        self.rows_made.emit(rows, f"Compute the loss from {output}", None)

    def _compare(self, target: str) -> None:
        """Set the target of the only output."""
        if target == INPUT and self._suggested:
            input_target = next(info for info in self._targets if info.name == INPUT)
            row = OutputLoss(
                self._suggested[0].output,
                usual_loss(input_target, self._choice),
                1.0,
                INPUT,
            )
            self.rows_made.emit((row,), "Compare with the input", None)
        else:
            self.target.set_value("")

    def _put(self, output_loss: OutputLoss, merge: str | None) -> None:
        rows = tuple(
            output_loss if row.output == output_loss.output else row
            for row in self._rows
        )
        if (
            len(rows) == 1
            and not self._several
            and not output_loss.target
            and output_loss.weight == 1.0
        ):
            rows = ()  # a single plain loss needs no rows
        self.rows_made.emit(rows, f"Set the loss of {output_loss.output}", merge)

    def _remove(self, output: str) -> None:
        rows = tuple(row for row in self._rows if row.output != output)
        self.rows_made.emit(rows, f"No loss for {output}", None)

    def _first(self, output: str) -> None:
        rows = sorted(self._rows, key=lambda row: row.output != output)
        self.rows_made.emit(tuple(rows), f"Report accuracy of {output}", None)

    def _give_missing(self) -> None:
        outputs = {row.output for row in self._rows}
        added = next(
            (row for row in self._suggested if row.output not in outputs), None
        )
        if added is not None:
            self.rows_made.emit(
                (*self._rows, added), f"Give {added.output} a loss", None
            )
