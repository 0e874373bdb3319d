"""Two real windows on one file, edited and saved in random order: is anything written over or lost without a word?

Each window is a process of its own, told what to do. The second one goes on although the file is open; whoever is asked
about a changed file answers at random. A save counts as silent if it replaces a version that this window has never
read, written or been shown; an end counts as silent if a window holds what is not in the file and says nothing of it.

    python -m tests.slow.two_windows --interleavings 20
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHOICES = ("keep", "reload", "overwrite", "save_as")
STEPS = 6, 12
PATIENCE = 120.0  # seconds that a busy machine may take for an answer
SETTLED = 20.0  # seconds in which a window notices what the other has done


@dataclass
class Outcome:
    """Counts over all interleavings; `silent` must stay empty."""

    interleavings: int = 0
    edits: int = 0
    saves: int = 0
    asked: int = 0
    silent: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.interleavings} interleavings of two windows on one file: {self.edits} edits, {self.saves} saves, "
            f"{self.asked} questions about a changed file, {len(self.silent)} silent losses"
        )


class Window:
    """A window that does what it is told. `seen` are the versions of the file that its person knows of."""

    def __init__(self, name: str, home: Path) -> None:
        environment = {
            **os.environ,
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": str(ROOT),
        }
        for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
            environment[f"XDG_{kind}_HOME"] = str(home / kind.lower())
        environment.setdefault("QT_QPA_PLATFORM", "offscreen")
        command, pipe = (
            [sys.executable, "-m", "tests.slow.material.told_window"],
            subprocess.PIPE,
        )
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=home,
        )
        self.name = name
        self.seen: set[str] = set()
        self.answer("ready")

    def tell(self, *words: object) -> None:
        """Ask for something; the answer is waited for by `answer`."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self, last: str = "done") -> list[list[str]]:
        """All lines up to the one that begins with `last`."""
        assert self._process.stdout is not None
        found: list[list[str]] = []
        for line in self._process.stdout:
            found.append(line.rstrip("\n").split("\t"))
            if found[-1][0] == last:
                return found
        raise RuntimeError(f"window {self.name} ended")

    def ask(self, *words: object) -> list[list[str]]:
        self.tell(*words)
        return self.answer()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def interleave(
    windows: tuple[Window, Window], file: Path, choose: random.Random, outcome: Outcome
) -> None:
    """Open a file in both windows, and let them edit and save it in one random order."""
    where = f"interleaving {outcome.interleavings + 1}"
    outcome.interleavings += 1
    for window in windows:
        window.seen.clear()
        _note(window, window.ask("open", file), where, outcome)
    for number in range(choose.randint(*STEPS)):
        together = choose.random() < 0.3
        for window in windows if together else (choose.choice(windows),):
            kind = "save" if together else choose.choice(("edit", "edit", "save"))
            if together:
                _edit(window, number, where, outcome)
            if kind == "edit":
                _edit(window, number, where, outcome)
            elif not together:
                _note(
                    window, window.ask("save", choose.choice(CHOICES)), where, outcome
                )
        if together:  # both at once
            for window in windows:
                window.tell("save", choose.choice(CHOICES))
            for window in windows:
                _note(window, window.answer(), where, outcome)
    for window in windows:
        _settle(window, where, outcome)


def _edit(window: Window, number: int, where: str, outcome: Outcome) -> None:
    outcome.edits += 1
    _note(window, window.ask("edit", f"{window.name}{number}"), where, outcome)


def _note(window: Window, lines: list[list[str]], where: str, outcome: Outcome) -> None:
    """Take over what a window told of versions: read, shown, written over."""
    for line in lines:
        if line[0] == "fault":
            outcome.silent.append(f"{where}, {window.name}: {line[1]}")
        elif line[0] in ("read", "shown"):
            window.seen.add(line[1])
            outcome.asked += line[0] == "shown"
        elif line[0] == "replaces":
            outcome.saves += 1
            if line[1] and line[1] not in window.seen:
                outcome.silent.append(
                    f"{where}: {window.name} wrote over a version that it had never seen"
                )
            window.seen.add(line[2])


def _settle(window: Window, where: str, outcome: Outcome) -> None:
    """In the end a window has what the file has, or is marked as unsaved, or says that the file has changed."""
    until = time.monotonic() + SETTLED
    while True:
        lines = window.ask("state")
        (state,) = (line for line in lines if line[0] == "state")
        same, unsaved, says = (word == "True" for word in state[1:4])
        if same or unsaved or says:
            return
        if time.monotonic() > until:
            outcome.silent.append(
                f"{where}: {window.name} has what the file has not, and says nothing"
            )
            return
        time.sleep(0.05)


def interleaved(folder: Path, count: int, seed: int) -> Outcome:
    """So many interleavings of two windows, and what was lost in silence."""
    from app.project import file as project_file
    from app.util.resources import path as resource_path

    outcome, choose = Outcome(), random.Random(seed)
    example = project_file.read(resource_path("examples", "digits.tape"))
    windows: list[Window] = []
    try:
        windows += [Window(name, folder) for name in ("A", "B")]
        for number in range(count):
            file = folder / f"{number}" / "net.tape"
            file.parent.mkdir()
            project_file.write(example, file)
            interleave((windows[0], windows[1]), file, choose, outcome)
    finally:
        for window in windows:
            window.end()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--interleavings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = interleaved(Path(folder), options.interleavings, options.seed)
    print(*outcome.silent, sep="\n", end="\n" if outcome.silent else "")
    print(f"{outcome}, {time.monotonic() - began:.0f} s")
    return 1 if outcome.silent or not outcome.asked else 0


if __name__ == "__main__":
    sys.exit(main())
