"""A script in a process of its own, forked off the fork server of the tests: a fresh Python loads torch for seconds.

Not for tests of what a process imports, or of how an interpreter starts and ends.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

from app.engine import pool

COMMAND = "import sys\nfrom app.main import main\nsys.exit(main())\n"


def start_forked(script: Path, *arguments: str, cwd: Path | None = None, **environment: str) -> pool.Child:
    """Start a script as `python SCRIPT ARGUMENTS` does, with torch and the program's modules loaded already."""
    return pool.start("rank", {"RANK": "0", **environment}, cwd, arguments=[str(script), *arguments])


def start_command(folder: Path, *arguments: str, **environment: str) -> pool.Child:
    """Start `tapedeck ARGUMENTS`, by a script that is written into `folder`."""
    script = folder / "command.py"
    script.write_text(COMMAND)
    return start_forked(script, *arguments, **environment)


def run_forked(script: Path, *arguments: str, cwd: Path | None = None, **environment: str) -> CompletedProcess[str]:
    """Run a script to its end. What it raises is in `stderr`, behind `[rank0]: ` as torch marks it."""
    child = start_forked(script, *arguments, cwd=cwd, **environment)
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    child.stdin.close()
    with child.stdout as out, child.stderr as errors, ThreadPoolExecutor(1) as reader:
        said = reader.submit(errors.read)
        stdout, stderr = out.read().decode(), said.result().decode()
    return CompletedProcess([str(script), *arguments], child.wait(), stdout, stderr)
