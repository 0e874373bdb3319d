"""Answer what is asked of a drawing: see `app.engine.requests.shapes`."""

from __future__ import annotations

import torch

from app.builder.analysis import analyse, shapes_first
from app.builder.diagnostics.problems import Problem
from app.builder.results import Analysis
from app.engine.requests.shapes import Analyse, LoadTorch, Preflight, Shapes, Torch
from app.engine.server import Context, handles
from app.preflight import preflight
from app.project.weights import start_weights
from app.training.setup.devices import devices


@handles(LoadTorch)
def load_torch(_request: LoadTorch, _context: Context) -> Torch:
    with torch.device("meta"):
        torch.nn.Conv2d(1, 1, 1)(torch.zeros(1, 1, 1, 1))
        torch.nn.BatchNorm1d(1)(torch.zeros(2, 1))
    return Torch(torch.__version__, devices())


@handles(Shapes)
def shapes(request: Shapes, _context: Context) -> Analysis:
    return shapes_first(request.graph, request.catalog, request.path, request.earlier)


@handles(Analyse)
def analysis(request: Analyse, _context: Context) -> tuple[Analysis, Preflight]:
    answer = analyse(request.graph, request.catalog, request.path, request.shapes)
    found: tuple[Problem, ...] = ()
    if answer.runnable:
        start_weights.problems(request.project.training.start, answer.source)
        preflight.small_cost(request.graph, request.catalog)
        found = preflight.problems(request.project, answer)
    return answer, Preflight(request.project, request.look, found)
