"""Journeys through features of the shelf, which a house without one of them is without."""

from __future__ import annotations

from pathlib import Path

import pytest

FEATURES = Path(__file__).resolve().parents[2] / "app" / "features"


def needs(*features: str) -> pytest.MarkDecorator:
    """Mark a test that goes through these features: it is passed over where one is taken away."""
    missing = [name for name in features if not (FEATURES / name).is_dir()]
    return pytest.mark.skipif(bool(missing), reason=f"without {', '.join(missing)}")
