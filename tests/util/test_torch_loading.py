"""Torch's libraries are loaded without the interpreter's lock, and torch works as ever after it."""

import subprocess
import sys

import pytest

TELLING = """
import sys, threading, time
from app.util import torch_libraries as torch_loading
turns, loading = [], threading.Event()

def count():
    loading.wait()
    while loading.is_set():
        turns.append(1)
        time.sleep(0.0005)

counter = threading.Thread(target=count)
counter.start()
loading.set()
names = torch_loading.preload()
during = len(turns)
loading.clear()
counter.join()
import torch
assert torch_loading.preload() == ()  # there is nothing left to do
weight = torch.ones(3, requires_grad=True)
(weight * 2).sum().backward()
print(names, during, weight.grad.tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded beforehand on Linux alone")
def test_other_threads_run_while_torch_is_loaded():
    done = subprocess.run([sys.executable, "-c", TELLING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, _, rest = done.stdout.partition(") ")
    during, _, gradient = rest.partition(" ")
    assert "libtorch_python.so" in names and gradient.strip() == "[2.0, 2.0, 2.0]"
    assert int(during) > 2  # with Python's own dlopen the other thread stands still: 0 or 1
