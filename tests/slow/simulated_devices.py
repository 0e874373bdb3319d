"""The battery of an accelerator on the simulated one, and on one without float64 whose random numbers are its own, such
as MPS: there nothing is compared bit by bit with the CPU but what draws nothing.

    python -m tests.slow.simulated_devices

Prints a table of the files: how many tests passed, were skipped and failed, by device. Exits with 1 if one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from app.util.resources import python_path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "tests" / "support" / "packages"
FILES = sorted((ROOT / "tests" / "devices").glob("test_on_*.py"))
SIMULATED: Mapping[str, str] = {}
LIKE_MPS = {"SIM_FLOAT64": "0", "SIM_RANDOM": "own"}
# Of the files, those that say what differs on such a device.
DEVICES = {
    "simulated": (SIMULATED, FILES),
    "like MPS": (
        LIKE_MPS,
        [file for file in FILES if file.stem in ("test_on_training", "test_on_looks")],
    ),
}


def ran_simulated(*command: object, **device: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the simulated accelerator, in a process where nothing of this one is known; `device` are
    variables that say what it is like."""
    plain = {name: text for name, text in os.environ.items() if "XDIST" not in name}
    paths = os.pathsep.join((str(PACKAGES), python_path()))
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**plain, "PYTHONPATH": paths, **device},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def battery(
    device: Mapping[str, str], *more: object
) -> subprocess.CompletedProcess[str]:
    """Run the files of a device; `more` are words for pytest."""
    files = next(files for like, files in DEVICES.values() if like is device)
    options = ("-v", "-p", "no:cacheprovider", "-p", "no:xdist")
    return ran_simulated("-m", "pytest", *options, *files, *more, **device)


def main() -> int:
    """Print the table; return 1 for a fault."""
    print("| device | file | passed | skipped | failed |")
    print("| --- | --- | ---: | ---: | ---: |")
    faults = []
    for name, (device, files) in DEVICES.items():
        done = battery(device)
        ends = Counter(
            re.findall(r"/(\w+)\.py::.* (PASSED|SKIPPED|FAILED|ERROR)", done.stdout)
        )
        for file in files:
            failed = ends[file.stem, "FAILED"] + ends[file.stem, "ERROR"]
            print(
                f"| {name} | {file.stem} | {ends[file.stem, 'PASSED']} | {ends[file.stem, 'SKIPPED']} | {failed} |"
            )
        if done.returncode:
            faults.append(done.stdout[-12_000:] + done.stderr[-2_000:])
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
