"""Whose line a call came from."""

from __future__ import annotations

import colorsys
import linecache
import sys

from app.autograd.source_locations import SourceLocations
from app.util import user_frames


class Probe:
    """Looks where it is multiplied."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []

    def __rmul__(self, _factor: float) -> float:
        frame = sys._getframe(1)
        with SourceLocations() as places:
            at = places.here(frame)
        self.found += [user_frames.location(frame), (at.file, at.line or 0)]
        return 0.0

    def __sub__(self, _other: float) -> float:
        return 0.0


def test_a_call_by_way_of_pythons_own_library_is_at_the_users_line() -> None:
    probe = Probe()
    colorsys.rgb_to_yiq(probe, 0.0, 0.0)  # multiplies by way of Python's library
    assert {file for file, _ in probe.found} == {__file__}
    assert all(
        "colorsys.rgb_to_yiq" in linecache.getline(*place) for place in probe.found
    )
