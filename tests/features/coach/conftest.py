"""The coach has all the time that it needs: its verdict on a run does not hang on how busy the machine is."""

import pytest

from app.features.coach import compute


@pytest.fixture(autouse=True)
def examinations_without_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "SECONDS", 600.0)
