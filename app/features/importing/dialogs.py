"""The dialogs that read a model and open its project: one imports from torchvision or a Python file, one redraws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QCheckBox, QFrame, QScrollArea, QStackedWidget, QWidget

from app.features.importing.pages import FilePage, TorchvisionPage
from app.features.importing.process import ImportedModel, import_model, listed_models
from app.features.importing.values import (
    UNCHECKED,
    ImportModel,
    KnownModel,
    cure_of,
    remarks,
)
from app.project.model_inits import LOSES
from app.project.project import Project
from app.source.layer_files import allowed
from app.source.own_files import OwnFiles
from app.sources.finding import files_of
from app.views.fields.form_field import FormField
from app.views.layers_control import LayersControl
from app.views.trust_dialog import ModelTrustDialog
from app.views.ui import theme
from app.views.ui.background import Background, WorkerFailure
from app.views.ui.dialogs.progress import ProgressDialog
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Button, Segmented
from app.views.ui.widgets.painting import announce, label, set_property

KEY = "import.models"
KEPT = (
    "Training starts from them, exports contain them, and they are saved beside the project. Buffers are kept either "
    "way."
)

ONE_NODE = ") is one node"
TAKE = "Apply it with Run > Initialise as the imported model; this can be undone."
ONE_NODE_MEANS = (
    "A part shown as one node runs the code of its class: it trains, its shapes and gradients are shown, and its "
    "weights keep their keys. The calls inside it are not drawn."
)
WHAT = (
    "{} is constructed again, run with the same inputs, and drawn as layers and wires. The drawing is compared with "
    "the model and replaces the open project."
)

Open = Callable[[ImportedModel, ImportModel], bool]
_listed: tuple[
    KnownModel, ...
] = ()  # what torchvision has does not change while the program runs


class ReadingDialog(ProgressDialog):
    """Reads a model in a process of its own and opens the project that comes of it, after a page of remarks if it has
    any. `lay_out` runs on a worker thread; `open_project` receives the project and returns whether it was opened.

    A subclass makes the `form` and the button `go`, and implements `refuse`; `stopped` is shown after a cancellation.
    """

    form: tuple[QWidget, ...]
    go: Button
    stopped = ""

    def __init__(
        self,
        title: str,
        lay_out: Callable[[Project], Project],
        open_project: Open,
        parent: QWidget | None,
    ) -> None:
        super().__init__(title, parent)
        self._lay_out, self._open = lay_out, open_project
        self._wanted: ImportModel | None = None
        self._read: ImportedModel | None = None  # read and not opened yet
        self.weights = QCheckBox("Keep the weights of the model")
        self.weights_entry = FormField("Start weights", self.weights, KEPT)
        self.state = label("", "label", "text3", wrap=True)
        self.finished.connect(self._leave)

    def read(self, request: ImportModel) -> None:
        """Read a model."""
        self._wanted = request
        self.enable(False)
        self.begin(partial(import_model, request, self._lay_out))

    def enable(self, on: bool) -> None:
        """Let the form be edited, or not while a model is read."""
        self.enable_form(on, *self.form, self.go)

    def say(self, message: str, tone: str = "text3") -> None:
        """Show a message below the form."""
        self.state.setText(message)
        set_property(self.state, "tone", tone)

    def refuse(self, entry: str, message: str) -> None:
        """Show why a model cannot be read, and the cure, which is about an entry of the form, "" for none."""
        announce(self, message)
        self.say(message, "error")

    def show_progress(self, message: str) -> None:
        self.say(message, "text2")

    def finished_with(
        self, answer: ImportedModel | WorkerFailure, cancelled: bool
    ) -> None:
        assert self._wanted is not None
        self.enable(True)
        if cancelled:
            self.say(self.stopped)
        elif isinstance(answer, WorkerFailure):
            reason = answer.message.strip() or type(answer.error).__name__
            entry, cure = cure_of(answer.error)
            self.state.setToolTip(answer.traceback)
            self.refuse(entry, f"{reason.removesuffix('.')}. {cure}".rstrip())
        elif notes := worth_reading(answer.project, self._wanted):
            self.show_result(answer, notes)
        else:
            self._open_it(answer)

    def show_result(self, answer: ImportedModel, notes: tuple[str, ...]) -> None:
        """Show the last page: parts that were not traced call by call, and what holds for the example input alone."""
        for widget in self.form:
            widget.hide()
        self.result_page, self._read = ResultPage(notes), answer
        self.body.insertWidget(0, self.result_page, 1)
        self.say("")
        self.go.setText("Open")
        self.go.setEnabled(True)
        self.go.setFocus()
        announce(self, " ".join(notes))

    def opens_result(self) -> bool:
        """Open what was read, if its remarks are shown; return whether they are."""
        if self._read is not None:
            self._open_it(self._read)
            return True
        return False

    def _open_it(self, answer: ImportedModel) -> None:
        assert self._wanted is not None
        if self._open(answer, self._wanted):
            self._read = None
            self.go.setEnabled(False)
            QTimer.singleShot(0, self, self.accept)  # the drawing goes before
        else:
            if self._read is None:
                answer.stop_comparison()
            self.say("It was not opened: your project is unchanged.")

    def _leave(self, _result: int) -> None:
        if self._read is not None:
            self._read.stop_comparison()


class ImportDialog(ReadingDialog):
    """Two pages, one of torchvision's models and one of a Python file, and whether to keep the weights."""

    stopped = "Stopped. Your project is unchanged."

    def __init__(
        self,
        background: Background,
        layers: LayersControl,
        lay_out: Callable[[Project], Project],
        open_project: Open,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Import a model", lay_out, open_project, parent)
        self._background, self._layers = background, layers
        self.choice = Segmented(
            [("torchvision", "torchvision"), ("file", "A Python file")],
            "Source of the model",
        )
        self.torchvision, self.file = TorchvisionPage(), FilePage()
        self.pages = QStackedWidget()
        self.weights.setChecked(True)
        self.form = (self.choice, self.pages, self.weights_entry)
        for page in (self.torchvision, self.file):
            self.pages.addWidget(page)
            page.changed.connect(self._ask_ready)
            page.asked.connect(self.start)
        self.body.addWidget(self.choice)
        self.body.addSpacing(2)
        self.body.addWidget(self.pages, 1)
        self.body.addWidget(self.weights_entry)
        self.body.addWidget(self.state)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.go = self.add_button("Import", "primary", default=True)
        self.go.clicked.connect(self.start)
        self.choice.changed.connect(self._turn)
        room = parent.height() if parent is not None else 800
        self.setMinimumSize(520, 480)
        self.resize(640, min(660, max(room - 60, 480)))
        if _listed:
            self.torchvision.show_models(_listed)
        else:
            background.ask(
                KEY, listed_models, on_answer=self._listed, on_error=self._not_listed
            )
        self.finished.connect(lambda _result: background.forget(KEY))
        self.torchvision.search.setFocus()
        self._ask_ready()

    @property
    def page(self) -> TorchvisionPage | FilePage:
        return self.torchvision if self.choice.value() == "torchvision" else self.file

    def choose_file(self, path: Path) -> None:
        """Come to the front with a file."""
        self.choice.set_value("file")
        self.file.choose(path)

    def _turn(self, key: str) -> None:
        self.pages.setCurrentWidget(self.page)
        (self.torchvision.search if key == "torchvision" else self.file.path).setFocus()
        self._ask_ready()

    def _listed(self, models: tuple[KnownModel, ...]) -> None:
        global _listed
        _listed = models
        self.torchvision.show_models(models)
        self._ask_ready()

    def _not_listed(self, failure: WorkerFailure) -> None:
        cure = "Install a torchvision that fits your torch, or import a model from a Python file."
        self.torchvision.show_failure(
            f"torchvision cannot be imported: {failure.message}. {cure}"
        )
        self._ask_ready()

    # --- Validation

    def _ask_ready(self) -> None:
        """Show what is missing, and enable Import when nothing is."""
        if self.running or self._read is not None:
            return
        missing = self.page.ready()
        self.go.setEnabled(not missing)
        self.say(missing.strip())

    # --- Importing

    def start(self) -> None:
        """Import; a file that is not trusted is shown first."""
        if self.running or not self.go.isEnabled() or self.opens_result():
            return
        self.page.forgive()
        request = self.page.request()
        if request is None:
            return
        request = replace(request, keep_weights=self.weights.isChecked())
        files = files_of(request.source.as_run, request.where)
        if files is not None and not allowed(files.key):
            self._ask_trust(replace(request, sha256=files.digest), files)
        else:
            self.read(request)

    def _ask_trust(self, request: ImportModel, files: OwnFiles) -> None:
        dialog = self._layers.review_model(files, ModelTrustDialog, self)
        dialog.trusted.connect(
            lambda _files: self._layers.let_run(dialog.file)
        )  # its classes may be layers
        dialog.trusted.connect(lambda _files: self.read(request))

    def enable(self, on: bool) -> None:
        super().enable(on)
        if on:
            self._ask_ready()

    def refuse(self, entry: str, message: str) -> None:
        super().refuse(entry, message)
        if self.page.blame(entry, message):  # says it beside the entry
            self.say("Nothing was imported.", "error")


class RedrawDialog(ReadingDialog):
    """Redraws an opened model, or a part of one, as a network that can be edited."""

    stopped = "Stopped. Nothing was redrawn."

    def __init__(
        self,
        request: ImportModel,
        lay_out: Callable[[Project], Project],
        open_project: Open,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Redraw as an editable network", lay_out, open_project, parent)
        self._request, subject = request, request.model
        if not request.part:
            subject = f"{subject[:1].upper()}{subject[1:]}"
        self.what = label(WHAT.format(subject), "body", "text2", wrap=True)
        self.form = (self.weights_entry,)
        for widget in (self.what, self.weights_entry, self.state):
            self.body.addWidget(widget)
        self.body.addStretch(1)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.go = self.add_button("Redraw", "primary", default=True)
        self.go.clicked.connect(self.start)
        self.setMinimumSize(480, 260)
        self.resize(560, 300)

    def start(self) -> None:
        """Redraw, or open what was redrawn."""
        if not self.running and not self.opens_result():
            self.read(replace(self._request, keep_weights=self.weights.isChecked()))

    def refuse(self, entry: str, message: str) -> None:
        super().refuse(entry, f"{message[:1].upper()}{message[1:]}")

    def show_result(self, answer: ImportedModel, notes: tuple[str, ...]) -> None:
        self.what.hide()
        super().show_result(answer, notes)
        self.resize(max(self.width(), 640), max(self.height(), 480))


class ResultPage(QScrollArea):
    """A sentence for each remark. `remarks` are those of `values.remarks`."""

    def __init__(self, remarks: tuple[str, ...]) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        inside = QWidget()
        column = vbox(on=inside, margins=(0, 0, 8, 0), spacing=12)
        parts = [text for text in remarks if ONE_NODE in text]
        if parts:
            many = f"{len(parts)} parts" if len(parts) > 1 else "One part"
            column.addWidget(
                label(
                    f"{many} could not be followed call by call.",
                    "label",
                    "text",
                    wrap=True,
                )
            )
        for remark in parts:
            subject, _, why = remark.partition(": ")
            location, _, became = subject.partition(") ")
            name = label(f"{location})", "code", "text", wrap=True)
            name.setFont(theme.font("code"))
            outcome = became.partition(" ")[2]
            row = vbox(
                name,
                label(
                    f"{outcome[:1].upper()}{outcome[1:]}: {why}",
                    "label",
                    "text2",
                    wrap=True,
                ),
                spacing=2,
            )
            column.addLayout(row)
        if parts:
            column.addWidget(label(ONE_NODE_MEANS, "label", "text3", wrap=True))
        others = [text for text in remarks if text not in parts]
        if others:
            column.addWidget(label("Notes on this import:", "label", "text", wrap=True))
        for remark in others:
            column.addWidget(label(remark, "label", "text2", wrap=True))
        if any(remark.startswith(LOSES) for remark in others):
            column.addWidget(label(TAKE, "label", "text3", wrap=True))
        column.addStretch(1)
        self.setWidget(inside)


def worth_reading(project: Project, request: ImportModel) -> tuple[str, ...]:
    """Return the remarks to confirm before opening; what random weights lose matters only if the weights are kept."""
    usual = (UNCHECKED, *((LOSES,) if request.keep_weights else ()))
    return tuple(remark for remark in remarks(project) if not remark.startswith(usual))
