"""Handlers of `app.engine.requests.shapes`."""

from __future__ import annotations

import torch

from app.builder.analysis import analyse, shapes_first
from app.builder.diagnostics.problems import Problem
from app.builder.results import Analysis
from app.engine.requests.shapes import (
    Analyse,
    InferShapes,
    LoadTorch,
    StartProblems,
    Torch,
)
from app.engine.server import Context, handles
from app.preflight.net_cost import with_cost
from app.project.weights import start_weights
from app.training.setup.devices import devices


@handles(LoadTorch)
def load_torch(_request: LoadTorch, _context: Context) -> Torch:
    with torch.device("meta"):
        torch.nn.Conv2d(1, 1, 1)(torch.zeros(1, 1, 1, 1))
        torch.nn.BatchNorm1d(1)(torch.zeros(2, 1))
    return Torch(str(torch.__version__), devices())


@handles(InferShapes)
def shapes(request: InferShapes, _context: Context) -> Analysis:
    return shapes_first(request.graph, request.catalog, request.path, request.earlier)


@handles(Analyse)
def analysis(request: Analyse, _context: Context) -> Analysis:
    answer = analyse(request.graph, request.catalog, request.path, request.shapes)
    return with_cost(answer, request.catalog)


@handles(StartProblems)
def start_problems(request: StartProblems, _context: Context) -> tuple[Problem, ...]:
    return start_weights.problems(request.start, request.source)
