"""The open project as one immutable value."""

from __future__ import annotations

from msgspec import Struct, field

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
    answers: FrozenMap[str, str] = field(default_factory=FrozenMap)
    reached: FrozenMap[str, str] = field(default_factory=FrozenMap)
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
    opened: OpenedModel | None = None
    lesson: LessonWork | None = None
