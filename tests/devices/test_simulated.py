"""The battery on `sim`, in processes of its own: a backend stays, and "auto" would mean it everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.util.resources import python_path

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "support" / "packages"


@pytest.mark.parametrize(
    "name", sorted(file.stem for file in HERE.glob("test_on_*.py"))
)
def test_the_battery_on_a_simulated_accelerator(name: str) -> None:
    environment = {
        name: text for name, text in os.environ.items() if "XDIST" not in name
    }
    environment["PYTHONPATH"] = os.pathsep.join((str(PACKAGES), python_path()))
    command = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        f"{HERE / name}.py",
    ]
    done = subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-12_000:]}{done.stderr[-2_000:]}"
