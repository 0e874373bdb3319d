"""`make bench`: every benchmark after the other, alone on the machine. Names of benchmarks choose among them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def main(wanted: list[str]) -> int:
    scripts = sorted(BENCHMARKS.glob("bench_*.py"))
    names = [script.stem.removeprefix("bench_") for script in scripts]
    if unknown := set(wanted) - set(names):
        print(
            f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(names)}",
            file=sys.stderr,
        )
        return 2
    failed = []
    for script, name in zip(scripts, names, strict=True):
        if wanted and name not in wanted:
            continue
        print(f"\n--- {name}", flush=True)
        environment = {"QT_QPA_PLATFORM": "offscreen", **os.environ}
        if subprocess.call(
            [sys.executable, str(script)], cwd=BENCHMARKS.parent, env=environment
        ):
            failed.append(name)
    if failed:
        print(f"\nstopped with an error: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
