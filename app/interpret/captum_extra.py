"""Availability of attributions, which need an additional package."""

from __future__ import annotations

from importlib.util import find_spec


def captum_missing() -> str:
    """Return why nothing can be attributed and how to install it, "" if it can. Imports nothing of it."""
    if find_spec("captum") is not None:
        return ""
    return "Attributions need captum, which is not installed: pip install tapedeck-torch[attribution]"
