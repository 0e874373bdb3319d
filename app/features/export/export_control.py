"""Taking the network away: the class, its weights, and a script that repeats the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.engine.requests.capture import InitialWeights, WeightsChoice
from app.features.export.export_dialog import ExportDialog
from app.features.export.proofs_dialog import ProofsDialog
from app.features.export.values import (
    Export,
    ExportChoice,
    ExportResult,
    NameWeights,
    Proofs,
)
from app.preflight import preflight
from app.source.generated import Source
from app.util.atomic import failure_text
from app.util.leftovers import TemporaryFolder
from app.views.ui.background import WorkerFailure
from app.views.workspace import Workspace

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
