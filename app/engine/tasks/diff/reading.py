"""Handler of `app.engine.requests.diff.reading`: projects, stored runs and files of weights as sides to compare."""

from __future__ import annotations

from pathlib import Path

from app.builder.analysis import analyse
from app.engine.requests.diff import DiffSide, side_of_project
from app.engine.requests.diff.reading import ReadSide
from app.engine.server import Context, handles
from app.project import custom_layers, file
from app.project.file import ProjectFileError
from app.project.project import Project
from app.runs import store
from app.runs.named import PROJECT, named_run
from app.runs.record import RunError
from app.source.generated import Source
from app.sources.spec import SourceError
from app.util.errors import CodedError


@handles(ReadSide)
def read_side(request: ReadSide, _context: Context) -> DiffSide:
    path, weights = Path(request.path), request.weights
    try:
        if (named := named_run(path, weights)) is not None:
            project, title = store.project_of(named.kept), named.kept.record.title
            return side_of_project(
                project, title, lambda: _source(project, title), named=named
            )
        if weights and not Path(weights).is_file():
            raise SourceError(f"There is no file {weights}, and no run of that name")
        if not path.is_file():
            raise SourceError(
                f"There is no run in {path}"
                if path.is_dir()
                else f"There is no file {path}"
            )
        if path.suffix == PROJECT:
            project = file.read(path)
            return side_of_project(
                project, path.name, lambda: _source(project, path.name), weights
            )
    except (OSError, RunError, ProjectFileError) as error:
        raise SourceError(str(error)) from error
    return DiffSide(path.name, None, str(path))


def _source(project: Project, name: str) -> Source:
    """Return the text of a drawn net. Raises SourceError for one that cannot run, or may not yet."""
    if files := custom_layers.waiting(project):
        names = ", ".join(map(str, files))
        raise SourceError(
            f"{names} is not trusted yet: open the project and review its layers first"
        )
    try:
        analysis = analyse(project.graph, custom_layers.ops_of(project))
    except CodedError as error:
        raise SourceError(f"{name} cannot run: {error}") from error
    wrong = next((one for one in analysis.problems if one.severity == "error"), None)
    if wrong is not None:
        raise SourceError(f"{name} cannot run: {wrong.message}. {wrong.reason}")
    return analysis.source
