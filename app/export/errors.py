"""Why something cannot be exported: errors that need no torch."""

from __future__ import annotations


class WeightsError(Exception):
    """Weights that cannot be written or read; the text says which file and why."""

    code = "weights"
