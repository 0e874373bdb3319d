"""The fork server (prefork, "zygote"): a process that has loaded torch and our modules; each new process is a copy.

`python -P -m app.engine.fork_server FD` serves requests over that socket, which no other process has. It runs no user
code and computes nothing: it has one thread, no OpenMP team, no autograd engine and no CUDA context, all of which a
fork would break. So a forked process is as clean as a new one, and available in milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from app.engine import entries
from app.engine.child_process import die_with, die_with_parent, leave_signals_to_parent
from app.engine.entries import LENGTH, PID, READY, STATUS
from app.util import gc_pause, shelf
from app.util.resources import PROGRAM

# Packages that tasks import when they need them; torch imports its compiler and its monitor with the first optimizer
# step.
LIBRARIES = """
    torch torch._dynamo torch.profiler._cupti_monitor torch.utils.data torch.fx.experimental.proxy_tensor
    sklearn.datasets sklearn.datasets.data safetensors.torch importlib.resources.readers
"""


def own_modules() -> list[str]:
    """Return the names of what engines and ranks run: all tasks, those of features too, and what they import late."""
    late = ("engine.server", "builder.arrange")
    folder = Path(__file__).parent
    files = sorted(folder.glob("tasks/**/[!_]*.py"))
    tasks = [file.relative_to(folder).with_suffix("").parts for file in files]
    return [
        *(f"{PROGRAM}.{name}" for name in late),
        *(".".join((f"{PROGRAM}.engine", *parts)) for parts in tasks),
        *shelf.modules("task"),
    ]


class _Forked(Struct, frozen=True):
    """A forked process: `ends` becomes readable when it has ended, `status` is its exit status."""

    pid: int
    ends: int
    status: int


def main() -> None:
    """Load modules, report ready, and fork until the client is gone."""
    die_with_parent()
    leave_signals_to_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    _load()
    if reason := _unfit():
        raise SystemExit(
            f"The fork server {reason} and cannot be forked; new processes load torch themselves."
        )
    gc.collect()
    gc_pause.freeze_new_modules()  # keep loaded modules out of garbage collection, so that their pages stay shared
    control.sendall(READY)
    _serve(control)


def _unfit() -> str:
    """Return why a fork of this process would not work, "" if it would: other threads' locks, a GPU driver in use."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        return f"has {threads} threads"
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            if (file := os.readlink(f"/proc/self/fd/{number}")).startswith(
                ("/dev/nvidia", "/dev/kfd", "/dev/dri")
            ):
                return f"has {file} open"
    return ""


def _load() -> None:
    """Import the modules, and make what every process would make again on first use."""
    try:
        import_module("torch")
    except Exception:
        # Without a word: a process that loads it itself reports why it cannot.
        raise SystemExit(1) from None

    from app.builder.catalog.catalog import catalog
    from app.builder.catalog.snapshot import TorchUnreadableError
    from app.util.torchvision_import import import_torchvision

    for name in (*LIBRARIES.split(), *own_modules()):
        with contextlib.suppress(
            ImportError
        ):  # the process that needs it reports that it is missing
            import_module(name)
    with contextlib.suppress(ImportError, RuntimeError):
        import_torchvision("models")
    with contextlib.suppress(
        TorchUnreadableError
    ):  # the process that needs it reports that, too
        catalog()
    _libraries()


def _serve(control: socket.socket) -> None:
    poll, there = select.poll(), dict[int, _Forked]()
    poll.register(control, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != control.fileno():
                poll.unregister(descriptor)
                _reap(there.pop(descriptor))
                continue
            received = _received(control)
            if received is None:
                return  # the client is gone; forked processes end with this one
            request, files = received
            forked = _forked(request, files, control, there)
            if forked is not None:
                there[forked.ends] = forked
                poll.register(forked.ends, select.POLLIN)


def _received(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive a request, and the new process's stdin, stdout, stderr and status pipe."""
    head, files, _, _ = socket.recv_fds(control, LENGTH.size, 4)
    if len(head) < LENGTH.size:
        return None
    data = bytearray()
    (length,) = LENGTH.unpack(head)
    while len(data) < length:
        chunk = control.recv(length - len(data))
        if not chunk:
            return None
        data += chunk
    return json.loads(data), files


def _forked(
    request: dict[str, Any],
    files: list[int],
    control: socket.socket,
    others: Mapping[int, _Forked],
) -> _Forked | None:
    """Fork, and answer with the process's id and a handle of it; with the negative errno where that cannot be."""
    server, pid = os.getpid(), 0
    *streams, status = files
    try:
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                for other in others.values():
                    os.close(other.ends)
                    os.close(other.status)
                os.close(status)
                _run_entry(request, streams, server)
            finally:
                os._exit(1)
        forked = _Forked(pid, os.pidfd_open(pid), status)
        socket.send_fds(control, [PID.pack(pid)], [forked.ends])
        return forked
    except OSError as error:
        os.close(status)
        control.sendall(PID.pack(-(error.errno or 1)))
        return None
    finally:
        for descriptor in streams:
            os.close(descriptor)


def _reap(gone: _Forked) -> None:
    _, how = os.waitpid(gone.pid, 0)
    with contextlib.suppress(BrokenPipeError):  # the client is gone
        os.write(gone.status, STATUS.pack(os.waitstatus_to_exitcode(how)))
    os.close(gone.status)
    os.close(gone.ends)


# --- In the new process


def _run_entry(request: dict[str, Any], streams: list[int], server: int) -> NoReturn:
    """Set up the state that a fresh process would inherit or initialise, and run the entry point."""
    os.setsid()
    die_with(server)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environment = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None  # is looked up again
    if request["cwd"]:
        os.chdir(request["cwd"])
    sys.argv[:] = [entries.__file__, *request["arguments"]]
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout = io.TextIOWrapper(
            io.FileIO(1, "wb", closefd=False), write_through=True
        )
    _seed()
    _set_threads(environment)
    entries.begin(request["entry"])


def _seed() -> None:
    """Seed torch and NumPy freshly, as a new process does; the fork has already reseeded Python's generator."""
    import numpy as np
    import torch

    np.random.seed()
    torch.default_generator.seed()  # CUDA's has a fixed one, and is not there yet


def _set_threads(environment: Mapping[str, str]) -> None:
    """Set thread counts from the environment, which the libraries read when they were loaded."""
    import torch

    def thread_count(variable: str) -> int:
        text = environment.get(variable, "")
        return int(text) if text.isdecimal() else 0

    count = thread_count("OMP_NUM_THREADS")
    of_mkl = thread_count("MKL_NUM_THREADS") if torch.backends.mkl.is_available() else 0
    loaded_for = (
        torch.get_num_threads()
    )  # asks OpenMP, which is set below: MKL, linked into torch, is not by that
    for library in _libraries():
        if library.internal_api == "openblas":
            # It had to do with one, so as not to start any here. In a new process it takes no more than processors.
            processors = len(os.sched_getaffinity(0))
            threads = thread_count("OPENBLAS_NUM_THREADS") or count or processors
            library.set_num_threads(min(threads, processors))
        elif count and library.num_threads != count:
            library.set_num_threads(count)
    if (count := of_mkl or count) and count != loaded_for:
        torch.set_num_threads(count)


@cache
def _libraries() -> list[Any]:
    """Return the loaded libraries with threads of their own; to look for them takes as long as the fork."""
    from threadpoolctl import ThreadpoolController

    controllers: list[Any] = ThreadpoolController().lib_controllers
    return controllers


if __name__ == "__main__":
    main()
