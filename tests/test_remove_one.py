"""Features are found by their folders alone: the window opens without any; `scripts/remove_one.py` goes further."""

from __future__ import annotations

from pathlib import Path

from scripts import remove_one


def test_the_window_opens_without_any_feature_of_the_shelf(tmp_path: Path) -> None:
    features = remove_one.features()
    assert len(features) > 1
    remove_one.copy_without(features, tmp_path)
    assert (tmp_path / "app" / "features" / "__init__.py").exists()
    assert not [*(tmp_path / "app" / "features").glob("*/*.py")]
    fine, text = remove_one.check(tmp_path, remove_one.QUICK["window"])
    assert fine and "opened" in text, text
