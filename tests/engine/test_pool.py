"""Where processes come from: copies of a fork server that cannot be told from fresh ones, and that nothing outlives."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.engine import child_process, fork_server, pool
from app.engine.entries import ENTRIES
from tests.engine.test_child import alive, wait_for
from tests.support.forked_python import SCRIPT
from tests.support.light_fork_server import LIGHT, own_server

__all__ = ["own_server"]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the fork server is Linux's"
)

ROOT = Path(__file__).resolve().parents[2]
TELLS = (
    "import json, os, sys\ndef tell(**found): print(json.dumps(found), flush=True)\n"
)

Start = Callable[..., pool.Child]


@pytest.fixture
def begin(tmp_path: Path) -> Start:
    """Start a process that runs a text; with `fresh` without the fork server."""

    def start(
        text: str,
        *words: str,
        fresh: bool = False,
        cwd: Path | None = None,
        **extra: str,
    ) -> pool.Child:
        script = tmp_path / "script.py"
        script.write_text(TELLS + text)
        arguments = [str(script), *words]
        if fresh:
            return child_process.start(
                ["-P", "-m", "app.engine.entries", ENTRIES[SCRIPT], *arguments],
                extra,
                cwd,
            )
        return pool.start(SCRIPT, extra, cwd, arguments=arguments)

    return start


def output_of(child: pool.Child) -> Any:
    """What a process says, which then ends in good order."""
    assert (
        child.stdin is not None
        and child.stdout is not None
        and child.stderr is not None
    )
    child.stdin.close()
    said, errors = child.stdout.read(), child.stderr.read()
    child.stdout.close()
    child.stderr.close()
    assert child.wait(300) == 0, errors.decode()
    return json.loads(said)


def server() -> int:
    """The id of the fork server."""
    assert pool._state.server is not None
    return pool._state.server._process.pid


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_it_is_given_what_a_fresh_process_would_be_given_and_its_answer_and_end_come_back(
    begin, tmp_path, monkeypatch
):
    monkeypatch.setenv("SAID", "later than the server was there")
    text = (
        "tell(words=sys.argv[1:], cwd=os.getcwd(), said=os.environ['SAID'], extra=os.environ['EXTRA'], line=input(),"
        " own=os.getsid(0) == os.getpid() == os.getpgid(0), pid=os.getpid(), parent=os.getppid())\nsys.exit(3)"
    )
    child = begin(text, "a", "b", cwd=tmp_path, EXTRA="more")
    assert child.poll() is None and child.returncode is None
    child.stdin.write(b"hello\n")
    child.stdin.flush()
    found = json.loads(child.stdout.readline())
    assert (found.pop("pid"), found.pop("parent")) == (child.pid, server())
    assert found == {
        "words": ["a", "b"],
        "cwd": str(tmp_path),
        "said": "later than the server was there",
        "extra": "more",
        "line": "hello",
        "own": True,
    }
    assert child.wait(300) == child.poll() == child.returncode == 3


def test_what_it_says_last_is_on_its_stderr(begin):
    child = begin("raise SystemExit('no good')")
    assert child.stderr.read() == b"no good\n" and child.wait(300) == 1


NUMBERS = """
import hashlib, random, numpy as np, torch
from torch import nn
def digest(*found): return hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in found)).hexdigest()
random.seed(1); np.random.seed(2); torch.manual_seed(3)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(8 * 900, 300))
optimizer = torch.optim.AdamW(net.parameters(), 0.01)
losses = []
for _ in range(4):
    loss = net(torch.randn(16, 3, 32, 32)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); losses.append(loss.item())
a = np.random.rand(700, 700)
tell(torch=digest(*(one.detach() for one in net.parameters()), losses), threads=torch.get_num_threads(),
     numpy=digest(a @ a, np.linalg.eigvalsh(a)), python=random.random(),
     modes=[torch.is_grad_enabled(), torch.get_default_dtype() is torch.float32, __name__, sys.stdout.line_buffering,
            sys.flags.safe_path, signal.getsignal(signal.SIGINT) is signal.default_int_handler, gc.isenabled()])
"""


def test_with_the_same_seeds_it_has_the_numbers_of_a_fresh_process_bit_for_bit(begin):
    """Also with another number of threads than the fork server has loaded its libraries for."""
    text, other = (
        f"import gc, signal\n{NUMBERS}",
        str(3 - int(os.environ["OMP_NUM_THREADS"])),
    )
    threads = {"OMP_NUM_THREADS": other, "MKL_NUM_THREADS": other}
    forked, fresh = (
        output_of(begin(text, **threads)),
        output_of(begin(text, fresh=True, **threads)),
    )
    assert forked == fresh and forked["threads"] == int(other)
    assert output_of(begin(text))["threads"] == int(os.environ["OMP_NUM_THREADS"])


def test_all_that_is_loaded_ahead_is_there(begin):
    names = fork_server.own_modules()
    assert len(names) > 15
    text = f"""
missing = [name for name in {names} if name not in sys.modules]
from app.builder.catalog.catalog import catalog
tell(missing=missing, made=catalog.cache_info().currsize)
"""
    assert output_of(begin(text)) == {"missing": [], "made": 1}


def test_without_a_seed_no_two_have_the_same_random_numbers(begin):
    text = (
        "import random, numpy, torch\n"
        "tell(torch=torch.rand(1).item(), python=random.random(), numpy=float(numpy.random.rand()))"
    )
    one, other = output_of(begin(text)), output_of(begin(text))
    assert all(one[name] != other[name] for name in one)


def test_what_a_library_reads_when_it_is_loaded_is_read_by_a_fresh_one(begin):
    text = "tell(parent=os.getppid(), debug=sys.flags.dev_mode)"
    assert output_of(begin(text))["parent"] != os.getpid()
    assert output_of(begin(text, PYTHONDEVMODE="1")) == {
        "parent": os.getpid(),
        "debug": True,
    }


def test_of_a_killed_one_is_known_which_signal_it_was(begin):
    child = begin("tell()\ninput()")
    child.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    os.kill(child.pid, signal.SIGSTOP)
    assert child.poll() is None
    os.kill(child.pid, signal.SIGSEGV)
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(300) == -signal.SIGSEGV
    child = begin("input()")
    child.kill()
    assert child.wait(300) == -signal.SIGKILL
    child.kill()  # has nothing to do any more


def test_a_killed_fork_server_takes_its_processes_along_and_the_next_one_is_forked_off_another(
    begin, own_server
):
    child = begin("tell()\ninput()")
    child.stdout.readline()
    before = server()
    os.kill(before, signal.SIGKILL)
    assert child.wait(300) == -signal.SIGKILL and not alive(child.pid)
    wait_for(
        lambda: not alive(before)
    )  # its processes end first, and one that is amid its end is asked in vain
    assert output_of(begin("tell(parent=os.getppid())"))["parent"] == server() != before


def test_one_that_dies_while_it_is_asked_is_replaced_by_a_fresh_process(
    begin, own_server, monkeypatch
):
    output_of(begin("tell()"))
    monkeypatch.setattr(pool._Server, "ready", lambda _self: True)
    os.kill(before := server(), signal.SIGKILL)
    wait_for(lambda: not alive(before))
    assert output_of(begin("tell(parent=os.getppid())"))["parent"] == os.getpid()


def test_one_that_stands_still_is_not_waited_for(begin, own_server, monkeypatch):
    output_of(begin("tell()"))
    monkeypatch.setattr(pool, "ANSWERS", 0.1)
    os.kill(before := server(), signal.SIGSTOP)
    assert output_of(begin("tell(parent=os.getppid())"))["parent"] == os.getpid()
    wait_for(lambda: not alive(before))


def test_many_in_a_row_leave_nothing_behind(begin):
    def files(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    output_of(begin("tell()"))
    others = set(
        children(server())
    )  # an engine that other tests share may be there, and may end amid this one
    gc.collect()
    before = files(os.getpid()), files(server())
    for _ in range(20):
        assert (
            output_of(begin("tell(files=len(os.listdir('/proc/self/fd')))"))["files"]
            < 12
        )
    wait_for(lambda: set(children(server())) <= others)
    gc.collect()
    # A leak would be one file a process, twenty. Fewer than before is no fault: what earlier tests left is collected
    # amid this one, and the server closes its ends when it has seen each.
    wait_for(
        lambda: files(os.getpid()) < before[0] + 10 and files(server()) < before[1] + 10
    )
    assert len(list(Path(f"/proc/{server()}/task").iterdir())) == 1


def test_what_cannot_be_started_is_said_before(begin, tmp_path):
    with pytest.raises(FileNotFoundError):
        begin("", cwd=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="'shell' is none of engine, script"):
        pool.start("shell")


def test_where_there_is_no_fork_server_a_fresh_process_is_started(begin, monkeypatch):
    monkeypatch.setattr(pool._state, "wanted", False)
    assert output_of(begin("tell(parent=os.getppid())"))["parent"] == os.getpid()


def test_one_that_cannot_be_forked_says_why_and_processes_are_fresh(
    begin, own_server, monkeypatch, capfd
):
    """As if a library had started a thread while it was loaded."""
    threaded = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    monkeypatch.setattr(own_server, "program", f"{threaded}\n{LIGHT}")
    assert output_of(begin("tell(parent=os.getppid())"))["parent"] == os.getpid()
    assert (
        "The fork server has 2 threads and cannot be forked" in capfd.readouterr().err
    )


_PARENT = """
import sys
from app.engine import pool
from tests.support.forked_python import SCRIPT
from tests.support.light_fork_server import LightServers
pool.subprocess.Popen = LightServers().start
pool.prepare()
child = pool.start(SCRIPT, arguments=[sys.argv[1]])
print(pool._state.server._process.pid, child.pid, child.stdout.readline().decode().strip(), flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_program_that_is_killed(tmp_path):
    script, pipe = tmp_path / "script.py", subprocess.PIPE
    script.write_text(
        "import os\nif os.fork():\n    print(os.getpid(), flush=True)\nwhile True: pass"
    )
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(script)], stdin=pipe, stdout=pipe, cwd=ROOT
    ) as parent:
        fork_server, child, same = map(int, parent.stdout.readline().split())
        assert child == same and alive(child)
        family = [fork_server, child]
        os.kill(parent.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(alive, family)))
    child_process.end_group(child)  # what it forked itself is its own affair


def test_a_program_that_ends_while_the_fork_server_loads_ends_at_once_and_takes_it_along():
    program = (
        "from app.engine import pool\npool.prepare()\nwhile pool._state.server is None: pass\n"
        "print(pool._state.server._process.pid, pool._state.server._loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    pid, loaded = done.stdout.split()
    wait_for(lambda: not alive(int(pid)))
    assert loaded == "False" and not done.stderr


def test_one_that_outlives_the_modules_of_a_program_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipes = pool._Pipes()
    child = pool._Forked(os.getpid(), os.dup(0), pipes)
    monkeypatch.delattr(pool, "contextlib")
    child.__del__()
    assert pipes.stderr.closed and pipes.status.closed
    for number in pipes.theirs:
        os.close(number)
