"""The dialog that opens a model from anywhere: its source, arguments and inputs; then one forward pass in a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QCheckBox, QFileDialog, QPlainTextEdit, QWidget

from app.builder.catalog.custom import read_text
from app.engine import observe_process
from app.engine.requests.observe import Observe, example_of, request_of
from app.observe.observation import Observation
from app.source.layer_files import LayerFileError, allow, allowed
from app.source.own_files import OwnFiles
from app.sources.finding import code_of, file_of
from app.sources.spec import (
    ArgumentsError,
    AskedModel,
    InputsNeededError,
    parse_arguments,
    parse_input,
    parse_source,
)
from app.views.fields.form_field import FormField, code_field
from app.views.layers_control import LayersControl
from app.views.trust_dialog import PERMISSIONS, ModelTrustDialog, listed
from app.views.ui import theme
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.progress import ProgressDialog
from app.views.ui.task import Cancelled, Report
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import announce, label, set_property

SOURCES = "   ".join(
    (
        "module:Class",
        "file.py:Class",
        "file.pt2",
        "file.onnx",
        "torchvision:NAME",
        "timm:NAME",
        "hf:NAME",
        "diffusers:Class",
    )
)
INPUTS = (
    "One per line, batch dimension first: 1x3x224x224, NAME=1x16:int64:0..99, batch.ids=1x16:int64, state.0=1x1x8. "
    "Empty: Tapedeck proposes them."
)
EXAMPLE = "In place of described inputs: a function, or a .pt, .npz or .safetensors file of tensors."
FILES = "Models (*.py *.pt2 *.onnx)"
META = "No weights are allocated and no values computed: shapes alone. For very large models."


class ObserveTrustDialog(ModelTrustDialog):
    """Shows the file of a model before it runs."""

    warning = f"To draw its model, Python runs this code {PERMISSIONS}"
    agree = "Trust and open"


class OpenModelDialog(ProgressDialog):
    """`show(observation, request)` receives what the model called."""

    def __init__(
        self,
        layers: LayersControl,
        show: Callable[[Observation, Observe], object],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Open a model", parent)
        self._layers, self._show = layers, show
        self._asked: Observe | None = None
        self._trusted = False
        self._folder = ""
        self.source = code_field("torchvision:resnet18")
        self.browse = Button("Choose…", icon="folder")
        self.arguments = code_field('{"num_classes": 10}')
        self.inputs = QPlainTextEdit()
        self.inputs.setFont(theme.font("code"))
        self.inputs.setPlaceholderText("1x3x224x224")
        self.inputs.setTabChangesFocus(True)
        self.inputs.setFixedHeight(
            round(3 * QFontMetricsF(self.inputs.font()).lineSpacing()) + 18
        )
        self.example = code_field("file.py:function")
        self.meta = QCheckBox("Construct on the meta device")
        self.train_mode = QCheckBox("Run in train mode")
        self.entries = {
            "source": FormField("Source", self.source, SOURCES, self.browse),
            "arguments": FormField(
                "Arguments of its constructor, as JSON", self.arguments
            ),
            "inputs": FormField("Inputs", self.inputs, INPUTS),
            "example": FormField("Inputs from a file", self.example, EXAMPLE),
            "meta": FormField("Weights", self.meta, META),
        }
        for entry in self.entries.values():
            self.body.addWidget(entry)
        self.body.addWidget(self.train_mode)
        self.state = label("", "label", "text3", wrap=True)
        self.body.addWidget(self.state)
        self.body.addStretch(1)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.open_button = self.add_button("Open", "primary", default=True)
        self.open_button.clicked.connect(self.start)
        self.browse.clicked.connect(self._browse)
        self.source.textChanged.connect(lambda _text: self._typed("source"))
        self.arguments.textChanged.connect(lambda _text: self._typed("arguments"))
        self.inputs.textChanged.connect(lambda: self._typed("inputs"))
        self.example.textChanged.connect(lambda _text: self._typed("example"))
        self.setMinimumSize(520, 460)
        self.resize(640, 540)
        self._typed("source")
        self.source.setFocus()

    def _typed(self, entry: str) -> None:
        self._trusted = False
        self.entries[entry].complain("")
        self.open_button.setEnabled(
            bool(self.source.text().strip()) and not self.running
        )

    def _browse(self) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self, "Open a model from a file", str(Path.home()), FILES
        )
        if name:
            self.source.setText(f"{name}:" if name.endswith(".py") else name)
            self.source.setFocus()

    # --- Opening

    def start(self) -> None:
        """Open it; a file of the user's own that is not trusted is shown first."""
        if self.running or not self.open_button.isEnabled():
            return
        lines = tuple(
            line for line in self.inputs.toPlainText().splitlines() if line.strip()
        )
        model = AskedModel(
            self.source.text().strip(),
            self.arguments.text().strip(),
            lines,
            self.train_mode.isChecked(),
            self.meta.isChecked(),
            folder=self._folder,
            example=self.example.text().strip(),
        )
        checks: tuple[tuple[str, Callable[[], object]], ...] = (
            ("source", lambda: parse_source(model.source)),
            ("arguments", lambda: parse_arguments(model.arguments)),
            ("inputs", lambda: [*map(parse_input, model.inputs)]),
            ("example", lambda: example_of(model)),
        )
        if not all([self.entries[entry].fits(check) for entry, check in checks]):
            return
        if model.example and lines:
            self.entries["example"].complain(
                "The inputs are described above as well: choose one of both."
            )
            return
        request = request_of(model)
        self._asked = request
        self._review_or_begin(request)

    def _review_or_begin(self, request: Observe) -> None:
        """Begin once every file of the user's own that runs is trusted; the first that is not is shown."""
        files = code_of(request.source, request.folder, request.example)
        if self._trusted or not request.runs_own_code:
            self._begin(request)
        elif (
            request.source.own_code
            and (path := file_of(request.source, request.folder)) is None
        ):
            self.entries["source"].complain(
                f"No file found for {request.source.where or request.source.kind}."
            )
            self.source.setFocus()
        elif reason := _unreadable(path) if request.source.own_code else "":
            self.entries["source"].complain(reason)
        elif waiting := next(
            (code_files for code_files in files if not allowed(code_files.key)), None
        ):
            self._review(waiting, request)
        else:
            self._begin(request)

    def open_model(self, model: AskedModel) -> None:
        """Fill the form, and open the model; if `trust`, its code runs without being shown."""
        self.source.setText(model.source)
        self.arguments.setText("" if model.arguments == "{}" else model.arguments)
        self.inputs.setPlainText("\n".join(model.inputs))
        self.train_mode.setChecked(model.train)
        self.meta.setChecked(model.meta)
        self.example.setText(model.example)
        self._trusted, self._folder = model.trust, model.folder
        self.start()

    def _review(self, files: OwnFiles, request: Observe) -> None:
        """Show files before they run; go on once they are trusted."""
        dialog = self._layers.review_model(files, ObserveTrustDialog, self)
        dialog.trusted.connect(lambda _files: self._review_or_begin(request))

    def _begin(self, request: Observe) -> None:
        self._enable(False)
        for files in (
            code_of(request.source, request.folder, request.example)
            if self._trusted
            else ()
        ):
            allow(files.key)  # until the window is closed
        self.begin(partial(_observed, request))

    def _enable(self, on: bool) -> None:
        self.enable_form(on, *self.entries.values(), self.train_mode, self.open_button)

    def show_progress(self, message: str) -> None:
        self._say(message, "text2")

    def finished_with(
        self, answer: Observation | WorkerFailure, cancelled: bool
    ) -> None:
        self._enable(True)
        if cancelled:
            self._say("Stopped. Nothing was opened.")
        elif isinstance(answer, WorkerFailure):
            if isinstance(answer.error, InputsNeededError):
                self._ask_inputs(answer.error)
                return
            if isinstance(answer.error, ArgumentsError):
                self._say("")
                self.entries["arguments"].complain(f"{answer.message}.")
                self.arguments.setFocus()
                announce(self, answer.message)
                return
            reason = (
                f"{answer.message.strip() or type(answer.error).__name__}".removesuffix(
                    "."
                )
            )
            self.state.setToolTip(answer.traceback)
            self._say(f"{reason}.", "error")
            announce(self, reason)
        else:
            assert self._asked is not None
            self._show(answer, self._asked)
            self.accept()

    def _ask_inputs(self, needed: InputsNeededError) -> None:
        """Say at the field which inputs it has to describe, and begin with a line for each."""
        which = (
            f"forward takes {listed(list(needed.names))}"
            if needed.names
            else "The inputs of forward are unknown"
        )
        message = f"{which}. Correct the sizes in these lines, then open the model."
        self.inputs.setPlainText("\n".join(needed.guessed))
        self.inputs.selectAll()
        self._say("")
        self.entries["inputs"].complain(message)
        self.inputs.setFocus()
        announce(self, message)

    def _say(self, message: str, tone: str = "text3") -> None:
        self.state.setText(message)
        set_property(self.state, "tone", tone)


def _observed(request: Observe, tell: Report, cancelled: Cancelled) -> Any:
    return observe_process.answer(request, request, cancelled=cancelled, tell=tell)


def _unreadable(path: Path | None) -> str:
    """Return why a file cannot be reviewed, "" if it can."""
    try:
        read_text(path) if path is not None else ""
    except LayerFileError as error:
        return str(error)
    return ""
