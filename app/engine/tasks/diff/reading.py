"""Handler of `app.engine.requests.diff.reading`: projects, stored runs and files of weights as sides to compare."""

from __future__ import annotations

from pathlib import Path

from app.builder.analysis import analyse
from app.engine.requests.diff import DiffSide
from app.engine.requests.diff.reading import PROJECT, ReadSide
from app.engine.requests.observe import Observe
from app.engine.server import Context, handles
from app.project import custom_layers, file
from app.project.file import ProjectFileError
from app.project.project import Project
from app.runs import record, store
from app.runs.checkpoint_files import checkpoints
from app.runs.record import RunError
from app.runs.store import Kept
from app.sources.spec import SourceError
from app.util.errors import CodedError


@handles(ReadSide)
def read_side(request: ReadSide, _context: Context) -> DiffSide:
    path = Path(request.path)
    try:
        found = _run_at(path, request.weights)
        if found is not None:
            return _side_of(store.project_of(found[0]), found[0].record.title, str(_checkpoint(*found)))
        if request.weights and not Path(request.weights).is_file():
            raise SourceError(f"There is no file {request.weights}, and no run of that name")
        if not path.is_file():
            raise SourceError(f"There is no run in {path}" if path.is_dir() else f"There is no file {path}")
        if path.suffix == PROJECT:
            return _side_of(file.read(path), path.name, request.weights)
    except (OSError, RunError, ProjectFileError) as error:
        raise SourceError(str(error)) from error
    return DiffSide(path.name, None, str(path))


def _side_of(project: Project, name: str, weights: str) -> DiffSide:
    name = f"{name} with {Path(weights).name}" if weights else name
    if project.opened is not None:
        of = project.opened
        return DiffSide(name, Observe(of.source, of.arguments, of.inputs, of.folder), weights, project.training.start)
    if files := custom_layers.waiting(project):
        names = ", ".join(map(str, files))
        raise SourceError(f"{names} is not trusted: open the project and look at its layers first")
    try:
        analysis = analyse(project.graph, custom_layers.ops_of(project))
    except CodedError as error:
        raise SourceError(f"{name} cannot run: {error}") from error
    wrong = next((one for one in analysis.problems if one.severity == "error"), None)
    if wrong is not None:
        raise SourceError(f"{name} cannot run: {wrong.message}. {wrong.reason}")
    return DiffSide(name, analysis.source, weights, project.training.start)


def _run_at(path: Path, name: str) -> tuple[Kept, str] | None:
    """Return a stored run, and which of its checkpoints was named: "best", "last" or ""."""
    if path.suffix == PROJECT and name and not Path(name).is_file():
        run, _, which = name.partition("/")
        return store.find(store.runs_beside(path), run), which
    if not name and (path / store.PROJECT).is_file():
        return Kept(path, record.read(path)), ""
    inside = path.parent.parent
    if not name and path.parent.name == store.CHECKPOINTS and (inside / store.PROJECT).is_file():
        return Kept(inside, record.read(inside)), path.stem
    return None


def _checkpoint(kept: Kept, which: str) -> Path:
    """Return the named checkpoint of a run; without a name the best, the last, or the newest one."""
    found = {one.path.stem: one.path for one in checkpoints(kept)}
    if not found:
        raise SourceError(f"{kept.record.title} has no checkpoint, so its weights are not known")
    if which and which not in found:
        raise SourceError(f"{kept.record.title} has no checkpoint {which}; there are {', '.join(found)}")
    return next((found[name] for name in (which, "best", "last") if name in found), next(iter(found.values())))
