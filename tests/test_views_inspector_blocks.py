"""The inspector and blocks: the page of a block, its parameters, its instances, and fields that are computed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLineEdit
from pytestqt.qtbot import QtBot

from app.background import Background
from app.builder.blocks import Block
from app.builder.catalog import Param, catalog
from app.builder.expressions import Expr
from app.builder.graph import Edge, Graph, Node
from app.document import Document
from app.frozen import FrozenMap
from app.project import Project
from app.views.inspector import Inspector
from app.views.live_catalog import LiveCatalog
from app.views.place import Place, SheetDocument
from app.views.selection import Selection


def chain(*nodes: Node) -> Graph:
    """Nodes one behind the other."""
    edges = tuple(Edge(a.id, 0, b.id, "input") for a, b in zip(nodes, nodes[1:], strict=False))
    return Graph(FrozenMap({node.id: node for node in nodes}), edges)


STAGE = Block(
    "Stage",
    chain(
        Node("i", "input", "x", FrozenMap(shape=(1, 8, 8))),
        Node("c", "nn.Conv2d", "conv1", FrozenMap(out_channels=Expr("channels * 2"), kernel_size=3)),
        Node("r", "nn.ReLU", "relu1"),
        Node("o", "output", "y"),
    ),
    params=(Param("channels", "int", 32, minimum=1),),
)
NET = Project(
    "net",
    Graph(
        FrozenMap(
            {
                "in": Node("in", "input", "input", FrozenMap(shape=(1, 8, 8))),
                "s": Node("s", "block.Stage", "stage1", FrozenMap(channels=8)),
                "t": Node("t", "block.Stage", "stage2"),
                "out": Node("out", "output", "output"),
            }
        ),
        (Edge("in", 0, "s", "x"), Edge("s", 0, "t", "x"), Edge("t", 0, "out", "input")),
    ),
    blocks=FrozenMap(Stage=STAGE),
)


class Desk:
    """The inspector on the sheet in front of a project, as the window has it."""

    def __init__(self, qtbot: QtBot, project: Project, background: Background) -> None:
        self.qtbot, self.document = qtbot, Document(project)
        self.ops = LiveCatalog(catalog(), self.document)
        self.place = Place(self.document)
        self.sheet = SheetDocument(self.document, self.place, self.ops)
        self.selection = Selection()
        self.inspector = Inspector(self.sheet, self.selection, self.ops, background)  # type: ignore[arg-type]
        qtbot.addWidget(self.inspector)
        self.inspector.resize(304, 900)
        with qtbot.waitExposed(self.inspector):
            self.inspector.show()

    @property
    def block(self) -> Block:
        return self.document.project.blocks["Stage"]

    def enter(self, node: str = "s") -> None:
        assert self.place.enter(node)
        self.settle()

    def pick(self, *nodes: str) -> None:
        self.selection.set(set(nodes))
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            QApplication.processEvents()

    def type(self, line: QLineEdit, text: str, key: Qt.Key | None = None) -> None:
        """Click into a field, take what is there away, type, and press a key."""
        self.qtbot.mouseClick(line, Qt.MouseButton.LeftButton, pos=QPoint(5, line.height() // 2))
        self.qtbot.keyClick(line, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
        self.qtbot.keyClicks(line, text)
        if key is not None:
            self.qtbot.keyClick(line, key)
        self.settle()


@pytest.fixture
def background() -> Iterator[Background]:
    worker = Background()
    yield worker
    worker.close()


@pytest.fixture
def desk(qtbot: QtBot, background: Background) -> Desk:
    return Desk(qtbot, NET, background)


# --- The page of a block


def test_a_block_has_a_page_of_its_own(desk: Desk) -> None:
    assert desk.inspector.overview.isVisible()
    desk.enter()
    page = desk.inspector.block_page
    assert page.isVisible() and page.name.text() == "Stage"
    assert page.follow.text() == "2 instances follow every edit made here."
    desk.type(page.name, "Wide", Qt.Key.Key_Return)
    assert list(desk.document.project.blocks) == ["Wide"]
    assert desk.document.project.graph.nodes["s"].op == "block.Wide"
    assert desk.document.undo_stack.count() == 1
    assert page.name.text() == "Wide"


@pytest.mark.parametrize(("name", "words"), [("2x", "cannot name a class"), ("nn", "has a meaning in the code")])
def test_a_name_that_no_class_can_have_is_refused(desk: Desk, name: str, words: str) -> None:
    desk.enter()
    page = desk.inspector.block_page
    desk.type(page.name, name)
    assert words in page.problem.text() and page.problem.isVisible()
    desk.qtbot.keyClick(page.name, Qt.Key.Key_Tab)
    assert page.name.text() == "Stage" and not page.problem.isVisible()
    assert desk.document.project is NET


def test_parameters_of_a_block_are_renamed_reset_and_taken_away(desk: Desk) -> None:
    desk.enter()
    params = desk.inspector.block_page.params
    desk.type(params.names["channels"], "width", Qt.Key.Key_Return)
    assert [param.name for param in desk.block.params] == ["width"]
    assert desk.block.graph.nodes["c"].params["out_channels"] == Expr("width * 2")
    assert desk.document.project.graph.nodes["s"].params == FrozenMap(width=8)
    desk.type(next(iter(params.editors["width"].lines())), "16")
    assert desk.block.params[0].default == 16
    assert desk.document.undo_stack.count() == 2
    desk.type(next(iter(params.editors["width"].lines())), "0")
    assert "at least 1" in params.problem.text()
    assert desk.block.params[0].default == 16
    for _ in range(2):
        desk.document.undo_stack.undo()
    assert desk.document.project == NET


def test_a_note_of_a_block_is_one_step_a_visit(desk: Desk) -> None:
    desk.enter()
    note = desk.inspector.block_page.note
    desk.qtbot.mouseClick(note.viewport(), Qt.MouseButton.LeftButton)
    desk.qtbot.keyClicks(note, "two convolutions")
    assert desk.block.note == "two convolutions"
    assert desk.document.undo_stack.count() == 1
