"""The canvas under load: an edit in the middle of 200 layers, opening 1,000 nodes, panning and zooming them.

Frames are painted into the real window on whatever platform Qt runs here (offscreen by default, X under Xvfb); their
time is that of a repaint of the viewport, on the wall clock.
"""

from __future__ import annotations

import time
from dataclasses import replace

from _report import Figure, percentile, publish
from PySide6.QtCore import QEventLoop, QTimer

from app.builder.arrange import DEFAULT, arrange
from app.builder.catalog import catalog
from app.builder.graph import Edge, Graph, Node
from app.frozen import FrozenMap
from app.project import Project
from app.settings import Settings
from app.views import theme
from app.views.main_window import MainWindow
from app.views.window_app import make_application

OPS = catalog()


def chain(layers: int) -> Project:
    """input, then convolutions and ReLUs in turns, then an output: `layers` nodes between the ends."""
    nodes = {"n0": Node("n0", "input", "input", FrozenMap(shape=(8, 16, 16)))}
    edges = []
    for i in range(1, layers + 2):
        op = "output" if i == layers + 1 else "nn.Conv2d" if i % 2 else "nn.ReLU"
        params = FrozenMap(out_channels=8, kernel_size=3, padding=1) if op == "nn.Conv2d" else FrozenMap()
        nodes[f"n{i}"] = Node(f"n{i}", op, f"{OPS[op].stem}{i}", params)
        edges.append(Edge(f"n{i - 1}", 0, f"n{i}", "input"))
    graph = Graph(FrozenMap(nodes), tuple(edges))
    return Project("bench", graph, arrange(graph, dict.fromkeys(nodes, DEFAULT)))


def until(condition) -> None:
    loop, timer = QEventLoop(), QTimer()
    timer.timeout.connect(lambda: loop.quit() if condition() else None)
    timer.start(1)
    if not condition():
        loop.exec()


def edits(window: MainWindow, count: int) -> list[float]:
    """Milliseconds from an edit of the middle layer to its new shapes painted."""
    window.document.new(chain(200))
    until(lambda: window.live.up_to_date)
    taken = []
    for i in range(count):
        project = window.document.project
        graph = project.graph.with_param("n101", "out_channels", 9 + i)
        loop = QEventLoop()
        window.live.analysed.connect(loop.quit)
        began = time.perf_counter()
        window.document.apply("Set out_channels", replace(project, graph=graph))
        loop.exec()
        window.canvas.view.viewport().repaint()
        taken.append(1000 * (time.perf_counter() - began))
        window.live.analysed.disconnect(loop.quit)
    return taken


def undos(window: MainWindow, count: int) -> list[float]:
    """Milliseconds that an undo keeps the window's thread."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        window.document.undo_stack.undo()
        taken.append(1000 * (time.perf_counter() - began))
        until(lambda: window.live.up_to_date)
    return taken


def opening(window: MainWindow) -> float:
    """Milliseconds from a project of 1,000 nodes to its picture."""
    window.document.new()
    until(lambda: window.live.up_to_date)
    project = chain(998)
    began = time.perf_counter()
    window.document.new(project)
    window.canvas.frame_all()
    window.canvas.view.viewport().repaint()
    return 1000 * (time.perf_counter() - began)


def frames(window: MainWindow, move, count: int = 60) -> list[float]:
    """Milliseconds of each repaint after a move of the view."""
    taken = []
    for i in range(count):
        began = time.perf_counter()
        move(i)
        window.canvas.view.viewport().repaint()
        taken.append(1000 * (time.perf_counter() - began))
    return taken


def main() -> None:
    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    window = MainWindow(Settings("TapedeckBench", "canvas"))
    window.resize(1600, 1000)
    window.show()
    window.start()
    until(lambda: window.live.torch is not None and hasattr(window, "page_links"))
    edited = edits(window, 60)
    undone = undos(window, 40)
    opened = [opening(window) for _ in range(3)]
    until(lambda: window.live.up_to_date)
    view = window.canvas.view
    window.canvas.frame_all()
    panned = frames(window, lambda i: view.pan(9 if i % 20 < 10 else -9, 4))
    view.zoom_to(0.5)
    near = frames(window, lambda i: view.pan(9 if i % 20 < 10 else -9, 4))
    zoomed = frames(window, lambda i: view.zoom_by(1.05 if i % 20 < 10 else 1 / 1.05))
    publish(
        "canvas",
        [
            Figure("edit amid 200 layers to its new shapes painted, p95", "ms", (percentile(edited, 0.95),), aim=16),
            Figure("undo of it, p95", "ms", (percentile(undone, 0.95),), aim=16),
            Figure("opening and drawing 1,000 nodes", "ms", tuple(opened), aim=1000),
            Figure("a frame while panning 1,000 nodes, all in view, p95", "ms", (percentile(panned, 0.95),), aim=16.7),
            Figure("a frame while panning at 50 %, p95", "ms", (percentile(near, 0.95),), aim=16.7),
            Figure("a frame while zooming about 50 %, p95", "ms", (percentile(zoomed, 0.95),), aim=16.7),
        ],
    )
    window.document.undo_stack.setClean()
    window.close()


if __name__ == "__main__":
    main()
