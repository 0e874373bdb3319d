"""The inspector and blocks: the page of a block, its parameters, its instances, and fields that are computed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QLineEdit, QMenu
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.blocks import Block
from app.builder.catalog.catalog import Param, catalog
from app.builder.expressions import Expr
from app.builder.graph import Edge, Graph, Node
from app.project.document import Document
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.row import ParamRow
from app.views.inspector import Inspector
from app.views.navigation import Navigation, SheetDocument
from app.views.project_catalog import ProjectCatalog
from app.views.selection import Selection
from app.views.ui.background import Background


def chain(*nodes: Node) -> Graph:
    """Nodes one behind the other."""
    edges = tuple(
        Edge(a.id, 0, b.id, "input") for a, b in zip(nodes, nodes[1:], strict=False)
    )
    return Graph(FrozenMap({node.id: node for node in nodes}), edges)


STAGE = Block(
    "Stage",
    chain(
        Node("i", "input", "x", FrozenMap(shape=(1, 8, 8))),
        Node(
            "c",
            "nn.Conv2d",
            "conv1",
            FrozenMap(out_channels=Expr("channels * 2"), kernel_size=3),
        ),
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
        self.ops = ProjectCatalog(catalog(), self.document)
        self.place = Navigation(self.document)
        self.sheet = SheetDocument(self.document, self.place, self.ops)
        self.selection = Selection()
        self.inspector = Inspector(
            self.sheet, self.selection, self.ops, EngineService(background)
        )  # type: ignore[arg-type]
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

    def type(self, line: QLineEdit, text: str, key: Qt.Key = Qt.Key.Key_Return) -> None:
        """Click into a field, take what is there away, type, and press a key."""
        self.qtbot.mouseClick(
            line, Qt.MouseButton.LeftButton, pos=QPoint(5, line.height() // 2)
        )
        self.qtbot.keyClick(line, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
        self.qtbot.keyClicks(line, text)
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


@pytest.mark.parametrize(
    ("name", "words"),
    [("2x", "cannot name a class"), ("nn", "is reserved in the code")],
)
def test_a_name_that_no_class_can_have_is_refused(
    desk: Desk, name: str, words: str
) -> None:
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


# --- Inside a block


def row(desk: Desk, name: str) -> ParamRow:
    assert desk.inspector.node_page.form is not None
    return desk.inspector.node_page.form.rows[name]


def line(desk: Desk, name: str) -> QLineEdit:
    editor = row(desk, name).editor
    assert editor is not None
    return next(iter(editor.lines()))


def action(desk: Desk, name: str, words: str) -> QAction:
    """What the menu of a field offers."""
    menu = QMenu(desk.inspector)
    assert desk.inspector.node_page.form is not None
    desk.inspector.node_page.form.fill(menu, name)
    return next(one for one in menu.actions() if one.text().startswith(words))


def analyse_sheet(desk: Desk) -> None:
    desk.inspector.set_analysis(
        analyse(desk.document.project.graph, desk.ops.now, desk.place.path).sheet
    )


def inner(desk: Desk, name: str) -> object:
    return desk.block.graph.nodes["c"].params.get(name)


def test_an_expression_shows_what_it_is_now(desk: Desk) -> None:
    desk.enter("s")
    analyse_sheet(desk)
    desk.pick("c")
    assert line(desk, "out_channels").text() == "channels * 2"
    assert row(desk, "out_channels").note.text() == "= 16"
    desk.place.leave()
    desk.enter("t")
    analyse_sheet(desk)
    desk.pick("c")
    assert row(desk, "out_channels").note.text() == "= 64"


def test_expressions_are_typed_where_numbers_are(desk: Desk) -> None:
    desk.enter()
    desk.pick("c")
    desk.type(line(desk, "groups"), "channels // channels")
    assert inner(desk, "groups") == Expr("channels // channels")
    desk.type(line(desk, "groups"), "2")
    assert inner(desk, "groups") == 2
    second = list(desk.inspector.node_page.form.editor("kernel_size").lines())[1]
    desk.type(second, "channels - 31")
    desk.type(line(desk, "out_channels"), "64")
    assert inner(desk, "kernel_size") == (3, Expr("channels - 31"))
    desk.settle()
    assert line(desk, "kernel_size").text() == "3, channels - 31", (
        "one wide field once it is left"
    )
    assert inner(desk, "out_channels") == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("width * 2", "Stage has no parameter width; it has channels"),
        ("channels *", "out_channels: 'channels *' is not a valid expression"),
        ("channels ** 2", "use names, numbers and + - * / // %"),
    ],
)
def test_a_bad_expression_is_refused_with_words(
    desk: Desk, text: str, words: str
) -> None:
    desk.enter()
    desk.pick("c")
    desk.type(line(desk, "out_channels"), text)
    assert words in row(desk, "out_channels").problem.text()
    desk.qtbot.keyClick(line(desk, "out_channels"), Qt.Key.Key_Escape)
    assert line(desk, "out_channels").text() == str(inner(desk, "out_channels").text)


def test_a_field_is_exposed_by_its_menu_and_a_name(desk: Desk) -> None:
    desk.enter()
    desk.pick("c")
    action(desk, "stride", "Expose on Stage").trigger()
    prompt = row(desk, "stride").prompt
    assert prompt is not None and prompt.line.text() == "stride"
    desk.type(prompt.line, "max", Qt.Key.Key_Return)
    assert "is reserved in the code" in prompt.problem.text()
    desk.type(prompt.line, "step", Qt.Key.Key_Return)
    assert row(desk, "stride").prompt is None
    assert inner(desk, "stride") == Expr("step")
    assert [param.name for param in desk.block.params] == ["channels", "step"]
    assert desk.document.undo_stack.count() == 1
    desk.type(line(desk, "groups"), "step")
    assert inner(desk, "groups") == Expr("step"), (
        "what was just exposed can be computed with"
    )
    for _ in range(2):
        desk.document.undo_stack.undo()
    assert desk.document.project == NET


def test_what_cannot_be_exposed_says_why(desk: Desk) -> None:
    desk.enter()
    desk.pick("c")
    action(desk, "in_channels", "Expose").trigger()
    assert "inferred from the input" in row(desk, "in_channels").problem.text()


def test_the_menu_of_a_field_opens_by_key(desk: Desk) -> None:
    desk.enter()
    desk.pick("c")
    field = line(desk, "stride")
    field.setFocus()
    desk.qtbot.keyClick(field, Qt.Key.Key_F10, Qt.KeyboardModifier.ShiftModifier)
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    assert {"Expose on Stage…", "Reset stride"} <= {
        one.text() for one in menu.actions()
    }
    menu.close()


def test_an_expression_becomes_a_value_again(desk: Desk) -> None:
    desk.enter()
    analyse_sheet(desk)
    desk.pick("c")
    action(desk, "out_channels", "Type a value instead (16)").trigger()
    assert inner(desk, "out_channels") == 16


# --- An instance


def test_an_instance_sets_what_the_block_exposes(desk: Desk) -> None:
    desk.pick("t")
    page = desk.inspector.node_page
    assert page.instance.isVisible() and not page.documentation.isVisible()
    assert (
        line(desk, "channels").text() == "32"
        and row(desk, "channels").note.text() == "default"
    )
    desk.type(line(desk, "channels"), "48")
    assert desk.document.project.graph.nodes["t"].params == FrozenMap(channels=48)
    assert row(desk, "channels").note.text() == ""
    action(desk, "channels", "Reset channels").trigger()
    assert desk.document.project.graph.nodes["t"].params == FrozenMap()


def test_an_instance_leads_into_its_block_and_is_made_unique(desk: Desk) -> None:
    desk.pick("s")
    page = desk.inspector.node_page
    desk.qtbot.mouseClick(page.instance.unique, Qt.MouseButton.LeftButton)
    assert desk.document.project.graph.nodes["s"].op == "block.Stage2"
    desk.settle()
    assert (
        not page.instance.unique.isEnabled() and page.instance.caption() == "1 instance"
    )
    desk.qtbot.mouseClick(page.instance.enter, Qt.MouseButton.LeftButton)
    assert desk.place.block == "Stage2"


def test_an_instance_is_repeated(desk: Desk) -> None:
    desk.pick("t")
    section = desk.inspector.node_page.module
    desk.type(section.repeat, "12")
    assert desk.document.project.graph.nodes["t"].repeat == 12
    assert desk.document.undo_stack.count() == 1 and section.caption() == "×12"
    desk.type(section.repeat, "0")
    assert section.repeat.property("invalid") is True
    assert desk.document.project.graph.nodes["t"].repeat == 12


def test_an_expression_outside_of_blocks_is_told_and_can_be_mended(desk: Desk) -> None:
    graph = desk.document.project.graph.with_node(
        Node(
            "c",
            "nn.Conv2d",
            "conv1",
            FrozenMap(out_channels=Expr("channels"), kernel_size=3),
        )
    )
    desk.document.apply("Paste", Project("net", graph, blocks=NET.blocks))
    desk.pick("c")
    assert (
        "which only nodes inside a block can have"
        in row(desk, "out_channels").problem.text()
    )
    desk.type(line(desk, "out_channels"), "8", Qt.Key.Key_Tab)
    assert desk.document.project.graph.nodes["c"].params["out_channels"] == 8
    assert not row(desk, "out_channels").problem.isVisible()
