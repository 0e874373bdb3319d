"""NodeGraphQt's viewer on a graph that is given to it. Runs in an environment of its own, see `_peer`.

{"graph": FILE, "width": W, "height": H}    makes the graph in a window whose view is W by H; seconds until painted
{"view": "all" | ZOOM}                      shows everything, or the middle at a zoom; the zoom that it has then
{"move": "pan" | "zoom", "frames": N, "seconds": S}
                                            milliseconds of each repaint after a move, until there are N of them or
                                            S seconds have gone by
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from NodeGraphQt import BaseNode, NodeGraph
from PySide6.QtWidgets import QApplication


class Layer(BaseNode):
    """One input, one output."""

    __identifier__ = "bench"
    NODE_NAME = "layer"

    def __init__(self) -> None:
        super().__init__()
        self.add_input("input")
        self.add_output("output")


class Bench:
    def __init__(self) -> None:
        self.application = QApplication(["NodeGraphQt"])
        self.graph: NodeGraph | None = None

    def make(self, request: dict[str, Any]) -> float:
        given = json.loads(Path(request["graph"]).read_text("utf-8"))
        if self.graph is not None:
            self.graph.widget.hide()
            self.graph.widget.deleteLater()
        began = time.perf_counter()
        self.graph = NodeGraph()
        self.graph.register_node(Layer)
        nodes = {}
        for key, name, x, y in given["nodes"]:
            nodes[key] = self.graph.create_node(
                "bench.Layer", name=name, pos=[x, y], selected=False, push_undo=False
            )
        for source, target in given["edges"]:
            nodes[source].output(0).connect_to(nodes[target].input(0), push_undo=False)
        self.views = [node.view for node in nodes.values()]
        self.viewer, window = self.graph.viewer(), self.graph.widget
        window.resize(request["width"], request["height"])
        window.show()
        self.application.processEvents()
        lacking = self.viewer.viewport().size()
        window.resize(
            2 * request["width"] - lacking.width(),
            2 * request["height"] - lacking.height(),
        )
        self.application.processEvents()
        self.viewer.zoom_to_nodes(self.views)
        self.viewer.viewport().repaint()
        return time.perf_counter() - began

    def show(self, request: dict[str, Any]) -> float:
        self.viewer.zoom_to_nodes(self.views)
        if request["view"] != "all":
            factor = request["view"] / self.viewer.transform().m11()
            self.viewer.scale(factor, factor)
        self.viewer.viewport().repaint()
        return float(self.viewer.transform().m11())

    def frames(self, request: dict[str, Any]) -> list[float]:
        taken: list[float] = []
        for i in range(request["frames"]):
            if sum(taken) > 1000 * request["seconds"]:
                break
            forth = i % 20 < 10
            began = time.perf_counter()
            if request["move"] == "pan":
                zoom = self.viewer.transform().m11()
                self.viewer._set_viewer_pan((-9 if forth else 9) / zoom, -4 / zoom)
            else:
                factor = 1.05 if forth else 1 / 1.05
                self.viewer.scale(factor, factor)
            self.viewer.viewport().repaint()
            taken.append(1000 * (time.perf_counter() - began))
        return taken


def main() -> None:
    answers = sys.stdout
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        answer = (
            bench.make
            if "graph" in request
            else bench.show
            if "view" in request
            else bench.frames
        )
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # what the library prints is no answer
            result = answer(request)
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
