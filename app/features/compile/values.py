"""Graph breaks, recompiles and times of a model under torch.compile, as values."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.engine.requests.observe import Observe
from app.source.generated import Source
from app.sources.spec import InputSpec


class Break(Struct, frozen=True):
    """A line that the compiler leaves to Python, in the module at `path`, "" for the model itself. `line` is file:line;
    `cure` is a sentence."""

    path: str
    line: str
    reason: str
    cure: str


class Recompile(Struct, frozen=True, rename={"now": "is"}):
    """A call for which a module was compiled again: `guard` is the assumption that failed, with file:line, `was` what
    it held for, and `now` what was met; `cure` is a sentence."""

    path: str
    guard: str
    was: str
    now: str
    cure: str


class Compiled(Struct, frozen=True):
    """The graphs, graph breaks, recompiles and times of a model.

    `graphs` are those of the first call. `eager_seconds` and `compiled_seconds` are of one call, measured here; None
    where it could not be, which `remarks` explain. `calls` describes the inputs. `code` are the modules that Inductor
    generated, in its order.
    """

    graphs: int
    breaks: tuple[Break, ...]
    recompiles: tuple[Recompile, ...]
    eager_seconds: float | None
    compiled_seconds: float | None
    calls: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


class Compile(Request[Compiled], frozen=True):
    """Compile a model, the text of a net or a source, and call it: twice with its inputs, with two other batch sizes,
    and twice with each of `also`. Progress is a sentence. Raises SourceError; send it to an engine of its own.

    With `train` it is in train mode, and its time is of forward and backward.
    """

    lane: ClassVar[str] = "trials"
    model: Observe | Source
    train: bool = False
    also: tuple[tuple[InputSpec, ...], ...] = ()
    batch: int = 2
    seed: int = 0
