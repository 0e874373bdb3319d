"""The open project as one immutable value."""

from __future__ import annotations

from msgspec import Struct

from app.builder.blocks import Blocks
from app.builder.graph import Graph
from app.builder.origin import Origin
from app.builder.sheet import Bends, Comments, Positions
from app.data.config import DataConfig
from app.sources.opened import OpenedModel
from app.training.config import TrainingConfig
from app.util.frozen import FrozenMap, Shared


class LessonWork(Struct, frozen=True):
    """What was done of a lesson: the answers by question, and what was seen of the goals that were reached, by
    `Goal.key`. `text` is the lesson where it does not come with the program; a lesson with numbers of each student's
    own makes them of `student`.
    """

    name: str
    answers: FrozenMap[str, str] = FrozenMap()
    reached: FrozenMap[str, str] = FrozenMap()
    text: str = ""
    student: str = ""


class Project(Shared, frozen=True):
    """The content of a `.tape` file: the network's sheet, its blocks, data and training.

    `positions` are canvas points of the nodes' top left corners, by id. `layer_files` are paths of Python files with
    custom layers, absolute or relative to the project; they run only once the user trusts them. `origin` is the model
    of an imported net. With `opened` the network is a model from code in place of a drawing, and the sheet is
    empty. `lesson` is what was done of the lesson that the project is handed in for.
    """

    name: str = "untitled"
    graph: Graph = Graph()
    positions: Positions = FrozenMap()
    comments: Comments = FrozenMap()
    bends: Bends = FrozenMap()
    blocks: Blocks = FrozenMap()
    layer_files: tuple[str, ...] = ()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    notes: str = ""
    unfolded: frozenset[str] = frozenset()
    origin: Origin | None = None
    opened: OpenedModel | None = None
    lesson: LessonWork | None = None

    def has_net_of(self, other: Project) -> bool:
        """Return whether the network is the same one: drawing, blocks, or model from code."""
        return (self.graph, self.blocks, self.opened) == (
            other.graph,
            other.blocks,
            other.opened,
        )
