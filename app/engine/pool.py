"""Process pool: each child is forked from a preforked process that has loaded torch, else started as a fresh Python.

On Linux `prepare` starts a fork server (`app.engine.fork_server`), which `start` asks for copies: each takes
milliseconds and shares its memory. Without one, and if it has died, `start` starts a fresh Python, which loads torch
first; callers see no difference but the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from app.engine import child_process
from app.engine.entries import ENTRIES, LENGTH, PID, READY, STATUS

T = TypeVar("T")

LOADS = 120.0  # seconds in which the fork server has torch loaded
ANSWERS = 20.0  # seconds in which it has forked
TRIES = 3  # retries: fork servers that may die before they have forked once, until no more are started
# Variables that libraries read when they are loaded: a process with other values cannot be forked.
AT_LOADING = (
    "PYTHON",
    "LD_",
    "OMP_",
    "MKL_",
    "GOMP_",
    "MALLOC_",
    "GLIBC_",
    "TORCH_",
    "PYTORCH_",
    "ATEN_",
)
LATER = {"PYTHONUNBUFFERED", "TORCH_HOME"}  # exceptions, which are read later
THREADS = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}  # and for these, which can be set


class Child(Protocol):
    """A started process, with the interface of `subprocess.Popen`."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def returncode(self) -> int | None:
        """None until `poll` or `wait` saw its end; the negative number of the signal that ended it."""

    def poll(self) -> int | None:
        """Return the exit code of an ended process, else None."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired after `timeout` seconds."""

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""

    def kill(self) -> None:
        """End it with SIGKILL, unless it has ended."""


def start(
    entry: str,
    extra_environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    arguments: Sequence[str] = (),
    fresh: bool = False,
) -> Child:
    """Start a process that runs an entry point of `app.engine.entries`, in its own session and with pipes.

    A `fresh` process has imported nothing yet. It ends with this process,
    even if this one is killed. Blocks while the fork server loads torch, once: do not call it on the window's thread.
    Raises OSError.
    """
    if entry not in ENTRIES:
        raise ValueError(f"{entry!r} is none of {', '.join(ENTRIES)}")
    module, extra = ENTRIES[entry], dict(extra_environment or {})
    entry_arguments = tuple(arguments)
    return (
        _starter()
        .submit(lambda: _started(module, extra, cwd, entry_arguments, fresh))
        .result()
    )


def prepare(*, later: bool = False) -> None:
    """Have a fork server from now on: at once, or `later`, with the first process. Does not wait for it."""
    if _can_fork():
        _state.wanted, _state.failures = True, 0
        if not later:
            _starter().submit(_server)


def close() -> None:
    """End the fork server and all that it forked; processes that are started afterwards are fresh ones."""
    _state.wanted = False
    server = _state.server
    if server is not None:  # beside the thread that may be waiting for it
        server.end()
        _starter().submit(_forget).result()


class _Starter(threading.Thread):
    """The thread that starts them all: Linux ends with a thread the processes that it started.

    A program that ends while it waits for the fork server does not wait for it.
    """

    def __init__(self) -> None:
        super().__init__(name="processes", daemon=True)
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = (
            queue.SimpleQueue()
        )

    def submit(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._asked.put((function, future))
        return future

    def run(self) -> None:
        while True:
            function, future = self._asked.get()
            try:
                future.set_result(function())
            except BaseException as error:  # raised in the caller
                future.set_exception(error)


@cache
def _starter() -> _Starter:
    starter = _Starter()
    starter.start()
    return starter


@cache
def _can_fork() -> bool:
    return (
        sys.platform == "linux"
        and hasattr(os, "pidfd_open")
        and Path("/proc/self/task").exists()
    )


class _State:
    wanted = False
    server: _Server | None = None
    failures = 0  # in a row


_state = _State()


# --- On the starter's thread


def _started(
    module: str,
    extra: dict[str, str],
    cwd: Path | None,
    arguments: tuple[str, ...],
    fresh: bool,
) -> Child:
    environment = child_process.environment(extra)
    server = None if fresh else _server()
    if server is not None and _same_load_environment(environment, server.environment):
        if cwd is not None:
            os.stat(cwd)  # report a missing folder here
        try:
            forked = server.fork(module, environment, cwd, arguments)
        except _ForkError:
            server.end()
        else:
            _state.failures = 0
            return forked
    return child_process.start(
        ["-P", "-m", "app.engine.entries", module, *arguments], extra, cwd
    )


def _server() -> _Server | None:
    """Return the fork server with torch loaded, restarted if it has died, or None."""
    while _state.wanted and _state.failures < TRIES:
        if _state.server is None:
            try:
                _state.server = _Server()
            except OSError:
                _state.failures = TRIES
                return None
        if _state.server.ready():
            return _state.server
        _forget()
        _state.failures += 1
    return None


def _forget() -> None:
    if _state.server is not None:
        _state.server.end()
        _state.server.reap()
        _state.server = None


def _same_load_environment(
    environment: Mapping[str, str], loaded: Mapping[str, str]
) -> bool:
    """Return whether the variables that libraries read when they are loaded are equal.

    >>> _same_load_environment({"OMP_NUM_THREADS": "1", "HOME": "/a"}, {"HOME": "/b"})
    True
    >>> _same_load_environment({}, {"OMP_NUM_THREADS": "1"})
    False
    """
    later = LATER | {name for name in THREADS if name in environment}
    return all(
        environment.get(name) == loaded.get(name)
        for name in {*environment, *loaded} - later
        if name.startswith(AT_LOADING)
    )


class _ForkError(Exception):
    """The fork server is gone, or does not answer, or cannot fork."""


class _Server:
    """The fork server, and this end of the socket for its requests. Raises OSError if it cannot be started."""

    def __init__(self) -> None:
        self.environment = child_process.environment({"OPENBLAS_NUM_THREADS": "1"})
        self._control, theirs = socket.socketpair()
        self._loaded = False
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "app.engine.fork_server", str(number)],
                pass_fds=[number],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ready(self) -> bool:
        """Return whether it runs; blocks while it loads."""
        if not self._loaded:
            self._control.settimeout(LOADS)
            with contextlib.suppress(OSError):
                self._loaded = self._control.recv(1) == READY
        return self._loaded and self._process.poll() is None

    def fork(
        self,
        module: str,
        environment: Mapping[str, str],
        cwd: Path | None,
        arguments: Sequence[str],
    ) -> _Forked:
        """Fork a process. Raises _ForkError."""
        folder = str(cwd or "")
        with contextlib.suppress(OSError):  # that of this process may be gone
            folder = folder or os.getcwd()
        left = {
            name: value
            for name, value in environment.items()
            if name != child_process.PARENT
        }
        request = {
            "entry": module,
            "environment": left,
            "cwd": folder,
            "arguments": list(arguments),
        }
        pipes = _Pipes()
        try:
            pid, handle = self._ask(json.dumps(request).encode(), pipes.theirs)
        except _ForkError:
            pipes.close()
            raise
        finally:
            for number in pipes.theirs:
                os.close(number)
        return _Forked(pid, handle, pipes)

    def _ask(self, data: bytes, files: list[int]) -> tuple[int, int]:
        self._control.settimeout(ANSWERS)
        try:
            socket.send_fds(self._control, [LENGTH.pack(len(data))], files)
            self._control.sendall(data)
            answer, handles, _, _ = socket.recv_fds(self._control, PID.size, 1)
        except OSError as error:
            raise _ForkError(str(error)) from error
        pid = PID.unpack(answer)[0] if len(answer) == PID.size else 0
        if pid <= 0 or not handles:
            raise _ForkError(os.strerror(-pid))
        return pid, handles[0]

    def end(self) -> None:
        """End it and, by that, all that it forked."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._process.kill()

    def reap(self) -> None:
        """Reap the ended server and close its files."""
        self._process.wait()
        self._control.close()


class _Pipes:
    """The pipes of a process: our ends, and its own as the numbers of files. Raises OSError."""

    def __init__(self) -> None:
        (reads, ours), (output_reader, writes) = os.pipe(), os.pipe()
        (errors, complains), (status, says) = os.pipe(), os.pipe()
        self.stdin: IO[bytes] | None = open(ours, "wb")
        self.stdout: IO[bytes] | None = open(output_reader, "rb")
        self.stderr: IO[bytes] | None = open(errors, "rb")
        self.status = open(status, "rb", buffering=0)
        self.theirs = [reads, writes, complains, says]

    def close(self) -> None:
        for stream in filter(None, (self.stdin, self.stdout, self.stderr, self.status)):
            stream.close()


class _Forked:
    """A process that the fork server forked; `status` reports how it ended.

    If the server dies, no report comes; its processes are then killed, unless the kernel has done so.
    """

    def __init__(self, pid: int, handle: int, pipes: _Pipes) -> None:
        self.pid = pid
        self.stdin, self.stdout, self._status = pipes.stdin, pipes.stdout, pipes.status
        self.stderr: IO[bytes] | None = pipes.stderr
        self._handle = open(
            handle, "rb", buffering=0
        )  # of the process: its id may be another's once it has ended
        self._lock = threading.Lock()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and _readable(self._status, timeout):
            with self._lock:
                if self.returncode is None:
                    self.returncode = self._how(timeout)
        return self.returncode

    def _how(self, timeout: float | None) -> int | None:
        report = self._status.read(STATUS.size)
        if len(report) == STATUS.size:
            return int(STATUS.unpack(report)[0])
        self.send_signal(signal.SIGKILL)
        return -signal.SIGKILL if _readable(self._handle, timeout) else None

    def kill(self) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if sys.platform == "linux":
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle.fileno(), number)

    def __del__(self) -> None:
        for stream in (
            self.stdin,
            self.stdout,
            self.stderr,
            self._status,
            self._handle,
        ):
            if stream is not None:
                try:  # without a name of this module, which may have ended before
                    stream.close()
                except OSError:
                    continue  # unsent commands are dropped


def _readable(file: IO[bytes], timeout: float | None) -> bool:
    """Return whether data or end of file can be read within `timeout` seconds."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))
