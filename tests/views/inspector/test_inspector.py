"""The inspector: typing in the form changes the project, refusals say why, undo takes a burst back as one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QMenu
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Cure, Problem, SetParam
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import AUTO, DType
from app.builder.results import Analysis
from app.project.document import Document
from app.project.project import Project
from app.source.generated import Source
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.editors import (
    ChoiceEditor,
    NumberEditor,
    NumbersEditor,
    TextEditor,
    ToggleEditor,
    WordEditor,
)
from app.views.fields.values import check, equal_values
from app.views.fields.wired_field import AutoEditor
from app.views.inspector import Inspector
from app.views.inspector.explain.documentation import inline, to_html
from app.views.inspector.header import BadName, NodeHeader, check_name
from app.views.inspector.sections import CostBar
from app.views.selection import Selection
from app.views.ui.background import Background
from app.views.ui.widgets import ShapeChip

NODES = (
    Node("in", "input", "input", FrozenMap(shape=(1, 8, 8))),
    Node("c", "nn.Conv2d", "conv1", FrozenMap(out_channels=32, kernel_size=3)),
    Node("r", "nn.ReLU", "relu1"),
    Node("p", "nn.MaxPool2d", "pool1", FrozenMap(kernel_size=2)),
    Node("c2", "nn.Conv2d", "conv2", FrozenMap(out_channels=64, kernel_size=3)),
    Node("out", "output", "logits"),
)
EDGES = tuple(
    Edge(a, 0, b, "input")
    for a, b in (("in", "c"), ("c", "r"), ("r", "p"), ("p", "c2"), ("c2", "out"))
)


@pytest.fixture
def document() -> Document:
    return Document(
        Project("net", Graph(FrozenMap({node.id: node for node in NODES}), EDGES))
    )


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def background() -> Iterator[Background]:
    worker = Background()
    yield worker
    worker.close()


@pytest.fixture
def inspector(
    qtbot: QtBot, document: Document, selection: Selection, background: Background
) -> Inspector:
    view = Inspector(document, selection, catalog(), EngineService(background))
    qtbot.addWidget(view)
    view.resize(304, 900)
    with qtbot.waitExposed(view):
        view.show()
    return view


def pick(qtbot: QtBot, inspector: Inspector, selection: Selection, node: str) -> None:
    """Select one node and wait until its form is on the screen."""
    selection.set({node})
    form = inspector.node_page.form
    assert form is not None
    qtbot.waitUntil(
        lambda: all(
            row.editor is not None and row.editor.isVisible()
            for row in form.rows.values()
        )
    )
    QApplication.processEvents()  # the layouts that were asked for


def field(inspector: Inspector, name: str) -> QLineEdit:
    """The first line of text in the editor of a parameter."""
    assert inspector.node_page.form is not None
    return next(iter(inspector.node_page.form.editor(name).lines()))


def into(qtbot: QtBot, line: QLineEdit, text: str) -> None:
    """Click into a field, take what is there away, type, and Enter."""
    qtbot.mouseClick(line, Qt.MouseButton.LeftButton, pos=QPoint(5, line.height() // 2))
    qtbot.keyClick(line, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(line, text)
    qtbot.keyClick(line, Qt.Key.Key_Return)


def spec_value(document: Document, name: str) -> object:
    """The value of a parameter of conv1, its default where it is not set."""
    return catalog()["nn.Conv2d"].value(document.project.graph.nodes["c"], name)


def problem(inspector: Inspector, name: str) -> str:
    assert inspector.node_page.form is not None
    row = inspector.node_page.form.rows[name]
    return row.problem.text() if row.problem.isVisibleTo(inspector) else ""


def param(document: Document, node: str, name: str) -> object:
    return document.project.graph.nodes[node].params.get(name)


def test_a_typed_value_counts_when_it_is_committed(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    seen = []
    document.changed.connect(
        lambda before, after: seen.append(after.graph.nodes["c"].params["out_channels"])
    )
    into(qtbot, field(inspector, "out_channels"), "128")
    assert seen == [128]
    assert field(inspector, "out_channels").hasFocus()


def test_one_visit_to_a_field_is_one_undo_step(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    into(qtbot, field(inspector, "out_channels"), "128")
    into(qtbot, field(inspector, "groups"), "2")
    into(qtbot, field(inspector, "out_channels"), "64")
    assert document.undo_stack.count() == 3
    assert document.undo_stack.undoText() == "Set out_channels of conv1"
    document.undo_stack.undo()
    assert param(document, "c", "out_channels") == 128
    document.undo_stack.undo()
    document.undo_stack.undo()
    assert param(document, "c", "out_channels") == 32
    assert field(inspector, "out_channels").text() == "32"


def test_ctrl_z_in_a_field_is_the_projects_undo(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    QShortcut(QKeySequence("Ctrl+Z"), inspector, document.undo_stack.undo)
    pick(qtbot, inspector, selection, "c")
    line = field(inspector, "out_channels")
    into(qtbot, line, "128")
    qtbot.keyClick(line, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert param(document, "c", "out_channels") == 32
    assert line.text() == "32"
    assert not document.undo_stack.canUndo()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("out_channels", "0", "out_channels must be at least 1, not 0"),
        ("out_channels", "many", "out_channels expects an int, not 'many'"),
        ("out_channels", "99999999999", "out_channels expects an int, not 99999999999"),
        ("kernel_size", "x", "kernel_size expects an int or 2 ints, not 'x'"),
    ],
)
def test_a_bad_value_is_refused_with_words(
    qtbot: QtBot,
    inspector: Inspector,
    document: Document,
    selection: Selection,
    name: str,
    text: str,
    words: str,
) -> None:
    pick(qtbot, inspector, selection, "c")
    line = field(inspector, name)
    into(qtbot, line, text)
    assert problem(inspector, name) == words
    assert line.property("invalid") is True
    kept = spec_value(document, name)
    check(catalog()["nn.Conv2d"].param(name), kept)
    qtbot.keyClick(line, Qt.Key.Key_Tab)
    assert problem(inspector, name) == ""
    assert not line.property("invalid")
    assert line.text() == str(kept[0] if isinstance(kept, tuple) else kept)


def test_escape_gives_the_old_value_back(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    line = field(inspector, "out_channels")
    into(qtbot, line, "-")
    assert problem(inspector, "out_channels")
    qtbot.keyClick(line, Qt.Key.Key_Escape)
    assert line.text() == "32"
    assert param(document, "c", "out_channels") == 32


def test_the_same_number_in_all_dimensions_is_one_number(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    first, second = inspector.node_page.form.editor("kernel_size").lines()
    into(qtbot, first, "5")
    assert param(document, "c", "kernel_size") == 5, "both while they are equal"
    into(qtbot, second, "7")
    assert param(document, "c", "kernel_size") == (5, 7)
    into(qtbot, first, "3")
    assert param(document, "c", "kernel_size") == (3, 7)


def test_a_value_at_its_default_is_not_kept(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    into(qtbot, field(inspector, "groups"), "2")
    assert param(document, "c", "groups") == 2
    into(qtbot, field(inspector, "groups"), "1")
    assert "groups" not in document.project.graph.nodes["c"].params


def test_a_word_takes_the_place_of_numbers_and_leads_back(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    editor = inspector.node_page.form.editor("padding")
    assert isinstance(editor, NumbersEditor)
    qtbot.mouseClick(editor.words, Qt.MouseButton.LeftButton)
    menu = editor.findChild(QMenu)
    qtbot.keyClick(menu, Qt.Key.Key_Down)
    qtbot.keyClick(menu, Qt.Key.Key_Return)
    assert param(document, "c", "padding") == "same"
    word = inspector.node_page.form.editor("padding")
    assert isinstance(word, WordEditor)
    word.field.setFocus()
    qtbot.keyClick(word.field, Qt.Key.Key_End)
    assert isinstance(inspector.node_page.form.editor("padding"), NumbersEditor)
    assert "padding" not in document.project.graph.nodes["c"].params


def test_a_switch_and_a_choice_are_steps_of_their_own(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    form = inspector.node_page.form
    toggle, choice = form.editor("bias"), form.editor("padding_mode")
    assert isinstance(toggle, ToggleEditor) and isinstance(choice, ChoiceEditor)
    qtbot.mouseClick(toggle.field, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(toggle.field, Qt.MouseButton.LeftButton)
    qtbot.keyClick(choice.field, Qt.Key.Key_Down)
    assert document.undo_stack.count() == 3
    assert param(document, "c", "padding_mode") == "reflect"
    assert param(document, "c", "bias") is None
    assert toggle.field.text() == "True"


def test_an_optional_tuple_is_typed_as_text(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "p")
    line = field(inspector, "stride")
    assert line.text() == "None"
    into(qtbot, line, "2, 1")
    assert param(document, "p", "stride") == (2, 1)
    into(qtbot, line, "None")
    assert "stride" not in document.project.graph.nodes["p"].params


def test_a_linked_value_is_shown_cut_and_linked_again(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    inspector.set_analysis(analyse(document.project.graph))
    pick(qtbot, inspector, selection, "c2")
    form = inspector.node_page.form
    row = form.rows["in_channels"]
    assert isinstance(row.editor, AutoEditor)
    assert row.editor.field.text() == "32" and row.editor.field.isReadOnly()
    assert row.note.text() == "from pool1"
    line = row.editor.field
    qtbot.mouseClick(line, Qt.MouseButton.LeftButton, pos=QPoint(10, 10))
    assert param(document, "c2", "in_channels") is None, (
        "a click beside the link reads, it does not cut"
    )
    qtbot.mouseClick(
        line,
        Qt.MouseButton.LeftButton,
        pos=QPoint(line.width() - 12, line.height() // 2),
    )
    assert param(document, "c2", "in_channels") == 32
    assert isinstance(row.editor, NumberEditor)
    into(qtbot, field(inspector, "in_channels"), "16")
    assert param(document, "c2", "in_channels") == 16
    qtbot.mouseClick(row.link, Qt.MouseButton.LeftButton)
    assert isinstance(row.editor, AutoEditor)
    assert "in_channels" not in document.project.graph.nodes["c2"].params


def test_the_link_is_cut_by_key_too(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    inspector.set_analysis(analyse(document.project.graph))
    pick(qtbot, inspector, selection, "c")
    inspector.node_page.form.editor("in_channels").setFocus()
    qtbot.keyClick(inspector.focusWidget(), Qt.Key.Key_Return)
    assert param(document, "c", "in_channels") == 1


def test_reset_to_defaults_gives_what_a_new_node_has(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    into(qtbot, field(inspector, "groups"), "4")
    inspector.node_page.edits.reset_all()
    assert (
        document.project.graph.nodes["c"].params
        == catalog()["nn.Conv2d"].starting_params()
    )
    assert field(inspector, "groups").text() == "1"


def test_what_is_refused_stays_while_the_analysis_comes(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    line = field(inspector, "out_channels")
    into(qtbot, line, "")
    qtbot.keyClick(line, Qt.Key.Key_Delete)
    inspector.set_analysis(analyse(document.project.graph))
    document.apply("move", replace(document.project, notes="x"))
    assert line.text() == "" and problem(inspector, "out_channels")


def test_a_bad_value_in_a_file_is_shown_and_can_be_mended(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    graph = document.project.graph.with_param("c", "kernel_size", (3, 3, 3))
    document.apply("bad", replace(document.project, graph=graph))
    pick(qtbot, inspector, selection, "c")
    assert isinstance(inspector.node_page.form.editor("kernel_size"), TextEditor)
    assert problem(inspector, "kernel_size")
    into(qtbot, field(inspector, "kernel_size"), "5, 3")
    assert param(document, "c", "kernel_size") == (5, 3)


# --- Header


def test_the_name_is_edited_in_place(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    name = inspector.node_page.header.name
    into(qtbot, name, "stem")
    qtbot.keyClick(name, Qt.Key.Key_Return)
    assert document.project.graph.nodes["c"].name == "stem"
    assert document.undo_stack.count() == 1


@pytest.mark.parametrize(
    ("name", "words"), [("", "Enter a name"), ("relu1", "already"), ("x" * 81, "80")]
)
def test_names_that_cannot_be(name: str, words: str, document: Document) -> None:
    with pytest.raises(BadName, match=words):
        check_name(document.project.graph, "c", name)


def test_a_refused_name_says_why_and_goes(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    header = inspector.node_page.header
    header.name.selectAll()
    qtbot.keyClicks(header.name, "relu1")
    assert "already" in header.note.text()
    qtbot.keyClick(header.name, Qt.Key.Key_Return)
    assert header.name.text() == document.project.graph.nodes["c"].name != "relu1"


def test_the_name_in_the_code_is_told_where_it_differs(
    inspector: Inspector, selection: Selection, document: Document
) -> None:
    graph = document.project.graph.with_name("c", "conv 1")
    document.apply("rename", replace(document.project, graph=graph))
    selection.set({"c"})
    assert inspector.node_page.header.note.text() == "In the code: conv_1"


def test_delete_from_the_menu(
    inspector: Inspector, selection: Selection, document: Document
) -> None:
    selection.set({"c"})
    next(
        a
        for a in inspector.node_page.header.menu().actions()
        if a.text().startswith("Delete")
    ).trigger()
    assert "c" not in document.project.graph.nodes


# --- What the analysis knows


def test_shapes_cost_and_problems_of_a_node(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    cure = Cure("Set kernel_size=1", (SetParam("c", "kernel_size", 1),))
    known = analyse(document.project.graph)
    told = Problem(
        "error",
        "c",
        "conv1 does not fit",
        "Too large.",
        "Kernel size can't be greater",
        cures=(cure,),
    )
    inspector.set_analysis(known, (*known.problems, told))
    pick(qtbot, inspector, selection, "c")
    page = inspector.node_page
    chips = [
        chip.text()
        for chip in page.shape.findChildren(ShapeChip)
        if chip.isVisibleTo(page)
    ]
    assert chips == ["N×1×8×8", "N×32×6×6"]
    assert any(
        "Parameters: 320" in bar.accessibleName()
        for bar in page.cost.findChildren(CostBar)
    )
    assert page.problems.isVisibleTo(inspector)
    with qtbot.waitSignal(inspector.cure_requested) as cured:
        qtbot.mouseClick(page.problems.boxes[0].buttons[0], Qt.MouseButton.LeftButton)
    assert cured.args == [cure]
    inspector.set_analysis(known)
    assert not page.problems.isVisibleTo(inspector)


def test_a_node_that_is_not_analysed_yet_says_so(
    inspector: Inspector, selection: Selection
) -> None:
    inspector.set_analysis(Analysis(Graph(), Source("")))
    selection.set({"c"})
    assert "Computing shapes…" in {
        each.text() for each in inspector.node_page.shape.findChildren(QLabel)
    }
    assert inspector.node_page.form.editor("in_channels").field.text() == "auto"


# --- None and several


def test_without_a_selection_the_project_is_shown_and_its_notes_kept(
    qtbot: QtBot, inspector: Inspector, document: Document
) -> None:
    page = inspector.overview
    inspector.set_analysis(analyse(document.project.graph))
    qtbot.mouseClick(page.notes.viewport(), Qt.MouseButton.LeftButton)
    qtbot.keyClicks(page.notes, "try 5x5")
    assert document.project.notes == "try 5x5"
    assert document.undo_stack.count() == 1
    into(qtbot, page.name, "digits")
    assert document.project.name == "digits"
    document.undo_stack.undo()
    document.undo_stack.undo()
    assert page.notes.toPlainText() == "" and page.name.text() == "net"


def test_several_nodes_are_counted_and_deleted_together(
    qtbot: QtBot, inspector: Inspector, document: Document, selection: Selection
) -> None:
    inspector.set_analysis(analyse(document.project.graph))
    selection.set({"c", "c2"})
    qtbot.waitUntil(inspector.several.delete.isVisible)
    assert inspector.several.title.text() == "2 nodes"
    qtbot.mouseClick(inspector.several.delete, Qt.MouseButton.LeftButton)
    assert set(document.project.graph.nodes) == {"in", "r", "p", "out"}
    assert document.undo_stack.count() == 1


def test_opening_another_project_leaves_no_ghost(
    inspector: Inspector, selection: Selection, document: Document
) -> None:
    selection.set({"c"})
    document.new(Project("other"))
    assert inspector.overview.name.text() == "other"


# --- Documentation


def test_documentation_is_asked_behind_the_window(
    qtbot: QtBot, inspector: Inspector, selection: Selection
) -> None:
    pick(qtbot, inspector, selection, "c")
    section = inspector.node_page.documentation
    assert section.summary.text() == "PyTorch is loading."
    inspector.set_torch_loaded()
    qtbot.waitUntil(
        lambda: section.summary.text().startswith("Applies a 2D convolution")
    )
    assert (
        "Number of channels"
        in inspector.node_page.form.rows["out_channels"].name.toolTip()
    )
    qtbot.waitUntil(section.more.isVisible)
    qtbot.mouseClick(section.more, Qt.MouseButton.LeftButton)
    assert "<h4>Args</h4>" in section.full.text()


def test_docstrings_become_readable() -> None:
    text = """cat(tensors, dim=0) -> Tensor

Concatenates :attr:`tensors`, see :func:`torch.split`.

.. math::
    y = \\frac{x}{\\sqrt{2}} \\times \\text{in\\_channels}

.. note::
    All must have **one** shape.

Args:
    dim (int, optional): the dimension
        to go along. Default: ``0``

Example::

    >>> torch.cat((x, x), 0)
"""
    html = to_html(text)
    assert "cat(tensors" not in html
    assert (
        "<p>Concatenates <code>tensors</code>, see <code>torch.split</code>.</p>"
        in html
    )
    assert "y = (x)/(√(2)) × in_channels" in html
    assert "<b>Note.</b> All must have <b>one</b> shape." in html
    assert (
        "<code><b>dim</b></code> <i>int, optional</i>: the dimension to go along. Default: <code>0</code>"
        in html
    )
    assert "<pre>&gt;&gt;&gt; torch.cat((x, x), 0)</pre>" in html
    assert inline("a < b") == "a &lt; b"


def test_values_are_told_apart_by_type() -> None:
    assert (
        not equal_values(1, True)
        and not equal_values(1, 1.0)
        and equal_values((1, AUTO), (1, AUTO))
    )
    assert equal_values(DType("int64"), DType("int64"))
    for spec in catalog().values():
        for each in spec.params:
            if not each.required and each.default is not None:
                check(each, each.default)


def test_the_name_of_a_node_has_the_width_of_the_inspector(qtbot: QtBot) -> None:
    header = NodeHeader()
    qtbot.addWidget(header)
    header.resize(304, 80)
    header.show()
    node = Node("b", "nn.ReLU", "residual_block1_down")
    header.show_node(Graph(FrozenMap(b=node)), node, catalog()["nn.ReLU"], False)
    qtbot.waitUntil(lambda: header.name.width() > 200)
    assert header.more.geometry().top() >= header.name.geometry().bottom() - 2
