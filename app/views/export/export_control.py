"""Taking the network away: the class, its weights, and a script that repeats the run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.preflight import preflight
from app.project import drawing_digest
from app.project.document import Document
from app.project.project import Project
from app.views.analysis_service import Live
from app.views.export.export_dialog import ExportChoice, ExportDialog
from app.views.export.proofs import Proofs, ToProve
from app.views.export.proofs_dialog import ProofsDialog
from app.views.newest_weights import NewestWeights
from app.views.settings import Settings
from app.views.ui.background import Background, Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.export.weights_choice import ExportWeights
    from app.training.config import StartWeights
    from app.training.job import Job


@dataclass(frozen=True)
class Exported:
    """Where it lies, which files, in words which weights were taken, "" if none, and what is yet to be made."""

    folder: Path
    names: tuple[str, ...]
    weights: str
    to_prove: ToProve | None = field(default=None, compare=False, repr=False)


def write_export(
    choice: ExportChoice, job: Job, weights: Callable[[], ExportWeights | None] | None, project: Project
) -> Exported:
    """Write what was chosen of the net of a project. `weights` gives those of a run, if there is one.

    Raises OSError or WeightsError; files that were written before stay.
    """
    from app.export.layers import write_model
    from app.export.script.script import training_script, write_start
    from app.export.weights import save_pt, save_safetensors, write_text
    from app.export.weights_choice import weights_to_export

    choice.folder.mkdir(parents=True, exist_ok=True)
    code, names, words, chosen = [], [], "", None
    if choice.takes_weights:  # first: they cannot be made again
        chosen = weights_to_export(job.source, job.training.seed, weights, job.training.start)
        words = chosen.words
        for wanted, name, save in (
            (choice.safetensors, "weights.safetensors", save_safetensors),
            (choice.pt, "weights.pt", save_pt),
        ):
            if wanted:
                save(chosen.state_dict, choice.folder / name)
                names.append(name)
    if choice.code:
        written = write_model(job.source, choice.folder / "model.py", [choice.folder / "train.py"])
        code += [path.name for path in written]
    if choice.script:
        write_text(choice.folder / "train.py", training_script(job))
        code += ["train.py", *(path.name for path in write_start(job, choice.folder / "train.py"))]
    to_prove = None
    if chosen is not None and choice.proves:
        to_prove = replace(_to_prove(choice, job, chosen), imported=drawing_digest.imported(project, job.source))
    return Exported(choice.folder, (*code, *names), words, to_prove)


def _to_prove(choice: ExportChoice, job: Job, chosen: ExportWeights) -> ToProve:
    """The rest of an export, of the very weights that were written: a run under way has others by then."""
    folder = choice.folder
    weights = folder / "weights.safetensors" if choice.safetensors else folder / "weights.pt" if choice.pt else None
    return ToProve(
        job.source,
        chosen.state_dict,
        chosen.words,
        job.training.seed,
        pt2=folder / "model.pt2" if choice.pt2 else None,
        onnx=folder / "model.onnx" if choice.onnx else None,
        model=folder / "model.py" if choice.certify else None,
        weights=weights,
    )


def _weights_words(newest: Callable[[], ExportWeights | None], seed: int, start: StartWeights | None) -> str:
    """Which weights an export would write; on a worker."""
    from app.export.weights_choice import untrained_words
    from app.training.setup.weights_header import StartError

    found = newest()
    try:
        return found.words if found is not None else untrained_words(seed, start)
    except StartError as error:
        return f"cannot be written: {error}"


class ExportControl(QObject):
    """`said(title, detail)` tells what was written, `refused(title, reason)` why nothing was."""

    said = Signal(str, str)
    refused = Signal(str, str)
    exported = Signal(object)
    proved = Signal(object)

    def __init__(
        self,
        document: Document,
        live: Live,
        newest: NewestWeights,
        background: Background,
        settings: Settings,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._document, self._live, self._newest = document, live, newest
        self._background, self._settings, self._window = background, settings, window

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
        training, newest = self._document.project.training, self._newest.of(self._live.analysis.source)

        def failed(failure: Failure) -> None:
            dialog.set_weights(f"cannot be read: {failure.error}")

        self._background.ask(
            "export weights", _weights_words, newest, training.seed, training.start,
            on_answer=dialog.set_weights, on_error=failed,
        )  # fmt: skip
        dialog.open()

    def export(self, choice: ExportChoice) -> None:
        """Write in the background; between two steps if a run goes on."""
        analysis = self._live.analysis
        if analysis is None:
            return
        self._settings.export_folder = choice.folder.parent
        project = self._document.project
        job = preflight.job(project, analysis, str(self._settings.data_folder))
        self._background.ask(
            "export", write_export, choice, job, self._newest.of(job.source), project,
            on_answer=self._done, on_error=self._failed,
        )  # fmt: skip

    def _done(self, exported: Exported) -> None:
        self.exported.emit(exported)
        weights = f" · weights {exported.weights}" if exported.weights else ""
        if exported.names:
            self.said.emit(f"Saved {', '.join(exported.names)}", f"{exported.folder}{weights}")
        if exported.to_prove is not None:
            dialog = ProofsDialog(exported.to_prove, self._window)
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
