"""Run all slow checks, or those that are named, one after the other: `python -m tests.slow [NAME ...]`.

Each is a process; what it prints is shown. At the end stands a table of how each ended and how long it took.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic

FOLDER = Path(__file__).resolve().parent
# What a check is called with, once for each list, if not without arguments.
CALLS = {
    "op_samples": (["findings"], ["gradcheck"]),
    "planted_bugs": ([], ["--held-out"]),
}


def checks() -> list[str]:
    """Return the names of the modules here that have a `main`; the others are what they work with."""
    files = sorted(FOLDER.glob("[!_]*.py"))
    return [
        file.stem
        for file in files
        if re.search(r"^def main\(", file.read_text("utf-8"), re.MULTILINE)
    ]


def main(names: list[str]) -> int:
    """Run the checks; return 1 if one found a fault, 2 if one is unknown."""
    if unknown := set(names) - set(checks()):
        print(
            f"no check is called {', '.join(sorted(unknown))}; there are {', '.join(checks())}",
            file=sys.stderr,
        )
        return 2
    environment = {"QT_QPA_PLATFORM": "offscreen", **os.environ}
    rows = []
    for name in names or checks():
        for arguments in CALLS.get(name, ([],)):
            call = " ".join([name, *arguments])
            print(f"\n--- {call}", flush=True)
            start = monotonic()
            command = [sys.executable, "-m", f"tests.slow.{name}", *arguments]
            status = subprocess.call(command, cwd=FOLDER.parents[1], env=environment)
            rows.append((call, status, monotonic() - start))
    print("\n| check | result | seconds |\n| --- | --- | ---: |")
    for call, status, seconds in rows:
        print(
            f"| {call} | {'as promised' if not status else f'exit {status}'} | {seconds:,.0f} |"
        )
    return int(any(status for _, status, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
