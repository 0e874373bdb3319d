"""Commands of the page "Runs": resume, fork, restore, rename, delete, compare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from msgspec.structs import replace
from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog

from app.data.spec import DataError
from app.engine.protocol import EngineError, Request
from app.engine.requests.runs import (
    ExportEventFiles,
    FindResumable,
    Resumable,
    StartFrom,
)
from app.features.runs.page import MOST, RunPanel
from app.features.runs.table_model import RunRow
from app.project import file
from app.project.project import Project
from app.runs import compare, store
from app.runs.checkpoint_files import Checkpoint, delete_kept, measured
from app.runs.record import Parent, RunError
from app.runs.store import Kept
from app.training.config import StartWeights
from app.training.history import History
from app.views.shown_run import Figures
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog

if TYPE_CHECKING:
    from app.runs.compare import Setting
    from app.source.generated import Source
    from app.views.run.session import Run
    from app.views.workspace import Workspace

A = TypeVar("A")
Given = TypeVarTuple("Given")
SHOWN = "run shown"  # key of the reading of histories


def _compared_settings(stored_runs: tuple[Kept, ...]) -> tuple[Setting, ...]:
    return compare.settings(stored_runs)


def _histories(stored_runs: tuple[Kept, ...]) -> list[History]:
    return [store.history_of(stored_run) for stored_run in stored_runs]


def _annotated(stored_run: Kept, field: str, text: str) -> Kept:
    match field:
        case "name":
            return store.annotate(stored_run, name=text)
        case "note":
            return store.annotate(stored_run, note=text)
    return store.annotate(stored_run, tags=text.split(","))


def _deleted(stored_runs: tuple[Kept, ...]) -> str:
    """Delete runs; what went wrong, "" if nothing did."""
    problem = ""
    for stored_run in stored_runs:
        try:
            store.delete(stored_run)
        except (OSError, RunError) as error:
            problem = f"{error}"
    return problem


class RunsControl(QObject):
    """Connects the page to the keeper, the session and the document of a workspace."""

    def __init__(self, workspace: Workspace, panel: RunPanel) -> None:
        super().__init__(workspace.window)
        self._workspace, self._panel = workspace, panel
        keeper = workspace.runs_keeper
        self._renamed = False  # a run, since the list was read
        self._unchecked: Kept | None = None  # shown while the network is checked
        keeper.listed.connect(self._on_listed)
        panel.runChosen.connect(self._show_run)
        panel.keptChosen.connect(self._show_stored)
        panel.compared.connect(self.compare)
        panel.can_compare_models = workspace.commands.has("compare-runs")
        panel.modelsCompared.connect(
            lambda a, b: workspace.commands.trigger("compare-runs", a, b)
        )
        panel.curvesRequested.connect(lambda: workspace.pages.show("curves"))
        panel.panels.setVisible(workspace.commands.has("panels-of-runs"))
        panel.panelsRequested.connect(
            lambda: workspace.commands.trigger("panels-of-runs")
        )
        panel.annotated.connect(self.annotate)
        panel.set_hidden_columns(workspace.settings.hidden_run_columns)
        panel.columnsHidden.connect(self._hide_columns)
        panel.deleted.connect(self.ask_delete)
        panel.listRequested.connect(keeper.refresh)
        panel.measured.connect(self._measure)
        panel.keptDeleted.connect(self.ask_delete_kept)
        panel.restored.connect(self.restore)
        panel.opened.connect(self.open_folder)
        panel.continued.connect(self.go_on)
        panel.forked.connect(self.fork)
        panel.exported.connect(self.ask_export)
        panel.set_event_files(workspace.settings.event_files)
        panel.eventFilesChanged.connect(self.write_event_files)
        self.write_event_files(workspace.settings.event_files)
        workspace.settings.changed.connect(self._setting_changed)
        workspace.shown_run.changed.connect(self._shown)
        workspace.live.analysed.connect(lambda _analysis: self._net_checked())
        workspace.document.replaced.connect(lambda _project: self._leave())
        keeper.moved.connect(self._follow_moved)
        keeper.refresh()

    def _shown(self, figures: Figures | None) -> None:
        """Select the run that is shown, none when none is: a click on one shows it."""
        if figures is None:
            self._panel.clear_selection()
        else:
            self._panel.mark([figures.folder, *figures.beside_folders])

    def _ask(
        self,
        key: str,
        title: str,
        function: Callable[[*Given], A],
        *arguments: *Given,
        then: Callable[[A], None],
    ) -> None:
        """Run a function in the background; errors are shown under `title`."""
        self._workspace.background.ask(
            key,
            function,
            *arguments,
            on_answer=then,
            on_error=partial(self._failed, title),
        )

    def _ask_engine(
        self, key: str, title: str, request: Request[A], then: Callable[[A], None]
    ) -> None:
        """Have something done by the engine."""
        self._workspace.engine.ask(
            key, request, on_answer=then, on_error=partial(self._failed, title)
        )

    def _failed(self, title: str, failure: WorkerFailure) -> None:
        expected = (
            RunError
            | DataError
            | OSError
            | ValueError
            | EngineError
            | file.ProjectFileError
        )
        if isinstance(failure.error, expected):
            self._workspace.notifier.refuse(title, failure.message)
        else:
            self._workspace.notifier.show_unexpected(
                f"{title}: {failure.message}", failure.traceback
            )

    # -- curves and settings ------------------------------------------------------------------------------------------

    def _show_run(self, run: Run) -> None:
        self._workspace.background.forget(SHOWN)
        row = next((row for row in self._panel.model.rows if row.run is run), None)
        figures = (
            run.figures
            if row is None
            else replace(run.figures, title=row.title, label=row.label)
        )
        self._workspace.shown_run.show(figures)

    def _leave(self) -> None:
        """Show no run of a project that was open before."""
        self._unchecked = None
        self._workspace.background.forget(SHOWN)

    def _net_checked(self) -> None:
        """Relate the layers of a run that was shown before the network was checked to its nodes."""
        shown = self._workspace.shown_run
        stored_run, self._unchecked = self._unchecked, None
        if (
            stored_run is not None
            and shown.figures is not None
            and shown.figures.folder == stored_run.folder
        ):
            shown.show(replace(shown.figures, source=self._same_source(stored_run)))

    def _follow_moved(self, moved: dict[Path, Kept]) -> None:
        """Show a run under the folder where it is now."""
        shown = self._workspace.shown_run
        if shown.figures is not None and shown.figures.folder in moved:
            stored_run = moved[shown.figures.folder]
            shown.show(
                replace(
                    shown.figures,
                    title=stored_run.record.title,
                    folder=stored_run.folder,
                    beside_folders=tuple(
                        moved[folder].folder if folder in moved else folder
                        for folder in shown.figures.beside_folders
                    ),
                )
            )

    def _show_stored(self, stored_run: Kept) -> None:
        def shown(history: History) -> None:
            source = self._same_source(stored_run)
            if not self._workspace.live.up_to_date:
                self._unchecked = stored_run
            record = stored_run.record
            figures = Figures(
                history,
                record.title,
                source,
                record.loss,
                folder=stored_run.folder,
                label=record.label,
            )
            self._workspace.shown_run.show(figures)

        self._ask(
            SHOWN,
            "The run cannot be shown",
            store.history_of,
            stored_run,
            then=shown,
        )

    def _same_source(self, stored_run: Kept) -> Source | None:
        """Return the source of the open drawing if the run trained exactly that text, so that its layers are nodes
        here."""
        analysis = self._workspace.live.analysis
        try:
            text = (stored_run.folder / store.SOURCE).read_text(encoding="utf-8")
        except OSError:
            return None
        return (
            analysis.source
            if analysis is not None and analysis.source.text == text
            else None
        )

    def compare(self, rows: list[RunRow]) -> None:
        """Show the curves of several runs in one view, and their settings side by side."""
        first, *others = rows
        stored_runs = tuple(row.kept for row in rows if row.kept is not None)
        if len(stored_runs) != len(rows):
            return

        def read(histories: list[History]) -> None:
            read_or_live = zip(rows, histories, strict=True)
            shown = [
                row.run.history if row.run is not None else history
                for row, history in read_or_live
            ]
            beside = tuple(
                (row.label, history)
                for row, history in zip(others, shown[1:], strict=True)
            )
            source = (
                first.run.job.source
                if first.run is not None
                else self._same_source(stored_runs[0])
            )
            loss = (
                first.run.job.training.loss_name
                if first.run is not None
                else stored_runs[0].record.loss
            )
            folders = tuple(stored_run.folder for stored_run in stored_runs)
            figures = Figures(
                shown[0],
                first.title,
                source,
                loss,
                beside,
                folders[0],
                first.label,
                folders[1:],
            )
            self._workspace.shown_run.show(figures)

        self._ask(
            SHOWN,
            "The runs cannot be compared",
            _histories,
            stored_runs,
            then=read,
        )
        panel = self._panel
        self._ask(
            "runs compared",
            "The runs cannot be compared",
            _compared_settings,
            stored_runs,
            then=lambda lines: panel.set_settings(rows[:MOST], lines),
        )

    # -- deeds --------------------------------------------------------------------------------------------------------

    def annotate(self, stored_run: Kept, field: str, text: str) -> None:
        """Change the name, the note or the tags (separated by commas) of a run."""
        self._ask(
            "run annotated",
            "The run was not changed",
            _annotated,
            stored_run,
            field,
            text,
            then=self._have_annotated,
        )

    def _have_annotated(self, _kept: Kept) -> None:
        """List the runs again, and then show the new name in the legends."""
        self._renamed = True
        self._workspace.runs_keeper.refresh()

    def _on_listed(self, runs: list[Kept]) -> None:
        """List the runs, and show the newest if none is shown and this window has none of the project."""
        self._panel.set_stored(runs)
        figures = self._workspace.shown_run.figures
        if figures is not None:
            self._shown(figures)
        elif (newest := self._workspace.newest_weights).run is None and newest.stored:
            self._show_stored(newest.stored)
        if self._renamed:
            self._renamed = False
            self._panel.show_selected()

    def _hide_columns(self, keys: list[str]) -> None:
        self._workspace.settings.hidden_run_columns = keys

    def ask_delete(self, stored_runs: list[Kept]) -> None:
        """Delete runs after asking."""
        subject = (
            stored_runs[0].record.title
            if len(stored_runs) == 1
            else f"{len(stored_runs)} runs"
        )
        reason = "Its curves, its checkpoints and its folder are deleted. This cannot be undone."
        if len(stored_runs) > 1:
            reason = reason.replace("Its", "Their").replace("its", "their")
        if self._confirmed(f"Delete {subject}?", reason):
            self.delete(stored_runs)

    def _confirmed(self, title: str, text: str) -> bool:
        """Ask whether to delete something."""

        dialog = QuestionDialog(title, text, self._workspace.window)
        dialog.offer("Delete", DialogAnswer.DISCARD, left=True)
        dialog.offer("Cancel", DialogAnswer.CANCEL, "primary", default=True)
        dialog.exec()
        dialog.deleteLater()
        return dialog.answer is DialogAnswer.DISCARD

    def delete(self, stored_runs: list[Kept]) -> None:
        """Delete runs and all their files."""

        def done(problem: str) -> None:
            if problem:
                self._workspace.notifier.refuse("Not everything was deleted", problem)
            figures, gone = (
                self._workspace.shown_run.figures,
                {
                    stored_run.folder
                    for stored_run in stored_runs
                    if not stored_run.folder.exists()
                },
            )
            if figures is not None and gone & {figures.folder, *figures.beside_folders}:
                self._workspace.shown_run.show(None)
            self._workspace.runs_keeper.refresh()

        self._ask(
            "runs deleted",
            "The runs were not deleted",
            _deleted,
            tuple(stored_runs),
            then=done,
        )

    def _measure(self, stored_run: Kept) -> None:
        """Find out whether a run has checkpoints, and measure those that are kept for revisiting."""
        self._workspace.background.ask(
            "checkpoints measured",
            measured,
            stored_run.checkpoints,
            on_answer=lambda disk_use: self._panel.show_disk(stored_run, disk_use),
            on_error=lambda _failure: None,
        )

    def ask_delete_kept(self, stored_run: Kept) -> None:
        """Delete the checkpoints for revisiting of a run after asking."""
        if self._confirmed(
            f"Delete the checkpoints for revisiting of {stored_run.record.title}?",
            "Its steps can still be recomputed from the other checkpoints or the start, which may take as long as the "
            "run did. This cannot be undone.",
        ):
            self.delete_kept(stored_run)

    def delete_kept(self, stored_run: Kept) -> None:
        """Delete the checkpoints of a run that are kept for revisiting."""
        self._ask(
            "checkpoints deleted",
            "Not all checkpoints were deleted",
            delete_kept,
            stored_run,
            then=lambda _none: self._measure(stored_run),
        )

    def restore(self, stored_run: Kept) -> None:
        """Make the project of a run the open one, in one step that can be undone."""

        def read(project: Project) -> None:
            self._workspace.document.apply(
                f"Restore the project of {stored_run.record.title}", project
            )
            self._workspace.notifier.say(
                f"The project of {stored_run.record.title} is open",
                "Undo restores the previous project.",
            )

        self._ask(
            "run restored",
            "The project was not restored",
            store.project_of,
            stored_run,
            then=read,
        )

    def open_folder(self, stored_run: Kept) -> None:
        if not QDesktopServices.openUrl(QUrl.fromLocalFile(str(stored_run.folder))):
            self._workspace.notifier.refuse(
                "The folder cannot be opened", f"Open it yourself: {stored_run.folder}."
            )

    def go_on(self, stored_run: Kept, takes: bool = False) -> None:
        """Continue a run from its newest checkpoint, with its own settings or with those that Training `takes`."""

        now, root = (
            self._workspace.document.project,
            str(self._workspace.settings.data_folder),
        )
        control = self._workspace.run_control

        title = f"{stored_run.record.title} cannot be resumed"

        def on_resumable(resumable: Resumable) -> None:
            if resumable.others and not takes and not resumable.refusal:
                match self._asked_settings(stored_run, resumable.others):
                    case DialogAnswer.CANCEL:
                        return
                    case DialogAnswer.DISCARD:
                        self.go_on(stored_run, takes=True)
                        return
            self._ask(
                "run to resume",
                title,
                store.history_of,
                stored_run,
                then=lambda history: ready(resumable, history),
            )

        def ready(resumable: Resumable, history: History) -> None:
            control.go_on(stored_run, resumable, history)
            if resumable.passed_over:
                note = f"{' '.join(resumable.passed_over)} The run resumes from {resumable.checkpoint.name}."
                self._workspace.notifier.warn("An older checkpoint was used", note)
            elif resumable.refusal:
                note = f"Training has other ones, which cannot be taken amid a run: {'; '.join(resumable.others)}."
                self._workspace.notifier.say(
                    f"{stored_run.record.title} resumes with its own settings", note
                )

        self._ask_engine(
            "run to resume",
            title,
            FindResumable(stored_run.folder, now, root, takes),
            on_resumable,
        )

    def _asked_settings(
        self, stored_run: Kept, others: tuple[str, ...]
    ) -> DialogAnswer:
        """Ask whether a run resumes with its own settings or with those of Training: SAVE or DISCARD."""

        reason = (
            f"Training has {'; '.join(others)}. The run keeps its own settings; with those of Training it continues as "
            "a new run from its newest checkpoint."
        )
        dialog = QuestionDialog(
            f"Resume {stored_run.record.title} with its own settings?",
            reason,
            self._workspace.window,
        )
        dialog.offer("Take those of Training", DialogAnswer.DISCARD, left=True)
        dialog.offer("Cancel", DialogAnswer.CANCEL)
        dialog.offer("Keep its own", DialogAnswer.SAVE, "primary", default=True)
        dialog.exec()
        dialog.deleteLater()
        return dialog.answer

    def go_on_newest(self) -> None:
        """Continue the run that began last."""
        stored_run = next(
            (
                row.kept
                for row in self._panel.model.newest_first
                if row.kept is not None
            ),
            None,
        )
        if stored_run is None:
            self._workspace.notifier.refuse(
                "There is no run to resume",
                "Runs of this project are listed under Runs.",
            )
        else:
            self.go_on(stored_run)

    def write_event_files(self, enabled: bool) -> None:
        """Set whether future runs also write TensorBoard files."""
        self._workspace.settings.event_files = enabled
        self._workspace.runs_keeper.write_event_files(enabled)

    def _setting_changed(self, name: str) -> None:
        if name == "event_files":
            enabled = self._workspace.settings.event_files
            self._panel.set_event_files(enabled)
            self._workspace.runs_keeper.write_event_files(enabled)

    def ask_export(self, stored_run: Kept) -> None:
        """Ask for a folder, and write a run as TensorBoard event files."""
        start = str(self._workspace.settings.export_folder)
        name = QFileDialog.getExistingDirectory(
            self._workspace.window, "Folder for TensorBoard event files", start
        )
        if name:
            self.export(stored_run, Path(name))

    def export(self, stored_run: Kept, folder: Path) -> None:
        """Write a run as TensorBoard event files below a folder."""
        root = str(self._workspace.settings.data_folder)

        def done(target: Path) -> None:
            self._workspace.notifier.say(
                f"{stored_run.record.title} was exported for TensorBoard",
                f"tensorboard --logdir {target}",
            )

        request = ExportEventFiles(stored_run.folder, folder, root)
        self._ask_engine(
            "run exported",
            f"{stored_run.record.title} could not be exported",
            request,
            done,
        )

    def fork(self, stored_run: Kept, checkpoint: Checkpoint) -> None:
        """Start a new run of the open project from the weights of a checkpoint."""
        name = f"{stored_run.record.title}, {checkpoint.label}"
        parent = Parent(stored_run.record.title, checkpoint.path.name, checkpoint.step)

        def ready(start: StartWeights) -> None:
            self._workspace.run_control.fork(start, parent)

        title = f"{stored_run.record.title} cannot be forked"
        self._ask_engine("run forked", title, StartFrom(checkpoint.path, name), ready)
