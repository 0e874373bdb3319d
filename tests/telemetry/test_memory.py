"""Memory and the ring: measured numbers, none lost."""

import sys
import threading

import pytest

from app.telemetry.memory import read, resident
from app.telemetry.ring import Ring


@pytest.mark.skipif(
    sys.platform not in {"linux", "darwin", "win32"}, reason="the system does not tell"
)
def test_the_resident_memory_grows_with_what_is_held():
    before = resident()
    block = bytearray(b"\x01" * 200_000_000)
    assert resident() - before > 150_000_000
    del block


def test_the_cpu_is_labelled_as_the_process():
    reading = read("cpu")
    assert reading.scope == "process" and reading.resident
    assert reading.allocated is reading.reserved is reading.peak is None


def test_the_ring_loses_nothing_between_two_threads():
    ring, got = Ring(), []
    writer = threading.Thread(target=lambda: [ring.append(i) for i in range(50_000)])
    writer.start()
    while writer.is_alive():
        got += ring.drain()
    got += ring.drain()
    assert got == list(range(50_000)) and ring.lost == 0


def test_a_ring_that_nobody_drains_keeps_the_newest_and_counts_the_rest():
    ring = Ring(capacity=10)
    for number in range(25):
        ring.append(number)
    assert ring.lost == 15 and ring.drain() == list(range(15, 25)) and len(ring) == 0
