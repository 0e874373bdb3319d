"""Export in the window: code and weights, and the drawing as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QGridLayout, QLayout, QProgressBar, QWidget

from app.builder.diagram import to_drawing
from app.engine.requests.capture import InitialWeights, WeightsChoice
from app.features.export.export_dialog import ExportDialog
from app.features.export.values import (
    Export,
    ExportChoice,
    ExportResult,
    NameWeights,
    Proofs,
    Prove,
    ToProve,
)
from app.preflight import preflight
from app.source.generated import Source
from app.util.atomic import failure_text
from app.util.leftovers import TemporaryFolder
from app.views.engine_service import EngineService
from app.views.feature import Action, Feature
from app.views.pictures.picture_export import PictureExport
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.progress import ProgressDialog
from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.widgets.painting import Glyph, label, set_property
from app.views.workspace import Workspace

# --- Taking the network away: the class, its weights, and a script that repeats the run

# --- Progress and results of a certified export, in a non-modal dialog

WIDE = 48  # letters of a figure that fit beside the other columns
COLUMNS = ("Compared", "Mode", "Precision", "Tensors", "Largest relative difference")
MEANS = (
    "Without Tapedeck these files compute the same outputs and gradients as this network. That says nothing about its "
    "quality or about other versions of torch."
)
DIFFERS = "Do not rely on these files: they differ from the network on the canvas. Export them again."
UNPROVEN = (
    "Nothing is proven of these files: the network itself has numbers that are not finite. Export other weights, such "
    "as those of the best validation loss, or fix the network."
)


class ProofsDialog(ProgressDialog):
    """Proves at once when it is shown. `proved(Proofs)` comes when it is done, also when something does not pass."""

    proved = Signal(object)

    def __init__(
        self, engine: EngineService, wanted: ToProve, parent: QWidget | None = None
    ) -> None:
        names = " and ".join(
            filter(None, (", ".join(wanted.names[:-1]), wanted.names[-1]))
        )
        super().__init__(f"Writing {names}", parent)
        self.setWindowTitle("Export")
        self.setModal(False)
        self.setMinimumWidth(600)
        self.finished.connect(self.deleteLater)
        # Wrapped labels claim the height of a dialog narrower than its minimum.
        present(self.layout()).setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        self.bar = QProgressBar()
        self.bar.setRange(0, 0)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the export")
        self.state = label("", "label", "text2", wrap=True)
        self.results = vbox(spacing=10)
        self.body.addLayout(self.results)
        self.body.addWidget(self.bar)
        self.body.addWidget(self.state)
        self.body.addStretch(1)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.finished.connect(lambda: engine.release(wanted.handle))
        self.ask(engine, Prove(wanted.handle))

    def show_progress(self, message: str) -> None:
        self.state.setText(message)

    def finished_with(self, answer: Proofs | WorkerFailure, cancelled: bool) -> None:
        self.bar.hide()
        self.stop_button.setText("Close")
        self.stop_button.setEnabled(True)
        if cancelled:
            self.reject()
        elif isinstance(answer, WorkerFailure):
            self.heading.setText("The export is not complete")
            self.state.setText(answer.message)
            self.state.setToolTip(answer.traceback)
            set_property(self.state, "tone", "error")
        else:
            self._show(answer)
            self.proved.emit(answer)
        QTimer.singleShot(
            0, self, self._fit
        )  # new widgets have their height only once shown

    def _fit(self) -> None:
        present(self.layout()).activate()
        self.resize(
            self.width(), present(self.layout()).totalHeightForWidth(self.width())
        )

    def _show(self, proofs: Proofs) -> None:
        self.heading.setText(
            "The export matches this network" if proofs.passed else "Some checks failed"
        )
        for written in proofs.written:
            self._line(written.passed, written.message)
        for refusal in proofs.refused:
            self._line(False, refusal)
        certificate = proofs.certificate
        self.state.setVisible(certificate is not None)
        if certificate is None:
            return
        self._line(certificate.passed, certificate.message)
        if certificate.checks:
            self.results.addLayout(self._table(proofs))
        where = (
            f" The measurements are in {proofs.path.name}, beside the code."
            if proofs.path
            else ""
        )
        unproven = any(check.odd for check in certificate.checks) and all(
            check.passed or check.odd for check in certificate.checks
        )
        self.state.setText(
            (MEANS if certificate.passed else UNPROVEN if unproven else DIFFERS) + where
        )
        set_property(self.state, "tone", "text3" if certificate.passed else "error")

    def _line(self, passed: bool, message: str) -> None:
        row = QGridLayout()
        row.setHorizontalSpacing(8)
        row.setColumnStretch(1, 1)
        glyph = Glyph("check", "run") if passed else Glyph("error", "error")
        glyph.setAccessibleName("Passed" if passed else "Failed")
        row.addWidget(glyph, 0, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(
            label(message, "body", "text" if passed else "error", wrap=True), 0, 1
        )
        self.results.addLayout(row)

    def _table(self, proofs: Proofs) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(len(COLUMNS) - 1, 1)
        for column, title in enumerate(COLUMNS):
            grid.addWidget(label(title, "label", "text3"), 0, column)
        assert proofs.certificate is not None
        for row, check in enumerate(proofs.certificate.checks, 1):
            tone = "text2" if check.passed else "error"
            count = str(check.count) if check.count else ""
            subject = f"{check.what}, source model" if check.source else check.what
            for column, text in enumerate((subject, check.mode, check.dtype, count)):
                grid.addWidget(
                    label(text, "label", tone), row, column, Qt.AlignmentFlag.AlignTop
                )
            grid.addWidget(
                label(check.figure, "label", tone, wrap=len(check.figure) > WIDE),
                row,
                len(COLUMNS) - 1,
            )
        return grid


LOOK, EXPORT = "export weights", "export"
NOTHING, INCOMPLETE = "Nothing was exported", "The export is not complete"


class ExportControl(QObject):
    """Exports in the background. `exported(Exported)` reports written files, `proved(Proofs)` their comparison with the
    net."""

    exported = Signal(object)
    proved = Signal(object)

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._document, self._live, self._newest = (
            workspace.document,
            workspace.live,
            workspace.newest_weights,
        )
        self._session = workspace.session
        self._background, self._engine = workspace.background, workspace.engine
        self._settings, self._window, self._notifier = (
            workspace.settings,
            workspace.window,
            workspace.notifier,
        )
        self._copies: dict[
            str, TemporaryFolder
        ] = {}  # of weights of a run, until the next are asked for

    def ask(self) -> None:
        """Ask what and where to, then write it."""
        if self._live.unfinished is not None:
            self._notifier.say("Export", f"Opens when {self._live.unfinished[1]}")
        self._live.when_checked(EXPORT, self._ask_checked, self._refuse)

    def _refuse(self, reason: str) -> None:
        self._notifier.refuse(NOTHING, reason)

    def _ask_checked(self) -> None:
        assert self._live.analysis is not None
        if not self._live.analysis.runnable:
            first = self._live.analysis.errors[0]
            self._refuse(f"The network cannot run yet: {first.message}. {first.reason}")
            return
        folder = (
            self._settings.export_folder_of(self._document.path) / self._document.title
        )
        opened = self._document.project.opened is not None
        dialog = ExportDialog(
            folder,
            "are looked for",
            self._window,
            opened=opened,
            own_files=bool(self._live.analysis.source.files),
        )
        dialog.chosen.connect(self.export)
        training, source = self._document.project.training, self._live.analysis.source

        def failed(failure: WorkerFailure) -> None:
            dialog.set_weights(f"cannot be read: {failure.message}")

        def name(weights: WeightsChoice) -> None:
            request = NameWeights(source, training.seed, training.start, weights)
            self._engine.ask(
                LOOK, request, on_answer=dialog.set_weights, on_error=failed
            )

        def look(best: bool = False) -> None:
            dialog.set_weights("are looked for")
            self._with_weights(LOOK, source, best, name, failed)

        dialog.weights_chosen.connect(look)
        self._session.runEnded.connect(dialog.on_run_ended)
        look()
        dialog.open()

    def export(self, choice: ExportChoice) -> None:
        """Write in the background; between two steps if a run is active."""
        analysis = self._live.analysis
        if analysis is None:
            return
        for title in (NOTHING, INCOMPLETE):
            self._notifier.withdraw(title)
        self._settings.export_folder = choice.folder.parent
        project = self._document.project
        job = preflight.job(project, analysis, str(self._settings.data_folder))

        def write(weights: WeightsChoice) -> None:
            request = Export(choice, job, project, weights)
            self._engine.ask(
                "export", request, on_answer=self._done, on_error=self._failed
            )

        if choice.takes_weights:
            self._with_weights("export", job.source, choice.best, write, self._failed)
        else:
            write(InitialWeights())

    def _with_weights(
        self,
        key: str,
        source: Source,
        best: bool,
        then: Callable[[WeightsChoice], None],
        failed: Callable[[WorkerFailure], None],
    ) -> None:
        """Name the newest weights, of which an active run writes a copy between two steps, or the best ones."""
        if best:
            self._background.forget(key)
            then(self._newest.best())
            return
        folder = self._copies[key] = TemporaryFolder()
        choice = self._newest.choice(source, Path(folder.name))
        self._background.ask(key, choice, on_answer=then, on_error=failed)

    def _done(self, exported: ExportResult) -> None:
        self.exported.emit(exported)
        weights = f" · weights {exported.weights}" if exported.weights else ""
        if exported.names:
            self._notifier.say(
                f"Saved {', '.join(exported.names)}", f"{exported.folder}{weights}"
            )
        if exported.to_prove is not None:
            dialog = ProofsDialog(self._engine, exported.to_prove, self._window)
            dialog.proved.connect(lambda proofs: self._proved(proofs, exported.folder))
            dialog.show()

    def _proved(self, proofs: Proofs, folder: Path) -> None:
        self.proved.emit(proofs)
        names = [written.path.name for written in proofs.written] + (
            [proofs.path.name] if proofs.path else []
        )
        if names:
            self._notifier.say(
                f"Saved {', '.join(names)}",
                f"{folder} · " + ("passed" if proofs.passed else "some checks failed"),
            )

    def _failed(self, failure: WorkerFailure) -> None:
        error = failure.error
        self._notifier.refuse(
            INCOMPLETE,
            failure_text(error) if isinstance(error, OSError) else str(error),
        )


class ExportFeature(Feature):
    rank = 190

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.export_control = ExportControl(workspace)
        self.pictures = PictureExport(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "export",
                "&Export code and weights…",
                self.export_control.ask,
                "Ctrl+E",
                "export",
                menu="file.results",
            ),
            Action(
                "export-drawing",
                "Export the &drawing…",
                self.export_drawing,
                "Ctrl+Shift+E",
                menu="file.results",
            ),
        )

    def export_drawing(self) -> None:
        """Ask for a file, then write the drawing of the sheet in front, with unfolded blocks open."""
        workspace = self.workspace
        project, block = workspace.document.project, workspace.place.block
        name = f"{project.name}-{block}" if block else project.name
        analysis = workspace.live.analysis
        drawing = to_drawing(
            workspace.sheet.project,
            workspace.catalog,
            analysis.sheet if analysis is not None else None,
            title=name,
        )
        if drawing.boxes:
            self.pictures.choose_file(
                drawing, "Export the drawing", name, project=project
            )
        else:
            workspace.notifier.refuse(
                "Nothing was exported", "Nothing on the canvas yet."
            )
