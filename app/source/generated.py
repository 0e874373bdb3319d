"""The generated source as a value: the text of a net, its inputs and outputs, and a map from lines to nodes.

It is separate from `builder` because training, autograd and export run the text and must not depend on how it was
generated. `source.compiled` creates the module.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct
from msgspec.structs import replace

from app.source.layer_files import LayerFile
from app.util.frozen import FrozenMap, Shared
from app.util.user_frames import GENERATED

# The function of a source that constructs a model from user code, and the module that it is exported as.
MAKER = "make_model"


class OwnModel(Struct, frozen=True):
    """The user's file that a source's text imports first, and the hash by which it is trusted with all that it imports.
    It is imported as `module` from `folder`, and named from the folder `found_from`."""

    path: str
    sha256: str
    module: str = ""
    folder: str = ""
    found_from: str = ""


class InputSpec(Struct, frozen=True):
    """One argument of `forward`: `shape` excludes the batch, which is dimension `batch` (None without one); `dtype` is
    torch's name ("float32").

    Random samples are between `low` and `high`, integers below `high`; None if unspecified.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None
    batch: int | None = 0

    def sizes(self, batch: int) -> tuple[int, ...]:
        """Return the full shape with a batch size."""
        if self.batch is None:
            return self.shape
        return (*self.shape[: self.batch], batch, *self.shape[self.batch :])


class OutputSpec(Struct, frozen=True):
    """One value that `forward` returns: under a `key` of a dictionary if all have one; `when` is "always", "training"
    or "eval".
    """

    name: str
    key: str | None = None
    when: str = "always"


class ClassText(Shared, frozen=True):
    """Map of the lines and attributes of one class to nodes.

    `blocks` maps nodes that are instances of another class to its name, and `repeated` are the nodes whose attribute is
    a list of modules. `placed` has the inlined blocks of an instance: one per repetition, the last for all further
    ones. Their modules have numbers as names; `spread` counts the repetitions that take consecutive numbers.
    """

    lines: FrozenMap[str, tuple[int, ...]] = FrozenMap()
    modules: FrozenMap[str, str] = FrozenMap()
    blocks: FrozenMap[str, str] = FrozenMap()
    repeated: frozenset[str] = frozenset()
    placed: FrozenMap[str, tuple[ClassText, ...]] = FrozenMap()
    spread: FrozenMap[str, int] = FrozenMap()

    def module(self, node: str, number: int) -> str:
        """Return the attribute path of one repetition of a node."""
        path = self.modules[node]
        if node in self.spread:
            return str(int(path) + number)
        return f"{path}.{number}" if node in self.repeated else path


# Instances of blocks from the network inwards: the id of each and which of its repetitions.
Path = tuple[tuple[str, int], ...]


class Source(Shared, frozen=True):
    """The text of `class Net(nn.Module)`, with its lines and modules mapped to nodes of the drawing; or that of
    `make_model`, which constructs a model from user code.

    `lines` maps node ids to 1-based line numbers, `modules` maps node ids to attribute paths of the module (`conv1`,
    `layers.0`), which are the prefixes of its state_dict keys. Both cover the network's own nodes; `within` returns
    those of a block, with the paths of consecutive repetitions in `further`. `classes` has every class of the text by
    the name of its block, the network's under "". `files` are those that the text imports classes from. `ends`
    describes the outputs, including those of evaluation mode only. `own` is the file that a `make_model` imports.
    """

    text: str
    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    lines: FrozenMap[str, tuple[int, ...]] = FrozenMap()
    modules: FrozenMap[str, str] = FrozenMap()
    class_name: str = "Net"
    classes: FrozenMap[str, ClassText] = FrozenMap()
    files: tuple[LayerFile, ...] = ()
    further: FrozenMap[str, tuple[str, ...]] = FrozenMap()
    ends: tuple[OutputSpec, ...] = ()
    own: OwnModel | None = None

    @property
    def opened(self) -> bool:
        """Return whether it builds a model with its own code instead of a drawn one."""
        return self.class_name == MAKER

    @property
    def module_name(self) -> str:
        """The name of the module that it is exported as."""
        return MAKER if self.opened else "model"

    def within(self, path: Path) -> Source:
        """Return the same text with the lines and modules of the block at a path; without any for an invalid path."""
        class_text, prefix = self.root_class, ""
        for node, number in path:
            inner = self.inside(class_text, node, number)
            if inner is None:
                return replace(self, lines=FrozenMap(), modules=FrozenMap())
            prefix += f"{class_text.module(node, number)}."
            class_text = inner
        modules = FrozenMap(
            {node: prefix + name for node, name in class_text.modules.items()}
        )
        further = {
            node: tuple(
                prefix + class_text.module(node, number) for number in range(1, count)
            )
            for node, count in class_text.spread.items()
        }
        return replace(
            self, lines=class_text.lines, modules=modules, further=FrozenMap(further)
        )

    @property
    def root_class(self) -> ClassText:
        """The class of the network."""
        return self.classes.get("", ClassText(self.lines, self.modules))

    def inside(self, class_text: ClassText, node: str, number: int) -> ClassText | None:
        """Return the class of one repetition of a node in `class_text`, None if the node is no block."""
        turns = class_text.placed.get(node)
        if node not in class_text.modules or not (turns or node in class_text.blocks):
            return None
        return (
            turns[min(number, len(turns) - 1)]
            if turns
            else self.classes[class_text.blocks[node]]
        )

    @property
    def forms(self) -> tuple[tuple[OutputSpec, ...], ...]:
        """What `forward` returns, in order: in training, and in evaluation where that is something else."""
        ends = self.ends or tuple(OutputSpec(name) for name in self.outputs)
        training, evaluation = (
            tuple(end for end in ends if end.when != other)
            for other in ("eval", "training")
        )
        return (training,) if training == evaluation else (training, evaluation)

    @property
    def filename(self) -> str:
        """The name under which tracebacks show the text; equal texts over equal files share it."""
        combined = "".join(
            (self.text, *(file.module + file.sha256 for file in self.files))
        )
        return f"{GENERATED}{hashlib.sha256(combined.encode()).hexdigest()[:12]}>"

    def same_net(self, other: Source) -> bool:
        """Return whether both define the same module: the same text and the same files."""
        return self.text == other.text and self.files == other.files

    def node_at(self, line: int) -> str | None:
        """Return the node that a line was generated for."""
        return next((node for node, lines in self.lines.items() if line in lines), None)
