"""In a job of a queue: runs a script, brings it what is commanded over files, and has the job queued again in time.

    python tapedeck/job.py FOLDER COMMAND ...

The batch script becomes this process. SIGUSR1, by which `#SBATCH --signal=B:USR1@120` says that the time of the job is
over soon, and SIGTERM are passed on to the script, which saves a checkpoint and ends, as `tapedeck.resuming` says.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # run as a file: the folder beside it is not the package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tapedeck import frames, resuming, slurm
from tapedeck.spool import CHUNK, Spool

EVERY = 0.1  # seconds between two looks at what is commanded
SILENT = 120.0  # seconds without a message after which a client is taken for gone
KILLED = 60.0  # seconds in which the queue ends a job that is queued again


class _Joined:
    """A client elsewhere, joined to the socket of the script."""

    def __init__(self, spool: Spool, connection: socket.socket) -> None:
        self.spool, self.connection = spool, connection
        self.unsent = b""
        self.heard = time.monotonic()

    def turn(self) -> bool:
        """Carry what has come from either side to the other; False once one is gone. Raises OSError."""
        if data := self.spool.receive():
            self.heard = time.monotonic()
            self.unsent += data
        if self.spool.ended or time.monotonic() - self.heard > SILENT:
            return False
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
        with contextlib.suppress(BlockingIOError):
            while answer := self.connection.recv(CHUNK):
                self.spool.send(answer)
            return False
        return True

    def close(self) -> None:
        self.connection.close()
        with contextlib.suppress(OSError):
            self.spool.close()


class Relay:
    """Joins who commands a script from another machine, each by a folder of `folder`/spool, to the script's socket."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._home = folder, folder / slurm.SPOOL
        self._joined: dict[str, _Joined] = {}
        self._left: set[str] = set()
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(mode=0o700)
        self._open = folder / slurm.RUNS
        self._open.touch()

    def turn(self) -> None:
        """Look for new clients, and carry what there is."""
        if not self._open.exists():
            return
        for name in os.listdir(self._home):
            if name not in self._joined and name not in self._left:
                self._join(name)
        for name, joined in list(self._joined.items()):
            try:
                stays = joined.turn()
            except OSError:
                stays = False
            if not stays:
                self._joined.pop(name).close()
                self._left.add(name)

    def _join(self, name: str) -> None:
        """Connect to the script; one that does not listen yet is tried again."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path = frames.socket_path(self._folder)
            if not frames.is_private(path.parent):
                raise PermissionError(f"{path.parent} can be opened by another user")
            connection.connect(str(path))
        except OSError:
            connection.close()
            return
        connection.setblocking(False)
        spool = Spool(self._home / name, "there", "here")
        self._joined[name] = _Joined(spool, connection)

    def close(self) -> None:
        """Say that the script is gone, after all that it wrote."""
        self.turn()
        self._open.unlink(missing_ok=True)
        for joined in self._joined.values():
            joined.close()
        self._joined.clear()


class Job:
    """A job that runs `command`, with its files in `folder`."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._folder, self._command = folder, command
        self._checkpoints = folder / slurm.CHECKPOINTS
        self._signals: list[int] = []
        self._queued_again = self._time_is_over = self._is_ended = False

    def run(self) -> int:
        """Run the command to its end, or to that of the job's time; return its exit status."""
        for name in (slurm.EXIT, slurm.ENDED):
            (self._folder / name).unlink(missing_ok=True)
        self._checkpoints.mkdir(exist_ok=True)
        begun = slurm.newest_checkpoint(self._checkpoints)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda number, _frame: self._signals.append(number))
        environment = {
            **os.environ,
            resuming.FOLDER: str(self._checkpoints),
            resuming.NEWEST: str(begun or ""),
            resuming.HELD: "1" * (self._folder / slurm.HELD).exists(),
        }
        child = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, env=environment
        )
        relay = Relay(self._folder)
        while child.poll() is None:
            self._heed(child, relay)
            relay.turn()
            time.sleep(EVERY)
        self._heed(child, relay)
        relay.close()
        (self._folder / slurm.HELD).unlink(missing_ok=True)
        status = child.returncode if child.returncode >= 0 else 128 - child.returncode
        if self._time_is_over and status == frames.TRY_AGAIN:
            self._queued_again = self._queued_again or self._requeued(begun)
        if not self._queued_again:
            name = slurm.ENDED if self._is_ended else slurm.EXIT
            (self._folder / name).write_text(str(status))
        return status

    def _heed(self, child: subprocess.Popen[bytes], relay: Relay) -> None:
        """Have the script save a checkpoint and end, if the queue has said so."""
        while self._signals:
            number = self._signals.pop(0)
            relay.close()  # a script that is held from elsewhere would not heed it
            child.send_signal(number)
            self._is_ended = self._is_ended or number == signal.SIGTERM
            ending = slurm.ending() if number == signal.SIGTERM else slurm.SOON
            self._queued_again = self._queued_again or ending == slurm.AGAIN
            self._time_is_over = self._time_is_over or ending == slurm.SOON

    def _requeued(self, begun: Path | None) -> bool:
        """Have the job queued again, if its script has come further in its time; return whether it is."""
        newest = slurm.newest_checkpoint(self._checkpoints)
        if newest is None or newest == begun:
            print("tapedeck: not queued again: no checkpoint was saved", flush=True)
            return False
        signal.signal(
            signal.SIGTERM, signal.SIG_DFL
        )  # by which the queue ends this now
        if problem := slurm.requeue():
            print(f"tapedeck: not queued again: {problem}", flush=True)
            return False
        time.sleep(KILLED)
        return True


if __name__ == "__main__":
    sys.exit(Job(Path(sys.argv[1]), sys.argv[2:]).run())
