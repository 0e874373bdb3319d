"""A thread that computed with torch lets its OpenMP threads go, and has them again when it needs them."""

import subprocess
import sys

import pytest

TELLING = """
import os, threading
from app.util import openmp

assert not openmp.release_idle_threads()  # torch is not there yet
import torch

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
def test_an_idle_team_goes_and_comes_again():
    done = subprocess.run([sys.executable, "-c", TELLING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
