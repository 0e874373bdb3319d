"""The open project as one immutable value."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.builder.blocks import Blocks
from app.builder.graph import Graph
from app.builder.importer.origin import Origin
from app.builder.sheet import Bends, Comments, Positions
from app.data.config import DataConfig
from app.training.config import TrainingConfig
from app.util.frozen import FrozenMap


@dataclass(frozen=True)
class Project:
    """Everything that a `.tape` file keeps: the sheet of the network, its blocks, data and training.

    `positions` are canvas points of the nodes' top left corners, by id. `layer_files` are paths of Python files whose
    classes are layers here, absolute or beside the project; they run only once a person trusts them. `origin` says
    which model an imported net was.
    """

    name: str = "untitled"
    graph: Graph = field(default_factory=Graph)
    positions: Positions = field(default_factory=FrozenMap)
    comments: Comments = field(default_factory=FrozenMap)
    bends: Bends = field(default_factory=FrozenMap)
    blocks: Blocks = field(default_factory=FrozenMap)
    layer_files: tuple[str, ...] = ()
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    notes: str = ""
    unfolded: frozenset[str] = frozenset()
    origin: Origin | None = None
