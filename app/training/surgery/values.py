"""Values of a surgery and of its outcome by layer."""

from __future__ import annotations

from msgspec import Struct

from app.source.generated import Source
from app.training.config import ParameterGroup
from app.util.errors import CodedError


class SurgeryError(CodedError, ValueError):
    """Raised for a surgery that is not possible; the message says why, and what to do."""

    exit_code = 2


class Surgery(Struct, frozen=True):
    """Another net for a run: `source` is its text, `layers` the module paths, before and after, of layers that stay.

    `starts` says how a new layer begins ("identity", "zero" or "plain"), with a reason. `segments` gives the parts, old
    and new size, of the input of a layer behind a concatenation whose parts were resized. `groups` and `recompute` are
    those of the training settings, with paths of the new net.
    """

    source: Source
    layers: tuple[tuple[str, str], ...]
    groups: tuple[ParameterGroup, ...] = ()
    recompute: tuple[str, ...] = ()
    starts: tuple[tuple[str, str, str], ...] = ()
    segments: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    description: str = ""


class Fate(Struct, frozen=True):
    """What became of a layer: its path before and after, "" if it is new or removed, and why.

    `what` is kept, changed (other settings, same weights), widened, narrowed, resized, copied, tied, identity, zero,
    initialised, new (without parameters), removed, frozen or unfrozen.
    """

    before: str
    after: str
    what: str
    reason: str = ""


class Outcome(Struct, frozen=True):
    """The fates of all layers with parameters, and of others that changed.

    `difference` is measured on one batch in eval mode: the largest difference of the output before and after, relative
    to its largest element; None if it was not measured, which `note` explains.
    """

    fates: tuple[Fate, ...] = ()
    difference: float | None = None
    note: str = ""
