"""What is asked of a drawing: the types on its wires, its source and its problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.builder.graph import Graph
from app.builder.results import Analysis
from app.engine.protocol import Request
from app.project.project import Project
from app.source.generated import Path
from app.training.setup.devices import Device


@dataclass(frozen=True)
class Torch:
    """The torch that an engine loaded, and the devices that it found."""

    version: str
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class LoadTorch(Request[Torch]):
    """Load torch and run one call on meta tensors, whose first use imports a good deal more."""

    lane: ClassVar[str] = "shapes"


@dataclass(frozen=True)
class Shapes(Request[Analysis]):
    """What every wire carries, seen from `path`; `earlier` is an answer of before, of which what did not change is
    taken."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog
    path: Path
    earlier: Analysis | None = None


@dataclass(frozen=True)
class Preflight:
    """What stands between a project and a run besides its net, by what was known of the data at `look`."""

    project: Project
    look: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Analyse(Request[tuple[Analysis, Preflight]]):
    """Source and problems of a graph of which `shapes` is known, and what stands between its project and a run."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog
    path: Path
    shapes: Analysis
    project: Project
    look: int
