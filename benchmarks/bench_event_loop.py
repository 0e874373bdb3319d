"""How long the event loop is away while a run goes on (aim: 99 % of its turns come within 8 ms, all within 33 ms).

A timer of 4 ms notes the time between two turns; the same window before the run stands beside it. The run is the
example's, on the CPU or whatever is fastest, with everything live.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import _window
from _report import Figure, percentile, publish

EPOCHS = 120
ROUNDS = 3


def waits(gaps: tuple[float, ...], share: float) -> float:
    """The wait that `share` of the events stay under which come at any moment: long gaps meet more of them."""
    total, passed = sum(gaps), 0.0
    for gap in sorted(gaps):
        passed += gap
        if passed >= share * total:
            return gap
    return max(gaps)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        runs = [_window.measure(Path(name), EPOCHS, gaps=True) for _ in range(ROUNDS)]
    p99, idle = (
        tuple(percentile(each, 0.99) for each in gaps)
        for gaps in zip(*map(_gaps, runs), strict=True)
    )
    moments = tuple(waits(run.training, 0.99) for run in runs)
    publish(
        "event_loop",
        [
            Figure("p99 gap while a run goes on", "ms", p99, aim=8),
            Figure("worst gap", "ms", tuple(max(run.training) for run in runs), aim=33),
            Figure("gap that 99 % of random moments stay under", "ms", moments),
            Figure("p99 gap of the same window before the run", "ms", idle),
        ],
    )


def _gaps(run: _window.WindowRun) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return run.training, run.idle


if __name__ == "__main__":
    main()
