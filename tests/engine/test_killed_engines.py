"""Engines of a real window are ended amid its work; `tests.slow.kill_engines` does it 50 times."""

import subprocess
import sys
from pathlib import Path


def test_a_window_whose_engine_is_killed_is_whole_and_computes_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.slow.kill_engines", "--kills", "1"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    assert (
        done.returncode == 0 and "1 kills (1 editing): 1 said, 0 faults" in done.stdout
    ), done.stdout + done.stderr
