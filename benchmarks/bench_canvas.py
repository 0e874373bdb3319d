"""The canvas under load: edits and undo amid 200 layers, opening, panning and zooming 1,000 and 5,000 nodes.

Frames are those of a real window under X (its own Xvfb where `xvfb-run` is installed), timed on the wall clock from the
move to the end of the repaint of the whole viewport. NodeGraphQt shows the same graph in a view of the same size and is
timed the same way, in turns; it is installed from PyPI into out/bench/nodegraphqt-env and is no dependency. With
`alone` as argument it is left out, which takes a minute and not ten.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _peer import Missing, Peer, environment
from _report import OUT, Figure, percentile, publish
from msgspec.structs import replace
from PySide6 import __version__ as pyside
from PySide6.QtCore import QEvent, QEventLoop, QObject, QTimer

from app.builder.arrange import DEFAULT, arrange
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits as kinds
from app.builder.graph import Edge, Graph, Node
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.app import make_application
from app.views.settings import Settings
from app.views.ui import theme
from tests.support.whole_window import WholeWindow

HERE = Path(__file__).resolve().parent
OPS = catalog()
PEER = [
    "NodeGraphQt==0.6.44",
    f"PySide6-Essentials=={pyside}",
    "setuptools<80",
]  # setuptools for its distutils
ROUNDS = 3
REST = 400  # milliseconds until all that stands still is sharp
PAUSE = 50  # milliseconds between two edits, in which a window paints what it has put off; nobody edits faster
PATIENCE = 4.0  # seconds of a round for frames that may take half a second each
NODE, LATER = (
    "n101",
    "n103",
)  # the middle layer, and the next whose parameters follow from it


def chain(layers: int) -> Project:
    """input, then convolutions and ReLUs in turns, then an output: `layers` nodes between the ends, about square."""
    nodes = {"n0": Node("n0", "input", "input", FrozenMap(shape=(8, 16, 16)))}
    edges = []
    for i in range(1, layers + 2):
        op = "output" if i == layers + 1 else "nn.Conv2d" if i % 2 else "nn.ReLU"
        params = (
            FrozenMap(out_channels=8, kernel_size=3, padding=1)
            if op == "nn.Conv2d"
            else FrozenMap()
        )
        nodes[f"n{i}"] = Node(f"n{i}", op, f"{OPS[op].stem}{i}", params)
        edges.append(Edge(f"n{i - 1}", 0, f"n{i}", "input"))
    graph = Graph(FrozenMap(nodes), tuple(edges))
    return Project(
        "bench",
        graph,
        arrange(graph, dict.fromkeys(nodes, DEFAULT), row_width=190 * layers**0.5),
    )


def until(condition: Callable[[], bool]) -> None:
    loop, timer = QEventLoop(), QTimer()
    timer.timeout.connect(lambda: loop.quit() if condition() else None)
    timer.start(1)
    if not condition():
        loop.exec()


def pause(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


class Painted(QObject):
    """Runs the event loop until the viewport has been painted after a signal."""

    def __init__(self, window: WholeWindow) -> None:
        super().__init__(window)
        self._viewport = window.canvas.view.viewport()
        self._viewport.installEventFilter(self)
        self._loop = QEventLoop()
        self._waiting = False
        window.live.shapes_ready.connect(self.wait_for_paint)

    def wait_for_paint(self) -> None:
        self._waiting = True

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if self._waiting and event.type() == QEvent.Type.Paint:
            self._waiting = False
            QTimer.singleShot(0, self._loop.quit)  # when the event has been dealt with
        return False

    def wait(self) -> None:
        self._loop.exec()


def see(window: WholeWindow) -> None:
    """200 layers, the middle of them in sight at 100 %."""
    window.document.new(chain(200))
    until(lambda: window.live.up_to_date)
    window.canvas.view.zoom_to(1.0)
    window.canvas.view.show_point(window.canvas.scene.nodes[NODE].body.center())
    window.canvas.view.viewport().repaint()


def shapes(window: WholeWindow, painted: Painted, count: int) -> list[float]:
    """Milliseconds from an edit of the middle layer to its new shapes painted."""
    taken = []
    for i in range(count):
        project = window.document.project
        graph = project.graph.with_param(NODE, "out_channels", 9 + i)
        began = time.perf_counter()
        window.document.apply("Set out_channels", replace(project, graph=graph))
        painted.wait()
        taken.append(1000 * (time.perf_counter() - began))
        assert window.canvas.scene.nodes[LATER].face.line.startswith(f"Conv2d {9 + i}→")
        until(lambda: window.live.up_to_date)
        pause(PAUSE)
    return taken


def undos(window: WholeWindow) -> list[float]:
    """Milliseconds that the undo of each kind of edit takes until the drawing of before is painted."""
    project = window.document.project
    some = [f"n{i}" for i in range(90, 110)]
    wire = next(edge for edge in project.graph.edges if edge.target == NODE)
    steps: list[Callable[[Project], Project]] = [
        lambda p: replace(p, graph=p.graph.with_param(NODE, "out_channels", 31)),
        lambda p: replace(p, graph=p.graph.with_name(NODE, "middle")),
        lambda p: kinds.cut(p, [wire]),
        lambda p: kinds.insert(p, OPS, "nn.Dropout", wire, (0.0, 0.0))[0],
        lambda p: kinds.delete_and_reconnect(p, OPS, some),
        lambda p: kinds.paste(p, kinds.copy(p, some), 40.0, 40.0)[0],
        lambda p: kinds.move(p, some, 80.0, 40.0),
        lambda p: replace(
            p, positions=arrange(p.graph, window.canvas.scene.sizes(), 2000.0)
        ),
    ]
    taken = []
    for step in steps * 5:
        window.document.apply("Edit", step(project))
        until(lambda: window.live.up_to_date)
        pause(PAUSE)
        began = time.perf_counter()
        window.document.undo_stack.undo()
        window.canvas.view.viewport().repaint()
        taken.append(1000 * (time.perf_counter() - began))
        until(lambda: window.live.up_to_date)
    return taken


def opening(window: WholeWindow, project: Project) -> float:
    """Milliseconds from a project to its whole picture with every size and problem in it."""
    window.document.new()
    until(lambda: window.live.up_to_date)
    began = time.perf_counter()
    window.document.new(project)
    until(lambda: window.live.up_to_date)
    window.canvas.frame_all()
    window.canvas.view.viewport().repaint()
    return 1000 * (time.perf_counter() - began)


def show(window: WholeWindow, view: float | str) -> None:
    """Show a part, and let it rest until all of it is sharp."""
    window.canvas.frame_all()
    if view != "all":
        window.canvas.view.zoom_to(float(view))
    window.canvas.view.viewport().repaint()
    pause(REST)


def frames(window: WholeWindow, move: str, count: int) -> list[float]:
    """Milliseconds of each repaint after a move of the view."""
    view, taken = window.canvas.view, []
    for i in range(count):
        forth = i % 20 < 10
        began = time.perf_counter()
        if move == "pan":
            view.pan(9 if forth else -9, 4)
        else:
            view.zoom_by(1.05 if forth else 1 / 1.05)
        view.viewport().repaint()
        taken.append(1000 * (time.perf_counter() - began))
    return taken


def written(project: Project) -> Path:
    """The graph as plain data, for who does not know our project."""
    nodes = [
        (node.id, node.name, *project.positions[node.id])
        for node in project.graph.nodes.values()
    ]
    edges = [(edge.source, edge.target) for edge in project.graph.edges]
    file = OUT / f"canvas-{len(nodes)}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"nodes": nodes, "edges": edges}), "utf-8")
    return file


def beside(
    window: WholeWindow, peer: Peer | None, count: int, limit: float
) -> list[Figure]:
    """Opening, panning and zooming `count` nodes, ours and theirs in turns."""
    project = chain(count - 2)
    ours = [opening(window, project) for _ in range(ROUNDS)]
    until(lambda: window.live.up_to_date)
    pause(REST)
    size = window.canvas.view.viewport().size()
    request = {
        "graph": str(written(project)),
        "width": size.width(),
        "height": size.height(),
    }
    theirs = 1000 * peer.ask(request) if peer else 0.0
    aim = 1000.0 if count == 1000 else None
    figures = [
        Figure(
            f"opening, drawing and checking {count:,} nodes", "ms", tuple(ours), aim=aim
        )
    ]
    if peer:
        figures.append(
            Figure(
                "  against NodeGraphQt",
                "ms",
                (statistics.median(ours),),
                (theirs,),
                aim=1,
            )
        )
    print("\n".join(map(str, figures)), flush=True)
    for move, view in (
        ("pan", "all"),
        ("zoom", "all"),
        ("pan", 0.5),
        ("zoom", 0.5),
        ("pan", 1.0),
    ):
        left, right = [], 0.0
        for number in range(ROUNDS):
            show(window, view)
            left.append(percentile(frames(window, move, 60), 0.95))
            if (
                peer and number == 0 and (count == 1000 or view == "all")
            ):  # once, for it takes long
                peer.ask({"view": view})
                right = percentile(
                    peer.ask({"move": move, "frames": 60, "seconds": PATIENCE}), 0.95
                )
        where = "all in view" if view == "all" else f"at {view:.0%}"
        name = f"a frame while {move}{'n' if move == 'pan' else ''}ing {count:,} nodes, {where}, p95"
        figures.append(Figure(name, "ms", tuple(left), aim=limit))
        if right:
            figures.append(
                Figure(
                    "  against NodeGraphQt",
                    "ms",
                    (statistics.median(left),),
                    (right,),
                    aim=1,
                )
            )
            print(figures[-2], figures[-1], sep="\n", flush=True)
    return figures


def their_viewer() -> Peer | None:
    try:
        return Peer(environment("nodegraphqt", PEER), HERE / "_nodegraphqt.py")
    except Missing as reason:
        print(f"NodeGraphQt is not measured: {reason}", file=sys.stderr)
        return None


def on_a_screen() -> bool:
    """Whether this runs in a real window, or none can be had here."""
    real = os.environ.get("QT_QPA_PLATFORM", "") not in ("", "offscreen", "minimal")
    return real or shutil.which("xvfb-run") is None


def main() -> None:
    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckBench", "canvas"))
    window.resize(1600, 1000)
    window.show()
    window.start()
    until(lambda: window.live.torch is not None and window.furnished)
    painted = Painted(window)
    see(window)
    edited = shapes(window, painted, 60)
    window.selection.set([NODE])
    with_form = shapes(window, painted, 60)
    window.selection.set([])
    see(window)
    undone = undos(window)
    figures = [
        Figure(
            "edit amid 200 layers to its new shapes painted, p50",
            "ms",
            (percentile(edited, 0.5),),
        ),
        Figure("  p95", "ms", (percentile(edited, 0.95),), aim=12),
        Figure(
            "  with the form of the layer open, p95",
            "ms",
            (percentile(with_form, 0.95),),
            aim=16,
        ),
        Figure("undo of any edit, p50", "ms", (percentile(undone, 0.5),)),
        Figure("  p95", "ms", (percentile(undone, 0.95),), aim=16),
    ]
    peer = None if "alone" in sys.argv else their_viewer()
    for count, limit in ((1000, 16.7), (5000, 33.3)):
        figures += beside(window, peer, count, limit)
    if peer:
        peer.close()
    publish("canvas", figures)
    window.document.undo_stack.setClean()
    window.close()


if __name__ == "__main__":
    if not on_a_screen():
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        )
        command = [
            sys.executable,
            str(HERE.parent / "scripts" / "under_xvfb.py"),
            __file__,
            *sys.argv[1:],
        ]
        sys.exit(subprocess.call(command))
    main()
