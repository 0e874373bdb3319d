"""Predict on the user's input: a drawing, a dropped image, or typed values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QScrollArea,
    QSizePolicy,
    QStackedLayout,
    QWidget,
)

from app.data.known_sources import PICTURE_SUFFIXES
from app.features.evaluation.bars import Bars, InputPicture, LayerPictures
from app.features.evaluation.drawing_pad import Pad, picture_of
from app.features.evaluation.input_forms import NumbersForm, SeveralInputs
from app.features.evaluation.input_pictures import as_drawn, as_input
from app.features.evaluation.values import (
    Image,
    InputSurvey,
    PictureFile,
    Prediction,
    Sample,
)
from app.training.evaluation.result import is_picture
from app.util.formatting import shape_text, significant
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.scrolled import Pages
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.toggle import Toggle

FORM, SIDE_WIDTH = 240, 236
NOTHING = (
    "No input yet",
    "Loads the model and its data once; then draw, drop an image or type numbers.",
)


def _entries(survey: InputSurvey) -> tuple[object, ...]:
    """Return what the form of an input depends on."""
    return (
        survey.shape,
        survey.symbols,
        *(
            (survey_input.name, survey_input.shape, survey_input.symbols)
            for survey_input in survey.parts
        ),
    )


class TryPage(Pages):
    """`prediction_requested(sample)` carries an input without the batch axis, several by name; `show_answer` receives
    the prediction."""

    prediction_requested = Signal(object)
    refused = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._survey: InputSurvey | None = None
        self._takes_keys = False  # once the input is known
        self._picture: Path | None = None  # that was dropped
        self._given: Image | None = None  # a sample of the data
        self._name = ""
        self.setAcceptDrops(True)
        self.pad, self.seen, self.bars, self.layers = (
            Pad(),
            InputPicture(),
            Bars(),
            LayerPictures(),
        )
        self.words = label("", "caption", "text3", wrap=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.unlike = label("", "caption", "warn", wrap=True)
        self.unlike.hide()
        self.choose = Button("Choose…", icon="folder")
        self.choose.setToolTip("Choose an image file, as dropping one does")
        self.choose.setAccessibleName("Choose an image file")
        self.clear = Button("Clear", "flat", "trash")
        self.invert = Toggle("Invert", parent=self)
        self.invert.setToolTip(
            "Invert brightness, for dark ink on paper if the network was trained on white on black"
        )
        self._numbers: NumbersForm | None = None
        self._form, self.several = QScrollArea(), SeveralInputs()
        self._lay_out()
        self.several.changed.connect(self._request)
        self.pad.changed.connect(self._drawn)
        self.pad.dropped.connect(self.take_picture)
        self.choose.clicked.connect(self._choose_picture)
        self.clear.clicked.connect(self._clear)
        self.invert.toggled.connect(lambda _on: self._request())

    def _lay_out(self) -> None:
        draw = QWidget()
        tools = vbox(self.choose, self.clear, self.invert, 1, spacing=6)
        head = label("Model input", "caption", "text2")
        side = QWidget()
        seen = hbox(self.seen, tools, 1, spacing=8)
        vbox(head, seen, (self.words, 1), on=side, margins=0, spacing=6)
        side.setFixedWidth(SIDE_WIDTH)
        hbox(
            (self.pad, 0, Qt.AlignmentFlag.AlignTop),
            side,
            on=draw,
            margins=0,
            spacing=16,
        )
        self._form.setFrameShape(QFrame.Shape.NoFrame)
        self._form.setWidgetResizable(True)
        self._form.setFixedWidth(FORM + 160)
        self._inputs = QWidget()
        self._kinds = QStackedLayout(self._inputs)
        self._kinds.addWidget(draw)
        self._kinds.addWidget(self._form)
        self._kinds.addWidget(self.several)
        self._inputs.setMaximumWidth(FORM + 190)
        self.empty = EmptyState("flask", *NOTHING)
        main = QWidget()
        answer = vbox(self.unlike, (self.bars, 1), spacing=6)
        hbox(
            self._inputs,
            (answer, 3),
            (self.layers, 2),
            on=main,
            margins=(14, 8, 14, 6),
            spacing=24,
        )
        self._main = main
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.empty)
        self._stack.addWidget(main)
        self._turn_to(self.empty)

    def _turn_to(self, page: QWidget) -> None:
        """Show a page; the other one asks for no height."""
        for each in (self.empty, self._main):
            policy = each.sizePolicy()
            kinds = QSizePolicy.Policy
            policy.setVerticalPolicy(kinds.Preferred if each is page else kinds.Ignored)
            each.setSizePolicy(policy)
        self._stack.setCurrentWidget(page)

    # what can be tried

    @property
    def survey(self) -> InputSurvey | None:
        return self._survey

    def take_keys(self) -> None:
        """Give the first field the keyboard, as soon as the input is known."""
        self._takes_keys = self._survey is None
        fields = [
            self.choose,
            *present(self._kinds.currentWidget()).findChildren(QWidget),
        ]
        for field in fields if self._survey is not None else []:
            if field.isVisible() and field.focusPolicy() & Qt.FocusPolicy.TabFocus:
                field.setFocus(Qt.FocusReason.TabFocusReason)
                return

    def set_survey(self, survey: InputSurvey | None) -> None:
        """Show the input that the net takes; None while unknown."""
        self._show_survey(survey)
        if self._takes_keys and survey is not None:
            self.take_keys()

    def _show_survey(self, survey: InputSurvey | None) -> None:
        same = (
            self._survey is not None
            and survey is not None
            and _entries(self._survey) == _entries(survey)
        )
        self._survey = survey
        if survey is None:
            self.empty.set_text(*NOTHING)
            self._turn_to(self.empty)
            return
        if survey.parts or survey.symbols:
            self._turn_to(self._main)
            self._kinds.setCurrentIndex(2)
            self.layers.hide()
            if not same:
                self.several.show_inputs(survey.parts or (survey,))
            self._request()
            return
        pictured, row = is_picture(survey.shape), len(survey.shape) == 1
        if not pictured and not row:
            shape = shape_text(survey.shape)
            self.empty.set_text(
                "This input cannot be entered by hand",
                f"The network takes {shape} numbers.",
            )
            self._turn_to(self.empty)
            return
        self._turn_to(self._main)
        self._kinds.setCurrentIndex(0 if pictured else 1)
        self.layers.setVisible(pictured)
        if row and not same:
            self._make_fields(survey)
        self._show_note()
        self._request()

    @property
    def fields(self) -> list[NumberField]:
        """The fields of a row of numbers."""
        return self._numbers.fields if self._numbers is not None else []

    def _make_fields(self, survey: InputSurvey) -> None:
        hint = "Initial values are the means of the training samples, with their range beside each."
        self._numbers = NumbersForm(survey, survey.scaled(survey.mean), hint)
        self._numbers.changed.connect(self._request)
        self._form.setWidget(self._numbers)

    # inputs

    def _choose_picture(self) -> None:
        files = " ".join(f"*{suffix}" for suffix in sorted(PICTURE_SUFFIXES))
        name, _ = QFileDialog.getOpenFileName(
            self, "Choose an image", "", f"Images ({files})"
        )
        if name:
            self.take_picture(Path(name))

    def take_picture(self, path: Path) -> None:
        """Try a picture file."""
        if (
            self._survey is None
            or self._survey.parts
            or not is_picture(self._survey.shape)
        ):
            self.refused.emit(
                "The image could not be used", "The network does not take images."
            )
            return
        self._picture, self._name, self._given = path, path.name, None
        self._show_note()
        self._request()

    def show_sample(self, values: Image | Mapping[str, Image], name: str) -> None:
        """Try a sample of the data, as the net gets it."""
        self._name = name
        if isinstance(values, Mapping):
            self.several.set_sample(dict(values), name)
            self.prediction_requested.emit(self.several.sample())
            return
        if self._survey is not None and self._survey.symbols:
            self.several.set_sample({"": values}, name)
        elif self._numbers is not None and values.ndim == 1:
            self._numbers.set_values(values)
        else:
            self._given, self._picture = values, None
            self._show_note()
        self.prediction_requested.emit(values)

    def reset(self) -> None:
        """Reset the input and what was drawn or dropped, for another project."""
        self.set_survey(None)
        self._clear()

    def _drawn(self) -> None:
        if self._name:
            self._picture, self._given, self._name = None, None, ""
            self._show_note()
        self._request()

    def _clear(self) -> None:
        self._picture, self._given, self._name = None, None, ""
        self._show_note()
        self.invert.setChecked(False)
        self.pad.clear()

    def _request(self) -> None:
        sample = self.sample()
        if sample is not None:
            self.prediction_requested.emit(sample)
            return
        self.unlike.hide()
        self.bars.show_values((), np.zeros(0, np.float32), True)
        self.seen.show_picture(None)
        self.layers.show_layers(())

    def sample(self) -> Sample | None:
        """Return the current input, None if there is none yet."""
        survey = self._survey
        if survey is None:
            return None
        if survey.parts:
            return self.several.sample()
        if survey.symbols:
            return self.several.sample()[survey.name]
        if not is_picture(survey.shape):
            return self._numbers.values() if self._numbers is not None else None
        if self._given is not None:
            return self._given
        if self._picture is not None:
            return PictureFile(self._picture, self.invert.isChecked())
        if self.pad.empty:
            return None
        values = as_drawn(self.pad.ink(), survey)
        return as_input(1 - values if self.invert.isChecked() else values, survey)

    def _show_note(self, remark: str = "") -> None:
        """Show how the input is preprocessed, and a remark about a file."""
        survey = self._survey
        if survey is not None and not survey.parts and is_picture(survey.shape):
            self.words.setText(" ".join(filter(None, (self._note(survey), remark))))

    def _note(self, survey: InputSurvey) -> str:
        if self._given is not None:
            return f"{self._name}, as the network receives it."
        height, width = survey.shape[-2:]
        size = f"{height}×{width}"
        if self._picture is not None:
            colour = (
                "colour" if survey.shape[0] == 3 and len(survey.shape) == 3 else "grey"
            )
            return f"{self._name}, resized to {size} in {colour}."
        span = f"{significant(float(survey.low.min()), 3)} to {significant(float(survey.high.max()), 3)}"
        style = survey.drawing
        if style is None:
            how = "the whole pad, since the training samples are no drawings on a plain ground"
        else:
            centre = "its centre of mass" if style.by_mass else "it"
            how = f"scaled to {round(100 * style.fill)} % of the side with {centre} in the middle"
            how += ", dark on light" * style.dark + ", as the training samples are"
        return f"Your drawing at {size}: {how}; black to white is {span}."

    # answers

    def show_answer(self, answer: Prediction) -> None:
        assert self._survey is not None
        self.bars.show_values(
            self._survey.classes or self._survey.outputs,
            answer.values,
            self._survey.unit,
        )
        self._show_note(answer.remark)
        self.unlike.setText(answer.unlike)
        self.unlike.setVisible(bool(answer.unlike))
        self.seen.show_picture(answer.seen)
        self.layers.show_layers(answer.layers)
        self.layers.setVisible(bool(answer.layers))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if picture_of(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = picture_of(event)
        if path is not None:
            event.acceptProposedAction()
            self.take_picture(path)
