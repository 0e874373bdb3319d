"""Import a model: a separate process runs and traces it, and a worker thread lays out the resulting project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from app.engine.import_process import ImportProcess, check_file
from app.engine.requests.import_model import (
    ImportModel,
    ModelImportError,
    ModelInput,
    ModelSource,
)
from app.project.project import Project
from app.project.weights import files
from app.source import layer_files
from app.sources.finding import files_of
from app.views.ui.task import Cancelled, Report


class ImportRequest(Struct, frozen=True):
    """A model to import. Without `keep_weights` the project keeps only the model's buffers. `sha256` is the digest of
    the text that the user reviewed, for a model of a file."""

    source: ModelSource
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[ModelInput, ...] = ()
    pretrained: bool = False
    keep_weights: bool = True
    sha256: str = ""


def sizes_of(one: ModelInput) -> str:
    """Format an input the way it is typed.

    >>> sizes_of(ModelInput((1, 16), "int64"))
    '1x16:int64'
    """
    sizes = "x".join(map(str, one.shape))
    return sizes if one.dtype == "float32" else f"{sizes}:{one.dtype}"


def read_model(
    wanted: ImportRequest, tell: Report, cancelled: Cancelled
) -> tuple[Project, ImportProcess]:
    """Return the imported project and the process that read it, which has ended unless it is still `comparing`.
    `tell` receives progress. Raises ModelImportError and errors of writing the weights."""
    source = wanted.source
    if source.file:
        check_file(source, wanted.inputs)
        tell(f"Running {Path(source.file).name} in a separate process")
    own = files_of(source.own_spec, source.folder)
    if own is not None and not (
        own.is_version(wanted.sha256) and layer_files.allowed(own.key)
    ):
        again = "import" if source.file else "open"
        raise ModelImportError(
            f"{own.entry.name} was edited in the meantime and was not run; {again} it again",
            "edited",
        )
    process = ImportProcess(
        file=source.file or (own.entry.path if own is not None else "")
    )
    try:
        chosen = (wanted.pretrained, wanted.keep_weights)
        request = ImportModel(
            source, wanted.arguments, wanted.inputs, *chosen, early=True
        )
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
    wanted: ImportRequest,
    lay_out: Callable[[Project], Project],
    tell: Report,
    cancelled: Cancelled,
) -> ImportedModel:
    """Read a model and lay it out. Raises what `read_model` raises."""
    project, reader = read_model(wanted, tell, cancelled)
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
    drawings = {one.origin.drawing if one.origin else "" for one in (project, early)}
    return lay_out(project) if len(drawings) > 1 and not cancelled() else project
