"""The far end of a line to a place: begun by ssh, it starts scripts, sends files as they grow, and joins the sockets of
watched scripts. It listens on nothing.

The pipe carries messages: a channel and a length of four bytes each, then so many bytes. Channel 0 has JSON, the
requests of the other end and their answers; each other channel has a file that is followed, or a socket that is joined.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from tapedeck import frames, slurm
from tapedeck.commands import SILENCE
from tapedeck.slurm import EXIT, OUTPUT
from tapedeck.spool import Spool

HEAD = struct.Struct(">II")
ERRORS = "errors.txt"  # what a command that is no watched script says beside its output
CHUNK = 1 << 16  # bytes read at once
EVERY = 0.05  # seconds between two looks at the files that are followed
CHECKED = 60.0  # seconds in which a job that checks a queue runs, where it is not full
SILENT = 120  # seconds without a message after which the other end is taken for gone
# The shell stays beside the script: it leaves the exit status, whatever ends the script.
_SHELL = '"$@"; echo $? >"$0.part"; mv "$0.part" "$0"'
_TORCH = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from tapedeck import devices
names = {name: devices.full_name(name) for name in devices.names()}
print(json.dumps({"torch": torch.__version__, "devices": names}))
"""


_FACTS = """
import json, sys
sys.path.insert(0, {path!r})
from tapedeck import place
print(json.dumps(place.facts()))
"""


class Followed:
    """A file that grows, sent from a byte offset on; it may not be there yet. With `exit`, it ends with a script.

    That of a `job` is opened for each look, since only then a network's file system asks what others have written.
    Raises OSError.
    """

    def __init__(
        self, path: Path, offset: int, exit: Path | None, job: slurm.Job | None
    ) -> None:
        self._path, self._offset, self._exit, self.job = path, offset, exit, job
        self._file = -1

    def read(self) -> bytes:
        """Return the bytes that have been appended since, CHUNK at most."""
        if self.job is not None:
            self.close()
        if self._file < 0:
            try:
                self._file = _opened(self._path)
            except FileNotFoundError:
                return b""
        if os.fstat(self._file).st_size < self._offset:
            raise OSError(f"{self._path} is shorter than what was read of it")
        data = os.pread(self._file, CHUNK, self._offset)
        self._offset += len(data)
        return data

    def ended(self) -> bool:
        """Return whether nobody will append any more, before what is there is read."""
        if self.job is not None:
            return self.job.over
        if self._exit is None or self._file < 0:
            return False
        return self._exit.exists() or not _is_locked(self._file)

    def status(self) -> int | None:
        """Return the exit status of a script that has ended, None where it left none."""
        if self._exit is None:
            return None
        for file in (self._exit, self._exit.with_name(slurm.ENDED)):
            with contextlib.suppress(OSError, ValueError):
                return int(file.read_text())
        return None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


class Server:
    """Answers the requests of the other end until the pipe closes."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._arrived = b""
        self._files: dict[int, Followed] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._spools: dict[int, tuple[Spool, slurm.Job]] = {}
        self._jobs: dict[Path, slurm.Job] = {}

    def serve(self) -> None:
        """Carry out what is asked. What holds a script holds it for SILENCE seconds beyond the end of the pipe, so that
        a line that is cut and taken up again has not let it go on.
        """
        behind = False
        while True:
            waited: list[Any] = [self._reads, *self._sockets.values()]
            timeout = 0.0 if behind else EVERY if self._files or self._jobs else None
            for ready in select.select(waited, (), (), timeout)[0]:
                if ready is not self._reads:
                    self._receive(ready)
                elif not self._take(os.read(self._reads, CHUNK)):
                    time.sleep(SILENCE if self._sockets else 0.0)
                    return
            self._look_at_jobs()
            behind = self._send_growth()

    def _take(self, data: bytes) -> bool:
        """Handle what the pipe brings; False at its end."""
        signal.alarm(SILENT)
        self._arrived += data
        while len(self._arrived) >= HEAD.size:
            channel, length = HEAD.unpack_from(self._arrived)
            end = HEAD.size + length
            if len(self._arrived) < end:
                break
            message, self._arrived = (
                self._arrived[HEAD.size : end],
                self._arrived[end:],
            )
            if channel == 0:
                self._answer(json.loads(message))
            elif not message:
                self._close(channel)
            elif channel in self._sockets or channel in self._spools:
                self._forward(channel, message)
        return bool(data)

    def _answer(self, request: dict[str, Any]) -> None:
        number = request.get("id")
        try:
            fields = getattr(self, f"do_{request['do']}")(request)
        except ValueError as error:
            self._tell(id=number, error=str(error))
        except OSError as error:
            message = f"{error.filename or ''}: {error.strerror or error}"
            self._tell(id=number, error=message.removeprefix(": "), errno=error.errno)
        else:
            self._tell(id=number, **fields)

    def _tell(self, **fields: Any) -> None:
        self._send(0, json.dumps(fields).encode())

    def _send(self, channel: int, data: bytes) -> None:
        view = memoryview(HEAD.pack(channel, len(data)) + data)
        while view:
            view = view[os.write(self._writes, view) :]

    # -- requests -----------------------------------------------------------------------------------------------------

    def do_ping(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Answer, so that both ends know of the other."""
        return {}

    def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a script that outlives the line, once: the folder of its frames is named by who asks. With `files`, by
        name in base64, these are put into that folder, and the script is one of them. One that is not `watched` is a
        command of Tapedeck, with an output of its own for errors.
        """
        script, cwd = request["script"], Path(request["cwd"] or "~").expanduser()
        files = request.get("files", {})
        if not cwd.is_dir():
            raise OSError(f"there is no folder {cwd}")
        for path in map(Path, files):
            if path.is_absolute() or ".." in path.parts:
                raise OSError(f"{path} is outside of the run's folder")
        runs_file = not request["module"] and not files
        if runs_file and not (cwd / Path(script).expanduser()).is_file():
            raise OSError(f"there is no file {script} in {cwd.resolve()}")
        try:
            folder = frames.new_folder("", request["title"])
        except FileExistsError:  # the answer was lost with the line
            return {"folder": str(frames.home() / request["title"])}
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(base64.b64decode(text))
        cwd = folder if files else cwd
        watched = request.get("watched", True)
        arguments = request["arguments"]
        command = [sys.executable]
        if watched:
            package = _package(request["version"])
            command += [str(package / "script.py"), str(folder)]
        else:
            arguments = map(os.path.expanduser, arguments)
        options = ["-m", script] if request["module"] else [os.path.expanduser(script)]
        command += [*options, *arguments]
        environment = request.get("environment", {})
        if request.get("slurm"):
            settings = [f"{name}={value}" for name, value in environment.items()]
            self._submit(request, folder, cwd, ["env", *settings, *command])
            return {"folder": str(folder)}
        with open(folder / OUTPUT, "ab") as output, open(folder / ERRORS, "ab") as said:
            for file in (output, said):
                with contextlib.suppress(OSError):  # of a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)  # for as long as the script has it
            subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, str(folder / EXIT), *command],
                cwd=cwd,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if watched else said,
                start_new_session=True,
            )
        return {"folder": str(folder)}

    def _submit(
        self, request: dict[str, Any], folder: Path, cwd: Path, command: list[str]
    ) -> None:
        """Submit a command to the queue of the place. Raises OSError, ValueError."""
        runner = str(_package(request["version"]) / "job.py")
        command = [sys.executable, runner, str(folder), *command]
        name = frames.script_of(folder / frames.FRAMES)
        signal.alarm(0)  # a queue may take its time
        try:
            slurm.submit(request["slurm"], folder, cwd, name, command)
        except (OSError, ValueError):
            shutil.rmtree(folder)
            raise

    def do_list(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the sizes of the files in a folder, by their names there."""
        folder = Path(request["folder"])
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
        return {"files": sizes}

    def do_follow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a file on a channel from an offset on, as it grows."""
        path, job = Path(request["path"]).expanduser(), None
        if path.name in (OUTPUT, frames.FRAMES):
            job = self._job_of(path.parent)
        ends = job or path.name in (OUTPUT, ERRORS)
        exit = path.with_name(EXIT) if ends else None
        followed = Followed(path, request["offset"], exit, job)
        self._files[request["channel"]] = followed
        return {"job": {"job": job.number, **job.state}} if job is not None else {}

    def do_cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        """Cancel the job whose files lie in a folder."""
        slurm.cancel(Path(request["folder"]))
        return {}

    def do_hold(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have the script of a job that waits begin paused."""
        slurm.Job(Path(request["folder"])).hold()
        return {}

    def do_join(self, request: dict[str, Any]) -> dict[str, Any]:
        """Join a channel to the socket of the script whose frames lie in a folder; over files where that is a job."""
        folder = Path(request["folder"]).expanduser()
        if (job := self._job_of(folder)) is not None:
            self._join_job(request["channel"], folder, job)
            return {}
        path = frames.socket_path(folder)
        joined = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if not frames.is_private(path.parent):
                raise PermissionError(f"{path.parent} can be opened by another user")
            joined.connect(str(path))
        except OSError:
            joined.close()
            self._finish(request["channel"])
        else:
            self._sockets[request["channel"]] = joined
        return {}

    def do_check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Describe the place. Imports torch, in a process of its own; of a queue, in a job."""
        signal.alarm(0)
        if template := request.get("slurm"):
            return self._checked_by_job(template, request["version"])
        return facts()

    def _checked_by_job(self, template: str, version: str) -> dict[str, Any]:
        """Describe where a job of a queue runs, or say why it does not."""
        folder = frames.new_folder(
            "", frames.folder_title("check") + os.urandom(4).hex()
        )
        try:
            slurm.tested(template, folder)
            package = _package(version)
            runner, name = str(package / "job.py"), "tapedeck-check"
            code = _FACTS.format(path=str(package.parent))
            command = [sys.executable, runner, str(folder), sys.executable, "-c", code]
            slurm.submit(template, folder, folder, name, command)
            job, until = slurm.Job(folder), time.monotonic() + CHECKED
            while not job.over and time.monotonic() < until:
                job.look()
                time.sleep(EVERY)
            asked = {"job": {"job": job.number, **job.state}, "folder": str(folder)}
            if not job.over:
                slurm.cancel(folder)
                return asked
            output = folder / OUTPUT
            text = output.read_text("utf-8", "replace") if output.exists() else ""
            lines = text.strip().splitlines() or ["it prints nothing"]
            with contextlib.suppress(ValueError):
                return {**asked, **json.loads(lines[-1])}
            return {**asked, "problem": lines[-1]}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _job_of(self, folder: Path) -> slurm.Job | None:
        """Return the job whose files lie in a folder, None where no queue knows it."""
        with contextlib.suppress(FileNotFoundError):
            self._jobs[folder] = self._jobs.get(folder) or slurm.Job(folder)
        return self._jobs.get(folder)

    def _join_job(self, channel: int, folder: Path, job: slurm.Job) -> None:
        if not job.runs and job.has_begun and (state := job.look_now()) is not None:
            self._tell(job=state)
        if not job.runs:
            self._tell(closed=channel, error="it waits in the queue, or has ended")
            return
        inside = folder / slurm.SPOOL / os.urandom(8).hex()
        inside.mkdir(mode=0o700)
        self._spools[channel] = Spool(inside, "here", "there"), job

    def _look_at_jobs(self) -> None:
        """Tell of jobs that are in another state, and what scripts in jobs answer."""
        for job in self._jobs.values():
            if (state := job.look()) is not None:
                self._tell(job=state)
        for channel, (spool, job) in list(self._spools.items()):
            try:
                if data := spool.receive():
                    self._send_all(channel, data)
                gone = spool.ended or not job.runs
            except OSError:
                gone = True
            if gone:
                self._finish(channel)

    # -- files and sockets --------------------------------------------------------------------------------------------

    def _send_growth(self) -> bool:
        """Send what was appended; return whether more is there already."""
        behind = False
        for channel, file in list(self._files.items()):
            try:
                ended = file.ended()
                data = file.read()
                while data:
                    self._send(channel, data)
                    behind = behind or (len(data) == CHUNK and not ended)
                    data = file.read() if ended else b""
            except OSError as error:
                self._close(channel)
                self._tell(closed=channel, error=error.strerror or str(error))
            else:
                if ended:
                    self._close(channel)
                    self._tell(closed=channel, status=file.status())
        return behind

    def _receive(self, joined: socket.socket) -> None:
        channel = next(k for k, other in self._sockets.items() if other is joined)
        try:
            data = joined.recv(CHUNK)
        except OSError:
            data = b""
        if data:
            self._send(channel, data)
        else:
            self._finish(channel)

    def _send_all(self, channel: int, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            self._send(channel, data[start : start + CHUNK])

    def _forward(self, channel: int, message: bytes) -> None:
        try:
            if channel in self._spools:
                self._spools[channel][0].send(message)
            else:
                self._sockets[channel].sendall(message)
        except OSError:
            self._finish(channel)

    def _finish(self, channel: int) -> None:
        """Say that a script is gone, after all that it wrote."""
        while self._send_growth():
            pass
        self._close(channel)
        self._tell(closed=channel)

    def _close(self, channel: int) -> None:
        spool, _ = self._spools.pop(channel, (None, None))
        closed: Any = spool or self._sockets.pop(
            channel, self._files.pop(channel, None)
        )
        with contextlib.suppress(OSError):
            if closed is not None:
                closed.close()


def facts() -> dict[str, Any]:
    """Describe this machine and its Python. Imports torch, in a process of its own."""
    asked = subprocess.run(
        [sys.executable, "-c", _TORCH, str(Path(__file__).parents[1])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    said = asked.stdout.decode("utf-8", "replace").splitlines()
    lines = asked.stderr.decode("utf-8", "replace").splitlines()
    of_torch = json.loads(said[-1]) if asked.returncode == 0 and said else {}
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "host": socket.gethostname(),
        "free": shutil.disk_usage(Path.home()).free,
        "tapedeck": _installed(),
        "torch": of_torch.get("torch", ""),
        "devices": of_torch.get("devices", {}),
        "problem": "" if of_torch else (lines or ["it ends without a word"])[-1],
    }


def _opened(path: Path) -> int:
    """Open a regular file for reading. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no file")
    return file


def _is_locked(file: int) -> bool:
    """Return whether somebody else holds the lock of a file, as far as can be known."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:
        return True
    return False


def _installed() -> str:
    """Return the version that is installed here, "" if none is."""
    try:
        return metadata.version("tapedeck-torch")
    except metadata.PackageNotFoundError:
        return ""


def _package(version: str) -> Path:
    """Return the package that watches a script: the installed one where it is of this version, since its graphs can be
    captured too, else this one.
    """
    own = Path(__file__).parent
    if _installed() != version:
        return own
    found = (Path(entry or ".", "tapedeck") for entry in sys.path)
    others = (path for path in found if path.resolve() != own)
    return next((path for path in others if (path / "script.py").is_file()), own)


def serve() -> None:
    """Serve the pipe that is this process's stdin and stdout; what else prints goes to stderr."""
    reads, writes = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.chdir(Path.home())  # paths are from there
    with contextlib.suppress(BrokenPipeError):
        Server(reads, writes).serve()
