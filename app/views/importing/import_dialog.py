"""The dialog for importing an existing model: from torchvision or from a Python file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QCheckBox, QStackedWidget, QWidget

from app.engine.import_process import listed_models
from app.engine.requests.import_advice import cure_of
from app.engine.requests.import_model import UNCHECKED, ImportModel, KnownModel, remarks
from app.project.model_inits import LOSES
from app.project.project import Project
from app.source.layer_files import allowed
from app.source.own_files import OwnFiles
from app.sources.finding import files_of
from app.views.fields.form_field import FormField
from app.views.importing.import_pages import FilePage, TorchvisionPage
from app.views.importing.import_result import ResultPage
from app.views.importing.importing import ImportedModel, import_model
from app.views.trust.layers_control import LayersControl
from app.views.trust.trust_model import ModelTrustDialog
from app.views.ui.background import Background, WorkerFailure
from app.views.ui.dialogs.progress import ProgressDialog
from app.views.ui.widgets import Segmented
from app.views.ui.widgets.painting import announce, label, set_property

KEY = "import.models"
KEPT = (
    "Training starts from them, exports contain them, and they are saved beside the project. Buffers are kept either "
    "way."
)

Open = Callable[[ImportedModel, ImportModel], bool]
_listed: tuple[
    KnownModel, ...
] = ()  # what torchvision has does not change while the program runs


class ImportDialog(ProgressDialog):
    """Two pages, and whether to keep the weights. `lay_out` runs on a worker thread; `open_project` receives the
    imported project and returns whether it was opened."""

    def __init__(
        self,
        background: Background,
        layers: LayersControl,
        lay_out: Callable[[Project], Project],
        open_project: Open,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Import a model", parent)
        self._background, self._layers, self._lay_out, self._open = (
            background,
            layers,
            lay_out,
            open_project,
        )
        self._wanted: ImportModel | None = None
        self._read: ImportedModel | None = None  # imported and not opened yet
        self.choice = Segmented(
            [("torchvision", "torchvision"), ("file", "A Python file")],
            "Source of the model",
        )
        self.torchvision, self.file = TorchvisionPage(), FilePage()
        self.pages = QStackedWidget()
        self.weights = QCheckBox("Keep the weights of the model")
        self.weights.setChecked(True)
        self.weights_entry = FormField("Start weights", self.weights, KEPT)
        self.form = (self.choice, self.pages, self.weights_entry)
        self.state = label("", "label", "text3", wrap=True)
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
        self.import_button = self.add_button("Import", "primary", default=True)
        self.import_button.clicked.connect(self.start)
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
        self.finished.connect(self._leave)
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

    def _leave(self, _result: int) -> None:
        self._background.forget(KEY)
        if self._read is not None:
            self._read.stop_comparison()

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
        self.import_button.setEnabled(not missing)
        self._show_state(missing.strip())

    def _show_state(self, message: str, tone: str = "text3") -> None:
        self.state.setText(message)
        set_property(self.state, "tone", tone)

    # --- Importing

    def start(self) -> None:
        """Import; a file that is not trusted is shown first."""
        if self.running or not self.import_button.isEnabled():
            return
        if self._read is not None and self._wanted is not None:
            self._open_it(self._read, self._wanted)
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
            self._start_import(request)

    def _ask_trust(self, request: ImportModel, files: OwnFiles) -> None:
        dialog = self._layers.review_model(files, ModelTrustDialog, self)
        dialog.trusted.connect(
            lambda _files: self._layers.let_run(dialog.file)
        )  # its classes may be layers
        dialog.trusted.connect(lambda _files: self._start_import(request))

    def _start_import(self, request: ImportModel) -> None:
        self._wanted = request
        self._enable(False)
        self.begin(partial(import_model, request, self._lay_out))

    def _enable(self, on: bool) -> None:
        self.enable_form(on, *self.form, self.import_button)

    def show_progress(self, message: str) -> None:
        self._show_state(message, "text2")

    def finished_with(
        self, answer: ImportedModel | WorkerFailure, cancelled: bool
    ) -> None:
        request = self._wanted
        assert request is not None
        self._enable(True)
        self._ask_ready()
        if cancelled:
            self._show_state("Stopped. Your project is unchanged.")
        elif isinstance(answer, WorkerFailure):
            self._refuse(answer)
        elif notes := worth_reading(answer.project, request):
            self._show_result(answer, notes)
        else:
            self._open_it(answer, request)

    def _show_result(self, drawn: ImportedModel, notes: tuple[str, ...]) -> None:
        """Show the last page: parts that were not traced call by call, and what holds for the example input alone."""
        for widget in self.form:
            widget.hide()
        self.result_page, self._read = ResultPage(notes), drawn
        self.body.insertWidget(0, self.result_page, 1)
        self._show_state("")
        self.import_button.setText("Open")
        self.import_button.setEnabled(True)
        self.import_button.setFocus()
        announce(self, " ".join(notes))

    def _open_it(self, drawn: ImportedModel, request: ImportModel) -> None:
        if self._open(drawn, request):
            self._read = None
            self.import_button.setEnabled(False)
            QTimer.singleShot(0, self, self.accept)  # the drawing goes before
        else:
            if self._read is None:
                drawn.stop_comparison()
            self._show_state("It was not opened: your project is unchanged.")

    def _refuse(self, failure: WorkerFailure) -> None:
        """Show an error at its field, else at the bottom."""
        reason = failure.message.strip() or type(failure.error).__name__
        entry, cure = cure_of(failure.error)
        message = " ".join(
            filter(None, (reason if reason.endswith(".") else f"{reason}.", cure))
        )
        self.state.setToolTip(failure.traceback)
        announce(self, message)
        if self.page.blame(entry, message):
            self._show_state("Nothing was imported.", "error")
        else:
            self._show_state(message, "error")


def worth_reading(project: Project, request: ImportModel) -> tuple[str, ...]:
    """Return the remarks to confirm before opening; what random weights lose matters only if the weights are kept."""
    usual = (UNCHECKED, *((LOSES,) if request.keep_weights else ()))
    return tuple(remark for remark in remarks(project) if not remark.startswith(usual))
