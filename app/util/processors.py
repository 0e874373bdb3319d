"""Processors that a computation may use beside the window and other programs, and how long it waited for one.

Several threads share each operation and wait for the slowest. One whose processor another program takes holds up all of
them: on two processors, one of them busy, a small net trains ten times slower in two threads than in one. So one
processor is left to the window, others are left to who uses them, and threads that wait sleep.
"""

from __future__ import annotations

import math
import os
from collections.abc import MutableMapping
from pathlib import Path
from time import perf_counter, process_time, sleep

SHORTEST = 0.1  # seconds over which the load is measured at least
_STAT, _TASKS = Path("/proc/stat"), Path("/proc/self/task")
_limited = False  # by `limit_this_process`
_IDLE, _WAITS_FOR_DISK, _GUEST = (
    3,
    4,
    8,
)  # columns of /proc/stat; guest time is in user time too


def sleep_while_waiting(environment: MutableMapping[str, str]) -> None:
    """Have OpenMP's waiting threads sleep in processes with this environment, unless it says otherwise.

    torch reads it when it is loaded. Threads that spin take the processor from the one that they wait for.
    """
    environment.setdefault("OMP_WAIT_POLICY", "passive")


def limit_this_process() -> None:
    """Have torch begin with `usual_threads` in this process, before it is loaded; not in its children."""
    global _limited
    sleep_while_waiting(os.environ)
    if not requested():
        os.environ["OMP_NUM_THREADS"] = str(usual_threads())
        _limited = True


def environment_of_children() -> dict[str, str]:
    """Return the environment for processes that compute and choose their number of threads themselves."""
    environment = dict(os.environ)
    sleep_while_waiting(environment)
    if _limited:
        environment.pop("OMP_NUM_THREADS", None)
    return environment


def available() -> int:
    """Return the number of processors that this process may run on, at least 1."""
    count = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    return max(1, min(count, _quota()))


def requested() -> int:
    """Return the number of threads that the user set for all programs by OMP_NUM_THREADS; 0 if none."""
    if _limited:
        return 0
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def usual_threads() -> int:
    """Return the number of threads of a computation on a machine that does nothing else: one processor is left free."""
    return requested() or max(1, available() - 1)


def free_threads(load: Load, wait: bool = False) -> int:
    """Return the number of threads that find a processor each, at least 1: `usual_threads`, or fewer beside others.

    With `wait` a load that was measured just now is measured again.
    """
    busy = 0 if requested() else round(load.of_others(wait))
    return requested() or max(1, available() - max(1, busy))


class Load:
    """The processors that other processes keep busy. Measured on Linux; elsewhere 0."""

    def __init__(self) -> None:
        self._before = _Reading.now()
        self._share = 0.0

    def of_others(self, wait: bool = False) -> float:
        """Return the mean number of processors that others kept busy since the last call.

        A call sooner than `SHORTEST` after the last one returns the same number, or waits so long.
        """
        if self._before is None:
            return 0.0
        rest = self._before.at + SHORTEST - perf_counter()
        if rest > 0 and wait:
            sleep(rest)
        elif rest > 0:
            return self._share
        after = _Reading.now()
        if after is not None:
            seconds = after.at - self._before.at
            spent_here = after.own - self._before.own
            self._share = max(
                0.0, (after.busy - self._before.busy - spent_here) / seconds
            )
            self._before = after
        return self._share


class _Reading:
    """Seconds that the processors of this process were busy, and those of them for this process, at a time."""

    def __init__(self, at: float, busy: float, own: float) -> None:
        self.at, self.busy, self.own = at, busy, own

    @classmethod
    def now(cls) -> _Reading | None:
        try:
            text = _STAT.read_text("ascii")
            ours = os.sched_getaffinity(0)
        except (OSError, AttributeError, ValueError):
            return None
        ticks = sum(
            _busy_ticks(line) for line in text.splitlines() if _processor(line) in ours
        )
        return cls(perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), process_time())


def _processor(line: str) -> int:
    """Return the number of a processor's line in /proc/stat, -1 for another line.

    >>> _processor("cpu12 5 0 3 100"), _processor("cpu  5 0 3 100"), _processor("ctxt 88")
    (12, -1, -1)
    """
    name = line.partition(" ")[0].removeprefix("cpu")
    return int(name) if name.isdecimal() else -1


def _busy_ticks(line: str) -> int:
    columns = [int(text) for text in line.split()[1:]][:_GUEST]
    return sum(columns) - sum(columns[_IDLE : _WAITS_FOR_DISK + 1])


def _quota() -> int:
    """Return the processors that a control group grants, rounded up; without a limit a large number."""
    try:
        quota, _, period = (
            Path("/sys/fs/cgroup/cpu.max").read_text("ascii").strip().partition(" ")
        )
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return 1 << 16


class Delay:
    """The share of time that a thread of this process was ready and waited for a processor. Linux alone counts it."""

    def __init__(self) -> None:
        self._at, self._waited = perf_counter(), _waited_seconds()

    def share(self) -> float:
        """Return the largest share of a thread since the last call, 0 to 1; 0.0 where it is not counted."""
        now, waited = perf_counter(), _waited_seconds()
        before, seconds = self._waited, max(now - self._at, 1e-9)
        self._at, self._waited = now, waited
        longest = max(
            (waited[task] - before[task] for task in waited.keys() & before.keys()),
            default=0.0,
        )
        return min(1.0, longest / seconds)


def _waited_seconds() -> dict[str, float]:
    """Return the seconds that each thread has waited for a processor, by its number."""
    waited: dict[str, float] = {}
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return waited
    for task in tasks:
        try:
            columns = (task / "schedstat").read_text("ascii").split()
            waited[task.name] = int(columns[1]) * 1e-9
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or the kernel does not count
    return waited
