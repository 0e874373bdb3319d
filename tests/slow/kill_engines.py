"""End the processes that compute for a window at random moments: does it live, is the project whole, is it answered?

A real window edits, captures, plays, evaluates and trains; the process that does it is ended with SIGKILL or SIGABRT
amid that, now and then the fork server too. After each the project has to be the one that was open, an edit has to be
answered, and what was ended has to work again.

    python -m tests.slow.kill_engines --kills 50
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

MOMENTS = ("editing", "capturing", "playing", "evaluating", "training")
LONGEST = 0.6  # seconds between the begin of something and its end
PATIENCE = 120.0


@dataclass
class Outcome:
    """Counts over all kills; `faults` are what must not be."""

    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    said: int = 0  # kills that the window said in a sentence; one that hits nothing open may be said later
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        how = ", ".join(
            f"{count} {moment}" for moment, count in sorted(self.moments.items())
        )
        return (
            f"{self.kills} kills ({how}): {self.said} said, {len(self.faults)} faults"
        )


class Campaign:
    """One window, driven and hit."""

    def __init__(self, window: Any, choose: random.Random) -> None:
        self.window, self.choose = window, choose
        self.outcome = Outcome()
        self.said: list[str] = []
        window.engine.ended.connect(self.said.append)
        window.session.stateChanged.connect(
            lambda state: self.said.append("failed") if state == "failed" else None
        )

    def until(self, what: str, ready: Callable[[], Any]) -> bool:
        """Wait for something; a fault if it does not come."""
        from PySide6.QtTest import QTest

        end = time.monotonic() + PATIENCE
        while not ready():
            QTest.qWait(5)
            if time.monotonic() > end:
                self.outcome.faults.append(
                    f"after {self.outcome.kills} kills: no {what}; said {self.said[-2:]}"
                )
                return False
        return True

    def edit(self) -> None:
        window = self.window
        project = window.document.project
        linear = next(
            node for node in project.graph.nodes.values() if node.op == "nn.Linear"
        )
        size = self.choose.randint(8, 96)
        window.document.apply(
            "Set",
            replace(
                project, graph=project.graph.with_param(linear.id, "out_features", size)
            ),
        )

    def known(self) -> bool:
        return self.window.live.up_to_date

    def hit(self, moment: str) -> None:
        """Begin something, end the process that does it, and see what is left."""
        from PySide6.QtTest import QTest

        window = self.window
        getattr(self, moment)()
        before, count = window.document.project, len(self.said)
        QTest.qWait(int(1000 * self.choose.random() * LONGEST))
        victims = self._run_processes() if moment == "training" else [window.engine.pid]
        if self.choose.random() < 0.1:
            victims = _children(os.getpid())[:1]  # the fork server
        how = self.choose.choice((signal.SIGKILL, signal.SIGABRT))
        for pid in filter(None, victims):
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        self.outcome.kills += 1
        self.outcome.moments[moment] += 1
        QTest.qWait(50)
        if window.document.project is not before:
            self.outcome.faults.append(f"{moment}: the project is another one")
        self.edit()
        self.until(f"answer to an edit after {moment}", self.known)
        if moment == "training":
            self.until("end of the run", lambda: not window.session.active)
        self.outcome.said += len(self.said) > count

    def _run_processes(self) -> list[int]:
        """What the run is carried out by: all that we started but the engine and the fork server."""
        ours = _children(os.getpid())
        return [
            pid
            for server in ours
            for pid in _children(server)
            if pid != self.window.engine.pid
        ]

    def editing(self) -> None:
        self.edit()

    def capturing(self) -> None:
        self.until("sound net", self.known)
        self.window.actions_by_key["capture"].trigger()

    def playing(self) -> None:
        self.capturing()
        player = self.window.tape_control.player
        if self.until(
            "captured graph",
            lambda: self.window.room.drawing() is not None and player.tape is not None,
        ):
            player.set_speed(4.0)
            self.window.actions_by_key["play-backward"].trigger()

    def evaluating(self) -> None:
        self.until("sound net", self.known)
        self.window.bottom.pane.show_page("evaluation")
        self.window.evaluation_control.evaluate()

    def training(self) -> None:
        self.until(
            "sound net", lambda: self.known() and not self.window.run_control.blocked
        )
        self.window.actions_by_key["run"].trigger()
        self.until("run", lambda: self.window.session.state in ("running", "done"))


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [
                int(each) for each in (task / "children").read_text("ascii").split()
            ]
    return found


def campaign(kills: int, seed: int, home: Path) -> Outcome:
    """Hit one window so many times, the kinds of work in turn."""
    from PySide6.QtCore import QSettings

    from app.views.app import make_application
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    for form in (QSettings.Format.NativeFormat, QSettings.Format.IniFormat):
        QSettings.setPath(form, QSettings.Scope.UserScope, str(home))
    application = make_application()
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckBench", "kill_engines"))
    window.show()
    window.start()
    window.files.open_example("MLP on digits.tape")
    hits = Campaign(window, random.Random(seed))
    hits.until("window", lambda: hits.known() and window.furnished)
    for number in range(kills):
        hits.hit(MOMENTS[number % len(MOMENTS)])
        print(
            f"{number + 1}: {MOMENTS[number % len(MOMENTS)]}, {hits.said[-1:]}",
            flush=True,
        )
    hits.capturing()
    hits.until("last capture", lambda: window.tape_control.player.tape is not None)
    window.session.close_and_wait()
    window.document.undo_stack.setClean()
    window.close()
    return hits.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    with tempfile.TemporaryDirectory() as folder:
        outcome = campaign(options.kills, options.seed, Path(folder))
    for fault in outcome.faults:
        print(f"FAULT {fault}")
    print(outcome)
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
