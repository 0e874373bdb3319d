"""The campaigns that kill the real window, and interleave two of them, in small: nothing is lost in silence."""

from __future__ import annotations

from pathlib import Path

from tests.slow.kill_window import Life, killed
from tests.slow.two_windows import interleaved


def test_the_real_window_is_killed_and_its_work_is_offered(tmp_path: Path) -> None:
    outcome = killed(tmp_path, kills=2, seed=1, lanes=1)
    assert outcome.troubles == [] and outcome.kills == 2 and outcome.edits > 0
    assert outcome.offered == outcome.unsaved and outcome.longest <= 10


def test_two_real_windows_on_one_file_lose_nothing_in_silence(tmp_path: Path) -> None:
    outcome = interleaved(tmp_path, count=2, seed=0)
    assert outcome.silent == [] and outcome.saves and outcome.asked


def test_what_is_lost_counts_from_the_oldest_edit_that_is_missing() -> None:
    life = Life(
        "editing",
        [(0.0, "a"), (1.0, "b"), (2.0, "c"), (3.0, "b"), (4.0, "d")],
        killed=6.0,
    )
    assert [life.lost(state) for state in "abcdx"] == [5.0, 2.0, 3.0, 0.0, None]
