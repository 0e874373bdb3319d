"""Source location of an operation: its layer, the drawing's node, the line of the generated text or of a file."""

from __future__ import annotations

import linecache
from bisect import bisect_right
from types import FrameType
from typing import TYPE_CHECKING, Any

from app.autograd.layers import OriginRecorder
from app.autograd.place import OpLocation
from app.autograd.walk import LEAF_SEQUENCE
from app.source.generated import Source
from app.util import user_frames

if TYPE_CHECKING:
    from torch import nn


class SourceLocations:
    """A context around a forward pass and its loss; `here` answers while it runs.

    With a `source` lines are those of its text, else those of the innermost frame that is neither torch's nor ours.
    """

    def __init__(
        self, model: nn.Module | None = None, source: Source | None = None
    ) -> None:
        self.origins = OriginRecorder(model, source)
        self._source = source
        self._has_model = model is not None
        self._spans: list[tuple[int, int, OpLocation]] = []

    def __enter__(self) -> SourceLocations:
        self.origins.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.origins.__exit__(*error)

    def here(self, frame: FrameType | None, op: str = "") -> OpLocation:
        """Return the location that `frame` was called from."""
        origin = self.origins.here(frame)
        in_loss = self._has_model and not self.origins.running
        if self._source is not None:
            code = self._code(origin.line)
            return OpLocation(
                op,
                origin.layer,
                origin.call,
                origin.node,
                origin.line,
                code,
                "",
                in_loss,
            )
        file, line = user_frames.location(frame, generated=True)
        code = linecache.getline(file, line).strip() if line else ""
        return OpLocation(
            op, origin.layer, origin.call, None, line or None, code, file, in_loss
        )

    def note(self, started: int, ended: int, location: OpLocation) -> None:
        """Record that an operation at `location` began at autograd's counter `started`, and ended at `ended`."""
        if ended > started:
            self._spans.append((started, ended, location))

    def location_of(self, node: Any) -> OpLocation:
        """Return where the operation of a backward node was called; an empty place for a leaf."""
        number = node._sequence_nr()
        if number == LEAF_SEQUENCE:
            return OpLocation()
        at = bisect_right(self._spans, number, key=lambda span: span[0]) - 1
        if at >= 0 and number < self._spans[at][1]:
            return self._spans[at][2]
        # A custom Function's node gets its number first; operations inside create none.
        origin = self.origins.origin(number)
        return OpLocation(
            "",
            origin.layer,
            origin.call,
            origin.node,
            origin.line,
            self._code(origin.line),
        )

    def _code(self, line: int | None) -> str:
        return (
            linecache.getline(self._source.filename, line).strip()
            if self._source and line
            else ""
        )
