"""A plugin of pytest: notes of each test how it ended, and the losses of the runs that it made in its process, by
step.

They are lines of JSON in the file that `TAPEDECK_NOTED_LOSSES` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

_runs: list[dict[int, float]] = []


def pytest_configure() -> None:
    """Have every run note its losses."""
    from app.training import loop
    from app.training.events import StepDone

    original = loop._Run.events

    def events(run: Any, *args: Any) -> Iterator[Any]:
        losses: dict[int, float] = {}
        _runs.append(losses)
        with closing(original(run, *args)) as made:
            for event in made:
                if isinstance(event, StepDone):
                    losses[event.step] = event.loss
                yield event

    loop._Run.events = events


def pytest_runtest_setup() -> None:
    _runs.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test when it was called, or could not be."""
    if report.when == "call" or not report.passed:
        line = {"test": report.nodeid, "ended": report.outcome, "runs": _runs}
        with open(os.environ["TAPEDECK_NOTED_LOSSES"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
