"""Child processes: die-with-parent, stderr capture, CPU and memory usage, exit status as text."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

from app.util import processors
from app.util.resources import PATH_ENTRY, python_path

ROOT = PATH_ENTRY
KEPT = 400  # lines of stderr
PARENT = "TAPEDECK_PARENT"
_PR_SET_PDEATHSIG = 1


def start(
    arguments: list[str],
    extra: Mapping[str, str],
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `python <arguments>` with pipes, in its own session, so that Ctrl+C in a terminal does not reach it.

    It finds the same packages as this one. Raises OSError.
    """
    pipe, window = subprocess.PIPE, getattr(subprocess, "CREATE_NO_WINDOW", 0)
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment(extra),
        cwd=cwd,
        start_new_session=os.name == "posix",
        creationflags=window,
    )


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `extra`, and a PYTHONPATH that finds the same packages."""
    common = processors.environment_of_children()
    return {**common, "PYTHONPATH": python_path(), PARENT: str(os.getpid()), **extra}


def die_with_parent() -> None:
    """End this process with its parent, by the kernel where supported, else by the end of the pipe."""
    parent = os.environ.pop(PARENT, "")
    if parent:
        die_with(int(parent))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent `parent` ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)


def leave_signals_to_parent() -> None:
    """Go on at SIGTERM and SIGHUP, which a log-out sends to every process: the parent ends this one once a run has been
    saved. Processes that are started or forked here end as ever.
    """
    if os.name != "posix":
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _go_on)
            os.register_at_fork(
                after_in_child=partial(signal.signal, number, signal.SIG_DFL)
            )


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: an ignored signal would be ignored by every process started here, too."""


class StderrReader:
    """Reads a process's stderr, forwards the lines that `passes` accepts, and keeps its end."""

    def __init__(
        self, stream: IO[bytes], passes: Callable[[str], bool] = lambda _line: True
    ) -> None:
        self._passes = passes
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._thread = threading.Thread(
            target=self._read, args=(stream,), name="stderr of a run", daemon=True
        )
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(
            OSError, ValueError
        ):  # it was closed while something held its other end
            for line in stream:
                text = line.decode("utf-8", "replace")
                self._lines.append(text)
                if sys.stderr is not None and self._passes(text):
                    sys.stderr.write(text)

    def text(self) -> str:
        """Return the captured text after the process has ended; ignores grandchildren that hold the stream."""
        self._thread.join(2.0)
        return "".join(self._lines)


def work_of(pid: int) -> float | None:
    """Return the CPU seconds of a process, None if they cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int | None:
    """Return the resident memory of a process in bytes, None if it cannot be read."""
    try:
        return int(
            Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
        ) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def end_group(leader: int) -> None:
    """Kill what a process with its own session has started and left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def memory_kills() -> int | None:
    """Return the number of out-of-memory kills since the kernel started, None if it cannot be read."""
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None
    )


def describe_exit(code: int, kills_before: int | None) -> str:
    """Describe how a process ended, as the second half of a sentence.

    >>> describe_exit(3, None)
    'ended with exit code 3'
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    now = memory_kills()
    if (
        name == "SIGKILL"
        and now is not None
        and kills_before is not None
        and now > kills_before
    ):
        return "was ended by the kernel, which had run out of memory (SIGKILL)"
    descriptions = {
        "SIGABRT": "aborted in native code (SIGABRT)",
        "SIGSEGV": "crashed in native code (SIGSEGV)",
        "SIGBUS": "crashed in native code (SIGBUS)",
        "SIGFPE": "crashed in native code (SIGFPE)",
        "SIGILL": "crashed in native code (SIGILL)",
        "SIGKILL": "was ended from outside with SIGKILL, as the kernel does when memory runs out",
    }
    return descriptions.get(name, f"was ended by {name}")
