"""The findings of a net in the window: its batch captured, buttons of the inspector clicked."""

from __future__ import annotations

from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget

from app.builder.graph import Graph
from app.project.project import Project
from app.views.autograd.findings.findings_control import FindingsControl
from tests.support import own_layers_nets as own
from tests.support.whole_window import WholeWindow

LEFT = Qt.MouseButton.LeftButton


def net(*middle: tuple[str, dict[str, object]]) -> Graph:
    return own.chain(
        [
            ("input", {"shape": (1, 8, 8)}),
            ("nn.Flatten", {}),
            ("nn.Linear", {"out_features": 8}),
            *middle,
            ("nn.Linear", {"out_features": 10}),
            ("output", {}),
        ]
    )


def changed(graph: Graph, node: str, **values: object) -> Graph:
    return graph.with_node(replace(graph.nodes[node], **values))


def capture(qtbot, window: WholeWindow, graph: Graph) -> FindingsControl:
    """Open a net and capture one batch of it."""
    window.document.new(Project(name="found", graph=graph))
    qtbot.waitUntil(
        lambda: window.live.up_to_date and window.live.analysis is not None,
    )
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: window.room.tape is not None)
    return window.findings_control


def done(qtbot, control: FindingsControl) -> None:
    qtbot.waitUntil(lambda: not control.working)


def click(widget: QWidget) -> None:
    QTest.mouseClick(
        widget, LEFT, pos=QPoint(widget.width() // 2, min(widget.height() // 2, 20))
    )


def button(window: WholeWindow, name: str) -> QPushButton:
    found = window.tape_inspector.widget().findChild(QPushButton, name)
    assert isinstance(found, QPushButton)
    return found


def inspector_text(window: WholeWindow) -> str:
    """Every word of the inspector's page."""
    from PySide6.QtWidgets import QLabel

    return "\n".join(
        part.text() for part in window.tape_inspector.widget().findChildren(QLabel)
    )
