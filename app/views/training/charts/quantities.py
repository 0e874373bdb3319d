"""The quantities that a heat map of layers and steps can show."""

from __future__ import annotations

from msgspec import Struct


class Quantity(Struct, frozen=True):
    """Name in the list, title, unit note, and the text for a layer without values."""

    name: str
    title: str
    note: str
    absent: str


QUANTITIES = {
    "gradient": Quantity(
        "Gradient", "Gradient norm per layer", "log scale", "no gradient"
    ),
    "weight": Quantity("Weight", "Weight norm per layer", "log scale", "no weights"),
    "update": Quantity(
        "Update",
        "Update / weight per layer",
        "log scale; about 1e\u22123 is usual",
        "no update",
    ),
    "dead": Quantity(
        "Dead",
        "Dead units per layer",
        "fraction of units that were 0 for a whole batch",
        "not measured",
    ),
    "reach": Quantity(
        "Left", "Relative gradient norm", "|grad in| / |grad| at the last layer", "none"
    ),
    "gain": Quantity(
        "Gain", "Gain per layer", "|grad in| / |grad out|, log scale", "none"
    ),
}
