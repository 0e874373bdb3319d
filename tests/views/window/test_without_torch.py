"""The window's process never imports torch, from opening a project to closing it: its own rooms one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_a_day_in_the_window_imports_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.drive_window", str(tmp_path)]
    environment = {**os.environ, "HOME": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *stations, last = done.stdout.splitlines()
    assert [word for word in ("opened", "edited", "trained", "rates tested", "evaluated", "tried", "looked inside",
            "event files", "went on", "table read", "captured", "played",
            "diagnosed", "checked numerically", "replay exported", "exported", "proved",
            "weights saved", "weights loaded", "layers of an own file", "imported",
            "example described", "addresses found") if
            word not in stations] == []  # fmt: skip
    assert json.loads(last) == {"imported": [], "there": []}
