"""Taking the network away: the class, its weights, and a script that repeats the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.engine.requests.capture import InitialWeights, WeightsChoice
from app.engine.requests.export import Export, ExportChoice, Exported, NameWeights, Proofs
from app.preflight import preflight
from app.project.document import Document
from app.source.generated import Source
from app.util.leftovers import TemporaryFolder
from app.views.analysis_service import AnalysisService
from app.views.engine_service import EngineService
from app.views.export.export_dialog import ExportDialog
from app.views.export.proofs_dialog import ProofsDialog
from app.views.newest_weights import NewestWeightsSource
from app.views.settings import Settings
from app.views.ui.background import Background, Failure

LOOK = "export weights"


class ExportControl(QObject):
    """`said(title, detail)` tells what was written, `refused(title, reason)` why nothing was."""

    said = Signal(str, str)
    refused = Signal(str, str)
    exported = Signal(object)
    proved = Signal(object)

    def __init__(
        self,
        document: Document,
        live: AnalysisService,
        newest: NewestWeightsSource,
        background: Background,
        engine: EngineService,
        settings: Settings,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._document, self._live, self._newest = document, live, newest
        self._background, self._engine, self._settings, self._window = background, engine, settings, window
        self._copies: dict[str, TemporaryFolder] = {}  # of weights of a run, until the next are asked for

    def ask(self) -> None:
        """Ask what and where to, then write it."""
        if self._live.analysis is None or not self._live.up_to_date:
            self.refused.emit("Nothing was exported", "The network is still being checked; try again in a moment.")
            return
        if not self._live.analysis.runnable:
            first = self._live.analysis.errors[0]
            self.refused.emit("Nothing was exported", f"The network cannot run yet: {first.message}. {first.reason}")
            return
        folder = self._settings.export_folder / self._document.project.name
        dialog = ExportDialog(folder, "are looked for", parent=self._window)
        dialog.chosen.connect(self.export)
        training, source = self._document.project.training, self._live.analysis.source

        def failed(failure: Failure) -> None:
            dialog.set_weights(f"cannot be read: {failure.error}")

        def name(weights: WeightsChoice) -> None:
            asked = NameWeights(source, training.seed, training.start, weights)
            self._engine.ask(LOOK, asked, on_answer=dialog.set_weights, on_error=failed)

        self._with_weights(LOOK, source, name, failed)
        dialog.open()

    def export(self, choice: ExportChoice) -> None:
        """Write in the background; between two steps if a run goes on."""
        analysis = self._live.analysis
        if analysis is None:
            return
        self._settings.export_folder = choice.folder.parent
        project = self._document.project
        job = preflight.job(project, analysis, str(self._settings.data_folder))

        def write(weights: WeightsChoice) -> None:
            asked = Export(choice, job, project, weights)
            self._engine.ask("export", asked, on_answer=self._done, on_error=self._failed)

        if choice.takes_weights:
            self._with_weights("export", job.source, write, self._failed)
        else:
            write(InitialWeights())

    def _with_weights(
        self,
        key: str,
        source: Source,
        then: Callable[[WeightsChoice], None],
        failed: Callable[[Failure], None],
    ) -> None:
        """Name the newest weights; a run under way writes a copy between two steps."""
        folder = self._copies[key] = TemporaryFolder()
        choice = self._newest.choice(source, Path(folder.name))
        self._background.ask(key, choice, on_answer=then, on_error=failed)

    def _done(self, exported: Exported) -> None:
        self.exported.emit(exported)
        weights = f" · weights {exported.weights}" if exported.weights else ""
        if exported.names:
            self.said.emit(f"Saved {', '.join(exported.names)}", f"{exported.folder}{weights}")
        if exported.to_prove is not None:
            dialog = ProofsDialog(self._engine, exported.to_prove, self._window)
            dialog.proved.connect(lambda proofs: self._proved(proofs, exported.folder))
            dialog.show()

    def _proved(self, proofs: Proofs, folder: Path) -> None:
        self.proved.emit(proofs)
        names = [one.path.name for one in proofs.written] + ([proofs.path.name] if proofs.path else [])
        if names:
            self.said.emit(
                f"Saved {', '.join(names)}", f"{folder} · " + ("passed" if proofs.passed else "some checks failed")
            )

    def _failed(self, failure: Failure) -> None:
        self.refused.emit("The export is not complete", str(failure.error))
