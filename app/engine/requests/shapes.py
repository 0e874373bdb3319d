"""Requests about a graph: types of the wires, source, problems, cost."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import ClassVar

from msgspec import Struct

from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.builder.graph import Graph
from app.builder.results import Analysis
from app.builder.shapes.network_cost import NetworkCost
from app.engine.protocol import Request
from app.preflight.examples import Facts
from app.project.project import Project
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


class Cost(Request[NetworkCost], frozen=True):
    """Return the cost of a graph's nodes for one sample."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog


class DescribeExample(Request[Facts], frozen=True):
    """Analyse a bundled example; `data_root` is where downloaded data are."""

    lane: ClassVar[str] = "shapes"
    project: Project
    data_root: FilePath
