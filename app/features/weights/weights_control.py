"""Weights in and out of the window: loading them into the project, saving them, starting from random ones again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QObject
from PySide6.QtWidgets import QFileDialog

from app.features.weights.values import CountStart, SaveWeights
from app.features.weights.weights_dialog import WeightsDialog
from app.project.file import with_start
from app.project.model_inits import missing, taken_over
from app.project.weights.model_buffers import random_start
from app.project.weights.state_dict_diff import PATTERNS, SUFFIXES
from app.source.generated import Source
from app.training.config import StartWeights
from app.util.leftovers import TemporaryFolder
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.engine.requests.capture import WeightsChoice
    from app.views.workspace import Workspace

OPEN, SAVE, STATUS = "weights.open", "weights.save", "weights.status"
NOT_SAVED = "No weights were saved"


class WeightsControl(QObject):
    """Weights commands, and the start weights in the status line."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        workspace.live.analysed.connect(self._show_start)
        workspace.document.changed.connect(lambda _before, _after: self._enable())

    # --- In

    def ask(self) -> None:
        """Ask for a file and show it beside the net."""
        workspace = self._workspace
        folder = (
            workspace.document.path.parent
            if workspace.document.path
            else workspace.settings.export_folder
        )
        name, _ = QFileDialog.getOpenFileName(
            workspace.window, "Load weights", str(folder), f"Weights ({PATTERNS})"
        )
        if name:
            self.offer(Path(name))

    def offer(self, path: Path) -> None:
        """Show a file beside the net once that is checked, or the file alone if it cannot be."""
        show = partial(self.open, path)
        self._workspace.live.when_checked(OPEN, show, lambda _reason: show())

    def open(self, path: Path) -> WeightsDialog:
        """Show a file beside the net."""

        source, trouble = self._net()
        dialog = WeightsDialog(
            self._workspace.engine,
            path,
            source,
            self.load,
            trouble,
            self._workspace.window,
        )
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def _net(self) -> tuple[Source | None, str]:
        """Return the source that weights are loaded into, or why there is none."""
        live = self._workspace.live
        if live.analysis is None or not live.up_to_date:
            return None, "The network could not be checked, so only the file is shown."
        if not live.net_runs:
            first = next(
                (f": {problem.message}" for problem in live.analysis.errors), ""
            )
            return (
                None,
                f"The network cannot run yet, so nothing can be loaded into it{first}.",
            )
        return live.analysis.source, ""

    def load(self, start: StartWeights) -> None:
        """Let the project start from weights, as one undo step."""
        document = self._workspace.document
        document.apply(
            f"Load weights of {start.name}", with_start(document.project, start)
        )

    def forget(self) -> None:
        """Start from random weights again; buffers of an imported net are kept."""
        document = self._workspace.document
        document.apply(
            "Start from random weights",
            with_start(document.project, random_start(document.project)),
        )

    def take_inits(self) -> None:
        """Initialise new weights as the model that the net was imported from, as one undo step."""
        document = self._workspace.document
        origin = document.project.origin
        if origin is not None:
            document.apply(
                f"Initialise as {origin.model}",
                taken_over(document.project, origin.inits),
            )

    def takes(self, data: QMimeData) -> Path | None:
        """Return the dragged weights file, if it is one file."""
        urls = data.urls()
        path = (
            Path(urls[0].toLocalFile())
            if len(urls) == 1 and urls[0].isLocalFile()
            else None
        )
        return path if path is not None and path.suffix.lower() in SUFFIXES else None

    def drop(self, data: QMimeData) -> bool:
        """Show the dropped weights file; False if there is none."""
        path = self.takes(data)
        if path is not None:
            self.offer(path)
        return path is not None

    # --- Out

    def ask_save(self) -> None:
        """Ask where to, and write the weights of the newest run, else those that one would begin with."""
        self._workspace.live.when_checked(
            SAVE, self._ask_where, partial(self._workspace.notifier.refuse, NOT_SAVED)
        )

    def _ask_where(self) -> None:
        workspace = self._workspace
        source, trouble = self._net()
        if source is None:
            workspace.notifier.refuse(NOT_SAVED, trouble)
            return
        start = (
            workspace.settings.export_folder / f"{workspace.document.title}.safetensors"
        )
        kinds = "safetensors (*.safetensors);;torch.save (*.pt)"
        name, chosen = QFileDialog.getSaveFileName(
            workspace.window, "Save weights", str(start), kinds
        )
        if name:
            path = Path(name)
            self.save(
                path
                if path.suffix in (".safetensors", ".pt")
                else Path(f"{path}{_suffix(chosen)}")
            )

    def save(self, path: Path) -> None:
        """Have the engine write the weights; an active run's between two steps."""
        workspace, (source, trouble) = self._workspace, self._net()
        if source is None:
            workspace.notifier.refuse(NOT_SAVED, trouble)
            return
        training, folder = workspace.document.project.training, TemporaryFolder()

        def ask(weights: WeightsChoice) -> None:
            workspace.engine.ask(
                SAVE,
                SaveWeights(path, source, training.seed, training.start, weights),
                on_answer=saved,
                on_error=self._not_saved,
            )

        def saved(description: str) -> None:
            folder.cleanup()
            workspace.notifier.say(
                f"Saved {path.name}", f"{path.parent} · weights {description}"
            )

        choice = workspace.newest_weights.choice(source, Path(folder.name))
        workspace.background.ask(SAVE, choice, on_answer=ask, on_error=self._not_saved)

    def _not_saved(self, failure: WorkerFailure) -> None:
        self._workspace.notifier.refuse(NOT_SAVED, failure.message)

    # --- Words

    def _enable(self) -> None:
        project = self._workspace.document.project
        start = project.training.start
        self._workspace.commands.set_enabled(
            "forget-weights", start != random_start(project)
        )
        lost = (
            missing(project, project.origin.inits) if project.origin is not None else ()
        )
        self._workspace.commands.set_enabled("take-inits", bool(lost))
        if start is None:
            self._workspace.engine.forget(STATUS)
            self._workspace.status.set_start("")

    def _show_start(self, analysis: Analysis) -> None:
        """Show how many of the net's tensors start from weights."""
        self._enable()
        start = self._workspace.document.project.training.start
        if start is not None and self._workspace.live.net_runs:
            self.tell_start(
                STATUS, start, analysis.source, self._workspace.status.set_start
            )

    def tell_start(
        self,
        key: str,
        start: StartWeights,
        source: Source,
        then: Callable[[str, str], None],
    ) -> None:
        """Call `then` with a short and a full description of the start weights, once the engine has counted them."""
        name = start.name or Path(start.path).name
        self._workspace.engine.ask(
            key,
            CountStart(start, source),
            on_answer=lambda counts: then(*start_texts(start, *counts)),
            on_error=lambda failure: then(
                f"Start weights: {name} cannot be used", failure.message
            ),
        )


def start_texts(start: StartWeights, loaded: int, total: int) -> tuple[str, str]:
    """Describe the start weights, short and in full."""
    name, rest = start.name or Path(start.path).name, total - loaded
    more = f"; the other {rest:,} are initialised from the seed" if rest > 0 else ""
    return (
        f"Starts from {loaded:,} of {total:,} tensors of {name}",
        f"A run starts from {loaded:,} tensors of {name}{more}. They are in {start.path}.",
    )


def _suffix(chosen: str) -> str:
    return ".pt" if "*.pt" in chosen else ".safetensors"
