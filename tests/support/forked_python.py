"""A script in a process of its own, forked off the fork server of the tests: a fresh Python loads torch for seconds.

Not for tests of what a process imports, or of how an interpreter starts and ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import pytest

from app.engine import pool
from app.engine.entries import ENTRIES
from tests.support import script_entry

SCRIPT = "script"
ENTRIES[SCRIPT] = script_entry.__name__

HANGS = 300.0  # seconds that no script takes

COMMAND = "import sys\nfrom app.main import main\nsys.exit(main())\n"

# As `execvp` does, but that the interpreter of the script is this one: it has torch already.
REPLACED = """
import os, runpy, sys
from app.main import main

class Replaced(BaseException):
    pass

def execvp(_file, words):
    raise Replaced(*words)

os.execvp = execvp
try:
    sys.exit(main())
except Replaced as by:
    sys.argv[:] = by.args[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start_forked(
    script: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> pool.Child:
    """Start a script as `python SCRIPT ARGUMENTS` does, with torch and the program's modules loaded already."""
    return pool.start(SCRIPT, environment, cwd, arguments=[str(script), *arguments])


def start_command(folder: Path, *arguments: str, **environment: str) -> pool.Child:
    """Start `tapedeck ARGUMENTS`, by a script that is written into `folder`."""
    script = folder / "command.py"
    script.write_text(COMMAND)
    return start_forked(script, *arguments, **environment)


def run_replaced(
    folder: Path, *arguments: str, cwd: Path, given: bytes = b"", **environment: str
) -> CompletedProcess[str]:
    """Run `tapedeck run ARGUMENTS`, whose process becomes that of a script, by one that is written into `folder`."""
    command = folder / "command.py"
    command.write_text(REPLACED)
    return run_forked(command, "run", *arguments, cwd=cwd, given=given, **environment)


def run_forked(
    script: Path,
    *arguments: str,
    cwd: Path | None = None,
    given: bytes = b"",
    timeout: float = HANGS,
    **environment: str,
) -> CompletedProcess[str]:
    """Run a script to its end; see `finished`."""
    child = start_forked(script, *arguments, cwd=cwd, **environment)
    return finished(child, [str(script), *arguments], given, timeout)


def run_alone(
    *arguments: str, cwd: Path, timeout: float = HANGS
) -> CompletedProcess[str]:
    """Run `python ARGUMENTS` in a fresh process to its end; see `finished`.

    For programs with threads that start others: a fork of theirs may have a lock that none of its threads lets go.
    """
    command = [sys.executable, *arguments]
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return finished(child, command, b"", timeout)


def finished(
    child: pool.Child, command: list[str], given: bytes, timeout: float
) -> CompletedProcess[str]:
    """Wait for the end of a process that leads its session, and return its output.

    Raises subprocess.TimeoutExpired with the stacks of the threads of a process that hangs, and of its session.
    """
    assert (
        child.stdin is not None
        and child.stdout is not None
        and child.stderr is not None
    )
    with child.stdout as out, child.stderr as errors, ThreadPoolExecutor(2) as readers:
        told, said = readers.submit(out.read), readers.submit(errors.read)
        with child.stdin as to:
            to.write(given)
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired as hang:
            os.killpg(child.pid, signal.SIGABRT)
            hang.add_note(said.result().decode())
            raise
        finally:
            child.kill()
        stdout, stderr = (
            told.result().decode(),
            said.result().decode(),
        )
    return CompletedProcess(command, code, stdout, stderr)


def fork_scripts(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Have `subprocess.run` of a module fork what it starts as `python -c TEXT`, and nothing else."""
    start, forkable = subprocess.run, os.environ.get("PYTHONPATH")

    def run(command: list[str], **named: Any) -> Any:
        if "-c" not in command:
            return start(command, **named)
        text, *arguments = command[command.index("-c") + 1 :]
        paths = [
            path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
        ]
        with (
            tempfile.TemporaryDirectory() as folder,
            pytest.MonkeyPatch.context() as plain,
        ):
            script = Path(folder, "script.py")
            script.write_text(f"import sys; sys.path[:0] = {paths}\n{text}", "utf-8")
            plain.delenv(
                "PYTHONPATH", raising=False
            )  # with another one the fork server does not fork
            if forkable is not None:
                plain.setenv("PYTHONPATH", forkable)
            done = run_forked(
                script,
                *arguments,
                cwd=named.get("cwd"),
                given=named.get("input", b""),
                timeout=named.get("timeout") or HANGS,
            )
        if hasattr(errors := named.get("stderr"), "write"):
            errors.write(done.stderr.encode())
        return done

    monkeypatch.setattr(module, "subprocess", _Subprocess(run))


class _Subprocess(ModuleType):
    """`subprocess` with another `run`."""

    def __init__(self, run: Any) -> None:
        super().__init__("subprocess")
        self.run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)
