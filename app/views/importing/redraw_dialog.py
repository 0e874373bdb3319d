"""The dialog that redraws an opened model, or a part of one, as a network that can be edited."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QCheckBox, QWidget

from app.engine.requests.import_advice import cure_of
from app.engine.requests.import_model import ImportModel
from app.project.project import Project
from app.views.fields.form_field import FormField
from app.views.importing.import_dialog import KEPT, Open, worth_reading
from app.views.importing.import_result import ResultPage
from app.views.importing.importing import ImportedModel, import_model
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.progress import ProgressDialog
from app.views.ui.widgets.painting import announce, label, set_property

WHAT = (
    "{} is constructed again, run with the same inputs, and drawn as layers and wires. The drawing is compared with "
    "the model and replaces the open project."
)


class RedrawDialog(ProgressDialog):
    """Redraws `wanted`. `lay_out` runs on a worker thread; `open_project` receives the project and returns whether it
    was opened."""

    def __init__(
        self,
        wanted: ImportModel,
        lay_out: Callable[[Project], Project],
        open_project: Open,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Redraw as an editable network", parent)
        self._wanted, self._lay_out, self._open = wanted, lay_out, open_project
        self._drawn: ImportedModel | None = None  # drawn and not opened yet
        source_text = wanted.model
        self.what = label(
            WHAT.format(
                f"{source_text[:1].upper()}{source_text[1:]}"
                if wanted.part == ""
                else source_text
            ),
            "body",
            "text2",
            wrap=True,
        )
        self.weights = QCheckBox("Keep the weights of the model")
        self.weights_entry = FormField("Start weights", self.weights, KEPT)
        self.state = label("", "label", "text3", wrap=True)
        for widget in (self.what, self.weights_entry, self.state):
            self.body.addWidget(widget)
        self.body.addStretch(1)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.redraw_button = self.add_button("Redraw", "primary", default=True)
        self.redraw_button.clicked.connect(self.start)
        self.setMinimumSize(480, 260)
        self.resize(560, 300)
        self.finished.connect(self._leave)

    def start(self) -> None:
        """Redraw, or open what was redrawn."""
        if self.running:
            return
        if self._drawn is not None:
            self._open_it(self._drawn)
            return
        self._wanted = replace(self._wanted, keep_weights=self.weights.isChecked())
        self.enable_form(False, self.weights_entry, self.redraw_button)
        self.begin(partial(import_model, self._wanted, self._lay_out))

    def _leave(self, _result: int) -> None:
        if self._drawn is not None:
            self._drawn.stop_comparison()

    def show_progress(self, message: str) -> None:
        self._say(message, "text2")

    def _say(self, message: str, tone: str = "text3") -> None:
        self.state.setText(message)
        set_property(self.state, "tone", tone)

    def finished_with(
        self, answer: ImportedModel | WorkerFailure, cancelled: bool
    ) -> None:
        self.enable_form(True, self.weights_entry, self.redraw_button)
        if cancelled:
            self._say("Stopped. Nothing was redrawn.")
        elif isinstance(answer, WorkerFailure):
            reason = (
                answer.message.strip() or type(answer.error).__name__
            ).removesuffix(".")
            cure = cure_of(answer.error)[1]
            message = " ".join(
                filter(None, (f"{reason[:1].upper()}{reason[1:]}.", cure))
            )
            self.state.setToolTip(answer.traceback)
            self._say(message, "error")
            announce(self, message)
        elif notes := worth_reading(answer.project, self._wanted):
            self._show_result(answer, notes)
        else:
            self._open_it(answer)

    def _show_result(self, drawn: ImportedModel, notes: tuple[str, ...]) -> None:
        for widget in (self.what, self.weights_entry):
            widget.hide()
        self._drawn, self.result_page = drawn, ResultPage(notes)
        self.body.insertWidget(0, self.result_page, 1)
        self._say("")
        self.resize(max(self.width(), 640), max(self.height(), 480))
        self.redraw_button.setText("Open")
        self.redraw_button.setFocus()
        announce(self, " ".join(notes))

    def _open_it(self, drawn: ImportedModel) -> None:
        if self._open(drawn, self._wanted):
            self._drawn = None
            self.redraw_button.setEnabled(False)
            QTimer.singleShot(0, self, self.accept)  # the drawing goes before
        else:
            if self._drawn is None:
                drawn.stop_comparison()
            self._say("It was not opened: your project is unchanged.")
