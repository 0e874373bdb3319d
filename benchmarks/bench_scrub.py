"""Scrubbing the steps of a stored run in the real window: milliseconds from a move of the mouse on the timeline until
every page is painted (aim: 16 ms, a frame at 60 a second), the 95th percentile and the worst of each round; and of CPU
time, which says the same of a machine that has other work.

    python benchmarks/bench_scrub.py [short]

The run is real: 50 Linear layers trained for 10,000 steps by the command line, which takes some minutes, then shown by
the window with its gradient strips. `short` trains 500 steps, to see that it runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
from _report import Figure, percentile, publish

LAYERS, WIDTH, STEPS, SHORT = 50, 16, 10_000, 500
ROUNDS, MOVES = 3, 200
FRAME = 16.0  # milliseconds
PATIENCE = 60.0  # seconds that a page may take to stand


def train(folder: Path, steps: int) -> Path:
    """Train the run beside a project; return the project's file."""
    from torch import nn

    from app.project import file
    from app.runs import store

    layers = [
        nn.Linear(64, WIDTH),
        *(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS - 2)),
        nn.Linear(WIDTH, 10),
    ]
    project = _jobs._of_module(nn.Sequential(nn.Flatten(), *layers), "deep", (1, 8, 8))
    training = replace(project.training, epochs=100_000, max_steps=steps, device="cpu")
    path = folder / "deep.tape"
    file.write(replace(project, training=training), path)
    command = [
        sys.executable,
        "-m",
        "app.main",
        "train",
        str(path),
        "--out",
        str(folder / "out"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.move(folder / "out" / "runs", store.runs_beside(path))
    return path


def scrub(path: Path, moves: int, rounds: int) -> list[list[tuple[float, float]]]:
    """Milliseconds of each move by the clock and of CPU time, round by round."""
    from PySide6.QtCore import QPoint, Qt
    from PySide6.QtTest import QTest
    from PySide6.QtWidgets import QStyle, QStyleOptionSlider

    from app.features.revisit.feature import TimelineFeature
    from app.views.app import make_application
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckBench", "scrub"))
    window.resize(1600, 1000)
    window.show()

    def until(holds: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > PATIENCE:
                raise RuntimeError("the window did not get there")
            application.processEvents()

    window.files.open(path)
    window.start()
    until(lambda: window.live.up_to_date and window.furnished)
    window.furnish()
    until(lambda: bool(window.runs.model.rows))
    window.overlay.set_value("Gradients")
    window.runs.table.selectRow(0)
    feature = next(
        each for each in window.features if isinstance(each, TimelineFeature)
    )
    window.pages.show("curves")
    until(lambda: hasattr(feature, "timeline") and feature.timeline.slider.isEnabled())
    rested = time.monotonic()
    until(lambda: time.monotonic() - rested > 2.0)
    slider = feature.timeline.slider
    option = QStyleOptionSlider()
    slider.initStyleOption(option)
    handle = slider.style().subControlRect(
        QStyle.ComplexControl.CC_Slider,
        option,
        QStyle.SubControl.SC_SliderHandle,
        slider,
    )
    found: list[list[tuple[float, float]]] = []
    at = 0
    for number in range(rounds):
        left, right, level = 4, slider.width() - 4, handle.center().y()
        QTest.mousePress(
            slider,
            Qt.MouseButton.LeftButton,
            pos=handle.center() if not number else QPoint(at, level),
        )
        taken: list[tuple[float, float]] = []
        steps: set[int | None] = set()
        for move in range(moves):
            share = move / (moves - 1)
            at = (
                round(right - share * (right - left))
                if number % 2 == 0
                else round(left + share * (right - left))
            )
            began, used = time.perf_counter(), time.process_time()
            QTest.mouseMove(slider, QPoint(at, level))
            application.processEvents()
            taken.append(
                (
                    1000 * (time.perf_counter() - began),
                    1000 * (time.process_time() - used),
                )
            )
            steps.add(window.shown_run.step)
        QTest.mouseRelease(slider, Qt.MouseButton.LeftButton, pos=QPoint(at, level))
        if len(steps) < moves // 4:
            raise RuntimeError(f"{moves} moves chose {len(steps)} steps alone")
        found.append(taken)
    history = window.curves.history
    print(f"{len(history.steps)} steps of {len(history.layers)} layers", flush=True)
    window.close()
    return found


def main(short: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rounds = scrub(train(Path(folder), SHORT if short else STEPS), MOVES, ROUNDS)
    figures = []
    for number, name in enumerate(
        ("milliseconds of a move", "milliseconds of CPU time of a move")
    ):
        taken = [[move[number] for move in each] for each in rounds]
        high = tuple(percentile(each, 0.95) for each in taken)
        figures.append(Figure(f"{name}, 95th percentile", "ms", high, aim=FRAME))
        figures.append(
            Figure(f"{name}, the worst", "ms", tuple(map(max, taken)), aim=FRAME)
        )
    publish("scrub", figures)


if __name__ == "__main__":
    if "BENCH_SCREEN" not in os.environ and shutil.which("xvfb-run"):
        screen = [
            shutil.which("xvfb-run"),
            "-a",
            "-s",
            "-screen 0 1920x1080x24",
            sys.executable,
            *sys.argv,
        ]
        sys.exit(
            subprocess.call(
                screen,
                env={**os.environ, "QT_QPA_PLATFORM": "xcb", "BENCH_SCREEN": "1"},
            )
        )
    main("short" in sys.argv[1:])
