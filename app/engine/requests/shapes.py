"""Requests about a graph: types of the wires, source, problems, cost."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import ClassVar

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
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class Torch:
    """The torch that an engine loaded, and the devices that it found."""

    version: str
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class LoadTorch(Request[Torch]):
    """Load torch and run one call on meta tensors, whose first use imports further modules."""

    lane: ClassVar[str] = "shapes"


@dataclass(frozen=True)
class InferShapes(Request[Analysis]):
    """Infer the types of all wires, seen from `path`; unchanged parts are taken from the answer `earlier`."""

    lane: ClassVar[str] = "shapes"
    prompt: ClassVar[bool] = True
    graph: Graph
    catalog: Catalog
    path: Path
    earlier: Analysis | None = None


@dataclass(frozen=True)
class Analyse(Request[Analysis]):
    """Return source and problems of a graph whose `shapes` are known, and the cost of a small net."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog
    path: Path
    shapes: Analysis


@dataclass(frozen=True)
class StartProblems(Request[tuple[Problem, ...]]):
    """What start weights have against a net."""

    lane: ClassVar[str] = "shapes"
    start: StartWeights
    source: Source


@dataclass(frozen=True)
class Cost(Request[NetworkCost]):
    """Return the cost of a graph's nodes for one sample."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog


@dataclass(frozen=True)
class DescribeExample(Request[Facts]):
    """Analyse a bundled example; `data_root` is where downloaded data are."""

    lane: ClassVar[str] = "shapes"
    project: Project
    data_root: FilePath
