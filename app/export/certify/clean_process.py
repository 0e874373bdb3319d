"""A process of its own that knows nothing of the program: started, listened to, and ended when it is no longer wanted.

It runs with `python -I`: no folder of ours on the path, no environment variables, no user packages. `app` is barred
even where it is installed.
"""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

LOOK = 0.05  # seconds between two looks at whether it has ended, or should
PATIENCE = 120.0  # seconds for a small net; importing torch is part of it

Tell = Callable[[str], None]
Cancelled = Callable[[], bool]


class Stopped(Exception):
    """Somebody said that the answer is no longer wanted."""


class Broken(Exception):
    """The process gave no answer. The text is one line; `details` is what it wrote to stderr."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def silent(_words: str) -> None:
    """A `Tell` for who has nobody to tell."""


def never() -> bool:
    """A `Cancelled` for who cannot be stopped."""
    return False


def top_packages(texts: Iterable[str]) -> tuple[str, ...]:
    """The packages beside Python's own that these texts import anywhere, in order of their names.

    >>> top_packages(["import os, torch.nn\\nfrom torchvision import ops"])
    ('torch', 'torchvision')
    """
    found: set[str] = set()
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return tuple(sorted(found - sys.stdlib_module_names))


def barred_for(texts: Iterable[str]) -> list[str]:
    """What the clean process has to do without: the program, and torchvision where the code has no use for it."""
    return ["app"] if "torchvision" in top_packages(texts) else ["app", "torchvision"]


def ask(
    script: Path,
    question: Mapping[str, Any],
    folder: Path,
    tell: Tell = silent,
    cancelled: Cancelled = never,
    patience: float = PATIENCE,
) -> dict[str, Any]:
    """Run `script` with a question in JSON and return its answer; `folder` is a scratch folder of the caller's.

    The script finds in the question where to leave its answer and how far it is (`answer`, `progress`), both paths.
    Raises Broken if there is none in `patience` seconds, Stopped.
    """
    import torch

    paths = {"answer": str(folder / "answer.json"), "progress": str(folder / "progress")}
    Path(paths["answer"]).unlink(missing_ok=True)
    Path(paths["progress"]).unlink(missing_ok=True)
    asked = folder / "ask.json"
    whole = {**question, **paths, "threads": torch.get_num_threads()}
    asked.write_text(json.dumps(whole), encoding="utf-8")
    code, told = _run([sys.executable, "-I", "-B", str(script), str(asked)], folder, tell, cancelled, patience)
    answer = Path(paths["answer"])
    if code or not answer.is_file():
        raise Broken(_last_line(told, code), told)
    found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    return found


def _run(command: list[str], folder: Path, tell: Tell, cancelled: Cancelled, patience: float) -> tuple[int, str]:
    """The exit code, and what was written to stderr. The child is left to `folder`: nothing is found by chance."""
    window = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with tempfile.TemporaryFile() as told:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told, cwd=folder,
                              creationflags=window) as child:  # fmt: skip
            end = time.monotonic() + patience
            heard = ""
            while child.poll() is None:
                if cancelled():
                    child.kill()
                    raise Stopped
                if time.monotonic() > end:
                    child.kill()
                    raise Broken(f"it had not ended after {patience:.0f} seconds and was stopped")
                with contextlib.suppress(OSError):
                    words = (folder / "progress").read_text("utf-8")
                    if words and words != heard:
                        heard = words
                        tell(words)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK)
        told.seek(0)
        return child.returncode, told.read().decode("utf-8", "replace")


def _last_line(told: str, code: int) -> str:
    lines = [line.strip() for line in told.strip().splitlines() if line.strip()]
    if code < 0:
        return f"it was ended by signal {-code}" + (", which happens if memory runs out" if code == -9 else "")
    return lines[-1] if lines else f"it ended with code {code}"
