"""Edits of the drawing applied to a run from the window."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.builder.edits import edits
from app.features.surgery.feature import NOT_NOW, PAUSE_FIRST, SurgeryDialog
from app.project.custom_layers import ops_of
from app.project.project import Project
from app.training.events import Cut
from app.views.training.feature import MOVED_ON
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import node, press, ready, wait_for


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    window.document.new(small(epochs=10_000))
    ready(qtbot, window)
    return window


def widened_and_deeper(project: Project, fc2: str, conv1: str) -> Project:
    """The digits net with eight channels more in conv1 and a layer before fc2."""
    wire = project.graph.into(fc2)[0]
    project, new = edits.insert(
        project, ops_of(project), "nn.Linear", wire, (900.0, 300.0)
    )
    channels = project.graph.nodes[conv1].params["out_channels"] + 8
    graph = project.graph.with_param(new, "out_features", 64).with_param(
        conv1, "out_channels", channels
    )
    return replace(project, graph=graph)


def planned(qtbot, window: WholeWindow) -> SurgeryDialog:
    qtbot.waitUntil(
        lambda: (
            window.surgery_control.dialog is not None
            and window.surgery_control.dialog.plan is not None
        ),
    )
    dialog = window.surgery_control.dialog
    assert dialog is not None
    return dialog


def texts(dialog: SurgeryDialog) -> dict[str, str]:
    model = dialog.table.model()
    return {
        model.index(row, 0).data(): model.index(row, 1).data()
        for row in range(model.rowCount())
    }


def test_a_run_goes_on_with_the_edited_net(qtbot, window: WholeWindow) -> None:
    original = window.document.project
    press(window, "run")
    qtbot.waitUntil(
        lambda: bool(window.session.history) and len(window.session.history.steps) > 3,
    )
    edited = widened_and_deeper(original, node(window, "fc2"), node(window, "conv1"))
    window.document.apply("Edit the net", edited)
    ready(qtbot, window)
    assert window.banner.title() == MOVED_ON and window.banner.isVisible()
    window.document.undo_stack.undo()
    assert not window.banner.isVisible()
    window.document.undo_stack.redo()
    ready(qtbot, window)
    window.banner.acted.emit()  # the button "Apply edits…" of the banner that says that the network was edited
    assert window.banner.title() == PAUSE_FIRST
    window.banner.acted.emit()
    dialog = planned(qtbot, window)
    assert window.session.state == "paused"
    assert texts(dialog) == {
        "conv1": "Widened",
        "conv2": "Widened",
        "fc3": "New, identity",
    }
    assert "The function is preserved" in dialog.function.text()
    dialog.every.setChecked(True)
    assert texts(dialog)["fc1"] == "Kept"
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: window.surgery_control.dialog is None)
    assert window.toolbar.edits.isVisible() and not window.session.history.cuts
    place = window.toolbar.deck.x()
    window.toolbar.edits.click()
    QTest.keyClick(planned(qtbot, window), Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.surgery_control.dialog is None)
    qtbot.waitUntil(lambda: bool(window.session.history.cuts))
    (cut,) = window.session.history.cuts
    assert (
        isinstance(cut, Cut)
        and cut.outcome.difference is not None
        and cut.outcome.difference <= 1e-6
    )
    assert not window.toolbar.edits.isVisible() and window.session.state == "paused"
    assert window.toolbar.deck.x() == place
    assert (
        window.session.current.job.source.modules[
            edited.graph.into(node(window, "fc2"))[0].source
        ]
        == "fc3"
    )
    window.actions_by_key["apply-edits"].trigger()
    assert (
        window.banner.title() == NOT_NOW
        and "nothing to apply" in window.banner.reason()
    )
    press(window, "run")
    steps = len(window.session.history.steps)
    qtbot.waitUntil(lambda: len(window.session.history.steps) > steps + 3)
    qtbot.waitUntil(lambda: "fc3" in window.session.history.layers)
    qtbot.waitUntil(lambda: len(window.curves.loss.plot.backdrop.cuts) == 1)
    fc3 = window.canvas.scene.nodes[edited.graph.into(node(window, "fc2"))[0].source]
    window.overlay.set_value("Gradients")
    qtbot.waitUntil(lambda: "grad" in fc3._words)  # the strips go on with the new layer
    line = window.curves.loss.plot.backdrop.cuts[0]
    assert line.x == cut.step and line.text == cut.description
    window.document.undo_stack.undo()
    ready(qtbot, window)
    assert window.session.active and len(window.session.history.cuts) == 1
    assert "was edited" in window.banner.title()
    press(window, "pause")
    wait_for(qtbot, window, "paused")
    window.curves.loss.plot.pointed.emit(line.x)
    assert any(
        "network edited" in text for text in window.curves.loss.plot.readout.texts
    )
    window.curves.loss.plot.pointed.emit(None)


def test_what_cannot_be_applied_is_said(qtbot, window: WholeWindow) -> None:
    apply = window.actions_by_key["apply-edits"]
    apply.trigger()
    assert (
        window.banner.title() == NOT_NOW
        and "No run is in progress" in window.banner.reason()
    )
    press(window, "step")
    wait_for(qtbot, window, "paused")
    project = window.document.project
    window.document.apply("Break it", edits.delete(project, [node(window, "fc1")]))
    ready(qtbot, window)
    apply.trigger()
    assert window.banner.title() == NOT_NOW and "errors" in window.banner.reason()
    window.document.apply("Repair it", project)
    ready(qtbot, window)
    assert not window.banner.isVisible()
