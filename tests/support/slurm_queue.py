"""A queue of the test's own: SLURM with one node, this machine, or a stand-in for its commands."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.ssh_host import free_port

PATHS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
KillWait=2
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
STARTS = 300.0  # seconds


class Queue:
    """`environment` is that of who uses it."""

    def __init__(self) -> None:
        self.environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the queue."""
        environment = {**os.environ, **self.environment}
        program = shutil.which(command[0], path=environment["PATH"])
        return subprocess.run(
            [program or command[0], *command[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def is_up(self, up: bool) -> None:
        """Have jobs start, or wait."""
        state = "UP" if up else "DOWN"
        self.run("scontrol", "update", "PartitionName=short", f"State={state}")

    def state_of(self, job: str) -> str:
        return self._shown(job, "%T")

    def reason_of(self, job: str) -> str:
        return self._shown(job, "%r")

    def _shown(self, job: str, field: str) -> str:
        options = ("--noheader", "--states=all", f"--format={field}", f"--jobs={job}")
        return self.run("squeue", *options).stdout.strip()

    def start_now(self, job: str) -> None:
        """Have a job that was queued again start without waiting for its time.

        SLURM refuses one that starts in the second in which it ended: its credential counts as revoked.
        """
        until = time.monotonic() + STARTS
        while self.run(
            "scontrol", "update", f"JobId={job}", "StartTime=now+2"
        ).returncode:
            assert time.monotonic() < until, self.state_of(job)
            time.sleep(0.1)

    def lose_node(self) -> None:
        """Have the node fail, which is back at once."""
        self.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=lost")

    def close(self) -> None:
        """End what runs."""


class StandIn(Queue):
    """The stand-in's commands, in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        source = Path(__file__).with_name("slurm_stand_in.py").read_text("utf-8")
        for name in COMMANDS:
            (folder / name).write_text(f"#!{sys.executable} -S\n{source}")
            (folder / name).chmod(0o755)
        self._jobs = folder / "jobs"
        self._jobs.mkdir()
        path = f"{folder}:{os.environ['PATH']}"
        self.environment |= {"PATH": path, "STAND_IN_QUEUE": str(self._jobs)}

    def close(self) -> None:
        for file in self._jobs.glob("job-*.json"):
            self.run("scancel", file.stem.removeprefix("job-"))


class Slurm(Queue):
    """The real one, with daemons of its own. Skips where it is not installed or does not start."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        needed = ("munged", "slurmctld", "slurmd", *COMMANDS)
        missing = [name for name in needed if shutil.which(name, path=PATHS) is None]
        if missing:
            pytest.skip(f"no SLURM here: {', '.join(missing)} is missing")
        host = socket.gethostname().partition(".")[0]
        self._host = host
        config = folder / "slurm.conf"
        config.write_text(
            CONFIG.format(
                host=host,
                ports=(free_port(), free_port()),
                user=getpass.getuser(),
                folder=folder,
                cpus=os.cpu_count(),
            )
        )
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.environment |= {"SLURM_CONF": str(config), "PATH": PATHS}
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        munge = (
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={folder}/munge.sock",
        )
        files = [
            f"--{name}={folder}/munge.{name}"
            for name in ("pid-file", "log-file", "seed-file")
        ]
        self._start("munged", *munge, *files)
        self._wait("munged", lambda: (folder / "munge.sock").exists())
        self._start("slurmctld", "-D", "-c")
        self._start("slurmd", "-D", "-c")
        idle = ("sinfo", "--noheader", "--format=%T")
        self._wait("slurmd", lambda: self.run(*idle).stdout.strip() == "idle")

    def _start(self, name: str, *arguments: str) -> None:
        program = shutil.which(name, path=PATHS)
        assert program is not None
        with (self._folder / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(
                [program, *arguments],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._daemons.append(daemon)

    def _wait(self, name: str, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + STARTS
        while not condition():
            ended = [daemon for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > until:
                logs = [
                    f.read_text("utf-8", "replace")[-300:]
                    for f in self._folder.glob("*.log")
                ]
                self.close()
                pytest.skip(f"SLURM does not start here ({name}): {logs}")
            time.sleep(0.05)

    def lose_node(self) -> None:
        """Have the node fail: its daemon and all that it began end at once. It is another one then."""
        node = self._daemons.pop()
        node.kill()
        node.wait()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                settings = environ.read_bytes()
                ours = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
                step = environ.with_name("comm").read_text().strip() == "slurmstepd"
                if ours in settings and (step or b"SLURM_JOB_ID=" in settings):
                    os.kill(int(environ.parent.name), signal.SIGKILL)
        update = ("scontrol", "update", f"NodeName={self._host}")
        self.run(*update, "State=DOWN", "Reason=lost")
        self._start("slurmd", "-D", "-c")
        self.run(*update, "State=RESUME")

    def close(self) -> None:
        self.run("scancel", "--full", "--user", getpass.getuser())
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait()


@pytest.fixture(scope="session")
def one_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    queue = Slurm(tmp_path_factory.mktemp("slurm"))
    yield queue
    queue.close()


@pytest.fixture(scope="session")
def one_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    queue = StandIn(tmp_path_factory.mktemp("queue"))
    yield queue
    queue.close()


@pytest.fixture(params=["one_stand_in", "one_slurm"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Both, one after the other."""
    chosen: Queue = request.getfixturevalue(request.param)
    for name, value in chosen.environment.items():
        monkeypatch.setenv(name, value)
    return chosen


@pytest.fixture
def stand_in(one_stand_in: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    for name, value in one_stand_in.environment.items():
        monkeypatch.setenv(name, value)
    return one_stand_in
