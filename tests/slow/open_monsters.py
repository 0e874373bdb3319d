"""Open project files that are far larger than any net in the real window: what is said, and how long it stands still.

    python -m tests.slow.open_monsters [--only WORDS] [--limit SECONDS]

Every file of `monsters` is opened in a window that holds another project with an edit. A timer of 4 ms notes the
longest time between two turns of the event loop while it is opened and checked, while a layer is added and taken back,
and while the next project takes its place. What is refused must leave the open project, its edit and its undo as they
were.
On a machine that does other work a gap is longer than it need be: `own` is the part of it in which this process
computed, on any thread, which is what counts; `thread` is what the window's thread computed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, process_time, sleep, thread_time
from typing import Any

from msgspec.structs import replace

from tests.slow.material import monsters

ROOT = Path(__file__).resolve().parents[2]
TURN = 4  # milliseconds between two turns of an event loop that has nothing to do
MOST = 100.0  # milliseconds that a window may stand still
QUIET = 0.7  # seconds without work after which a window has settled


@dataclass
class Gap:
    """A time between two turns, in milliseconds, and what the process and the window's thread computed in it."""

    wall: float = 0.0
    process: float = 0.0
    thread: float = 0.0

    @property
    def own(self) -> float:
        return min(self.wall, self.process)

    def __str__(self) -> str:
        return f"{self.own:.0f} ms (wall {self.wall:.0f}, thread {self.thread:.0f})"


class Sampler(threading.Thread):
    """Looks every few milliseconds where the window's thread is in the turn under way."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._window = threading.get_ident()
        self._seen: Counter[str] = Counter()

    def run(self) -> None:
        while True:
            sleep(0.004)
            frames = traceback.extract_stack(sys._current_frames()[self._window])
            names = [
                f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}"
                for frame in frames
            ]
            self._seen[" > ".join(names[-6:])] += 1

    def take(self) -> list[str]:
        """Where it was since the last question."""
        seen, self._seen = self._seen, Counter()
        return [f"{count} x {where}" for where, count in seen.most_common(6)]


def child(limit: float, where: bool) -> None:
    """Open the files whose paths come on stdin, one after the other; a line of JSON for each."""
    from PySide6.QtCore import QEventLoop, QObject, Qt, QTimer

    from app.util.resources import path as resource_path
    from app.views.app import make_application
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    settings = Settings("TapedeckBench", "monsters")
    window = WholeWindow(settings)
    window.resize(1280, 800)
    window.show()
    told: list[str] = []
    window.files.refused.connect(
        lambda title, reason: told.append(f"{title}: {reason}")
    )
    sys.excepthook = lambda kind, error, _trace: told.append(
        f"TRACEBACK {kind.__name__}: {error}"
    )

    class Heart(QObject):
        def __init__(self) -> None:
            super().__init__(window)
            self.longest = Gap()
            self.where: list[str] = []
            self.told: list[str] = []
            self._timer = QTimer(self, interval=TURN, timeout=self.beat)
            self._timer.setTimerType(Qt.TimerType.PreciseTimer)
            self._last = perf_counter(), process_time(), thread_time()
            self._timer.start()

        def beat(self) -> None:
            now = perf_counter(), process_time(), thread_time()
            gap = Gap(
                *(
                    1000 * (after - before)
                    for after, before in zip(now, self._last, strict=True)
                )
            )
            seen = sampler.take() if sampler is not None else []
            if gap.own > self.longest.own:
                self.longest, self.where = gap, seen
            self._last = now

        def take(self) -> str:
            self.beat()
            gap, self.longest = self.longest, Gap()
            self.told += self.where
            return str(gap)

    def spin(seconds: float) -> None:
        loop = QEventLoop()
        QTimer.singleShot(round(1000 * seconds), loop.quit)
        loop.exec()

    def settle() -> bool:
        """Wait until nothing is asked any more; False if that takes longer than the limit."""
        began = quiet = monotonic()
        while monotonic() - began < limit:
            spin(0.05)
            if window.background.busy or not window.live.up_to_date:
                quiet = monotonic()
            elif monotonic() - quiet > QUIET:
                return True
        return False

    sampler = Sampler() if where else None
    if sampler is not None:
        sampler.start()
    heart = Heart()
    digits = resource_path("examples", "digits.tape")
    window.files.open_example("digits.tape")
    window.start()
    while window.live.torch is None:
        spin(0.1)
    settle()
    print("ready", flush=True)
    for line in sys.stdin:
        path = Path(line.strip())
        told.clear()
        window.files.open(digits)
        window.document.apply("Edit", replace(window.document.project, notes="before"))
        settle()
        before = window.document.project
        heart.take()
        heart.told.clear()
        began = perf_counter()
        opened = window.files.open(path)
        settled = settle()
        answer: dict[str, Any] = {
            "opened": opened,
            "settled": settled,
            "seconds": perf_counter() - began - QUIET,
        }
        answer["open"] = heart.take()
        answer["nodes"] = len(window.document.project.graph.nodes)
        answer["problems"] = (
            len(window.live.analysis.problems) if opened and window.live.analysis else 0
        )
        if not opened:
            answer["as_before"] = (
                window.document.project is before
                and window.document.undo_stack.undoText() == "Edit"
            )
        window.canvas.add_op("nn.ReLU")
        settle()
        window.document.undo_stack.undo()
        settle()
        answer["edit"] = heart.take()
        window.document.undo_stack.setClean()
        window.files.new()
        settle()
        answer["leave"] = heart.take()
        answer["said"] = list(told)
        answer["where"] = list(heart.told)
        print(json.dumps(answer), flush=True)
    os._exit(0)


class Child:
    """The process with the window; one that hangs is ended and another takes its place."""

    def __init__(self, limit: float, where: bool) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.slow.open_monsters",
            "--child",
            "--limit",
            str(limit),
        ]
        command += ["--where"] if where else []
        if shutil.which("xvfb-run") and not os.environ.get("DISPLAY"):
            command = ["xvfb-run", "-a", "-s", "-screen 0 1280x800x24", *command]
        self._limit = limit
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self._line(300)

    def _line(self, seconds: float) -> str | None:
        import select

        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else None

    def ask(self, path: Path) -> dict[str, Any] | None:
        """What came of a file; None if the window did not come back."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        line = self._line(6 * self._limit + 60)
        return json.loads(line) if line else None

    def end(self) -> None:
        import signal

        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="the files that have these words in their name"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds that one may take to be checked (60)",
    )
    parser.add_argument(
        "--where",
        action="store_true",
        help="print what the window's thread did in long gaps",
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.limit, options.where)
        return 0
    window = Child(options.limit, options.where)
    count = refused = hangs = tracebacks = lost = 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in monsters.write_all(Path(folder), options.only):
            count += 1
            answer = window.ask(path)
            if answer is None:
                hangs += 1
                print(f"{name}\n    HANGS", flush=True)
                window.end()
                window = Child(options.limit, options.where)
                continue
            refused += not answer["opened"]
            tracebacks += any(each.startswith("TRACEBACK") for each in answer["said"])
            lost += answer.get("as_before") is False
            what = (
                f"{answer['nodes']:,} nodes, {answer['problems']} problems"
                if answer["opened"]
                else "refused"
            )
            late = "" if answer["settled"] else ", NOT CHECKED IN TIME"
            print(f"{name}: {what}, {answer['seconds']:.1f} s{late}")
            print(
                f"    open {answer['open']}, edit {answer['edit']}, leave {answer['leave']}"
            )
            for each in (*answer["said"], *answer["where"]):
                print(f"    {each[:300]}")
            sys.stdout.flush()
            gaps = [
                float(answer[phase].split()[0]) for phase in ("open", "edit", "leave")
            ]
            worst = max(worst, *gaps)
    window.end()
    print(
        f"{count} files, {refused} refused with a sentence, {count - refused - hangs} opened, "
        f"{tracebacks} tracebacks, {hangs} hangs, {lost} that took the open project, "
        f"longest gap {worst:.0f} ms"
    )
    return int(bool(hangs or tracebacks or lost or worst > MOST))


if __name__ == "__main__":
    sys.exit(main())
