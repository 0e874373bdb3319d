"""Nobody else can join a run on several processes: they listen on loopback alone, and meet in a private folder."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest
import torch

from app.engine import run_process
from app.engine.remote_control import RemoteControl
from app.export.train_script import training_script
from app.training.events import Failed, Finished, Started, StepDone
from tests.engine.test_child import wait_for
from tests.support.forked_popen import with_forks
from tests.support.forked_python import start_forked
from tests.support.listening import listening, outer_address, tree
from tests.support.training_jobs import job, net
from tests.training.test_ranks import PLAIN_NET, TWO, ranks

__all__ = ["ranks"]
NOBODY = 65534

pytestmark = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="sockets are looked up in /proc"
)


def _is_refused(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def _stranger_cannot_read(store: Path) -> None:
    """Another person of this machine neither sees nor writes the file over which the processes meet."""
    assert (
        stat.S_IMODE(store.parent.stat().st_mode) == 0o700
        and store.parent.stat().st_uid == os.getuid()
    )
    if os.getuid() == 0:  # who may become somebody else tries it
        as_nobody = {
            "user": NOBODY,
            "group": NOBODY,
            "extra_groups": [],
            "env": {"LC_ALL": "C", "FILE": str(store)},
        }
        for line in ('cat "$FILE"', 'echo x >> "$FILE"', 'ls "$(dirname "$FILE")"'):
            done = subprocess.run(
                ["/bin/sh", "-c", line],
                capture_output=True,
                text=True,
                cwd="/",
                **as_nobody,
            )
            assert (
                done.returncode
                and "ermission denied" in done.stderr
                and not done.stdout
            )


def test_two_processes_are_reached_from_loopback_alone_and_no_stranger_joins(
    ranks, monkeypatch
):
    stores = []
    temporary = run_process.TemporaryFolder

    def kept():
        stores.append(temporary())
        return stores[-1]

    monkeypatch.setattr(run_process, "TemporaryFolder", kept)
    monkeypatch.setenv(
        "GLOO_SOCKET_IFNAME", "eth0"
    )  # what is right between machines is not taken over
    control = RemoteControl(2)
    found, seen = [], False
    for event in run_process.train(job(PLAIN_NET, epochs=1000), control, place=TWO):
        if isinstance(event, StepDone) and not seen:
            seen = True
            assert len(ranks) == 2 and set(ranks) <= set(tree(os.getpid()))
            found = listening(tree(os.getpid()))
            assert all(address.is_loopback for address, _port in found), found
            outer = outer_address()
            assert outer is None or all(
                _is_refused(outer, port) for _address, port in found
            )
            (store,) = (
                path for one in stores if (path := Path(one.name) / "store").exists()
            )
            _stranger_cannot_read(store)
            control.stop()
    assert isinstance(event, Finished), getattr(event, "traceback", event)
    assert len(found) == 2 and event.reason == "stopped"
    assert not any(Path(one.name).exists() for one in stores)


def test_what_is_found_to_listen_on_every_interface_is_told(tmp_path):
    """The test above would see it."""
    with socket.socket() as everywhere, socket.socket() as here:
        for one, address in ((everywhere, "0.0.0.0"), (here, "127.0.0.1")):
            one.bind((address, 0))
            one.listen()
        found = dict((port, address) for address, port in listening([os.getpid()]))
        assert (
            not found[everywhere.getsockname()[1]].is_loopback
            and found[here.getsockname()[1]].is_loopback
        )


def test_one_that_is_killed_ends_the_others_and_is_told_in_one_line(ranks, capfd):
    for event in run_process.train(job(PLAIN_NET, epochs=100_000), place=TWO):
        if isinstance(event, StepDone) and event.step == 3:
            os.kill(ranks[0], signal.SIGKILL)
    assert isinstance(event, Failed)
    assert (
        "One of the 2 processes was ended" in event.message
        and "SIGKILL" in event.message
    )
    assert "No checkpoint had been saved" in event.cure and not capfd.readouterr().err


def test_an_error_of_one_is_told_as_its_own_and_not_as_a_lost_connection(ranks, capfd):
    lines = [
        "if int(__import__('os').environ['RANK']): raise ValueError('the second one cannot')"
    ]
    source = net(
        ["self.linear1 = nn.Linear(64, 10)"],
        [*lines, "return self.linear1(x.flatten(1))"],
    )
    *_, failed = run_process.train(job(source), place=TWO)
    assert isinstance(failed, Failed) and failed.message.endswith(
        "ValueError: the second one cannot"
    )
    assert "Traceback" in failed.traceback and not capfd.readouterr().err


def test_the_exported_script_starts_processes_that_are_reached_from_loopback_alone(
    tmp_path,
):
    """`python train.py --processes 2`: the losses of the run, on loopback, and an end that takes all of them along."""
    a_job = job(PLAIN_NET, epochs=100_000)
    (tmp_path / "model.py").write_text(a_job.source.text)
    (tmp_path / "train.py").write_text(training_script(a_job))
    program = with_forks(
        tmp_path,
        "import runpy\nsys.argv[0] = 'train.py'\nrunpy.run_path('train.py', {}, '__main__')\n",
    )
    script = start_forked(program, "--processes", "2", "--json", cwd=tmp_path)
    lines = iter(script.stdout.readline, b"")
    assert b'"started"' in next(lines) and b'"step"' in next(lines)
    pids = tree(script.pid)
    found = listening(pids)
    assert (
        len(pids) == 3
        and len(found) == 2
        and all(address.is_loopback for address, _port in found)
    )
    os.kill(next(pid for pid in pids if pid != script.pid), signal.SIGKILL)
    script.stdout.read()
    # The other one, whose connection is lost then, may have ended by the same look at both.
    assert script.wait() in (signal.SIGKILL, 1)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="NCCL wants a GPU of its own for each of two processes",
)
def test_a_cuda_run_keeps_nccl_to_loopback(ranks):
    control = RemoteControl(2)
    for event in run_process.train(
        job(PLAIN_NET, epochs=1000, device="cuda"), control, place=TWO
    ):
        if isinstance(event, Started):
            assert event.device.startswith("cuda")
        if isinstance(event, StepDone) and event.step == 2:
            assert all(address.is_loopback for address, _port in listening(ranks))
            control.stop()
    assert isinstance(event, Finished)
