"""What every benchmark shares: two ways of doing one thing, measured in turns, and their ratio with its spread.

A figure is a ratio within one run, because seconds depend on the machine and on what else it does; the measured values
stand beside it. Nothing here passes or fails: an aim that is missed says so.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "out" / "bench"


@dataclass(frozen=True)
class Figure:
    """`ours` and `theirs` are measured values of one unit, one of each a round; `theirs` is empty for a bare value.

    `aim` bounds the ratio (the value, where there is nothing to compare with): from below if `more_is_better`.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...] = ()
    aim: float | None = None
    more_is_better: bool = False

    @property
    def rounds(self) -> tuple[float, ...]:
        """What the aim is about, once a round: the ratio within the round, or the value."""
        if not self.theirs:
            return self.ours
        return tuple(
            ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)
        )

    @property
    def value(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without an aim."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.more_is_better else self.value <= self.aim

    def __str__(self) -> str:
        mark = "x" if self.theirs else f" {self.unit}"
        low, high = min(self.rounds), max(self.rounds)
        parts = [
            f"{self.name}: {self.value:.3g}{mark} ({low:.3g} to {high:.3g} in {len(self.rounds)} rounds)"
        ]
        if self.theirs:
            ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
            parts.append(f"{ours:.4g} against {theirs:.4g} {self.unit}")
        if self.aim is not None:
            bound = "at least" if self.more_is_better else "at most"
            parts.append(
                f"aim {bound} {self.aim:g}{mark}: {'met' if self.met else 'MISSED'}"
            )
        return "; ".join(parts)


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int = 5
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure both `rounds` times, the other one first each time, so that a drift of the machine meets both alike."""
    left: list[float] = []
    right: list[float] = []
    for number in range(rounds):
        pair = ((ours, left), (theirs, right))
        for measure, results in pair if number % 2 == 0 else reversed(pair):
            results.append(measure())
    return tuple(left), tuple(right)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1e9) * len(ordered) // 10**9) - 1)]


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    from importlib import metadata

    packages = ("torch", "PySide6-Essentials", "pyqtgraph")
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": str(
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count()
        ),
        **{name: metadata.version(name) for name in packages},
    }


def publish(name: str, figures: Sequence[Figure]) -> None:
    """Print the figures and keep every measured value in `out/bench/NAME.json`."""
    here = machine()
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    for figure in figures:
        print(figure)
    OUT.mkdir(parents=True, exist_ok=True)
    kept = [
        {**asdict(figure), "value": figure.value, "met": figure.met}
        for figure in figures
    ]
    target = OUT / f"{name}.json"
    target.write_text(
        json.dumps({"machine": here, "figures": kept}, indent=2) + "\n", "utf-8"
    )
    print(f"every measured value: {target}")
