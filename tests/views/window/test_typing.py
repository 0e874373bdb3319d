"""What is typed stays where it is typed: no late answer and no list that is made anew takes the focus or the caret."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.data.config import DataConfig, Transform
from app.training.config import Choice, ParameterGroup, Schedule
from app.util.frozen import FrozenMap
from app.views.fields.form import ParamForm
from app.views.ui.code_edit import CodeEdit
from app.views.ui.widgets import NumberField
from app.views.ui.widgets.focus import keeping_focus
from tests.support import windows
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

DATA = DataConfig(
    "made.fake",
    options=FrozenMap(shape=(3, 9, 9)),
    train_transforms=(Transform("Resize", FrozenMap(size=(8, 8))),),
    eval_transforms=(Transform("Resize", FrozenMap(size=(8, 8))),),
)


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    """A window on a net that the data do not fit, with every kind of row in the Training tab."""
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    project = window.document.project
    training = replace(
        project.training,
        schedule=Schedule(Choice("StepLR", FrozenMap(step_size=3))),
        groups=(ParameterGroup("conv1", FrozenMap(lr=0.1)),),
        optimizer=Choice("SGD", FrozenMap(lr=0.1)),
    )
    window.document.apply("Set up", replace(project, data=DATA, training=training))
    window.right.pane.show_page("training")
    for section in window.training_form.sections:
        section.set_open(True)
    settle(qtbot, window)
    return window


def settle(qtbot: QtBot, window: WholeWindow) -> None:
    """Let the window and its worker answer whatever the last key asked."""
    QApplication.processEvents()
    qtbot.waitUntil(
        lambda: (
            window.live.up_to_date
            and not window.background.busy
            and not window.engine.busy
        )
    )
    qtbot.waitUntil(lambda: not window.hearers.active)
    QApplication.processEvents()


def lines_of(page: QWidget) -> list[QLineEdit]:
    """Every line of text of the forms in a page that a person can type into now."""
    editors = [
        row.editor
        for form in page.findChildren(ParamForm)
        for row in form.rows.values()
        if row.editor
    ]
    lines = [line for editor in editors for line in editor.lines()]
    return [
        line
        for line in lines
        if line.isVisible() and line.isEnabled() and not line.isReadOnly()
    ]


def text_for(line: QLineEdit) -> str:
    """A text of several keys that changes the value with most of them."""
    whole = isinstance(line, NumberField) and line._kind == "int"
    return "12" if whole else "0.25" if isinstance(line, NumberField) else "4, 28"


def type_into(qtbot: QtBot, window: WholeWindow, line: QLineEdit, text: str) -> None:
    """Type as a person does, key by key, each to whatever has the focus then."""
    line.setFocus()
    line.selectAll()
    for number in range(len(text)):
        QTest.keyClicks(QApplication.focusWidget(), text[number])
        settle(qtbot, window)
        where = f"{line.accessibleName()} after {text[: number + 1]!r}"
        assert QApplication.focusWidget() is line, (
            f"{where} the focus is in {QApplication.focusWidget()}"
        )
        assert line.text() == text[: number + 1], where
        assert line.cursorPosition() == number + 1, where


def look_at_problems(window: WholeWindow) -> None:
    """Put the focus where a person was once: on a row that goes with its problem."""
    if hasattr(window, "problems_panel"):
        window.problems_panel.rows[0].setFocus()


@pytest.mark.parametrize("page", ["curves", "console"])
def test_every_field_of_the_training_tab_takes_what_is_typed(
    qtbot: QtBot, window: WholeWindow, page: str
) -> None:
    assert window.live.analysis.problems, (
        "the data do not fit, so there are rows that change with what is typed"
    )
    look_at_problems(window)
    window.pages.show(page)
    seen = lines_of(window.training_form)
    assert len(seen) > 25
    # Fields go with their rows where a value is undone, so each is found again by its place.
    for number in range(len(seen)):
        line = lines_of(window.training_form)[number]
        text = text_for(line)
        before = window.document.undo_stack.index()
        type_into(qtbot, window, line, text)
        QTest.keyClick(line, Qt.Key.Key_Tab)
        settle(qtbot, window)
        assert window.document.undo_stack.index() <= before + 1, (
            f"{line.accessibleName()} was more than one step"
        )
        window.document.undo_stack.setIndex(before)
        settle(qtbot, window)


def test_a_shape_and_a_count_are_typed_whole_while_net_and_data_disagree(
    qtbot: QtBot, window: WholeWindow
) -> None:
    look_at_problems(window)
    options = window.training_form.data.options
    for name, text in (("shape", "1, 28, 28"), ("classes", "1000")):
        (line,) = options.editor(name).lines()
        type_into(qtbot, window, line, text)
        QTest.keyClick(line, Qt.Key.Key_Return)
    assert dict(window.document.project.data.options) == {
        "shape": (1, 28, 28),
        "classes": 1000,
    }
    (resize,) = window.training_form.data.training_transforms.items
    (size,) = resize.form.editor("size").lines()
    type_into(qtbot, window, size, "28, 28")
    QTest.keyClick(size, Qt.Key.Key_Tab)
    (transform,) = window.document.project.data.train_transforms
    assert dict(transform.params) == {"size": (28, 28)}


def test_every_field_of_the_inspector_takes_what_is_typed(
    qtbot: QtBot, window: WholeWindow
) -> None:
    look_at_problems(window)
    window.right.pane.show_page("inspector")
    graph = window.document.project.graph
    kinds = ("input", "nn.Conv2d", "nn.Linear", "nn.Dropout")
    for key in {
        node.op: key for key, node in graph.nodes.items() if node.op in kinds
    }.values():
        window.selection.set({key}, None)
        settle(qtbot, window)
        for number in range(len(lines_of(window.inspector))):
            line = lines_of(window.inspector)[number]
            before = window.document.undo_stack.index()
            type_into(qtbot, window, line, text_for(line))
            window.document.undo_stack.setIndex(before)
            settle(qtbot, window)


def other_lines(page: QWidget) -> list[QWidget]:
    """Every field of a page that is in no form of parameters."""
    kinds = (QLineEdit, QPlainTextEdit)
    lines = [
        each
        for kind in kinds
        for each in page.findChildren(kind)
        if not isinstance(each, CodeEdit)
    ]
    return [
        line
        for line in lines
        if line.isVisible()
        and line.isEnabled()
        and not line.isReadOnly()
        and not line.property("link")
        and not any(isinstance(above, ParamForm | QComboBox) for above in parents(line))
    ]


def parents(widget: QWidget) -> Iterator[QWidget]:
    while (widget := widget.parentWidget()) is not None:
        yield widget


def test_every_other_field_takes_what_is_typed_while_answers_arrive(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    tried = set()
    for pane in (
        window.centre,
        window.left.pane,
        window.right.pane,
        window.bottom.pane,
    ):
        for key in pane._keys:
            if not pane.tabs.isTabVisible(pane.tabs.index(key)):
                continue
            pane.show_page(key)
            settle(qtbot, window)
            for number in range(len(other_lines(pane.widget_of(key)))):
                line = other_lines(pane.widget_of(key))[number]
                line.setFocus()
                line.selectAll()
                for typed in "12":
                    QTest.keyClicks(QApplication.focusWidget(), typed)
                    window.live.refresh()
                    settle(qtbot, window)
                shown = (
                    line.toPlainText()
                    if isinstance(line, QPlainTextEdit)
                    else line.text()
                )
                where = f"{line.accessibleName() or type(line).__name__} of {key}"
                assert QApplication.focusWidget() is line, (
                    f"{where}: the focus is in {QApplication.focusWidget()}"
                )
                assert shown == "12", where
                QTest.keyClick(line, Qt.Key.Key_Escape)
                tried.add(key)
    assert {"layers", "inspector"} <= tried


def test_a_rate_typed_faster_than_torch_checks_it_stays_as_typed(
    qtbot: QtBot, window: WholeWindow
) -> None:
    (line,) = window.training_form.optimizer.form.editor("lr").lines()
    line.setFocus()
    line.selectAll()
    QTest.keyClicks(line, "1")
    QTest.keyClicks(line, "e")  # no number yet when the answer to 1 comes
    settle(qtbot, window)
    assert line.text() == "1e" and QApplication.focusWidget() is line
    QTest.keyClicks(line, "-4")
    settle(qtbot, window)
    assert line.text() == "1e-4"
    QTest.keyClick(line, Qt.Key.Key_Return)
    line.setFocus()
    qtbot.waitUntil(
        lambda: window.document.project.training.optimizer.params["lr"] == 0.0001
    )
    QTest.keyClick(line, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    settle(qtbot, window)
    assert line.text() == "0.1", "undo is shown though the caret is in the field"


def test_the_focus_of_a_button_that_goes_is_the_canvas_again(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.training_form.area.ensureWidgetVisible(window.training_form.data.fit)
    button, _synthetic = window.training_form.data.fit.buttons
    button.setFocus()
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    settle(qtbot, window)
    shape = {
        node.params.get("shape")
        for node in window.document.project.graph.nodes.values()
        if node.op == "input"
    }
    assert shape == {(3, 8, 8)} and QApplication.focusWidget() is window.canvas.view


def test_the_focus_has_a_place_while_a_page_is_made_that_is_shown_first(
    qtbot: QtBot, qapp
) -> None:
    with windows.shown(qapp, "first look") as window:
        assert window.focusWidget() is window.canvas.view, (
            "not the first button of the window"
        )
        pages = [page for feature in window.features for page in feature.pages()]
        later = [page.key for page in pages if page.dock == "centre" and not page.early]
        assert len(later) > 3
        for key in later:
            window.pages.put_in_front(
                "centre", key
            )  # as a click does before the page is made
            assert window._home() is window.centre.tabs


def test_synthetic_data_come_with_the_shape_and_the_classes_of_the_net(
    qtbot: QtBot, window: WholeWindow
) -> None:
    form = window.training_form
    form.data.source.edited.emit("sklearn.digits")
    settle(qtbot, window)
    for node, name, value in (
        ("input", "shape", (2, 8, 8)),
        ("nn.Linear", "out_features", 7),
    ):
        graph = window.document.project.graph
        last = [key for key, one in graph.nodes.items() if one.op == node][-1]
        graph = graph.with_param(last, name, value)
        window.document.apply("Change", replace(window.document.project, graph=graph))
    settle(qtbot, window)
    form.data.source.edited.emit("made.fake")
    settle(qtbot, window)
    assert dict(window.document.project.data.options) == {
        "shape": (2, 8, 8),
        "classes": 7,
    }
    assert not window.live.errors


def test_the_bubble_of_an_input_lists_what_fits_it_first_and_noise_last(
    qtbot: QtBot, window: WholeWindow
) -> None:
    graph = window.document.project.graph
    window.right.pane.show_page("inspector")
    window.selection.set(
        {next(key for key, node in graph.nodes.items() if node.op == "input")}, None
    )
    settle(qtbot, window)
    callout = window.canvas.callout
    assert callout.isVisible() and callout.more.isVisible()
    shape, noise, choose = callout.menu().actions()
    assert noise.text() == "Fit the synthetic data to 1×8×8, 10 classes"
    assert shape.text().startswith("Set shape")
    choose.trigger()
    source = window.training_form.data.source
    assert (
        source.isVisible()
        and source.view().isVisible()
        and window.document.project.graph is graph
    )
    source.hidePopup()
    QTest.mouseClick(
        callout.button, Qt.MouseButton.LeftButton
    )  # the first cure has the net take what was chosen
    settle(qtbot, window)
    (node,) = [node for node in graph.nodes.values() if node.op == "input"]
    mended = window.document.project.graph.nodes[node.id]
    assert mended.params["shape"] == (3, 8, 8)


def test_a_list_that_is_made_anew_keeps_the_focus_and_the_text_only_if_it_had_them(
    qtbot: QtBot, qapp
) -> None:
    from PySide6.QtWidgets import QVBoxLayout

    host = QWidget()
    qtbot.addWidget(host)
    column = QVBoxLayout(host)
    column.addWidget(other := QLineEdit())
    column.addWidget(place := QWidget())
    inside = QVBoxLayout(place)

    def fill() -> None:
        while (item := inside.takeAt(0)) is not None:
            item.widget().hide()
            item.widget().deleteLater()
        for name in "ab":
            line = QLineEdit(accessibleName=name)
            inside.addWidget(line)

    fill()
    host.show()
    lines = {line.accessibleName(): line for line in place.findChildren(QLineEdit)}
    lines["b"].setFocus()
    lines["b"].setText("typ")
    lines["b"].setCursorPosition(2)
    with keeping_focus(place):
        fill()
    focused = host.focusWidget()
    assert focused is not lines["b"] and focused.accessibleName() == "b"
    assert (focused.text(), focused.cursorPosition()) == ("typ", 2)
    other.setFocus()
    with keeping_focus(place):
        fill()
    assert host.focusWidget() is other
