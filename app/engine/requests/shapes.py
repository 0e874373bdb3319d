"""Requests about a graph: types of the wires, source, problems."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.builder.graph import Graph
from app.builder.results import Analysis
from app.engine.protocol import Request
from app.source.generated import Path, Source
from app.training.config import StartWeights
from app.training.setup.device import Device


class Torch(Struct, frozen=True):
    """The torch that an engine loaded, and the devices that it found."""

    version: str
    devices: tuple[Device, ...]


class LoadTorch(Request[Torch], frozen=True):
    """Load torch and run one call on meta tensors, whose first use imports further modules."""

    lane: ClassVar[str] = "shapes"


class InferShapes(Request[Analysis], frozen=True):
    """Infer the types of all wires, seen from `path`; unchanged parts are taken from the answer `earlier`."""

    lane: ClassVar[str] = "shapes"
    prompt: ClassVar[bool] = True
    graph: Graph
    catalog: Catalog
    path: Path
    earlier: Analysis | None = None


class Analyse(Request[Analysis], frozen=True):
    """Return source and problems of a graph whose `shapes` are known, and the cost of a small net."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog
    path: Path
    shapes: Analysis


class StartProblems(Request[tuple[Problem, ...]], frozen=True):
    """What start weights have against a net."""

    lane: ClassVar[str] = "shapes"
    start: StartWeights
    source: Source
