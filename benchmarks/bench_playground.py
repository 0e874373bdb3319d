"""Frames a second of the decision surface of five nets during a run in the real window (aim: at least 15), and the
share of the run's time that its planes take (aim: at most 0.1).

    python benchmarks/bench_playground.py [short] [NET ...]

A frame counts once it is painted. The share is that of the processor time of the run's thread: of all planes by all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _report import Figure, publish

# The sizes of the layers from input to output, and what stands between two.
NETS = {
    "2-8-2": ((2, 8, 2), "Tanh"),
    "2-32-32-2": ((2, 32, 32, 2), "ReLU"),
    "2-64-64-64-2": ((2, 64, 64, 64, 2), "ReLU"),
    "2-128-2": ((2, 128, 2), "GELU"),
    "2-16-16-16-16-16-2": ((2, 16, 16, 16, 16, 16, 2), "SiLU"),
}
SECONDS, SHORT = 10.0, 2.0
WARM = 5.0  # seconds of the run before frames are counted


def measured(name: str, seconds: float) -> tuple[float, float]:
    """Frames a second and the share of the run, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        homes = {
            f"XDG_{what}_HOME": str(Path(folder) / "home")
            for what in ("DATA", "CONFIG", "CACHE", "STATE")
        }
        done = subprocess.run(
            [sys.executable, __file__, "run", name, str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={"QT_QPA_PLATFORM": "offscreen", **os.environ, **homes},
        )
    frames, share = json.loads(done.stdout.splitlines()[-1])
    return float(frames), float(share)


def run(name: str, seconds: float) -> None:
    """Train in a window with the page in front, and print frames a second and the share."""
    from msgspec.structs import replace
    from PySide6.QtCore import QTimer
    from torch import nn

    from app.data.config import DataConfig
    from app.features.importing.compute.pipeline import project_of
    from app.features.playground.feature import PlaygroundFeature
    from app.features.playground.values import Plane
    from app.sources.spec import InputSpec
    from app.views.app import make_application
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    sizes, between = NETS[name]
    layers: list[nn.Module] = []
    for size, following in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(size, following), getattr(nn, between)()]
    net = nn.Sequential(*layers[:-1])
    project = project_of(net, (InputSpec((2, 2), "float32"),), "plane")
    training = replace(project.training, epochs=1_000_000)
    data = DataConfig(source="made.moons")
    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckBench", "playground"))
    window.resize(1280, 800)
    window.show()
    window.document.new(replace(project, data=data, training=training))
    spent: list[Plane] = []
    counts: list[float] = []

    def count() -> None:
        (feature,) = (f for f in window.features if isinstance(f, PlaygroundFeature))
        view, shown = feature.playground.view, feature.playground.view.show_plane

        def note(plane: Plane, names: tuple[str, str]) -> None:
            shown(plane, names)
            view.repaint()
            spent.append(plane)
            counts.append(perf_counter())

        view.show_plane = note
        QTimer.singleShot(round(1000 * (WARM + seconds)), stop)

    def begin() -> None:
        if window.run_control.blocked:
            QTimer.singleShot(50, begin)
            return
        window.pages.show("playground")
        window.start_run()
        QTimer.singleShot(500, count)

    def stop() -> None:
        kept = [
            (at, each)
            for at, each in zip(counts, spent, strict=True)
            if at > counts[-1] - seconds
        ]
        planes = [plane for _, plane in kept]
        frames = (len(kept) - 1) / (kept[-1][0] - kept[0][0])
        cost = sum(plane.seconds for plane in planes[1:])
        print(
            json.dumps([frames, cost / (planes[-1].clock - planes[0].clock)]),
            flush=True,
        )
        window.session.close_and_wait()
        os._exit(0)

    window.start()
    begin()
    application.exec()


def main(arguments: list[str]) -> None:
    seconds = SHORT if "short" in arguments else SECONDS
    names = [name for name in NETS if name in arguments] or list(NETS)
    figures = []
    for name in names:
        frames, share = measured(name, seconds)
        figures += [
            Figure(
                f"{name}: planes a second during a run",
                "frames/s",
                (frames,),
                aim=15,
                more_is_better=True,
            ),
            Figure(f"{name}: share of the run for its planes", "", (share,), aim=0.1),
        ]
    publish("playground", figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], float(sys.argv[3]))
    else:
        main(sys.argv[1:])
