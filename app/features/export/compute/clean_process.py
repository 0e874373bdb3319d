"""A clean Python process without access to the program: started, monitored, and killed on cancellation.

It runs with `python -I`: no environment variables, no user packages, the program not on the path. `app` is blocked even
if it is installed. So it is no engine, which would need the program: question and answer are files of JSON.
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

from app.util.errors import CodedError
from app.util.resources import TOP

LOOK = 0.05  # seconds between two polls of the process
PATIENCE = 120.0  # seconds for a small net, including the import of torch

Tell = Callable[[str], None]
Cancelled = Callable[[], bool]


class ExportCancelledError(CodedError):
    """The caller cancelled."""


class CleanProcessError(CodedError):
    """The process returned no answer. The text is one line; `details` is its stderr."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def silent(_words: str) -> None:
    """Ignore progress: a no-op callback."""


def never() -> bool:
    """Cancellation callback that never cancels."""
    return False


def top_packages(texts: Iterable[str]) -> tuple[str, ...]:
    """List the non-standard packages that these texts import anywhere, sorted.

    >>> top_packages(["import os, torch.nn\\nfrom torchvision import ops"])
    ('torch', 'torchvision')
    """
    packages: set[str] = set()
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return tuple(sorted(packages - sys.stdlib_module_names))


def barred_for(texts: Iterable[str]) -> list[str]:
    """Return the modules to block in the clean process: the program, and torchvision if the code does not import it."""
    return [TOP] if "torchvision" in top_packages(texts) else [TOP, "torchvision"]


def run_script(
    script: Path,
    question: Mapping[str, Any],
    folder: Path,
    tell: Tell = silent,
    cancelled: Cancelled = never,
    patience: float = PATIENCE,
) -> dict[str, Any]:
    """Run `script` with a question in JSON and return its answer; `folder` is a scratch folder of the caller's.

    The question contains the paths for its answer and its progress (`answer`, `progress`). Raises CleanProcessError
    without an answer in `patience` seconds, ExportCancelledError.
    """
    import torch

    paths = {
        "answer": str(folder / "answer.json"),
        "progress": str(folder / "progress"),
    }
    Path(paths["answer"]).unlink(missing_ok=True)
    Path(paths["progress"]).unlink(missing_ok=True)
    question_file = folder / "ask.json"
    request = {**question, **paths, "threads": torch.get_num_threads()}
    question_file.write_text(json.dumps(request), encoding="utf-8")
    code, stderr_text = _run(
        [sys.executable, "-I", "-B", str(script), str(question_file)],
        folder,
        tell,
        cancelled,
        patience,
    )
    answer = Path(paths["answer"])
    if code or not answer.is_file():
        raise CleanProcessError(_last_line(stderr_text, code), stderr_text)
    content: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    return content


def _run(
    command: list[str], folder: Path, tell: Tell, cancelled: Cancelled, patience: float
) -> tuple[int, str]:
    """Return the exit code and stderr. The child's working directory is `folder`, which hides other files."""
    window = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with tempfile.TemporaryFile() as stderr_file:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr_file,
            cwd=folder,
            creationflags=window,
        ) as child:
            end = time.monotonic() + patience
            heard = ""
            while child.poll() is None:
                if cancelled():
                    child.kill()
                    raise ExportCancelledError
                if time.monotonic() > end:
                    child.kill()
                    raise CleanProcessError(
                        f"it had not ended after {patience:.0f} seconds and was stopped"
                    )
                with contextlib.suppress(OSError):
                    progress = (folder / "progress").read_text("utf-8")
                    if progress and progress != heard:
                        heard = progress
                        tell(progress)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK)
        stderr_file.seek(0)
        return child.returncode, stderr_file.read().decode("utf-8", "replace")


def _last_line(stderr_text: str, code: int) -> str:
    lines = [line.strip() for line in stderr_text.strip().splitlines() if line.strip()]
    if code < 0:
        return f"it was ended by signal {-code}" + (
            ", which happens if memory runs out" if code == -9 else ""
        )
    return lines[-1] if lines else f"it ended with code {code}"
