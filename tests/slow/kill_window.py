"""kill -9 of the real window at random moments of editing: what is lost, what is offered, what is left lying about?

A window is edited by mouse and keys (see `material.driven_window`), killed with signal 9, and started again; that start
has to offer what was not saved, and the person takes it. Some are killed in the midst of a save, some while the journal
is written, some have a project without a file, some train meanwhile.

    python -m tests.slow.kill_window --kills 100
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.project import file as project_file
from app.project import file_lock
from app.project.file import ProjectFileError
from app.project.project import Project
from app.util.resources import path as resource_path

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = (
    "editing",
    "editing",
    "editing",
    "saving",
    "saving",
    "journal",
    "untitled",
    "untitled",
    "journal",
    "run",
)
LONGEST = 6.0  # seconds of editing
PATIENCE = 120.0  # seconds that a start may take on a busy machine
LEFT_BEHIND = 20.0  # seconds in which processes of a killed window have to end and its files to go


def digest(project: Project) -> str:
    """What tells one state of a project from another."""
    return hashlib.sha256(project_file.dumps(project)).hexdigest()[:16]


class Trouble(RuntimeError):
    """The window did not do what it has to."""


@dataclass
class Life:
    """What a window told: each state in its order, and when it came about."""

    moment: str
    states: list[tuple[float, str]] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)  # states that the file may hold
    journalled: list[str] = field(
        default_factory=list
    )  # since the journal was last empty
    running: bool = False
    killed: float = 0.0

    def lost(self, state: str) -> float | None:
        """Seconds between the oldest edit that is not in a state and the kill; 0 if all are, None if it never was."""
        places = [
            place for place, (_, known) in enumerate(self.states) if known == state
        ]
        if not places:
            return None
        return (
            self.killed - self.states[places[-1] + 1][0]
            if places[-1] + 1 < len(self.states)
            else 0.0
        )


@dataclass
class Outcome:
    """Counts over all kills; `troubles` are what must not be."""

    kills: int = 0
    unsaved: int = 0
    young: int = 0  # kills before the first unsaved edit had reached the disk
    offered: int = 0
    longest: float = 0.0
    edits: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        how = ", ".join(
            f"{count} {moment}" for moment, count in sorted(self.moments.items())
        )
        return (
            f"{self.kills} kills ({how}) amid {self.edits} edits: at most {self.longest:.1f} s lost, recovery offered "
            f"{self.offered} of {self.unsaved} times that work was unsaved ({self.young} more had nothing but edits of "
            f"the last moment), {len(self.troubles)} faults (torn files, wrong states, missing offers, files or "
            "processes left behind)"
        )


class Window:
    """A driven window in a process of its own."""

    def __init__(self, home: Path, mode: str, seed: int, file: Path) -> None:
        environment = {
            **os.environ,
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "PYTHONPATH": str(ROOT),
        }
        for name in ("CONFIG", "DATA", "CACHE", "STATE"):
            environment[f"XDG_{name}_HOME"] = str(home / name.lower())
        environment.setdefault("QT_QPA_PLATFORM", "offscreen")
        command = [
            sys.executable,
            "-m",
            "tests.slow.material.driven_window",
            mode,
            str(seed),
            str(file),
        ]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=home / "work",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._looking = selectors.DefaultSelector()
        self._looking.register(self._process.stdout, selectors.EVENT_READ)
        self._half = b""
        self._lines: list[list[str]] = []
        self.pid = self._process.pid

    def lines(self, seconds: float) -> Iterator[list[str]]:
        """The lines that come within some seconds, as words."""
        until = time.monotonic() + seconds
        while True:
            while self._lines:
                yield self._lines.pop(0)
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                return

    def _read(self, seconds: float) -> bool:
        """Take what has come; False at the end."""
        if not self._looking.select(seconds):
            return True
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        *whole, self._half = (self._half + data).split(b"\n")
        self._lines += [line.decode().split(" ") for line in whole]
        return bool(data)

    def wait_for(self, *words: str) -> list[str]:
        """The next line that begins with one of some words. Raises Trouble."""
        for line in self.lines(PATIENCE):
            if line[0] == "fault":
                raise Trouble(" ".join(line))
            if line[0] in words:
                return line
        raise Trouble(f"no {' or '.join(words)}: {self.end()}")

    def kill(self) -> list[list[str]]:
        """End it with signal 9; what it told until then."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        rest = list(self.lines(5.0))
        self._looking.close()
        return rest

    def end(self) -> str:
        """End it; the last that it wrote to stderr."""
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        told = self._process.stderr.read() if not self._process.stderr.closed else b""
        self._process.stderr.close()
        return told.decode("utf-8", "replace")[-800:]


def live(window: Window, life: Life, choose: random.Random) -> None:
    """Follow a window until the moment at which it is to die, and kill it."""
    begin = window.wait_for("ready")
    life.states.append((time.monotonic(), begin[1]))
    life.saved.append(begin[1])
    if life.moment == "run":
        window.wait_for("running")
        life.running = True
    wanted = life.moment if life.moment in ("saving", "journal") else ""
    count = choose.randint(1, 3)
    until, latest = (
        time.monotonic() + choose.uniform(0.3, LONGEST),
        time.monotonic() + PATIENCE,
    )
    while count and time.monotonic() < (
        latest if wanted or len(life.states) == 1 else until
    ):
        for line in window.lines(0.01):
            _note(life, line)
            count -= wanted == line[0]
            if not count:
                break
    time.sleep(choose.random() * 0.02)
    life.killed = time.monotonic()
    for line in window.kill():
        _note(life, line)


def _note(life: Life, line: list[str]) -> None:
    if line[0] == "fault":
        raise Trouble(" ".join(line))
    if line[0] == "edit":
        life.states.append((float(line[1]), line[2]))
    elif line[0] in ("saving", "saved"):
        life.saved.append(line[1])
    elif line[0] == "journalled":
        life.journalled.append(line[1])
    elif line[0] == "cleared":  # saved, or undone to what is saved
        life.journalled.clear()


def safe_state(life: Life, file: Path) -> str:
    """The state that a killed window had outside of its journal: in the file, or the example that it had begun with."""
    try:
        in_file = digest(project_file.read(file))
    except (OSError, ProjectFileError) as error:
        raise Trouble(f"the file is torn: {error}") from error
    if life.moment in ("untitled", "run"):
        return life.states[0][1]
    if in_file not in life.saved:
        raise Trouble("the file holds what was never saved")
    return in_file


def judge(
    window: Window, before: Life, state: str, file: Path, home: Path, outcome: Outcome
) -> None:
    """What the start after a kill offers, held against what the killed window had; `state` is safe anyway."""
    outcome.kills += 1
    outcome.moments[before.moment] += 1
    outcome.edits += len(before.states) - 1
    unsaved = before.states[-1][1] != state
    offers = int(window.wait_for("offers")[1])
    if offers > 1:
        raise Trouble(f"{offers} offers of one window")
    if offers:
        state = window.wait_for("restored")[1]
    lost = before.lost(state)
    if lost is None:
        raise Trouble("what was restored never was")
    if unsaved and not offers and not before.journalled:
        outcome.young += 1
    elif unsaved:
        outcome.unsaved += 1
        outcome.offered += bool(offers)
        if not offers:
            outcome.troubles.append(
                f"{before.moment}: nothing was offered, {lost:.1f} s lost"
            )
    outcome.longest = max(outcome.longest, lost)
    if (told := window.wait_for("settled", "banner", "refused"))[0] != "settled":
        raise Trouble(f"restoring ended with {' '.join(told)}")
    for stray in _strays(window, file, home):
        outcome.troubles.append(f"{before.moment}: left behind: {stray}")


def _strays(window: Window, file: Path, home: Path) -> list[str]:
    """Files and processes of the killed window that are still there after a while."""
    until = time.monotonic() + LEFT_BEHIND
    while (
        found := [
            *_files_left(file, home, window.pid),
            *_processes_left(home, window.pid),
        ]
    ) and (time.monotonic() < until):
        time.sleep(0.1)
    return found


def _files_left(file: Path, home: Path, pid: int) -> list[str]:
    """Journals, locks and temporary files that are not of the process `pid`."""
    journals = sorted((home / "data" / "Tapedeck" / "journal").glob("*"))
    hidden = [
        path for path in file.parent.rglob(".*") if path.name != ".lock"
    ]  # which the folder of a run has
    temporary = [
        *(home / "tmp").glob("*tapedeck-*"),
        *(home / "data").rglob(".tapedeck-*"),
    ]
    locks = [
        path
        for path in (*journals, *hidden)
        if path.suffix == ".lock" and _says(path, pid)
    ]
    mine = {*locks, *(path.with_suffix(".journal") for path in locks)}
    left = [
        path
        for path in (*journals, *hidden, *temporary)
        if path not in mine and f"-{pid}-" not in path.name
    ]
    return [str(path.relative_to(home)) for path in left]


def _says(lock: Path, pid: int) -> bool:
    """Whether a lock file names a process."""
    return re.search(rf'"pid": ?{pid}\b', file_lock.note_in(lock)) is not None


def _processes_left(home: Path, pid: int) -> list[str]:
    """Processes that have this home and are not the window or what it has started."""
    found = []
    for each in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        try:
            if (
                each.name.isdecimal()
                and f"HOME={home}\0".encode() in (each / "environ").read_bytes()
            ):
                if (
                    int(each.name) != pid
                    and f"TAPEDECK_PARENT={pid}\0".encode()
                    not in (each / "environ").read_bytes()
                ):
                    found.append(f"process {each.name}")
        except OSError:
            continue
    return found


def lane(
    home: Path, kills: int, seed: int, outcome: Outcome, lock: threading.Lock
) -> None:
    """One person at one home: a window after another."""
    choose = random.Random(seed)
    for folder in ("work", "tmp"):
        (home / folder).mkdir(parents=True)
    file = home / "work" / "net.tape"
    project_file.write(
        project_file.read(resource_path("examples", "digits.tape")), file
    )
    moments = list(MOMENTS) * (kills // len(MOMENTS) + 1)
    moments = moments[:kills]
    choose.shuffle(moments)
    before: Life | None = None
    for number, moment in enumerate([*moments, ""]):
        mode = (
            "run" if moment == "run" else "untitled" if moment == "untitled" else "file"
        )
        life, window = Life(moment), None
        try:
            state = safe_state(before, file) if before is not None else ""
            window = Window(home, mode, seed * 1000 + number, file)
            if before is not None:
                mine = Outcome()
                judge(window, before, state, file, home, mine)
                with lock:
                    _add(outcome, mine)
            if moment:
                live(window, life, choose)
                before = life
        except Trouble as error:
            with lock:
                outcome.troubles.append(
                    f"{before.moment if before else moment}: {error}"
                )
            before = None
        finally:
            if window is not None:
                window.end()


def _add(to: Outcome, more: Outcome) -> None:
    to.kills += more.kills
    to.unsaved += more.unsaved
    to.offered += more.offered
    to.edits += more.edits
    to.young += more.young
    to.longest = max(to.longest, more.longest)
    to.moments += more.moments
    to.troubles += more.troubles
    if sys.stderr.isatty() or os.environ.get("KILL_WINDOW_VERBOSE"):
        print(to, *more.troubles, sep="\n", file=sys.stderr, flush=True)


def killed(folder: Path, kills: int, seed: int, lanes: int) -> Outcome:
    """Kill a window so many times, in several homes at once, and count."""
    outcome, lock = Outcome(), threading.Lock()
    share = [kills // lanes + (number < kills % lanes) for number in range(lanes)]
    threads = [
        threading.Thread(
            target=lane,
            args=(folder / f"home{number}", count, seed + number, outcome, lock),
        )
        for number, count in enumerate(share)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--lanes",
        type=int,
        default=2,
        help="windows at once, each of a person of its own (2)",
    )
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = killed(Path(folder), options.kills, options.seed, options.lanes)
    for trouble in outcome.troubles:
        print(trouble)
    print(f"{outcome}, {time.monotonic() - began:.0f} s")
    return (
        1
        if outcome.troubles or outcome.kills != options.kills or outcome.longest > 10
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
