"""Gradient gain of each layer, as plain data: norm of its input gradient over that of its output gradient."""

from __future__ import annotations

import math
import re

from msgspec import Struct

VANISHED, EXPLODED = 1e-3, 1e3  # relative to the gradient at the last layer
NET = "Net"  # operations of the net itself, outside all of its layers

_AGAIN = re.compile(r"(#\d+)?(/\d+)?$")


class Gains(Struct, frozen=True):
    """`layers` in forward order, with the norms of their incoming and outgoing gradients; nan: none, inf: not finite.

    A layer is named by its path; `path#2` is its second call, `path/2` its own operations after one of its children.
    """

    layers: tuple[str, ...]
    arriving: tuple[float, ...]
    leaving: tuple[float, ...]

    @property
    def reached(self) -> float:
        """Return the gradient norm at the last layer with a gradient; NaN if there is none."""
        return next((norm for norm in reversed(self.arriving) if norm > 0), math.nan)


def path_of(layer: str) -> str:
    """Return the module path of a layer of `Gains`, "" for the network.

    >>> path_of("conv1"), path_of("cell#2"), path_of("layer1.0/2"), path_of("Net/3")
    ('conv1', 'cell', 'layer1.0', '')
    """
    path = _AGAIN.sub("", layer)
    return "" if path == NET else path
