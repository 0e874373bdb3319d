"""One import of a torchvision model in the real window, in a process of its own.

    python benchmarks/_importing.py MODEL

The window has opened the example that every first start opens. Prints one JSON object: `listed`, seconds from the
choice of Import until the dialog has its list; `drawn`, from the click until the canvas is painted; `again`, the same
once more after a look at the drawing; `compared`, from that click until its comparison with the model has ended;
`gaps`, the longest time in milliseconds between two turns of the event loop meanwhile, of the first and the second;
`steps`, the most that the window's own thread computed between two turns; `code`, seconds in which the text of the code
is written, the first and the second time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

TURN = 4  # milliseconds between two turns of an event loop that has nothing to do
LOOK = 5000  # milliseconds in which a person looks at the first drawing
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Imported:
    """What the process printed."""

    listed: float
    drawn: float
    again: float
    compared: float
    gaps: tuple[float, float]
    steps: tuple[float, float]
    code: tuple[float, float]


def measure(model: str) -> Imported:
    """Make one import in a window of a new process, on a screen of its own where there is `xvfb-run`."""
    under = [str(HERE.parent / "scripts" / "under_xvfb.py")]
    environment = {
        key: value for key, value in os.environ.items() if key != "QT_QPA_PLATFORM"
    }
    command = [sys.executable, *under, __file__, model]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return Imported(
        **{
            key: tuple(value) if isinstance(value, list) else value
            for key, value in answer.items()
        }
    )


def main(model: str) -> None:
    from PySide6.QtCore import QEvent, QEventLoop, QObject, Qt, QTimer

    from app.features.importing.dialogs import ImportDialog
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

    class Watch(QObject):
        """Knows the longest time between two turns, the most done in it, and when the canvas was painted last."""

        def __init__(self) -> None:
            super().__init__(window)
            self.longest = self.most = self.painted = 0.0
            self._last, self._done = perf_counter(), thread_time()
            self._timer = QTimer(self)
            self._timer.setTimerType(Qt.TimerType.PreciseTimer)
            self._timer.timeout.connect(self._turn)
            self._timer.start(TURN)
            window.canvas.view.viewport().installEventFilter(self)

        def _turn(self) -> None:
            now = perf_counter()
            done = thread_time()
            self.longest, self._last = max(self.longest, 1000 * (now - self._last)), now
            self.most, self._done = max(self.most, 1000 * (done - self._done)), done

        def begin(self) -> float:
            self.longest, self._last = 0.0, perf_counter()
            self.most, self._done = 0.0, thread_time()
            return self._last

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Paint:
                QTimer.singleShot(
                    0, self, self._is_painted
                )  # when the event has been dealt with
            return False

        def _is_painted(self) -> None:
            self.painted = perf_counter()

    watch = Watch()

    def until(condition: Any) -> None:
        loop, timer = QEventLoop(), QTimer()
        timer.timeout.connect(lambda: loop.quit() if condition() else None)
        timer.start(1)
        loop.exec()

    def rest(milliseconds: int) -> None:
        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def dialog_with_list() -> ImportDialog:
        window.actions_by_key["import"].trigger()
        dialog = next(
            part for part in window.findChildren(ImportDialog) if part.isVisible()
        )
        until(lambda: bool(dialog.torchvision.known))
        return dialog

    def drawn(dialog: ImportDialog) -> float:
        """Seconds from the click until every node of the new drawing has been painted."""
        dialog.torchvision.search.setText(model)
        wanted = dialog.torchvision.list.findItems(model, Qt.MatchFlag.MatchExactly)[0]
        dialog.torchvision.list.setCurrentItem(wanted)
        rest(300)
        before, began = window.document.project, watch.begin()
        dialog.go.click()
        until(lambda: window.document.project is not before)
        changed = perf_counter()
        nodes = window.document.project.graph.nodes.keys()
        until(
            lambda: (
                window.canvas.scene.nodes.keys() >= nodes and watch.painted > changed
            )
        )
        return watch.painted - began

    window.start()
    window.files.open_example(
        EXAMPLE
    )  # what a person sees who opens the program for the first time
    until(lambda: window.live.up_to_date)
    rest(1000)
    began = watch.begin()
    dialog = dialog_with_list()
    answer: dict[str, Any] = {"listed": perf_counter() - began}
    answer["drawn"] = drawn(dialog)
    until(lambda: window.live.up_to_date)
    gaps, steps = [watch.longest], [watch.most]
    rest(LOOK)
    dialog = dialog_with_list()
    clicked = perf_counter()
    answer["again"] = drawn(dialog)
    until(lambda: window.live.up_to_date)
    gaps.append(watch.longest)
    steps.append(watch.most)
    comparing = window.import_control.comparing
    assert comparing is not None
    until(
        lambda: not comparing.running
    )  # on a machine with nothing else to do it may have ended by now
    answer["compared"] = perf_counter() - clicked
    origin = window.document.project.origin
    assert origin is not None and origin.checked, window.document.project.notes
    print(
        json.dumps(
            {
                **answer,
                "gaps": gaps,
                "steps": steps,
                "code": _written(window.document.project),
            }
        ),
        flush=True,
    )
    os._exit(0)


def _written(project: Any) -> list[float]:
    """Seconds that the text takes, twice, once all shapes are known."""
    from app.builder.codegen.codegen import generate
    from app.builder.plan import plan
    from app.builder.shapes.shapes import infer
    from app.project import custom_layers

    walk = plan(project.graph, custom_layers.ops_of(project))
    results, times = infer(walk, {}), []
    for _ in range(2):
        began = perf_counter()
        generate(walk, results, project.graph)
        times.append(perf_counter() - began)
    return times


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main(sys.argv[1])
