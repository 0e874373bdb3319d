"""Import a model: a separate process runs and traces it, and a worker thread lays out the resulting project."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from app.engine.import_process import ImportProcess, check_file
from app.engine.requests.import_model import (
    ImportModel,
    ModelImportError,
)
from app.project.project import Project
from app.project.weights import files
from app.source import layer_files
from app.sources.finding import files_of
from app.views.ui.task import Cancelled, Report


def read_model(
    import_request: ImportModel, tell: Report, cancelled: Cancelled
) -> tuple[Project, ImportProcess]:
    """Return the imported project and the process that read it, which has ended unless it is still `comparing`.
    `tell` receives progress. Raises ModelImportError and errors of writing the weights."""
    source = import_request.source
    if import_request.runs_file:
        check_file(import_request)
        tell(f"Running {Path(source.where).name} in a separate process")
    model_files = files_of(source.as_run, import_request.where)
    if model_files is not None and not (
        model_files.is_version(import_request.sha256)
        and layer_files.allowed(model_files.key)
    ):
        again = "open" if import_request.opened else "import"
        raise ModelImportError(
            f"{model_files.entry.name} was edited in the meantime and was not run; {again} it again",
            "edited",
        )
    process = ImportProcess(model_files.entry.path if model_files is not None else "")
    try:
        request = replace(import_request, early=True)
        return process.read(
            request, files.store(), cancelled=cancelled, tell=tell
        ), process
    finally:
        if not process.comparing:
            process.close()


class ImportedModel(Struct, frozen=True):
    """An imported, laid out project. `rest` waits for the end of the comparison with the model while that still runs;
    `stop_comparison` ends the process that runs it."""

    project: Project
    rest: Callable[[Report, Cancelled], Project] | None = None
    stop_comparison: Callable[[], None] = lambda: None


def import_model(
    import_request: ImportModel,
    lay_out: Callable[[Project], Project],
    tell: Report,
    cancelled: Cancelled,
) -> ImportedModel:
    """Read a model and lay it out. Raises what `read_model` raises."""
    project, reader = read_model(import_request, tell, cancelled)
    if cancelled():
        reader.close()
        return ImportedModel(project)
    tell("Laying out the network")
    laid = lay_out(project)
    rest = partial(_rest, reader, lay_out, laid)
    return (
        ImportedModel(laid, rest, reader.close)
        if reader.comparing
        else ImportedModel(laid)
    )


def _rest(
    reader: ImportProcess,
    lay_out: Callable[[Project], Project],
    early: Project,
    tell: Report,
    cancelled: Cancelled,
) -> Project:
    """Return the final project of the process, laid out again if its drawing differs from the early one."""
    try:
        project = reader.rest(files.store(), cancelled, tell)
    finally:
        reader.close()
    drawings = {
        compared.origin.drawing if compared.origin else ""
        for compared in (project, early)
    }
    return lay_out(project) if len(drawings) > 1 and not cancelled() else project
