"""The generated source as a value, and the module that this very text defines.

It stands outside `builder` because training, autograd and export all run the text and none of them may know how
it was made.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class InputSpec:
    """One argument of `forward`: `shape` is without the batch, `dtype` is torch's name for it ("float32")."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Source:
    """The text of `class Net(nn.Module)` and which node of the drawing each line and module belongs to.

    `lines` maps node ids to 1-based line numbers, `modules` maps node ids to attribute paths of the module
    (`conv1`), which are the prefixes of its state_dict keys.
    """

    text: str
    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    lines: FrozenMap[str, tuple[int, ...]] = field(default_factory=FrozenMap)
    modules: FrozenMap[str, str] = field(default_factory=FrozenMap)
    class_name: str = "Net"

    @property
    def filename(self) -> str:
        """The name under which tracebacks show the text; equal texts share it."""
        return f"<tapedeck-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}>"

    def node_at(self, line: int) -> str | None:
        """The node that a line of the text was written for."""
        return next((node for node, lines in self.lines.items() if line in lines), None)


def load_class(source: Source) -> type[nn.Module]:
    """Compile the text and return its class. The text is registered in `linecache`, so tracebacks show its lines."""
    name = source.filename
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(keepends=True), name)
    module = types.ModuleType(name)
    # dataclasses, pickle and torch.fx look a class's module up by name.
    sys.modules[name] = module
    exec(compile(source.text, name, "exec"), module.__dict__)
    return module.__dict__[source.class_name]


def make_module(source: Source) -> nn.Module:
    """A new instance, its weights drawn from torch's global generator."""
    return load_class(source)()
