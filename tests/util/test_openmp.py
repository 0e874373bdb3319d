"""A thread that computed with torch lets its OpenMP threads go, and has them again when it needs them."""

import sys
from pathlib import Path

import pytest

from app.util import openmp
from tests.support.forked_python import run_forked

TELLING = """
import os, threading
import torch
from app.util import openmp

torch.set_num_threads(2)
count = lambda: len(os.listdir("/proc/self/task"))
steps = []

def compute():
    torch.set_num_threads(2)
    values = torch.ones(1 << 20)
    steps.append((count(), float(values.add(1).sum())))
    freed = openmp.release_idle_threads()
    steps.append((count(), freed))
    steps.append((count(), float(values.add(1).sum())))
    steps.append((count(), torch.get_num_threads()))

other = threading.Thread(target=compute)
other.start()
other.join()
(team, first), (alone, freed), (_, again), (team_again, threads) = steps
assert freed and team - alone == 1, steps
assert first == again == float(1 << 21) and team_again == team and threads == 2, steps
"""


@pytest.mark.skipif(sys.platform != "linux", reason="torch brings libgomp on Linux alone")
def test_an_idle_team_goes_and_comes_again(tmp_path: Path):
    (tmp_path / "telling.py").write_text(TELLING)
    done = run_forked(tmp_path / "telling.py", OMP_NUM_THREADS="2", MKL_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr


def test_without_torch_there_is_no_team(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not openmp.release_idle_threads()
