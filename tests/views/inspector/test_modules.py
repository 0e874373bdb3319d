"""The inspector: parameters given by wires, weights that are shared, initialisation, and several nodes at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QLineEdit, QMenu
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.graph import Edge, Graph, Init, Node
from app.project.document import Document
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.editors import (
    DifferingChoiceEditor,
    DifferingTextEditor,
)
from app.views.fields.row import ParamRow
from app.views.fields.wired_field import WiredEditor
from app.views.inspector import Inspector
from app.views.selection import Selection
from app.views.ui.background import Background
from app.views.ui.pick_box import Picker

NODES = (
    Node("in", "input", "input", FrozenMap(shape=(4, 8))),
    Node("size", "Tensor.size", "size1", FrozenMap(dim=0)),
    Node("view", "Tensor.view", "view1", FrozenMap(size=(1, -1))),
    Node("sum", "torch.unsqueeze", "unsqueeze1"),
    Node("a", "nn.Linear", "fc1", FrozenMap(out_features=32)),
    Node("b", "nn.Linear", "fc2", FrozenMap(out_features=64, bias=False)),
    Node("c", "nn.Linear", "fc3", FrozenMap(out_features=32), frozen=True),
    Node("r", "nn.ReLU", "relu1"),
    Node("out", "output", "output"),
)
EDGES = (
    Edge("in", 0, "size", "input"),
    Edge("in", 0, "view", "input"),
    Edge("size", 0, "view", "size[0]"),
    Edge("view", 0, "a", "input"),
    Edge("a", 0, "r", "input"),
    Edge("r", 0, "c", "input"),
    Edge("c", 0, "out", "input"),
)
NET = Project("net", Graph(FrozenMap({node.id: node for node in NODES}), EDGES))


class Desk:
    """The inspector of an open project, and hands."""

    def __init__(self, qtbot: QtBot, background: Background) -> None:
        self.qtbot, self.document, self.selection = qtbot, Document(NET), Selection()
        self.inspector = Inspector(
            self.document, self.selection, catalog(), EngineService(background)
        )
        qtbot.addWidget(self.inspector)
        self.inspector.resize(304, 900)
        with qtbot.waitExposed(self.inspector):
            self.inspector.show()

    @property
    def graph(self) -> Graph:
        return self.document.project.graph

    def pick(self, *nodes: str) -> None:
        self.selection.set(set(nodes))
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            QApplication.processEvents()

    def row(self, name: str) -> ParamRow:
        page = (
            self.inspector.several
            if len(self.selection.ids) > 1
            else self.inspector.node_page
        )
        assert page.form is not None
        return page.form.rows[name]

    def line(self, name: str) -> QLineEdit:
        editor = self.row(name).editor
        assert editor is not None
        return next(iter(editor.lines()))

    def action(self, name: str, words: str) -> QAction:
        """What the menu of a field offers."""
        menu = QMenu(self.inspector)
        form = self.inspector.node_page.form
        assert form is not None
        form.fill(menu, name)
        return next(one for one in menu.actions() if one.text().startswith(words))

    def type(self, line: QLineEdit, text: str, key: Qt.Key = Qt.Key.Key_Return) -> None:
        self.qtbot.mouseClick(
            line, Qt.MouseButton.LeftButton, pos=QPoint(5, line.height() // 2)
        )
        self.qtbot.keyClick(line, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
        self.qtbot.keyClicks(line, text)
        self.qtbot.keyClick(line, key)
        self.settle()

    def choose(self, text: str) -> list[str]:
        """What the open picker offers; the first that `text` leaves is taken with Enter."""
        picker = QApplication.activePopupWidget()
        assert isinstance(picker, Picker)
        offered = [picker.rows.item(i).text() for i in range(picker.rows.count())]
        self.qtbot.keyClicks(picker.field, text)
        self.qtbot.keyClick(picker.field, Qt.Key.Key_Return)
        self.settle()
        self.inspector.activateWindow()  # without a window manager nobody else does
        self.qtbot.waitUntil(self.inspector.isActiveWindow)
        return offered


@pytest.fixture
def background() -> Iterator[Background]:
    worker = Background()
    yield worker
    worker.close()


@pytest.fixture
def desk(qtbot: QtBot, background: Background) -> Desk:
    return Desk(qtbot, background)


# --- Wires


def test_a_part_that_a_node_gives_is_told_and_cut(desk: Desk) -> None:
    desk.pick("view")
    assert list(desk.row("size").parts) == ["size[0]"]
    assert not desk.row("size").wired
    desk.action("size", "Cut the wire from size1").trigger()
    assert not [edge for edge in desk.graph.into("view") if edge.port == "size[0]"]
    assert desk.row("size").parts == {}
    desk.document.undo_stack.undo()
    assert list(desk.row("size").parts) == ["size[0]"]


def test_a_parameter_is_wired_from_a_list_of_what_fits(desk: Desk) -> None:
    desk.pick("sum")
    desk.action("dim", "Wire dim…").trigger()
    assert desk.choose("siz") == ["size1"]
    assert Edge("size", 0, "sum", "dim") in desk.graph.edges
    row = desk.row("dim")
    assert (
        isinstance(row.editor, WiredEditor) and row.editor.field.text() == "from size1"
    )
    assert desk.document.undo_stack.undoText() == "Wire dim of unsqueeze1"
    row.editor.setFocus()
    desk.qtbot.keyClick(desk.inspector.focusWidget(), Qt.Key.Key_Return)
    assert desk.graph.into("sum") == ()
    assert not isinstance(row.editor, WiredEditor)


def test_where_nothing_fits_the_list_says_what_would(desk: Desk) -> None:
    desk.document.apply(
        "Delete size1", Project("net", desk.graph.without_nodes(["size"]))
    )
    desk.pick("sum")
    desk.action("dim", "Wire dim…").trigger()
    picker = QApplication.activePopupWidget()
    assert (
        isinstance(picker, Picker)
        and picker.hint.isVisible()
        and picker.hint.text().endswith(
            "Number, Tensor.size and Tensor.shape output numbers."
        )
    )
    desk.qtbot.keyClick(picker, Qt.Key.Key_Escape)
    assert QApplication.activePopupWidget() is None


# --- Weights


def test_weights_are_shared_with_a_node_of_the_same_class(desk: Desk) -> None:
    desk.pick("b")
    section = desk.inspector.node_page.module
    assert section.weights.text() == "own"
    desk.qtbot.mouseClick(section.share, Qt.MouseButton.LeftButton)
    assert desk.choose("fc3") == ["fc1", "fc3"]
    assert desk.graph.nodes["b"].shares == "c"
    assert section.weights.text() == "shared with fc3"
    page = desk.inspector.node_page
    assert (
        page.owned.text() == "Shares the module of fc3: changes here apply to fc3 too."
    )
    assert page.header.frozen.isChecked(), "the module is frozen"
    desk.type(desk.line("out_features"), "48")
    assert desk.graph.nodes["c"].params["out_features"] == 48
    assert desk.graph.nodes["b"].params == FrozenMap()
    assert desk.document.undo_stack.undoText() == "Set out_features of fc3"
    desk.qtbot.mouseClick(page.header.frozen, Qt.MouseButton.LeftButton)
    assert not desk.graph.nodes["c"].frozen and not desk.graph.nodes["b"].frozen
    desk.qtbot.mouseClick(section.unshare, Qt.MouseButton.LeftButton)
    assert (
        desk.graph.nodes["b"].shares == ""
        and desk.graph.nodes["b"].params["out_features"] == 48
    )
    for _ in range(4):
        desk.document.undo_stack.undo()
    assert desk.document.project == NET


def test_a_function_has_no_module(desk: Desk) -> None:
    desk.pick("sum")
    page = desk.inspector.node_page
    assert not page.module.isVisible() and not page.inits.isVisible()


# --- Initialisation


def test_a_parameter_is_initialised_by_a_function_of_torch(desk: Desk) -> None:
    desk.inspector.set_analysis(analyse(desk.graph))
    desk.inspector.set_torch_loaded()
    desk.pick("a")
    section = desk.inspector.node_page.inits
    assert section.caption() == "PyTorch's default"
    section.set_open(True)
    desk.qtbot.waitUntil(lambda: list(section.lines) == ["weight", "bias"])
    assert section.lines["weight"].shape.text() == "32×32"
    choice = section.lines["weight"].choice
    choice.setFocus()
    desk.qtbot.keyClicks(choice, "trunc")
    assert desk.graph.nodes["a"].inits == FrozenMap(weight=Init("trunc_normal_"))
    form = section.lines["weight"].form
    assert form is not None
    desk.type(next(iter(form.editor("std").lines())), "0.02")
    assert desk.graph.nodes["a"].inits == FrozenMap(
        weight=Init("trunc_normal_", FrozenMap(std=0.02))
    )
    assert desk.document.undo_stack.count() == 2
    assert section.caption() == "1 set"
    for _ in range(2):
        desk.document.undo_stack.undo()
    assert choice.value() is None and desk.document.project == NET


def test_an_initialisation_that_torch_refuses_shows_its_words(desk: Desk) -> None:
    node = Node(
        "a",
        "nn.Linear",
        "fc1",
        FrozenMap(out_features=32),
        inits=FrozenMap(bias=Init("kaiming_normal_")),
    )
    desk.document.apply("Initialise", Project("net", desk.graph.with_node(node)))
    desk.inspector.set_analysis(analyse(desk.graph))
    desk.inspector.set_torch_loaded()
    desk.pick("a")
    section = desk.inspector.node_page.inits
    section.set_open(True)
    desk.qtbot.waitUntil(
        lambda: (
            "bias" in section.lines
            and "Fan in and fan out" in section.lines["bias"].problem.text()
        ),
    )


# --- Several nodes


def test_several_nodes_get_one_value_as_one_step(desk: Desk) -> None:
    desk.pick("a", "b")
    assert isinstance(desk.row("out_features").editor, DifferingTextEditor)
    assert isinstance(desk.row("bias").editor, DifferingChoiceEditor)
    assert desk.line("out_features").placeholderText() == "differs"
    desk.type(desk.line("out_features"), "128")
    assert [desk.graph.nodes[key].params["out_features"] for key in "ab"] == [128, 128]
    assert desk.document.undo_stack.count() == 1
    assert desk.document.undo_stack.undoText() == "Set out_features of 2 nodes"
    desk.row("bias").editor.setFocus()
    desk.qtbot.keyClick(desk.inspector.focusWidget(), Qt.Key.Key_End)
    assert [desk.graph.nodes[key].params["bias"] for key in "ab"] == [False, False]
    for _ in range(2):
        desk.document.undo_stack.undo()
    assert desk.document.project == NET
    assert isinstance(desk.row("bias").editor, DifferingChoiceEditor)


def test_several_nodes_refuse_what_one_refuses(desk: Desk) -> None:
    desk.pick("a", "b")
    desk.type(desk.line("out_features"), "0")
    assert "at least 1" in desk.row("out_features").problem.text()
    assert desk.document.project is NET


def test_several_nodes_are_repeated_frozen_and_share_their_weights(desk: Desk) -> None:
    desk.pick("a", "c")
    page = desk.inspector.several
    desk.type(page.together.repeat, "3")
    assert [desk.graph.nodes[key].repeat for key in "ac"] == [3, 3]
    assert not page.frozen.isChecked(), "one of them learns"
    desk.qtbot.mouseClick(page.frozen, Qt.MouseButton.LeftButton)
    assert all(desk.graph.nodes[key].frozen for key in "ac")
    desk.qtbot.mouseClick(page.together.share, Qt.MouseButton.LeftButton)
    assert desk.graph.nodes["c"].shares == "a"
    assert page.together.words.text() == "All share the module of fc1."
    desk.qtbot.mouseClick(page.together.unshare, Qt.MouseButton.LeftButton)
    assert desk.graph.nodes["c"].shares == "" and desk.graph.nodes["c"].repeat == 3
    assert desk.document.undo_stack.count() == 4
    for _ in range(4):
        desk.document.undo_stack.undo()
    assert desk.document.project == NET


def test_nodes_of_several_classes_share_nothing(desk: Desk) -> None:
    desk.pick("a", "r")
    page = desk.inspector.several
    assert not page.common.isVisible() and not page.together.share.isVisible()
    desk.pick("a", "sum")
    assert not page.together.isVisible()


def test_the_parameters_that_torch_speaks_of_are_marked(desk: Desk) -> None:
    node = Node("a", "nn.GroupNorm", "norm1", FrozenMap(num_groups=3))
    desk.document.apply("Replace", Project("net", desk.graph.with_node(node)))
    desk.inspector.set_analysis(analyse(desk.graph))
    desk.pick("a")
    assert desk.row("num_groups").name.property("tone") == "error"
    assert "must be divisible by num_groups" in desk.row("num_groups").name.toolTip()
    assert desk.row("eps").name.property("tone") == "text2"
    desk.type(desk.line("num_groups"), "4")
    desk.inspector.set_analysis(analyse(desk.graph))
    assert desk.row("num_groups").name.property("tone") == "text2"


def test_tab_goes_down_the_page(desk: Desk) -> None:
    desk.pick("r")
    desk.pick("b")  # its form is made after the sections below it
    desk.line("out_features").setFocus()
    seen = []
    for _ in range(4):
        desk.qtbot.keyClick(desk.inspector.focusWidget(), Qt.Key.Key_Tab)
        seen.append(desk.inspector.focusWidget())
    page = desk.inspector.node_page
    form = page.form
    assert form is not None
    assert seen[:2] == [form.editor("bias").field, form.editor("dtype").field]
    assert page.shape.isAncestorOf(seen[2]), "the head of the next section"
    page.module.repeat.setFocus()
    desk.qtbot.keyClick(
        page.module.repeat, Qt.Key.Key_Tab, Qt.KeyboardModifier.ShiftModifier
    )
    assert page.module.isAncestorOf(desk.inspector.focusWidget())
