"""A queue as a place: scripts are its jobs, watched and steered over files, ended and started again by it.

On a stand-in for the commands of SLURM; what goes through the most of it also on the real one with one node, where that
is installed and starts. See `tests.slow.slurm_requeue`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from app.engine.watched.follow import WatchedRunControl, follow
from app.features.places import values
from app.features.places.cli import elsewhere
from app.features.places.values import Place
from app.main import main
from app.training.events import Failed, Finished, Noticed, Paused, Started, StepDone
from tapedeck.frames import TRY_AGAIN
from tapedeck.watching import STOPPED
from tapedeck.watching import WAITS as WAITED
from tests.features.places.test_elsewhere import (
    address_of,
    command,
    terminal,
    wait_until,
)
from tests.support.forked_python import run_forked
from tests.support.run_commands import TRAIN, steps
from tests.support.slurm_queue import Queue, one_slurm, one_stand_in, queue, stand_in
from tests.support.ssh_host import SshHost

__all__ = ["one_slurm", "one_stand_in", "queue", "stand_in"]
ROOT = Path(__file__).resolve().parents[3]
PRINTS = "import os, sys; print(sys.argv[1:], os.getcwd()); sys.exit(int(sys.argv[1]))"
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
SAVES_NOTHING = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
print("begun", flush=True)
time.sleep(600)
"""
GOES_ON = """
import os, sys, time
if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    print("begun", flush=True)
    time.sleep(600)
sys.exit(3)
"""
TRAINS = """
import os, sys, time, torch
torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.5)
first = 0
if path := os.environ.get("TAPEDECK_CHECKPOINT"):
    state = torch.load(path, weights_only=True)
    net.load_state_dict(state["models"]["net"])
    optimizer.load_state_dict(state["optimizers"]["optimizer"])
    first = state["step"]
last = int(sys.argv[1])
for step in range(first + 1, last + 1 if last else 10**9):
    loss = net(torch.ones(1, 2) * (step % 7)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
    if not last:
        time.sleep(0.005)
        if os.path.exists("end"):
            break
print("the end")
"""


# A queue that says after step 12 that the time of a job is over soon, once.
ENDS_ONCE = """#!/bin/sh
cd @FOLDER@
(
    until grep -q '"step": 12,' output.txt; do sleep 0.1; done
    [ -e ended ] || { touch ended; kill -USR1 $$; }
) &
exec @COMMAND@
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    return tmp_path / "queue.sbatch"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """What is mirrored here ends with the test."""
    yield
    for mirror in elsewhere._mirrors:
        mirror.communicate()
    elsewhere._mirrors.clear()


@pytest.fixture
def place(queue: Queue, template: Path) -> Queue:
    return added(queue, template)


def added(queue: Queue, template: Path) -> Queue:
    assert main(["places", "add", "cluster", "--slurm", str(template)]) == 0
    return queue


def job_of(address: str) -> str:
    return Path(address.partition(":")[2]).with_name("job").read_text()


def ends(queue: Queue, job: str) -> None:
    """Say to a job that its time is over soon, as `#SBATCH --signal=B:USR1@120` has the queue say it."""
    assert queue.run("scancel", "--signal=USR1", "--batch", job).returncode == 0


@contextmanager
def started_at_once(queue: Queue) -> Iterator[None]:
    """Have the next job start without waiting once it is queued again."""
    job = str(len([*Path(os.environ["STAND_IN_QUEUE"]).glob("job-*.json")]) + 1)

    over = threading.Event()

    def start() -> None:
        while not over.wait(0.5):
            if queue.reason_of(job) == "BeginTime":
                queue.start_now(job)
                return

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def noticed(path: Path, text: str) -> bool:
    return text.encode() in path.read_bytes()


def test_a_template_is_written_to_be_edited_and_named_where_it_is_wrong(
    template, capsys
):
    add = ["places", "add", "cluster", "--slurm", str(template)]
    assert main(add) == 0 and "is new: edit its lines" in capsys.readouterr().err
    text = template.read_text()
    assert "#SBATCH --signal=B:USR1@120" in text and "exec @COMMAND@" in text
    template.write_text("#!/bin/sh\nexec @COMMAND@ --fast\n")
    assert main(add) == 0 and template.read_text().endswith("--fast\n")
    assert values.named("cluster") == Place(
        "cluster", "", sys.executable, str(template)
    )
    template.unlink()
    assert main(["run", "--on", "cluster", "train.py"]) == 1
    assert "the template of cluster, cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\n# @COMMAND@\ntrain\n", "the template lacks @COMMAND@"),
        (
            "#!/bin/sh\nexec @COMAND@\n",
            "the template has @COMAND@; there are @COMMAND@",
        ),
        (
            "#!/bin/sh\n#SBATCH --partition=none\nexec @COMMAND@\n",
            "Invalid partition name specified",
        ),
    ],
)
def test_what_a_queue_does_not_take_is_said_in_a_sentence(
    stand_in, template, capsys, text, says
):
    template.write_text(text)
    added(stand_in, template)
    capsys.readouterr()
    assert main(["places", "check", "cluster"]) == 1
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1, said
    home = Path(os.environ["XDG_STATE_HOME"], "tapedeck", "watched")
    assert not [*home.glob("*-check-*")]


def test_a_machine_without_a_queue_says_so(template, capsys, monkeypatch, tmp_path):
    added(Queue(), template)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", "--on", "cluster", "-m", "this"]) == 1
    assert "there is no sbatch here" in capsys.readouterr().err


def test_a_job_looks_at_what_is_where_jobs_run(stand_in: Queue, template: Path, capsys):
    added(stand_in, template)
    capsys.readouterr()
    assert main(["places", "check", "cluster", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["torch"] == torch.__version__ and facts["lacks"] == []
    assert facts["job"]["job"].isdigit() and facts["executable"] == sys.executable


def test_a_script_runs_as_a_job_as_it_would_in_a_terminal(
    stand_in: Queue, template: Path, tmp_path: Path
):
    added(stand_in, template)
    (tmp_path / "-a b.py").write_text(PRINTS)
    arguments = ["7", "it's", 'a "b"', "-x", "two\nlines", "$HOME", "@NAME@", ""]
    done = subprocess.run(
        command(f"cluster:{tmp_path}", "--quiet", "--", "./-a b.py", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{arguments} {tmp_path}\n", done.stderr
    assert done.returncode == 7
    assert re.search(r"Job \d+ waits in the queue|Job \d+ runs on", done.stderr)


def test_a_job_that_waits_says_why_and_is_cancelled(
    stand_in: Queue, template: Path, tmp_path: Path
):
    place = added(stand_in, template)
    (tmp_path / "train.py").write_text(WAITS)
    place.is_up(False)
    try:
        with terminal(f"cluster:{tmp_path}", "train.py") as process:
            address = address_of(process)
            assert process.stderr is not None
            while "(PENDING, PartitionDown)" not in process.stderr.readline():
                pass
            path = Path(elsewhere.frames_here(address))
            wait_until(lambda: noticed(path, "(PENDING, PartitionDown)"))
            assert place.run("scancel", job_of(address)).returncode == 0
            assert process.wait() == 1
            assert "CANCELLED" in process.stderr.read()
            *_, last = follow(path, every=0.01)
            assert isinstance(last, Failed) and "CANCELLED" in last.message
    finally:
        place.is_up(True)


def test_a_job_is_cancelled_by_what_is_typed(
    stand_in: Queue, template: Path, tmp_path: Path
):
    added(stand_in, template)
    (tmp_path / "train.py").write_text(WAITS)
    near, far = os.openpty()
    with terminal(f"cluster:{tmp_path}", "train.py", stdin=far) as process:
        address = address_of(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.write(near, b"cancel\n")
        wait_until(lambda: stand_in.state_of(job_of(address)) == "CANCELLED")
        assert process.wait() == 128 + 15  # as of a script that SIGTERM ended
    os.close(near)
    os.close(far)


def test_a_job_is_watched_and_steered_over_files_and_goes_on_when_it_is_queued_again(
    place: Queue, tmp_path: Path
):
    (tmp_path / "train.py").write_text(TRAINS)
    with terminal(f"cluster:{tmp_path}", "train.py", "0") as process:
        address = address_of(process)
        job, path = job_of(address), Path(elsewhere.frames_here(address))
        control, events, starts = WatchedRunControl(), [], []
        for event in follow(path, control, 0.01):
            events.append(event)
            match event:
                case StepDone() if event.step == 20:
                    control.pause()
                case Paused():
                    # A script that is held ends all the same.
                    rate = control.ask("rate", rate=0.02)
                    rate.add_done_callback(lambda _: ends(place, job))
                case Noticed() if "(PENDING, BeginTime)" in event.message:
                    place.start_now(job)
                case Started():
                    starts.append(event.resumed_at)
                case StepDone() if starts[1:] and event.step == starts[1] + 20:
                    (tmp_path / "end").touch()
        assert process.stdout is not None and process.wait() == 0
        printed = [line.split() for line in process.stdout if line[0].isdigit()]
    assert isinstance(events[-1], Finished) and events[-1].reason == "done"
    done = [event for event in events if isinstance(event, StepDone)]
    assert starts[0] == 0 and starts[1] >= 20 and len(starts) == 2
    assert [event.step for event in done] == [*range(1, len(done) + 1)]
    last_of_first = starts[1]  # in which it was ended, before it printed
    others = [event for event in done if event.step != last_of_first]
    assert [[str(e.step), e.loss.hex()] for e in others] == printed
    assert [e.rate for e in done[starts[1] :]] == [0.02] * (len(done) - starts[1])
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(done))


def test_a_script_that_is_told_to_stop_does_not_say_that_it_goes_on(
    stand_in: Queue, template: Path, tmp_path: Path
):
    added(stand_in, template)
    (tmp_path / "train.py").write_text(TRAINS)
    with terminal(f"cluster:{tmp_path}", "train.py", "0") as process:
        path = Path(elsewhere.frames_here(address_of(process)))
        control, events = WatchedRunControl(), []
        for event in follow(path, control, 0.01):
            events.append(event)
            if isinstance(event, StepDone) and event.step == 5:
                control.ask("interrupt", saves=True)
        assert process.wait() == TRY_AGAIN
    *before, last = events
    assert isinstance(last, Finished) and last.note == STOPPED.note
    assert not any(isinstance(e, Noticed) and e.message == WAITED for e in before)


def test_a_script_that_saves_nothing_is_not_queued_again_for_ever(
    stand_in: Queue, template: Path, tmp_path: Path
):
    added(stand_in, template)
    (tmp_path / "train.py").write_text(SAVES_NOTHING)
    with terminal(f"cluster:{tmp_path}", "train.py") as process:
        address = address_of(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        ends(stand_in, job_of(address))
        assert "no checkpoint was saved" in process.stdout.read()
        assert process.wait() == 75


def test_a_script_goes_on_whose_node_is_lost_and_back_before_its_first_step(
    place: Queue, tmp_path: Path
):
    (tmp_path / "train.py").write_text(GOES_ON)
    with terminal(f"cluster:{tmp_path}", "train.py") as process:
        job = job_of(address_of(process))
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        place.lose_node()
        wait_until(
            lambda: process.poll() is not None or place.reason_of(job) == "BeginTime"
        )
        if process.poll() is None:
            place.start_now(job)
        assert process.wait() == 3


def test_a_project_that_a_queue_ends_and_starts_again_has_the_losses_of_its_script(
    stand_in: Queue, template: Path, tmp_path: Path, capfdbinary
):
    template.write_text(ENDS_ONCE)
    added(stand_in, template)
    out = tmp_path / "out"
    given = ["--at", "cluster", "--epochs", "2", "--json", "--save-every", "5"]
    with started_at_once(stand_in):
        assert main([*TRAIN, *given, "--out", str(out)]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    printed = [line for line in lines if line.startswith("{")]
    starts = [
        json.loads(line).get("resumed_at", 0) for line in printed if '"started"' in line
    ]
    assert len(starts) == 2 and starts[1] >= 12
    options = ("--device", "cpu", "--json")
    here = run_forked(out / "train.py", *options, cwd=tmp_path)
    assert here.returncode == 0, here.stderr
    assert steps(here.stdout) == steps("\n".join(printed)) != []
    told = [
        json.loads(line) for line in (out / "frames.jsonl").read_text().splitlines()
    ]
    followed = [(e["step"], e["loss"]) for e in told if e["event"] == "step"]
    assert followed == steps("\n".join(printed)) and told[-1]["reason"] == "done"
    there, again = (
        torch.load(path, weights_only=True)
        for path in (out / "weights.pt", tmp_path / "trained" / "weights.pt")
    )
    assert all(torch.equal(there[name], again[name]) for name in again)


def test_a_queue_behind_ssh_is_the_login_node_s(
    stand_in: Queue, ssh_host: SshHost, template: Path
):
    """What a shell there finds on its way is there: the commands of the queue."""
    (ssh_host.home / "train.py").write_text(PRINTS)
    settings = " ".join(
        f"{name}='{value}'" for name, value in stand_in.environment.items()
    )
    add = ["places", "add", "cluster", "--ssh", "box", "--slurm", str(template)]
    assert main([*add, "--python", f"env {settings} {sys.executable}"]) == 0
    done = subprocess.run(
        command("cluster", "train.py", "3"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"['3'] {ssh_host.home}\n", done.stderr
    assert done.returncode == 3 and "Job" in done.stderr
