"""A Python that has loaded torch: an executable whose command line is run by a fork, also at the far end of ssh.

Such a process has the folder, environment, files and signals of the executable and ends as that does, and what it
starts by `sys.executable` is warm too. The program and `tapedeck` are imported anew, from where its path finds them.
Not for tests of what an interpreter imports, of its limits, or of the session that a process is in.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import fcntl
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch

from app.engine import fork_server
from app.engine.child_process import PARENT, die_with
from tests.support.forked_python import start_forked

REAL = sys.executable
OWN = {"app", "tapedeck", "tests", "scripts", "benchmarks"}  # packages
LENGTH, STATUS = struct.Struct("I"), struct.Struct("i")
ABOVE = 500  # numbers of files that nobody has
WITHOUT_VALUE = "uPBEIsSO"  # flags of an interpreter that change nothing here

EXECUTABLE = """\
#!{real} -IS
import json, os, resource, signal, socket, struct, sys
files = []
for name in os.listdir("/proc/self/fd"):
    try:
        os.fstat(int(name))
        files.append(int(name))
    except OSError:
        pass
if {parent!r} in os.environ:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
with socket.socket(socket.AF_UNIX) as line:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _frame: line.sendall(bytes([number])))
    line.connect({path!r})
    fields = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "files": files,
        "environment": {{**os.environ}}}}
    data = json.dumps(fields).encode()
    socket.send_fds(line, [struct.pack("I", len(data))], files)
    line.sendall(data)
    for number in files:
        if number > 2:
            os.close(number)
    status = line.recv(4)
code = struct.unpack("i", status)[0] if status else -signal.SIGKILL
if code < 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
SERVER = """
import sys
from tests.support import warm_python
server = warm_python.Server(*sys.argv[1:])
print("ready", flush=True)
server.serve()
"""


@contextlib.contextmanager
def warm_executable() -> Iterator[str]:
    """Yield the path of the executable; its processes end with the block."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        folder = Path(name)
        executable, script = folder / "python", folder / "server.py"
        path = str(folder / "line")
        executable.write_text(EXECUTABLE.format(real=REAL, path=path, parent=PARENT))
        executable.chmod(0o700)
        script.write_text(SERVER)
        server = start_forked(script, path, str(executable))
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        yield str(executable)
        server.kill()
        server.wait()


# --- In the process that forks


class Server:
    """Forks a process for each executable that calls, and ties the two to each other: signals, the end of either."""

    def __init__(self, path: str, executable: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._executable = executable
        self._base = path_of_python()
        self._lines = dict[int, tuple[socket.socket, int]]()  # with their processes
        self._ends = dict[int, tuple[socket.socket, int]]()  # by handles of those

    def serve(self) -> None:
        while True:
            waited = (self._listener, *self._lines, *self._ends)
            for ready in select.select(waited, (), ())[0]:
                if ready is self._listener:
                    self._begin(self._listener.accept()[0])
                elif ready in self._lines:
                    self._forward(*self._lines[ready])
                elif ready in self._ends:
                    self._end(ready, *self._ends[ready])

    def _begin(self, line: socket.socket) -> None:
        try:
            request, files = received(line)
        except ConnectionError:  # it was killed as it called
            return line.close()
        server, pid = os.getpid(), os.fork()
        if not pid:
            sys.path[:] = self._base
            begin(request, files, self._executable, server)
        for file in files:
            os.close(file)
        self._lines[line.fileno()] = line, pid
        self._ends[os.pidfd_open(pid)] = line, pid

    def _forward(self, line: socket.socket, pid: int) -> None:
        """Send the process a signal, SIGKILL where its executable has been killed."""
        try:
            number = line.recv(1)
        except ConnectionError:
            number = b""
        os.kill(pid, number[0] if number else signal.SIGKILL)
        if not number:
            del self._lines[line.fileno()]

    def _end(self, handle: int, line: socket.socket, pid: int) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            line.sendall(STATUS.pack(status))
        self._lines.pop(line.fileno(), None)
        del self._ends[handle]
        os.close(handle)
        line.close()


def received(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what an executable is called as, and its files. Raises ConnectionError."""
    head, files, _, _ = socket.recv_fds(line, LENGTH.size, 250)
    length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
    data, chunk = b"", head
    while chunk and len(data) < length:
        data += (chunk := line.recv(length - len(data)))
    if not length or len(data) < length:
        for file in files:
            os.close(file)
        raise ConnectionError("it has ended")
    return json.loads(data), files


def path_of_python() -> list[str]:
    """Return where a fresh Python looks for modules, but for PYTHONPATH."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    code = "import json, sys; print(json.dumps(sys.path[1:]))"
    command = [REAL, "-c", code]
    return json.loads(subprocess.check_output(command, env=environment, cwd="/"))


# --- In the forked process


def begin(
    request: dict[str, Any], files: list[int], executable: str, server: int
) -> NoReturn:
    """Become what the executable was called as, and end."""
    code = 1
    try:
        os.setsid()
        die_with(server)
        take_files(files, request["files"])
        environment = request["environment"]
        os.environ.clear()
        os.environ.update(environment)
        if PARENT in environment:
            os.environ[PARENT] = str(server)
        time.tzset()
        tempfile.tempdir = None
        os.chdir(request["cwd"])
        sys.executable = executable
        sys.orig_argv[:] = [executable, *request["arguments"]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        new_streams()
        fork_server._seed()
        fork_server._set_threads(environment)
        forget_own_modules()
        code = run(request["arguments"])
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def take_files(files: list[int], numbers: list[int]) -> None:
    """Give the received files their numbers, and close all others."""
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, ABOVE) for file in files]
    for name in os.listdir("/proc/self/fd"):
        if int(name) < ABOVE:
            with contextlib.suppress(OSError):
                os.close(int(name))
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def new_streams() -> None:
    """Make the text streams as a Python does that begins."""
    at_once = bool(os.environ.get("PYTHONUNBUFFERED")) or "-u" in sys.orig_argv[1:2]
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            raw if at_once else io.BufferedWriter(raw),
            errors="backslashreplace" if number == 2 else "strict",
            line_buffering=number == 2 or os.isatty(number),
            write_through=at_once,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def forget_own_modules() -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in OWN:
            del sys.modules[name]
    finders = [f for f in sys.meta_path if type(f).__module__.split(".")[0] not in OWN]
    sys.meta_path[:] = finders
    importlib.invalidate_caches()


def run(arguments: list[str]) -> int:
    """Run a command line of Python; return its exit status."""
    try:
        try:
            run_main(arguments)
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return ending.code or 0
        print(ending.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        report()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        report()
        return 1
    return 0


def report() -> None:
    """Show an exception from the script's own lines on."""
    kind, error, trace = sys.exc_info()
    assert kind is not None and error is not None
    while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    sys.excepthook(kind, error.with_traceback(trace), trace)


def run_main(arguments: list[str]) -> None:
    """Run what a command line names, with its own path and arguments."""
    words, safe = list(arguments), bool(os.environ.get("PYTHONSAFEPATH"))
    while words and words[0][0] == "-" and words[0][1:2] in WITHOUT_VALUE:
        safe = "P" in words.pop(0) or safe
    option, *rest = words or ["-"]
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = map(os.path.abspath, paths)
    torch._import_device_backends()  # which torch does where it is imported
    if option == "-m":
        name, *sys.argv[1:] = rest
        sys.path[:0] = [] if safe else [os.getcwd()]
        return runpy.run_module(name, run_name="__main__", alter_sys=True)
    main = ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    if option == "-c":
        text, *sys.argv[1:] = rest
        sys.argv[0], folder, file = option, "", "<string>"
    else:
        assert option[0] != "-", f"{option} is no option here"
        sys.argv[:] = words
        folder, file = str(Path(option).resolve().parent), os.path.abspath(option)
        text = Path(option).read_text("utf-8")
        main.__dict__.update(__cached__=None, __file__=file)
        main.__loader__ = SourceFileLoader("__main__", file)
    sys.path[:0] = [] if safe else [folder]
    sys.modules["__main__"] = main
    exec(compile(text, file, "exec"), main.__dict__)
