"""Request: hold an autograd graph and play its backward pass; commands and events of the playback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from app.autograd.playback.gradient_look import GradientLook
from app.autograd.playback.steps import Breaks, FanIn, GradStats, StepRecord, Stop
from app.autograd.tape import Tape
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture
from app.engine.values import packed, unpacked
from app.util.late_dataclass import dataclass

# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlaybackRequest(Request[None]):
    """Run a batch forward, keep its graph, and play it by the commands below, sent as messages, until `Leave`; progress
    is the events below.

    `expected` is the tape that is shown, `speed` how many steps a second a `Play` takes, None for as many as it can.
    """

    lane: ClassVar[str] = "playback"
    overtaken: ClassVar[bool] = True  # a cancelled one is abandoned amid a long step as well
    batch: AnyCapture
    expected: Tape | None = None
    speed: float | None = None


@dataclass(frozen=True)
class Steps:
    """Steps that were played one after the other, packed: as objects they would take longer to send than to run."""

    packed: bytes

    @classmethod
    def from_records(cls, records: Sequence[StepRecord]) -> Steps:
        return cls(packed(records))

    @property
    def records(self) -> tuple[StepRecord, ...]:
        return unpacked(StepRecord, self.packed)


@dataclass(frozen=True)
class RecordedPass:
    """The steps of a whole backward pass over `tape`. `stopped` says why it ended before the last one, "" if not."""

    tape: Tape
    steps: Steps
    stopped: str


@dataclass(frozen=True)
class RecordRequest(Request[RecordedPass]):
    """Run a batch forward and backward, every step recorded."""

    lane: ClassVar[str] = "capture"
    batch: AnyCapture


# -- commands ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seek:
    """Go to where `position` nodes have run."""

    position: int


@dataclass(frozen=True)
class Play:
    """Play to the end or to a breakpoint; from the start if `again`, as quickly as possible if `quick`."""

    breaks: Breaks
    again: bool = False
    quick: bool = False


@dataclass(frozen=True)
class InspectGradient:
    """Describe the gradient that arrived before an output of a node; `at` selects the sample. See GradientInspected."""

    node: int
    output_nr: int
    at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Edit:
    """Edit the accumulated gradient of an output of a node. `kind` is one of `gradient_edits.KINDS`, or "value":
    `amount` for the one element at `index`, or for all of them without one."""

    node: int
    output_nr: int
    kind: str
    amount: float = 1.0
    index: tuple[int, ...] = ()


@dataclass(frozen=True)
class UndoEdit:
    """Undo the last edit made at this position."""


@dataclass(frozen=True)
class SetSpeed:
    """How many steps a second from now on, None for as many as it can."""

    speed: float | None


@dataclass(frozen=True)
class Pause:
    """Pause after the current step."""


@dataclass(frozen=True)
class Leave:
    """Free the graph and end, after the current step."""


Command = Seek | Play | InspectGradient | Edit | UndoEdit | SetSpeed | Pause | Leave

# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphHeld:
    """The graph is held. `same` says whether it is drawn as expected; `tape` describes it, None if it equals the
    expected one."""

    tape: Tape | None
    same: bool


@dataclass(frozen=True)
class Back:
    """Discard records from `position` on."""

    position: int


@dataclass(frozen=True)
class MovementEnded:
    """A movement has ended; `kept` is about the memory that playback holds, `edits` as in Playback.

    `arriving` and `fan_ins` are of the node that runs next. `turn` is the number of the movement, counting every Seek,
    Play and Pause; -1 for an edit.
    """

    stop: Stop
    turn: int
    kept: int
    edits: tuple[tuple[int, int, int], ...] = ()
    arriving: tuple[GradStats | None, ...] = ()
    fan_ins: tuple[FanIn, ...] = ()


@dataclass(frozen=True)
class GradientInspected:
    """The answer to a `InspectGradient`; `look` is None if no gradient has arrived or it is no longer held."""

    asked: InspectGradient
    look: GradientLook | None


@dataclass(frozen=True)
class Trouble:
    """Something could not be done; `node` is the backward node that raised, if one did.

    `traceback` is there where the fault is the program's own.
    """

    title: str
    reason: str
    node: int | None = None
    traceback: str = ""


@dataclass(frozen=True)
class GraphFreed:
    """The graph was freed; `alive` are the bytes of its loss, weights and activations that are still there."""

    alive: int


Event = GraphHeld | Back | Steps | MovementEnded | GradientInspected | Trouble | GraphFreed
