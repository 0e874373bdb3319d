"""The timeline under the charts: a step is chosen, shown everywhere, and computed again."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtWidgets import QMenu

from app.features.revisit.feature import TimelineFeature
from app.features.revisit.timeline_bar import CANCEL, RECOMPUTE
from app.project import file as project_file
from app.project.project import Project
from app.runs import store
from app.training.config import Choice
from app.util.formatting import figure
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.tables import texts_of
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready, wait_for

EXAMPLE = project_file.read(resource_path("examples", "digits.tape"))


def small(**training: object) -> Project:
    return replace(
        EXAMPLE,
        training=replace(
            EXAMPLE.training, **{"device": "cpu", "epochs": 2, **training}
        ),
    )


@pytest.fixture
def trained(qtbot, window: WholeWindow, tmp_path: Path) -> Iterator[WholeWindow]:
    """A window whose run has ended, with its charts."""
    file = tmp_path / "net.tape"
    project_file.write(small(), file)
    window.files.open(file)
    ready(qtbot, window)
    window.run_control.run()
    wait_for(qtbot, window, "done")
    qtbot.waitUntil(lambda: hasattr(timeline(window), "recompute_control"))
    yield window
    timeline(window).recompute_control.cancel()
    for dialog in (
        timeline(window).step_control.batch_dialog,
        timeline(window).step_control.first_step,
    ):
        if dialog is not None:
            dialog.close()


def timeline(window: WholeWindow) -> TimelineFeature:
    return next(each for each in window.features if isinstance(each, TimelineFeature))


def test_a_step_chosen_by_key_click_or_number_is_shown_by_charts_and_strips(
    qtbot, trained: WholeWindow
) -> None:
    trained.pages.show("curves")
    bar, curves = timeline(trained).timeline, trained.curves
    nodes = trained.document.project.graph.nodes.values()
    key = next(node.id for node in nodes if node.name == "conv1")
    conv1 = trained.canvas.scene.nodes[key]
    steps = curves.history.steps["step"]
    trained.overlay.set_value("Gradients")
    bar.slider.setFocus()
    qtbot.keyClick(bar.slider, Qt.Key.Key_Home)
    assert trained.shown_run.step == steps[0] == 1
    qtbot.keyClick(bar.slider, Qt.Key.Key_Right)
    assert trained.shown_run.step == 2 == bar.field.value()
    loss = figure(float(curves.history.steps["loss"][1]))
    qtbot.waitUntil(lambda: f"training {loss}" in curves.loss.legend.texts)
    measured = int(np.searchsorted(curves.history.gradient_steps, 2, "right"))
    norm = curves.history.gradients["conv1"][measured - 1]
    qtbot.waitUntil(lambda: f"grad {figure(norm, 2)}" in conv1._words)
    view = curves.loss.plot.view
    x = float(steps[20])
    qtbot.waitUntil(
        lambda: curves.loss.plot.isVisible() and view.viewRange()[0][1] >= steps[-1]
    )
    plot = curves.loss.plot

    def spot() -> QPoint:
        middle = QPointF(x, sum(view.viewRange()[1]) / 2)
        return plot.mapFromScene(view.mapViewToScene(middle))

    qtbot.mouseClick(plot.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    qtbot.waitUntil(lambda: abs((trained.shown_run.step or 0) - x) <= 1)
    qtbot.keyClick(bar.slider, Qt.Key.Key_Escape)
    assert trained.shown_run.step is None and bar.field.value() == steps[-1]
    bar.field.setFocus()
    bar.field.selectAll()
    qtbot.keyClicks(bar.field, "7")
    qtbot.keyClick(bar.field, Qt.Key.Key_Return)
    assert trained.shown_run.step == 7 and bar.slider.value() == 6
    middle = bar.slider.rect().center()
    qtbot.mouseClick(bar.slider, Qt.MouseButton.LeftButton, pos=middle)
    assert (
        abs(bar.slider.value() - len(steps) // 2) <= 1
        and trained.shown_run.step == steps[bar.slider.value()]
    )
    norms = curves.history.gradients["conv1"][
        : int(np.searchsorted(curves.history.gradient_steps, 7, "right"))
    ]
    copy = trained.document.path.with_name("copy.tape")
    shutil.copy(trained.document.path, copy)
    shutil.copytree(store.runs_beside(trained.document.path), store.runs_beside(copy))
    trained.files.open(copy)  # the strips of a stored run follow the timeline too
    ready(qtbot, trained)
    qtbot.waitUntil(lambda: [row.run for row in trained.runs.model.rows] == [None])
    qtbot.waitUntil(lambda: trained.shown_run.figures is not None)
    assert [row.title for row in trained.runs.selected_rows] == ["Run 1"]
    trained.shown_run.choose_step(7)
    conv1 = trained.canvas.scene.nodes[key]
    assert f"grad {figure(norms[-1], 2)}" in conv1._words
    assert trained.canvas.scales.heat.accessibleName().startswith(
        "Gradient norm until step 7"
    )


def test_the_chosen_step_stays_when_the_run_gets_another_name(
    qtbot, trained: WholeWindow
) -> None:
    trained.pages.show("curves")
    bar, shown = timeline(trained).timeline, trained.shown_run
    bar.slider.setFocus()
    qtbot.keyClick(bar.slider, Qt.Key.Key_Home)
    qtbot.keyClick(bar.slider, Qt.Key.Key_Right)
    bar.recompute.click()
    assert bar.recompute.text() == CANCEL
    shown.show(replace(shown.figures, label="Run 1 · wide"))
    assert shown.step == 2 == bar.field.value() and bar.slider.value() == 1
    assert bar.recompute.text() == CANCEL, "it goes on"
    qtbot.waitUntil(lambda: bar.recompute.text() == RECOMPUTE)
    assert shown.past is not None and shown.past.step == 2
    shown.show(replace(shown.figures, label="Run 1 · wide again"))
    assert shown.past is not None and shown.past.step == 2
    loss = figure(float(trained.curves.history.steps["loss"][1]))
    qtbot.waitUntil(lambda: f"training {loss}" in trained.curves.loss.legend.texts)


def test_a_step_is_debugged_its_graph_plays_to_the_recorded_norms_and_its_batch_is_shown(
    qtbot, trained: WholeWindow
) -> None:
    bar, history, control = (
        timeline(trained).timeline,
        trained.curves.history,
        timeline(trained).step_control,
    )
    step = int(history.gradient_steps[1])
    menu = QMenu()
    control.fill(menu, step)
    next(one for one in menu.actions() if one.text() == f"Debug step {step}").trigger()
    assert bar.recompute.text() == CANCEL
    qtbot.waitUntil(lambda: bar.recompute.text() == RECOMPUTE)
    assert "verified" in bar.words.text()
    qtbot.waitUntil(lambda: trained.room.tape is not None)
    assert control.batch_dialog is None, "it would cover the graph"
    control.show_batch()
    qtbot.waitUntil(lambda: control.batch_dialog is not None)
    assert trained.room.tape.loss == pytest.approx(
        history.steps["loss"][step - 1], rel=0, abs=0
    )
    losses = [float(row[3]) for row in texts_of(control.batch_dialog.table)]
    assert np.mean(losses) == pytest.approx(trained.room.tape.loss, rel=1e-2)
    control.batch_dialog.close()
    control.debug(step)  # held: it is not computed again
    assert bar.recompute.text() == RECOMPUTE
    played = norms_played(qtbot, trained)
    recorded = dict(zip(history.layers, history.gradients.matrix()[:, 1], strict=True))
    assert played.keys() == recorded.keys()
    for layer, norm in recorded.items():
        assert played[layer] == pytest.approx(norm, rel=1e-5)
    trained.pages.show("autograd")
    control.debug(step + 1)
    trained.pages.show("network")
    qtbot.waitUntil(
        lambda: trained.banner.title() == f"Step {step + 1} of Run 1 is recomputed",
    )
    assert (
        trained.pages.front("centre") == "network"
    )  # where the work went on meanwhile
    trained.banner.acted.emit()
    assert trained.pages.front("centre") == "autograd"
    assert trained.shown_run.past.label == f"Step {step + 1} of Run 1, recomputed"
    trained.findings_control.run_diagnostics()
    assert (
        "A step of a run" in trained.findings_control.page.empty.accessibleDescription()
    )


def norms_played(qtbot, window: WholeWindow) -> dict[str, float]:
    """The norms of the layers' gradients as the whole graph on show is played."""
    player = window.tape_control.player
    window.tape_control.play()
    player.set_speed(None)
    qtbot.waitUntil(
        lambda: player.position == len(player) > 0 and player.state == "standing",
    )
    squares: dict[str, float] = {}
    for one in player.records:
        for name in player.tape.nodes[one.node].parameters:
            layer = name.rpartition(".")[0]
            squares[layer] = squares.get(layer, 0.0) + (one.norm or 0.0) ** 2
    return {layer: square**0.5 for layer, square in squares.items()}


def test_the_first_step_above_a_bound_is_found_and_left_out_of_a_fork(
    qtbot, trained: WholeWindow
) -> None:
    control, session = timeline(trained).step_control, trained.session
    norms = trained.curves.history.gradients["fc1"]
    control.find_first()
    dialog = control.first_step
    dialog.layer.set_value("fc1")
    dialog.bound.set_value(float(norms[: len(norms) // 2].max()) * 0.99)
    dialog.bound.setFocus()
    qtbot.keyClick(dialog.bound, Qt.Key.Key_Return)
    assert (
        dialog.searching and dialog.focusWidget() is dialog.find_button
    )  # not the one that closes
    qtbot.waitUntil(lambda: dialog.found is not None)
    step = dialog.found.step
    assert (
        step == trained.shown_run.step
        and f"First at step {step}, in fc1" in dialog.words.text()
    )
    dialog.close()
    whole = trained.curves.history.steps["loss"]
    control.leave_out(trained.shown_run.figures.folder, step)
    qtbot.waitUntil(lambda: len(session.runs) == 2)
    wait_for(qtbot, trained, "done")
    fork = session.current
    assert fork.recorder.kept.record.title == f"Run 1 without step {step}"
    assert (
        fork.recorder.kept.record.parent.run == "Run 1"
        and fork.job.training.leave_out == (step,)
    )
    steps = fork.history.steps
    assert (
        step not in steps["step"]
        and len(steps) == len(whole) - 1
        and step in fork.history.marks
    )
    assert steps["loss"][: step - 1].tolist() == whole[: step - 1].tolist()
    assert steps["loss"][step - 1] != whole[step]
    assert store.project_of(fork.recorder.kept).training.leave_out == (step,)


def test_the_step_that_ended_a_run_is_debugged_from_its_message(
    qtbot, trained: WholeWindow
) -> None:
    diverging = Choice("SGD", FrozenMap(lr=1e22))
    project = trained.document.project
    training = replace(project.training, optimizer=diverging)
    trained.document.apply("Diverge", replace(project, training=training))
    qtbot.waitUntil(lambda: trained.run_control.blocked == "")
    trained.run_control.run()
    wait_for(qtbot, trained, "failed")
    step = trained.session.current.failed.step + 1
    button = trained.banner.button(f"Debug step {step}")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    past = trained.shown_run
    qtbot.waitUntil(lambda: past.past is not None and past.past.step == step)
    control = timeline(trained).step_control
    qtbot.waitUntil(lambda: trained.room.tape is not None)
    control.show_batch()
    qtbot.waitUntil(lambda: control.batch_dialog is not None)
    assert texts_of(control.batch_dialog.table)[0][3] == "nan" and math.isnan(
        trained.room.tape.loss
    )


def test_recomputing_is_cancelled_and_what_cannot_be_recomputed_is_said(
    qtbot, trained: WholeWindow
) -> None:
    bar = timeline(trained).timeline
    trained.shown_run.choose_step(40)
    qtbot.mouseClick(bar.recompute, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(bar.recompute, Qt.MouseButton.LeftButton)
    assert bar.words.text() == "cancelled" and bar.recompute.text() == RECOMPUTE
    folder = trained.shown_run.figures.folder
    source = folder / store.SOURCE
    source.write_text(
        source.read_text("utf-8").replace("class", "# another\nclass", 1), "utf-8"
    )
    qtbot.mouseClick(bar.recompute, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: trained.banner.title() == "The step was not recomputed")
    assert (
        "differs from what this version" in trained.banner.reason()
        and bar.recompute.text() == RECOMPUTE
    )
