"""One run of the example, or of another project, in the real window with everything live, in a process of its own.

    python benchmarks/_window.py FOLDER EPOCHS [gaps] [PROJECT.tape]

The run's own `model.py` and `train.py` are written into FOLDER as the window exports them, so that the same job can be
run alone. Prints one JSON object: `epochs`, the run's clock at the end of each epoch; `steps` an epoch; and, with
`gaps`, `idle` and `training`: the times between two turns of the event loop, in milliseconds. The clock that finds the
gaps wants the interpreter 250 times a second, so it is off where the speed of training is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec.structs import replace

TURN = 4  # milliseconds between two turns of an event loop that has nothing to do
IDLE = 3.0  # seconds that are measured before the run


@dataclass(frozen=True)
class WindowRun:
    """What the process printed."""

    epochs: tuple[float, ...]
    steps: int
    idle: tuple[float, ...]
    training: tuple[float, ...]

    @property
    def steps_per_second(self) -> float:
        """From the end of the first epoch to the end of the last, validation included."""
        return self.steps * (len(self.epochs) - 1) / (self.epochs[-1] - self.epochs[0])


def measure(
    folder: Path, epochs: int, *, gaps: bool = False, project: Path | None = None
) -> WindowRun:
    """Make one run in a window of a new process."""
    command = [sys.executable, __file__, str(folder), str(epochs), *(["gaps"] * gaps)]
    command += [str(project)] if project is not None else []
    # Its unsaved edits and runs must not be offered to who measures.
    homes = {
        f"XDG_{what}_HOME": str(folder / "home")
        for what in ("DATA", "CONFIG", "CACHE", "STATE")
    }
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **homes},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return WindowRun(
        tuple(answer["epochs"]),
        answer["steps"],
        tuple(answer["idle"]),
        tuple(answer["training"]),
    )


def main(folder: Path, epochs: int, gaps: bool, opened: Path | None) -> None:
    from PySide6.QtCore import QObject, Qt, QTimer

    from app.export.train_script import training_script
    from app.util.resources import path
    from app.views.app import make_application
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckBench", "training"))
    window.resize(1600, 1000)
    window.show()
    window.files.open(opened or path("examples", "digits.tape"))
    window.overlay.set_value("Gradients")

    class Turns(QObject):
        """Notes the time between two turns of the event loop."""

        def __init__(self) -> None:
            super().__init__(window)
            self.gaps: list[float] = []
            self._last = perf_counter()
            self._timer = QTimer(self)
            self._timer.setTimerType(Qt.TimerType.PreciseTimer)
            self._timer.timeout.connect(self._turn)
            if gaps:
                self._timer.start(TURN)

        def _turn(self) -> None:
            now = perf_counter()
            self.gaps.append(1000 * (now - self._last))
            self._last = now

        def take(self) -> list[float]:
            taken, self.gaps = self.gaps, []
            self._last = perf_counter()
            return taken

    idle: list[float] = []
    turns = Turns()

    def begin() -> None:
        idle.extend(turns.take())
        window.session.runEnded.connect(report)
        window.start_run()
        run = window.session.current
        assert run is not None, window.run_control.blocked

    def report(run: Any) -> None:
        training = turns.take()
        if run.failed is not None:
            sys.exit(f"the run failed: {run.failed.message}")
        # Only now: the window never writes a script on this thread, and it would count as a gap of the run.
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.py").write_text(run.job.source.text, "utf-8")
        job = run.job.ran_with(run.history.started.threads)
        (folder / "train.py").write_text(training_script(job), "utf-8")
        clock = run.history.epochs["seconds"].tolist()
        answer = {
            "epochs": clock,
            "steps": run.history.started.steps_per_epoch,
            "idle": idle,
            "training": training,
        }
        print(json.dumps(answer), flush=True)
        os._exit(0)

    def prepare() -> None:
        if window.run_control.blocked:
            QTimer.singleShot(50, prepare)
            return
        project = window.document.project
        training = replace(project.training, epochs=epochs)
        window.document.apply("Train for longer", replace(project, training=training))
        window.pages.show("curves")
        QTimer.singleShot(500, turns.take)
        QTimer.singleShot(500 + int(1000 * IDLE * gaps), begin)

    window.start()
    prepare()
    application.exec()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    words = sys.argv[3:]
    given = [Path(each) for each in words if each != "gaps"]
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        "gaps" in words,
        given[0] if given else None,
    )
