"""The memory of the real window in a process of its own, at rest or after captures of an imported model.

    python benchmarks/_resident.py rest
    python benchmarks/_resident.py MODEL CAPTURES

Prints one JSON object of bytes: `resident` and `proportional` (PSS) of the window's process, `together` the PSS of it
and all processes below it, `processes` how many these are; and for a model `before`, resident when it was drawn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

REST = 6000  # milliseconds between the last answer and the measure
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Held:
    """What the process printed."""

    resident: int
    proportional: int
    together: int
    processes: int
    before: int = 0


def measure(*arguments: str) -> Held:
    """Take one measure in a window of a new process."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Held(**json.loads(done.stdout.strip().splitlines()[-1]))


def of_process(pid: int) -> tuple[int, int]:
    """Bytes of a process: resident, and proportional. Raises OSError for one that is gone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return 1024 * kilobytes["Rss"], 1024 * kilobytes["Pss"]


def below(pid: int) -> Iterator[int]:
    """The processes that one started, and theirs."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        try:
            fields = (
                (folder / "stat")
                .read_text("ascii", "replace")
                .rpartition(")")[2]
                .split()
            )
        except OSError:
            continue
        if folder.name.isdigit():
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    waiting = [pid]
    while waiting:
        found = parents.get(waiting.pop(), [])
        waiting += found
        yield from found


def held(before: int = 0) -> Held:
    """What this process and those below it hold now."""
    resident, proportional = of_process(os.getpid())
    others = []
    for pid in below(os.getpid()):
        try:
            others.append(of_process(pid)[1])
        except OSError:
            continue  # it ended meanwhile
    return Held(
        resident, proportional, proportional + sum(others), 1 + len(others), before
    )


def main(model: str, captures: int) -> None:
    from PySide6.QtCore import QEventLoop, QTimer

    from app.views.app import make_application
    from app.views.main_window import EXAMPLE
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckBench", "TapedeckBench"))
    window.resize(1600, 1000)
    window.show()
    window.files.may_leave = lambda: True  # type: ignore[method-assign]

    def until(condition: Callable[[], Any]) -> None:
        loop, timer = QEventLoop(), QTimer()
        timer.timeout.connect(lambda: loop.quit() if condition() else None)
        timer.start(20)
        loop.exec()

    def rest(milliseconds: int) -> None:
        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def finish(answer: Held) -> None:
        print(json.dumps(vars(answer)), flush=True)
        os._exit(0)

    window.start()
    window.files.open_example(EXAMPLE)
    until(lambda: window.live.up_to_date and window.live.analysis is not None)
    rest(REST)
    if not captures:
        finish(held())
    _import(window, model, until)
    project = (
        window.document.project
    )  # the size of the batch costs the engine time, and the window nothing
    window.document.apply(
        "Batches of 2",
        replace(project, training=replace(project.training, batch_size=2)),
    )
    until(lambda: window.live.up_to_date and window.live.analysis is not None)
    rest(REST)
    before = of_process(os.getpid())[0]
    for number in range(captures):
        _capture(window, until)
        print(
            f"{number + 1} captures: {of_process(os.getpid())[0] / 1e6:.0f} MB",
            file=sys.stderr,
            flush=True,
        )
    rest(REST)
    finish(held(before))


def _import(
    window: Any, model: str, until: Callable[[Callable[[], Any]], None]
) -> None:
    """Import a model of torchvision through the dialog."""
    from PySide6.QtCore import Qt

    from app.features.importing.dialogs import ImportDialog

    window.actions_by_key["import"].trigger()
    dialog = next(
        part for part in window.findChildren(ImportDialog) if part.isVisible()
    )
    until(lambda: bool(dialog.torchvision.known))
    dialog.torchvision.search.setText(model)
    dialog.torchvision.list.setCurrentItem(
        dialog.torchvision.list.findItems(model, Qt.MatchFlag.MatchExactly)[0]
    )
    until(dialog.go.isEnabled)
    before = window.document.project
    dialog.go.click()
    until(lambda: window.document.project is not before)
    until(lambda: window.live.up_to_date and window.live.analysis is not None)


def _capture(window: Any, until: Callable[[Callable[[], Any]], None]) -> None:
    """Capture once, on noise of the right shape, and wait until the graph is shown."""
    done: list[int] = []
    control = window.autograd_control
    control.options = replace(control.options, data="random")
    signals = (control.captured, control.failed)
    links = [
        signal.connect(lambda *answer: done.append(len(answer))) for signal in signals
    ]
    window.actions_by_key["capture"].trigger()
    until(lambda: bool(done))
    for signal, link in zip(signals, links, strict=True):
        signal.disconnect(link)  # nothing here keeps a graph alive
    if done[0] < 2:
        sys.exit("the capture failed")
    until(lambda: window.room.drawing() is not None)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
