"""Makes two models and compares them; reads projects, stored runs and files of weights as sides to compare."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.engine.server import Context, handles
from app.engine.tasks.weights import shape_text, state_of
from app.features.compare.compute import weights
from app.features.compare.compute.compare import Batch, compare_models, compare_modes
from app.features.compare.compute.facts import facts_of
from app.features.compare.compute.graphs import compare_graphs, is_graph
from app.features.compare.compute.other_interpreter import exchange_with
from app.features.compare.compute.other_python import compare_interpreters
from app.features.compare.compute.sides import forget, load_side, load_weights
from app.features.compare.compute.structure import compare as match
from app.features.compare.values import (
    Alone,
    Changed,
    Diff,
    Difference,
    DiffSide,
    ReadSide,
    Setting,
    Structure,
    side_of_project,
)
from app.observe import tensors
from app.project import custom_layers, file
from app.project.file import ProjectFileError
from app.project.project import Project
from app.runs import record, store
from app.runs.compare import settings as compare_settings
from app.runs.named import PROJECT, named_run
from app.runs.record import RunError
from app.runs.store import Kept
from app.source.generated import Source
from app.sources.loading import Loaded
from app.sources.spec import SourceError
from app.training.setup.torch_flags import cpu_threads
from app.util import gc_pause, module_tree
from app.util.errors import CodedError

SMALL_MODEL, SMALL_BATCH = 1 << 20, 1 << 15  # numbers


@handles(Diff)
def compare(request: Diff, context: Context) -> Difference:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what the models print
    return answer(request, context.progress, context.cancelled)


def answer(
    request: Diff,
    tell: Callable[[str], None] = lambda _words: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Difference:
    """Compare in this process. Raises as the request says."""
    with contextlib.ExitStack() as threads:
        difference = _compared(request, tell, cancelled, threads)
    runs = [Path(side.run) for side in (request.a, request.b) if side.run]
    if len(runs) == 2 and request.modes is None:
        rows = compare_settings([Kept(folder, record.read(folder)) for folder in runs])
        difference = replace(
            difference,
            settings=tuple(
                Setting(row.name, row.values[0], row.values[1]) for row in rows
            ),
        )
    return difference


def _compared(
    request: Diff,
    tell: Callable[[str], None],
    cancelled: Callable[[], bool],
    threads: contextlib.ExitStack,
) -> Difference:
    names = request.a.name, request.b.name
    if request.a.model is None or request.b.model is None:
        return _of_weights(request.a, request.b)
    if request.modes is None and is_graph(request.a) and is_graph(request.b):
        return compare_graphs(request.a, request.b, request.numbers, tell)
    tell(f"Making {request.a.name}")
    with gc_pause.put_off():
        side = load_side(request.a, request)
    remarks = load_weights(side.model, request.a, request, tell, cancelled)
    if request.python:
        batch = Batch(side.args, side.kwargs, request.seed, side.targets)
        exchange = exchange_with(request.python, request.a, cancelled)
        return _remarked(
            compare_interpreters(
                side.model, batch, request.trains, names, exchange, tell
            ),
            remarks,
        )
    if _is_small(side):
        threads.enter_context(cpu_threads(1))
    if request.modes is not None:
        batch = Batch(side.args, side.kwargs, request.seed, side.targets)
        return _remarked(
            compare_modes(
                side.model, request.modes, batch, request.trains, names, tell
            ),
            remarks,
        )
    forget(request.a)
    tell(f"Making {request.b.name}")
    with gc_pause.put_off():
        other = load_side(request.b, request)
    remarks += load_weights(other.model, request.b, request, tell, cancelled)
    if side.model is other.model:  # an object of a module
        other.model = module_tree.copied(side.model)
    own = request.a.has_weights, request.b.has_weights
    if own == (False, True):
        structure = match(facts_of(other.model), facts_of(side.model))
        weights.share(other.model, side.model, structure.pairs)
        remarks.append("A got the weights of B.")
    if not request.numbers:
        structure = match(facts_of(side.model), facts_of(other.model))
        difference = Difference(*names, structure=structure, ran=False)
        return _remarked(difference, remarks)
    batch = Batch(side.args, side.kwargs, request.seed, side.targets)
    difference = compare_models(
        side.model,
        other.model,
        batch,
        names=names,
        share=own != (True, True),
        fill=own == (False, False),
        modes=tuple("train" if train else "eval" for train in request.trains),
        tell=tell,
    )
    return _remarked(difference, remarks)


def _is_small(loaded: Loaded) -> bool:
    """Return whether handing its operations out to several threads takes longer than they do."""
    size = sum(parameter.numel() for parameter in module_tree.parameters(loaded.model))
    input_size = sum(
        tensor.numel() for tensor in tensors.tensors_in((loaded.args, loaded.kwargs))
    )
    return size <= SMALL_MODEL and input_size <= SMALL_BATCH


def _remarked(difference: Difference, remarks: list[str]) -> Difference:
    return replace(difference, remarks=(*remarks, *difference.remarks))


def _of_weights(a: DiffSide, b: DiffSide) -> Difference:
    """Compare two files of weights, key by key."""
    if a.model is not None or b.model is not None or not a.weights or not b.weights:
        raise SourceError(
            f"{a.name} and {b.name}: weights can only be compared with weights, and a model with a model"
        )
    first, other = state_of(a.weights), state_of(b.weights)
    shapes = [
        (
            key,
            Setting(key.rpartition(".")[2], shape_text(value), shape_text(other[key])),
        )
        for key, value in first.items()
        if key in other and other[key].shape != value.shape
    ]
    structure = Structure(
        tuple((key, key) for key in first if key in other),
        tuple(
            Alone(key, shape_text(value))
            for key, value in other.items()
            if key not in first
        ),
        tuple(
            Alone(key, shape_text(value))
            for key, value in first.items()
            if key not in other
        ),
        (),
        tuple(Changed(key, key, (setting,)) for key, setting in shapes),
    )
    return Difference(
        a.name,
        b.name,
        structure=structure,
        distances=weights.state_distances(first, other),
        ran=False,
    )


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
    wrong = next(
        (problem for problem in analysis.problems if problem.severity == "error"), None
    )
    if wrong is not None:
        raise SourceError(f"{name} cannot run: {wrong.message}. {wrong.reason}")
    return analysis.source
