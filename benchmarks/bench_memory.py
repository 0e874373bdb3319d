"""The memory of the window's process and of all that it starts: at rest, and after captures of resnet152.

At rest is six seconds after the bundled example is checked, every page made and the engine's torch loaded (aims: 180 MB
resident, 650 MB of PSS with the engine and what it is forked off). Then torchvision's resnet152 is imported through the
dialog and its graph captured again and again (aim: 250 MB resident after 100 captures).

    python benchmarks/bench_memory.py [CAPTURES]
"""

from __future__ import annotations

import sys

import _resident
from _report import Figure, publish

ROUNDS = 3
CAPTURES = 100
MB = 1e6


def main(captures: int) -> None:
    rests = [_resident.measure("rest") for _ in range(ROUNDS)]
    figures = [
        Figure(
            "window at rest, resident",
            "MB",
            tuple(rest.resident / MB for rest in rests),
            aim=180.0,
        ),
        Figure(
            "window at rest, PSS", "MB", tuple(rest.proportional / MB for rest in rests)
        ),
        Figure(
            "all processes at rest, PSS",
            "MB",
            tuple(rest.together / MB for rest in rests),
            aim=650.0,
        ),
    ]
    if captures:
        after = _resident.measure("resnet152", str(captures))
        name = f"window after {captures} captures of resnet152, resident"
        figures += [
            Figure("window with resnet152 drawn, resident", "MB", (after.before / MB,)),
            Figure(name, "MB", (after.resident / MB,), aim=250.0),
        ]
    publish("memory", figures)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else CAPTURES)
