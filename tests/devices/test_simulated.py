"""The battery on `sim`, in processes of its own: a backend stays, and "auto" would mean it everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.planted_device_mistakes import MISTAKES, misplaced
from tests.slow.simulated_devices import LIKE_MPS, SIMULATED, battery, ran_simulated
from tests.slow.two_devices import compared
from tests.support.needs import needs


@pytest.mark.parametrize("parts", ["training or looks", "programs or window"])
def test_the_battery_on_a_simulated_accelerator(parts: str) -> None:
    """Two files in a process: each loads torch, for seconds."""
    done = battery(SIMULATED, "-k", parts)
    assert done.returncode == 0, f"{done.stdout[-12_000:]}{done.stderr[-2_000:]}"


def test_the_battery_on_one_without_float64_and_with_random_numbers_of_its_own() -> (
    None
):
    """What asks for either. `python -m tests.slow.simulated_devices` runs all of it so."""
    asks = "looks or float64 or losses_and_weights or measurements or plan or resumed"
    done = battery(LIKE_MPS, "-k", asks)
    assert done.returncode == 0, f"{done.stdout[-12_000:]}{done.stderr[-2_000:]}"


def test_the_page_of_an_accelerator_has_its_card_and_each_figure(
    tmp_path: Path,
) -> None:
    page = tmp_path / "gpu.md"
    done = ran_simulated("scripts/gpu.py", page, "-k", "auto_takes_it")
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text("utf-8")
    assert "| Card | sim:0 Simulated accelerator |" in text
    assert "| device | sim:0, Simulated accelerator, 64.0 GiB |" in text
    assert "1 passed" in text and "None." in text


def test_what_takes_a_device_has_the_same_losses_on_both() -> None:
    """`python -m tests.slow.two_devices` runs all of it, and prints a table."""
    loop = "tests/training/test_loop.py::test_{}".format
    tests = ("a_visit_leaves_batch_norm_as_it_was", "nothing_comes_after_a_failure")
    plain = loop("the_losses_are_those_of_plain_pytorch_bit_for_bit")
    (row,) = compared([plain, *map(loop, tests)])
    assert not row.failed and not row.differing
    assert row.on_device >= 4 and row.steps > 50


@needs("interpret", "trials")
def test_what_is_planted_is_in_the_program() -> None:
    """`python -m tests.slow.planted_device_mistakes` runs the battery with each."""
    assert misplaced() == [] and len(MISTAKES) >= 30
