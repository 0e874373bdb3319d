"""Processes of one machine that accept connections from loopback only. An exported script contains these functions
verbatim."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time


def on_loopback() -> dict[str, str]:
    """Environment variables that restrict gloo and NCCL to the loopback interface, and disable NCCL's monitor."""
    name = {"darwin": "lo0", "win32": "Loopback Pseudo-Interface 1"}.get(
        sys.platform, "lo"
    )
    return {
        "GLOO_SOCKET_IFNAME": name,
        "NCCL_SOCKET_IFNAME": name,
        "NCCL_RAS_ENABLE": "0",
    }


def launch(count: int) -> int:
    """Run this script in `count` processes of this machine until all have ended or one fails; returns its status.

    They meet over a file in a folder that is its owner's alone, and talk over the loopback interface.
    """
    threads = os.environ.get(
        "OMP_NUM_THREADS", str(max(1, ((os.cpu_count() or 1) - 1) // count))
    )
    common = {
        **os.environ,
        **on_loopback(),
        "OMP_NUM_THREADS": threads,
        "WORLD_SIZE": str(count),
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *sys.argv, "--store", os.path.join(folder, "store")]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(count):
                started.append(
                    subprocess.Popen(
                        command,
                        env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    )
                )
            while True:
                codes = [process.poll() for process in started]
                if any(codes) or None not in codes:
                    return next((abs(code) for code in codes if code), 0)
                time.sleep(0.1)
        finally:
            for process in started:
                process.kill()
                process.wait()
