"""Another program to measure beside ours, in an environment of its own that is made when it is first wanted.

It answers in lines: a request is one JSON value on its standard input, the answer one JSON value on its output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from _report import OUT


class Missing(Exception):
    """The other program cannot be had here; the message says why."""


def environment(name: str, packages: list[str]) -> Path:
    """The interpreter of a virtual environment with these packages, made with pip where it is not there yet.

    Raises:
        Missing: pip could not install them; the message is its last line.
    """
    folder = OUT / f"{name}-env"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = folder / "packages.txt"
    if not ready.exists() or ready.read_text("utf-8").split() != packages:
        print(f"installing {' '.join(packages)} into {folder}", flush=True)
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(folder)], check=True
        )
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *packages,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(
                (
                    done.stderr.strip() or done.stdout.strip() or "pip failed"
                ).splitlines()[-1]
            )
        ready.write_text("\n".join(packages), "utf-8")
    return python


class Peer:
    """A process that answers requests until it is closed."""

    def __init__(self, python: Path, script: Path) -> None:
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=own,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        """Raises Missing if the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Missing(f"it stopped with code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
