"""Every parameter of every op in the form: the editor shows its value, takes a good one as one undo step, and refuses
a bad one, with torch's words where torch has any. By the keyboard alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QApplication, QLineEdit
from pytestqt.qtbot import QtBot

from app.builder.catalog.catalog import OpSpec, Param, catalog
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO, DTYPES, DType, Slice
from app.builder.params import check_param
from app.engine.tasks.layer import torch_message
from app.project.document import Document
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.editor_factory import kind_of, suits
from app.views.fields.editors import (
    ChoiceEditor,
    Editor,
    ToggleEditor,
    WordEditor,
)
from app.views.fields.values import equal_values, parse, show, text_of
from app.views.fields.wired_field import AutoEditor
from app.views.inspector import Inspector
from app.views.selection import Selection
from app.views.ui.background import Background
from app.views.ui.widgets import NumbersField
from tests.support.every import every

OPS = [key for key, spec in catalog().items() if spec.params]


@pytest.fixture
def background() -> Iterator[Background]:
    worker = Background()
    yield worker
    worker.close()


class Form:
    """The form of one new node, and a person at its keyboard."""

    spec: OpSpec

    def __init__(self, qtbot: QtBot, background: Background) -> None:
        self.qtbot, self.document, self.selection = (
            qtbot,
            Document(Project()),
            Selection(),
        )
        self.inspector = Inspector(
            self.document, self.selection, catalog(), EngineService(background)
        )
        qtbot.addWidget(self.inspector)
        self.inspector.resize(304, 1400)
        with qtbot.waitExposed(self.inspector):
            self.inspector.show()

    def show(self, key: str) -> None:
        """A project with one new node of an op, which is selected."""
        self.spec = catalog()[key]
        node = Node("n", key, "node1", self.spec.starting_params())
        self.selection.set(())
        self.document.new(Project(graph=Graph(FrozenMap({"n": node}))))
        self.selection.set({"n"})
        QApplication.processEvents()
        QApplication.sendPostedEvents(
            None, QEvent.Type.DeferredDelete
        )  # the form before, as an event loop does

    @property
    def params(self) -> FrozenMap[str, Any]:
        return self.document.project.graph.nodes["n"].params

    def value(self, param: Param) -> Any:
        return self.spec.value(self.document.project.graph.nodes["n"], param.name)

    def editor(self, param: Param) -> Editor:
        assert self.inspector.node_page.form is not None
        return self.inspector.node_page.form.editor(param.name)

    def go_to(self, param: Param) -> Editor:
        """Put the caret into the editor."""
        editor = self.editor(param)
        editor.setFocus(Qt.FocusReason.TabFocusReason)
        return editor

    def press(self, key: Qt.Key) -> None:
        self.qtbot.keyClick(self.inspector.focusWidget(), key)

    def type(self, text: str) -> None:
        """Type over what is in the field."""
        line = self.inspector.focusWidget()
        assert isinstance(line, QLineEdit)
        line.selectAll()
        if text:
            self.qtbot.keyClicks(line, text)
        else:
            self.press(Qt.Key.Key_Delete)
        self.press(Qt.Key.Key_Return)

    def give(self, param: Param, value: Any) -> None:
        """Give a parameter a value, as its editor takes it."""
        editor = self.go_to(param)
        if isinstance(editor, AutoEditor):
            self.press(Qt.Key.Key_Return)
            editor = self.go_to(param)
        if isinstance(editor, ToggleEditor):
            if editor.field.value() != value:
                self.press(Qt.Key.Key_Space)
        elif isinstance(editor, ChoiceEditor | WordEditor):
            choices = editor.field.choices()
            wanted = next(
                i for i, choice in enumerate(choices) if equal_values(choice, value)
            )
            while editor.field.currentIndex() != wanted:
                self.press(
                    Qt.Key.Key_Down
                    if editor.field.currentIndex() < wanted
                    else Qt.Key.Key_Up
                )
        elif isinstance(editor.field, NumbersField) and param.count:
            for place, one in enumerate(
                value if isinstance(value, tuple) else (value,) * param.count
            ):
                line = list(editor.lines())[place]
                line.setFocus(Qt.FocusReason.TabFocusReason)
                self.type(str(one))
        else:
            self.type(show(value))


def good_value(param: Param, now: Any) -> Any:
    """Another value that a parameter can have."""
    low = 1 if param.minimum is None else int(param.minimum)
    rows = [
        tuple(low + 1 + more + i for i in range(param.count or 2)) for more in (0, 1)
    ]
    candidates: dict[str, tuple[Any, ...]] = {
        "int": (low + 1, low + 2, low),
        "float": (0.25, 0.75, 0.5, low + 0.5),
        "bool": (False, True),
        "choice": param.choices,
        "dtype": tuple(map(DType, param.choices or DTYPES[:2]))
        if param.kind == "dtype"
        else (),
        "ints": tuple(rows),
        "number": (2.5, 3),
        "index": ((Ellipsis, Slice(1, None), 0), Slice(None, None, 2)),
        "tensor": (((1.0, 2.0), (3.0, 4.0)), (1, 2)),
        "equation": ("ij,jk->ik", "ii->i"),
        "str": ("some words",),
        "packed": ("c-muNXs~BsU~m8c1cLzp", "c-muNXs~BsU~m8c1cLzq"),
        "value": ((1, 2.5),),
    }
    for value in candidates[param.kind]:
        if param.count == 1 and isinstance(value, tuple) and param.kind == "ints":
            value = value[0]
        if not equal_values(value, now) and fits(param, value):
            return value
    raise AssertionError(f"no other value for {param}")


def fits(param: Param, value: Any) -> bool:
    try:
        check_param(param, value)
    except ValueError:
        return False
    return True


BAD = {"tensor": "[[1, 2], [3]]", "equation": "1->2", "packed": '"two words"'}


def test_every_parameter_is_shown_set_by_keyboard_and_refused(
    qtbot: QtBot, background: Background
) -> None:
    """One that is equal in several ops is set in the first of them, unless it follows what arrives there."""
    form, seen, new = Form(qtbot, background), set[str](), dict[str, list[Param]]()
    for key in OPS:
        new[key] = [
            param
            for param in catalog()[key].params
            if param.auto or repr(param) not in seen
        ]
        seen.update(map(repr, new[key]))

    @every({key: (key, params) for key, params in new.items() if params})
    def of_all_ops(member: tuple[str, list[Param]]) -> None:
        key, params = member
        form.show(key)
        assert not form.document.undo_stack.canUndo()
        takes_good_values(form, params)
        refuses_bad_values(form, params)

    of_all_ops()


def takes_good_values(form: Form, params: list[Param]) -> None:
    """Each parameter shows what it has, takes another value as one undo step, and has the old one after undo."""
    for param in params:
        first = form.value(param)
        editor = form.editor(param)
        assert suits(editor, first) and type(editor) is kind_of(param, first)
        if first is not AUTO and first is not None:
            assert _shown(editor) == _text(editor, first), param.name
        if param.kind == "choice" and len(param.choices) == 1 and not param.optional:
            continue
        value = good_value(param, first)
        before, steps = form.document.project, form.document.undo_stack.count()
        automatic = isinstance(editor, AutoEditor)
        form.give(param, value)
        assert equal_values(form.value(param), value) or _collapsed(
            form.value(param), value
        ), param.name
        # Cutting the link to the arriving shape is a step of its own; what is typed after it, in one visit, is one. A
        # switch that may stand at none as well takes a click for each of its places.
        clicks = automatic * 2 + (param.kind == "bool" and param.optional)
        assert form.document.undo_stack.count() - steps <= 1 + clicks, param.name
        while form.document.undo_stack.count() and form.document.project != before:
            form.document.undo_stack.undo()
        assert equal_values(form.value(param), first), param.name


def refuses_bad_values(form: Form, params: list[Param]) -> None:
    """Each parameter that could be given a bad value says why it does not take it, and the project stays."""
    for param in params:
        editor = form.go_to(param)
        if isinstance(
            editor, ToggleEditor | ChoiceEditor | AutoEditor
        ) or param.kind in ("str", "value"):
            continue  # it offers nothing that it would refuse
        project = form.document.project
        line = form.inspector.focusWidget()
        form.type(BAD.get(param.kind, "x y"))
        row = form.inspector.node_page.form.rows[param.name]
        assert row.problem.text().startswith(param.name), param.name
        assert line.property("invalid") is True
        assert form.document.project is project, param.name
        form.press(Qt.Key.Key_Tab)
        assert not row.problem.isVisibleTo(form.inspector), param.name
        assert not line.property("invalid")


def _shown(editor: Editor) -> Any:
    """What an editor shows."""
    lines = list(editor.lines())
    return tuple(line.text() for line in lines) if lines else editor.field.value()


def _text(editor: Editor, value: Any) -> Any:
    """What it is to show for a value."""
    lines = list(editor.lines())
    if not lines:
        return value
    if isinstance(editor.field, NumbersField):
        values = value if isinstance(value, tuple) else (value,) * len(lines)
        if len(lines) == 1 and len(values) != 1:
            return (" × ".join(map(show, values)),)
        return tuple(map(show, values))
    return (show(value),)


def _collapsed(value: Any, wanted: Any) -> bool:
    return isinstance(wanted, tuple) and all(item == value for item in wanted)


@pytest.mark.parametrize(
    ("key", "name", "text", "words"),
    [
        ("nn.Dropout", "p", "1.5", "dropout probability has to be between 0 and 1"),
        ("nn.LSTM", "dropout", "2", "number in range [0, 1]"),
        ("nn.Conv2d", "groups", "0", "groups must be a positive integer"),
        ("nn.Conv2d", "padding", "some", "Invalid padding string"),
        ("nn.Conv2d", "padding_mode", "wrap", "padding_mode must be one of"),
        ("nn.Dropout", "p", "0.5", ""),
    ],
)
def test_torch_is_asked_for_its_own_words(
    key: str, name: str, text: str, words: str
) -> None:
    said = torch_message(catalog()[key], catalog()[key].starting_params(), name, text)
    assert words in said if words else said == ""


def test_torchs_words_come_below_ours(qtbot: QtBot, background: Background) -> None:
    form = Form(qtbot, background)
    form.show("nn.Dropout")
    form.inspector.set_torch_loaded()
    param = form.spec.params[0]
    form.go_to(param)
    form.type("1.5")
    problem = form.inspector.node_page.form.rows["p"].problem
    assert problem.text() == "p must be at most 1, not 1.5"
    qtbot.waitUntil(lambda: "PyTorch: dropout probability has to be" in problem.text())
    form.type("0.25")
    assert form.params["p"] == 0.25 and not problem.isVisibleTo(form.inspector)


def values(spec: OpSpec) -> Iterator[tuple[Param, Any]]:
    for param in spec.params:
        default = None if param.required else param.default
        if param.kind != "choice":
            yield from (
                (param, value)
                for value in (default, param.start, good_value(param, default))
            )


@every({key: catalog()[key] for key in OPS})
def test_what_a_field_shows_is_read_as_the_same_value(spec: OpSpec) -> None:
    for param, value in values(spec):
        if (
            value is None
            and not param.optional
            or (isinstance(value, float) and math.isnan(value))
        ):
            continue
        assert equal_values(parse(param, text_of(param, value)), value), (
            param.name,
            value,
            text_of(param, value),
        )


@pytest.mark.parametrize(
    "value",
    [
        "relu",
        "1",
        "True",
        "1, 2",
        ("a", 1),
        ("a",),
        (1, (2, "b")),
        1.5,
        2,
        False,
        (),
        None,
    ],
)
def test_a_value_of_any_kind_is_read_as_it_was(value: Any) -> None:
    param = Param("x", "value", optional=True)
    assert equal_values(parse(param, text_of(param, value)), value), text_of(
        param, value
    )
