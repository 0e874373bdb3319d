"""How long until the window can be used, against importing the toolkits alone (aim: at most 2 times as long).

"Usable" is the moment when the program, started as a person starts it, has the example on its canvas, painted, and
the event loop has come round: from then on a person can draw. What stands behind the window is made afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import Figure, in_turns, publish

ROUNDS = 15
BARE = (
    "import PySide6.QtWidgets, pyqtgraph, os; print('there', flush=True); os._exit(0)"
)
OURS = str(Path(__file__).resolve().parent / "_usable.py")


def seconds(home: str, *program: str) -> float:
    """From starting a Python process to the line in which it says that it is there. `home` has settings of its own."""
    # As a person starts it: what was compiled once is kept, also where the surroundings say otherwise.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    environment |= {f"XDG_{kind}_HOME": home for kind in ("CONFIG", "DATA", "STATE")}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    taken = time.perf_counter() - began
    process.wait()
    if line.strip() != "there":
        raise RuntimeError(f"the process ended without a window: {line!r}")
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        (
            seconds(home, "-c", BARE),
            seconds(home, OURS),
        )  # the file cache is warm from here on
        ours, theirs = in_turns(
            lambda: seconds(home, OURS),
            lambda: seconds(home, "-c", BARE),
            rounds=ROUNDS,
        )
    publish(
        "startup",
        [
            Figure(
                "time to a usable window against a bare import",
                "s",
                ours,
                theirs,
                aim=2,
            )
        ],
    )


if __name__ == "__main__":
    main()
