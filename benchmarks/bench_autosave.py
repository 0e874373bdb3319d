"""How long the event loop is away while a project of 5,000 nodes is autosaved (aim: 16 ms).

The project is handed over as it is and written by a thread of its own, which shares the interpreter with the window;
so does the thread beside it, which does nothing but count for as long. The longest time between two turns of the loop
is taken for each. On a busy machine both grow: who holds the interpreter may be put aside.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from _report import Figure, in_turns, publish
from msgspec.structs import replace
from PySide6.QtCore import QCoreApplication

from app.builder.graph import Edge, Node
from app.features.files.autosave import JournalWriter
from app.project import file
from app.project.journal import JournalEntry
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from app.views.app import make_application

NODES, ROUNDS = 5000, 15
WORK = 0.03  # seconds of the processor that one autosave takes, and the counting thread


def large() -> Project:
    """A chain of layers, each with parameters and a place."""
    example = file.read(resource_path("examples", "digits.tape"))
    nodes = {
        f"n{i}": Node(f"n{i}", "nn.Linear", f"fc{i}", FrozenMap(out_features=64))
        for i in range(NODES)
    }
    edges = tuple(Edge(f"n{i}", 0, f"n{i + 1}", "input") for i in range(NODES - 1))
    graph = replace(example.graph, nodes=FrozenMap(nodes), edges=edges)
    return replace(
        example,
        graph=graph,
        positions=FrozenMap({key: (200.0 * i, 0.0) for i, key in enumerate(nodes)}),
    )


def worst_gap(begin: Callable[[], Callable[[], bool]]) -> float:
    """Milliseconds of the longest turn of the event loop until what was begun says that it is done."""
    done, longest, last = begin(), 0.0, time.perf_counter()
    while not done():
        QCoreApplication.processEvents()
        time.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return 1000 * longest


def count() -> None:
    until = time.thread_time() + WORK
    while time.thread_time() < until:
        sum(range(50))


def main() -> None:
    application = make_application(["tapedeck"])
    project = large()
    with tempfile.TemporaryDirectory() as folder:
        writer = JournalWriter(Path(folder), lambda _written: None)

        def autosave() -> Callable[[], bool]:
            writer.put(JournalEntry(project, None, None, datetime.now().astimezone()))
            return lambda: writer.flush(0)

        def counting() -> Callable[[], bool]:
            thread = threading.Thread(target=count)
            thread.start()
            return lambda: not thread.is_alive()

        ours, theirs = in_turns(
            lambda: worst_gap(autosave), lambda: worst_gap(counting), ROUNDS
        )
        writer.close()
    application.processEvents()
    publish(
        "autosave",
        [
            Figure("worst gap while 5,000 nodes are autosaved", "ms", ours, aim=16),
            Figure("against a thread that counts", "ms", ours, theirs),
        ],
    )


if __name__ == "__main__":
    main()
