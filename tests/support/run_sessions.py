"""A session without a run, and the event of a run that failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.training.events import Failed
from app.views.run.session import RunSession

FAILED = Failed(
    "shape",
    "Step 2 failed",
    "Look at the wires.",
    "Traceback:\n  line 1\nError: no",
    "n1",
    1,
    1,
)


@pytest.fixture
def session(qtbot: QtBot) -> Iterator[RunSession]:
    made = RunSession()
    yield made
    assert made.close_and_wait()
