"""The open project as one immutable value."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.builder.graph import Graph
from app.data.config import DataConfig
from app.frozen import FrozenMap
from app.training.config import TrainingConfig


@dataclass(frozen=True)
class Project:
    """Everything that a `.tape` file keeps. `positions` are canvas points of the nodes' top left corners, by id."""

    name: str = "untitled"
    graph: Graph = field(default_factory=Graph)
    positions: FrozenMap[str, tuple[float, float]] = field(default_factory=FrozenMap)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    notes: str = ""
