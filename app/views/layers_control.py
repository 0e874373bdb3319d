"""The open project's own files of layers: read, watched, asked about. Nothing of one runs before it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.builder.catalog.custom import (
    CustomFile,
    module_name,
    read_file,
    read_files,
    used_in,
)
from app.engine.requests.custom_layers import RunLayerFiles
from app.project.document import Document
from app.project.project import Project
from app.source import layer_files
from app.source.layer_files import LayerFile
from app.source.own_files import OwnFiles
from app.source.trust import FILE, TrustStore
from app.util.formatting import plural
from app.views.engine_service import EngineService
from app.views.project_catalog import ProjectCatalog
from app.views.settings import Settings
from app.views.trust_dialog import DatasetTrustDialog, TrustDialog

if TYPE_CHECKING:
    from app.views.trust_dialog import ModelTrustDialog

TRIED = "layers.tried"
FILTER = "Python file (*.py)"
SETTLED = 150  # ms of debounce: programs may save a file in several steps


class LayersControl(QObject):
    """Keeps the catalog in sync with the files. `changed(files)` is emitted when a file was reread or its trust
    changed.

    `waiting(title, reason, action)` asks for a review of the file `asked_about`, for a banner; `refused(title, reason)`
    reports failures, `said(title, detail)` successes.
    """

    changed = Signal(object)
    waiting = Signal(str, str, str)
    refused = Signal(str, str)
    said = Signal(str, str)

    def __init__(
        self,
        document: Document,
        catalog: ProjectCatalog,
        engine: EngineService,
        settings: Settings,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._document, self._catalog, self._engine, self._window = (
            document,
            catalog,
            engine,
            window,
        )
        self.trust = TrustStore(settings.file.with_name(FILE))
        self.trust.admit()
        self.files: tuple[CustomFile, ...] = ()
        self.asked_about = ""
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=SETTLED)
        self._settle.timeout.connect(self.read_again)
        self._watcher.fileChanged.connect(lambda _path: self._settle.start())
        self._watcher.directoryChanged.connect(lambda _path: self._settle.start())
        document.changed.connect(self._project_changed)
        document.replaced.connect(self._project_replaced)
        self._follow(document.project)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _project_replaced(self, project: Project) -> None:
        self.asked_about = ""
        self._follow(project)
        QTimer.singleShot(
            0, self, self._ask_about_project
        )  # after all views have dropped the previous project

    def _ask_about_project(self) -> None:
        new = [
            layer_file
            for layer_file in self.files
            if layer_file.file is not None and not layer_file.trusted
        ]
        missing = [layer_file for layer_file in self.files if layer_file.file is None]
        if new:
            names = ", ".join(layer_file.name for layer_file in new)
            reason = "None of its code has been run. Its layers are available once you have viewed and trusted it."
            self._ask(
                new[0],
                f"This project contains custom layers: {names}",
                reason,
                f"View {new[0].name}…",
            )
        elif missing:
            self.refused.emit(
                f"The layer file {missing[0].name} cannot be read", missing[0].problem
            )

    def _project_changed(self, before: Project, after: Project) -> None:
        if before.layer_files != after.layer_files:
            self._follow(after)

    def _follow(self, project: Project) -> None:
        self._take(read_files(project.layer_files))
        self._watch()

    def _take(self, files: tuple[CustomFile, ...]) -> None:
        if files == self.files:
            return
        self.files = files
        self._catalog.set_custom(
            spec for layer_file in files for spec in layer_file.specs
        )
        self.changed.emit(files)

    def _watch(self) -> None:
        """Watch the files and their folders: many editors replace a file by a new one."""
        paths = {
            str(layer_file.path)
            for layer_file in self.files
            if layer_file.path.is_file()
        }
        paths |= {
            str(layer_file.path.parent)
            for layer_file in self.files
            if layer_file.path.parent.is_dir()
        }
        watched = {*self._watcher.files(), *self._watcher.directories()}
        if gone := watched - paths:
            self._watcher.removePaths(sorted(gone))
        if new := paths - watched:
            self._watcher.addPaths(sorted(new))

    def read_again(self) -> None:
        """Reread all files after a change; ask about trusted files whose text has changed."""
        before = {previous.path: previous for previous in self.files}
        self._take(read_files(self._document.project.layer_files))
        self._watch()
        for layer_file in self.files:
            old = before.get(layer_file.path)
            if old is None or old.file == layer_file.file:
                continue
            if layer_file.file is not None and not layer_file.trusted:
                reason = "The edited file has not been run. Its layers are available once you trust it."
                self._ask(
                    layer_file, f"{layer_file.name} was edited", reason, "View changes…"
                )
            elif layer_file.problem:
                self.refused.emit(
                    f"{layer_file.name} cannot be used now", layer_file.problem
                )

    def _ask(
        self, layer_file: CustomFile, title: str, reason: str, action: str
    ) -> None:
        self.asked_about = layer_file.module
        self.waiting.emit(title, reason, action)

    def note_tried(self, used: Iterable[LayerFile]) -> None:
        """Remember which of the files that a net uses run to their end: the next engine need not try them first."""
        new = tuple(
            file
            for file in used
            if layer_files.allowed(file.sha256) and not self._is_tried(file.sha256)
        )
        if new:
            self._engine.ask(TRIED, RunLayerFiles(new), on_answer=self._tried)

    def _is_tried(self, sha256: str) -> bool:
        entry = self.trust.entry(sha256)
        return entry.tried if entry is not None else layer_files.tried(sha256)

    def _tried(self, reasons: Mapping[str, str]) -> None:
        for sha256, reason in reasons.items():
            if not reason:
                layer_files.note_tried(sha256)
                self._store(partial(self.trust.mark_tried, sha256))

    # -- commands -----------------------------------------------------------------------------------------------------

    def file_of(self, module: str) -> CustomFile | None:
        """Return the file that is imported as `module`."""
        return next(
            (layer_file for layer_file in self.files if layer_file.module == module),
            None,
        )

    def review(self, module: str = "") -> None:
        """Show a file and ask whether it may run; by default the one that was asked about."""

        layer_file = self.file_of(module or self.asked_about)
        if layer_file is None:
            self.refused.emit(
                "The project does not include this file",
                "Add the file that defines the class to My layers.",
            )
        elif layer_file.file is None:
            self.refused.emit(f"{layer_file.name} cannot be read", layer_file.problem)
        else:
            dialog = TrustDialog(
                layer_file, self.trust.before(layer_file.path), self._window
            )
            dialog.trusted.connect(self.let_run)
            dialog.revoked.connect(self.stop_trusting)
            dialog.finished.connect(dialog.deleteLater)
            dialog.open()

    def review_file(
        self,
        path: Path,
        trusted: Callable[[], None],
        dialog_of: Callable[..., TrustDialog] | None = None,
    ) -> None:
        """Show a file other than of layers, such as one with a Dataset class; `trusted` is called once it may run."""

        layer_file = replace(read_file(path), problem="")
        if layer_file.file is None:
            self.refused.emit(f"{path.name} cannot be read", read_file(path).problem)
            return
        dialog = (dialog_of or TrustDialog)(
            layer_file, self.trust.before(layer_file.path), self._window
        )
        dialog.trusted.connect(self.let_run)
        dialog.trusted.connect(lambda _one: trusted())
        dialog.revoked.connect(self.stop_trusting)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def review_dataset(self, path: Path, trusted: Callable[[], None]) -> None:
        """Show a file with a Dataset class."""

        self.review_file(path, trusted, DatasetTrustDialog)

    def review_model(
        self,
        files: OwnFiles,
        dialog_of: Callable[..., ModelTrustDialog],
        parent: QWidget,
    ) -> ModelTrustDialog:
        """Show every file that runs for a model."""
        before = {file.path: self.trust.before(file.path) for file in files.files}
        dialog = dialog_of(files, before, parent)
        dialog.trusted.connect(self._let_model_run)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def _let_model_run(self, files: OwnFiles) -> None:
        layer_files.allow(files.key)
        self._store(partial(self.trust.trust, files))

    def let_run(self, layer_file: CustomFile) -> None:
        """Trust the text that was shown; if the file has changed meanwhile, the new text is asked about then."""
        assert layer_file.file is not None
        layer_files.allow(layer_file.file.sha256)
        self._store(partial(self.trust.trust, layer_file.file))
        self.read_again()

    def stop_trusting(self, layer_file: CustomFile) -> None:
        assert layer_file.file is not None
        layer_files.disallow(layer_file.file.sha256)
        self._store(partial(self.trust.revoke, layer_file.file.sha256))
        self._take(read_files(self._document.project.layer_files))

    def _store(self, write: Callable[[], object]) -> None:
        """Write to the store; if that fails, the decision applies to this session."""
        try:
            write()
        except OSError as error:
            reason = f"{error.strerror or error}: {self.trust.file}. It applies until Tapedeck is closed."
            self.refused.emit("Your trust decision could not be saved", reason)

    def choose(self) -> None:
        """Ask for a file and add it."""
        start = self._document.path.parent if self._document.path else Path.home()
        names, _ = QFileDialog.getOpenFileNames(
            self._window, "Add a layer file", str(start), FILTER
        )
        if names:
            self.add(map(Path, names))

    def add(self, paths: Iterable[Path]) -> None:
        """Add files to the project, as one undo step, and show the first that is not trusted yet."""
        project = self._document.project
        added: list[CustomFile] = []
        for path in paths:
            path = path.absolute()
            layer_file = read_file(path)
            project_paths = [
                *map(Path, project.layer_files),
                *(other.path for other in added),
            ]
            clash = next(
                (
                    other
                    for other in project_paths
                    if module_name(other).casefold() == layer_file.module.casefold()
                ),
                None,
            )
            if path in project_paths:
                self.said.emit(
                    f"{path.name} is already in the project",
                    "Its layers are listed under My layers.",
                )
            elif clash is not None:
                reason = f"Both would be imported as {layer_file.module}, as {clash} is. Give one of them another name."
                self.refused.emit(f"{path.name} was not added", reason)
            elif layer_file.problem:
                self.refused.emit(f"{path.name} was not added", layer_file.problem)
            else:
                added.append(layer_file)
        if not added:
            return
        names = ", ".join(addition.name for addition in added)
        files = (*project.layer_files, *(str(addition.path) for addition in added))
        self._document.apply(f"Add {names}", replace(project, layer_files=files))
        asking = next((addition for addition in added if not addition.trusted), None)
        if asking is not None:
            self.review(asking.module)

    def remove(self, module: str) -> None:
        """Remove a file from the project as one undo step. Nodes of its classes stay and report what they lack."""
        layer_file = self.file_of(module)
        if layer_file is None:
            return
        project = self._document.project
        graphs = [project.graph, *(block.graph for block in project.blocks.values())]
        count = sum(len(used_in(graph, layer_file)) for graph in graphs)
        files = tuple(
            name for name in project.layer_files if Path(name) != layer_file.path
        )
        self._document.apply(
            f"Remove {layer_file.name}", replace(project, layer_files=files)
        )
        nodes = f"{count} {plural(count, 'node')} of its classes"
        detail = (
            f"{nodes} cannot be used until the file is added again."
            if count
            else str(layer_file.path)
        )
        self.said.emit(f"Removed {layer_file.name} from the project", detail)
