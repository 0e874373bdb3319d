"""The battery on `sim`, in processes of its own: a backend stays, and "auto" would mean it everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.util.resources import python_path
from tests.slow.planted_device_mistakes import MISTAKES, misplaced
from tests.slow.two_devices import compared
from tests.support.needs import needs

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "support" / "packages"


def ran(*command: object, **device: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the simulated accelerator, in a process where nothing of this one is known; `device` are
    variables that say what it is like."""
    plain = {name: text for name, text in os.environ.items() if "XDIST" not in name}
    paths = os.pathsep.join((str(PACKAGES), python_path()))
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**plain, "PYTHONPATH": paths, **device},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "name", sorted(file.stem for file in HERE.glob("test_on_*.py"))
)
def test_the_battery_on_a_simulated_accelerator(name: str) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = ran("-m", "pytest", *options, f"{HERE / name}.py")
    assert done.returncode == 0, f"{done.stdout[-12_000:]}{done.stderr[-2_000:]}"


@pytest.mark.parametrize("name", ["test_on_training", "test_on_looks"])
def test_the_battery_on_one_without_float64_and_with_random_numbers_of_its_own(
    name: str,
) -> None:
    """Such as MPS: where nothing is compared bit by bit with the CPU but what draws nothing."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    like_mps = {"SIM_FLOAT64": "0", "SIM_RANDOM": "own"}
    done = ran("-m", "pytest", *options, f"{HERE / name}.py", **like_mps)
    assert done.returncode == 0, f"{done.stdout[-12_000:]}{done.stderr[-2_000:]}"


def test_the_page_of_an_accelerator_has_its_card_and_each_figure(
    tmp_path: Path,
) -> None:
    page = tmp_path / "gpu.md"
    done = ran("scripts/gpu.py", page, "-k", "auto_takes_it")
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text("utf-8")
    assert "| Card | sim:0 Simulated accelerator |" in text
    assert "| device | sim:0, Simulated accelerator, 64.0 GiB |" in text
    assert "1 passed" in text and "None." in text


def test_what_takes_a_device_has_the_same_losses_on_both() -> None:
    """`python -m tests.slow.two_devices` runs all of it, and prints a table."""
    (row,) = compared(["tests/training/test_loop.py"])
    assert not row.failed and not row.differing
    assert row.on_device >= 15 and row.steps > 500


@needs("interpret", "trials")
def test_what_is_planted_is_in_the_program() -> None:
    """`python -m tests.slow.planted_device_mistakes` runs the battery with each."""
    assert misplaced() == [] and len(MISTAKES) >= 30
