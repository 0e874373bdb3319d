"""Request: hold an autograd graph and play its backward pass; commands and events of the playback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from app.autograd.playback.steps import (
    Breaks,
    FanIn,
    GradientLook,
    GradStats,
    StepRecord,
    Stop,
)
from app.autograd.tape import Tape
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture
from app.engine.values import packed, unpacked

# -- requests ----------------------------------------------------------------------------------------------------------


class PlaybackRequest(Request[None], frozen=True):
    """Run a batch forward, keep its graph, and play it by the commands below, sent as messages, until `Leave`; progress
    is the events below.

    `expected` is the tape that is shown, `speed` how many steps a second a `Play` takes, None for as many as it can.
    """

    lane: ClassVar[str] = "playback"
    overtaken: ClassVar[bool] = (
        True  # a cancelled one is abandoned amid a long step as well
    )
    batch: AnyCapture
    expected: Tape | None = None
    speed: float | None = None


class Steps(Struct, frozen=True):
    """Steps that were played one after the other, packed: as objects they would take longer to send than to run."""

    packed: bytes

    @classmethod
    def from_records(cls, records: Sequence[StepRecord]) -> Steps:
        return cls(packed(records))

    @property
    def records(self) -> tuple[StepRecord, ...]:
        return unpacked(StepRecord, self.packed)


class RecordedPass(Struct, frozen=True):
    """The steps of a whole backward pass over `tape`. `stopped` says why it ended before the last one, "" if not."""

    tape: Tape
    steps: Steps
    stopped: str


class RecordRequest(Request[RecordedPass], frozen=True):
    """Run a batch forward and backward, every step recorded."""

    lane: ClassVar[str] = "capture"
    batch: AnyCapture


# -- commands ----------------------------------------------------------------------------------------------------------


class Seek(Struct, frozen=True):
    """Go to where `position` nodes have run."""

    position: int


class Play(Struct, frozen=True):
    """Play to the end or to a breakpoint; from the start if `again`, as quickly as possible if `quick`."""

    breaks: Breaks
    again: bool = False
    quick: bool = False


class InspectGradient(Struct, frozen=True):
    """Describe the gradient that arrived before an output of a node; `at` selects the sample. See GradientInspected."""

    node: int
    output_nr: int
    at: tuple[int, ...] = ()


class Edit(Struct, frozen=True):
    """Edit the accumulated gradient of an output of a node. `kind` is one of `gradient_edits.KINDS`, or "value":
    `amount` for the one element at `index`, or for all of them without one."""

    node: int
    output_nr: int
    kind: str
    amount: float = 1.0
    index: tuple[int, ...] = ()


class UndoEdit(Struct, frozen=True):
    """Undo the last edit made at this position."""


class SetSpeed(Struct, frozen=True):
    """How many steps a second from now on, None for as many as it can."""

    speed: float | None


class Pause(Struct, frozen=True):
    """Pause after the current step."""


class Leave(Struct, frozen=True):
    """Free the graph and end, after the current step."""


Command = Seek | Play | InspectGradient | Edit | UndoEdit | SetSpeed | Pause | Leave

# -- events ------------------------------------------------------------------------------------------------------------


class GraphHeld(Struct, frozen=True):
    """The graph is held. `same` says whether it is drawn as expected; `tape` describes it, None if it equals the
    expected one."""

    tape: Tape | None
    same: bool


class Back(Struct, frozen=True):
    """Discard records from `position` on."""

    position: int


class MovementEnded(Struct, frozen=True):
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


class GradientInspected(Struct, frozen=True):
    """The answer to a `InspectGradient`; `look` is None if no gradient has arrived or it is no longer held."""

    asked: InspectGradient
    look: GradientLook | None


class Trouble(Struct, frozen=True):
    """Something could not be done; `node` is the backward node that raised, if one did.

    `traceback` is there where the fault is the program's own.
    """

    title: str
    reason: str
    node: int | None = None
    traceback: str = ""


class GraphFreed(Struct, frozen=True):
    """The graph was freed; `alive` are the bytes of its loss, weights and activations that are still there."""

    alive: int


Event = (
    GraphHeld | Back | Steps | MovementEnded | GradientInspected | Trouble | GraphFreed
)
