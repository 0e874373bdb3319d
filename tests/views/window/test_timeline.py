"""The timeline under the charts: a step is chosen, shown everywhere, and computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt

from app.project import file as project_file
from app.project.project import Project
from app.runs import store
from app.util.formatting import figure
from app.util.resources import path as resource_path
from app.views.training.timeline.feature import TimelineFeature
from app.views.training.timeline.timeline_bar import CANCEL, RELIVE
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready, wait_for

EXAMPLE = project_file.read(resource_path("examples", "digits.tape"))


def small(**training: object) -> Project:
    return replace(EXAMPLE, training=replace(EXAMPLE.training, **{"device": "cpu", "epochs": 2, **training}))


@pytest.fixture
def trained(qtbot, window: WholeWindow, tmp_path: Path) -> Iterator[WholeWindow]:
    """A window whose run has ended, with its charts."""
    file = tmp_path / "net.tape"
    project_file.write(small(), file)
    window.files.open(file)
    ready(qtbot, window)
    window.run_control.run()
    wait_for(qtbot, window, "done")
    qtbot.waitUntil(lambda: hasattr(timeline(window), "relive_control"))
    yield window
    timeline(window).relive_control.cancel()


def timeline(window: WholeWindow) -> TimelineFeature:
    return next(each for each in window.features if isinstance(each, TimelineFeature))


def test_a_step_chosen_by_key_click_or_number_is_shown_by_charts_and_strips(qtbot, trained: WholeWindow) -> None:
    bar, curves = timeline(trained).timeline, trained.curves
    nodes = trained.document.project.graph.nodes.values()
    conv1 = trained.canvas.scene.nodes[next(node.id for node in nodes if node.name == "conv1")]
    steps = curves.history.steps["step"]
    trained.overlay.set_value("Gradients")
    bar.slider.setFocus()
    qtbot.keyClick(bar.slider, Qt.Key.Key_Home)
    assert trained.shown_run.step == steps[0] == 1
    qtbot.keyClick(bar.slider, Qt.Key.Key_Right)
    assert trained.shown_run.step == 2 == bar.field.value()
    loss = figure(float(curves.history.steps["loss"][1]))
    assert f"train {loss}" in curves.loss.legend.texts
    measured = int(np.searchsorted(curves.history.gradient_steps, 2, "right"))
    norm = curves.history.gradients["conv1"][measured - 1]
    assert f"grad {figure(norm, 2)}" in conv1._words
    view = curves.loss.plot.view
    x = float(steps[20])
    qtbot.waitUntil(lambda: curves.loss.plot.isVisible() and view.viewRange()[0][1] >= steps[-1])
    at = curves.loss.plot.mapFromScene(view.mapViewToScene(QPointF(x, sum(view.viewRange()[1]) / 2)))
    qtbot.mouseClick(curves.loss.plot.viewport(), Qt.MouseButton.LeftButton, pos=at)
    qtbot.waitUntil(lambda: abs((trained.shown_run.step or 0) - x) <= 1)
    qtbot.keyClick(bar.slider, Qt.Key.Key_Escape)
    assert trained.shown_run.step is None and bar.field.value() == steps[-1]
    bar.field.setFocus()
    bar.field.selectAll()
    qtbot.keyClicks(bar.field, "7")
    qtbot.keyClick(bar.field, Qt.Key.Key_Return)
    assert trained.shown_run.step == 7 and bar.slider.value() == 6


def test_a_step_is_re_lived_and_its_graph_played_to_the_recorded_norms(qtbot, trained: WholeWindow) -> None:
    bar, history = timeline(trained).timeline, trained.curves.history
    step = int(history.gradient_steps[1])
    trained.shown_run.choose_step(step)
    qtbot.mouseClick(bar.relive, Qt.MouseButton.LeftButton)
    assert bar.relive.text() == CANCEL
    qtbot.waitUntil(lambda: bar.relive.text() == RELIVE, timeout=60_000)
    assert "verified" in bar.words.text()
    qtbot.waitUntil(lambda: trained.room.tape is not None)
    player = trained.tape_control.player
    assert trained.room.tape.loss == pytest.approx(history.steps["loss"][step - 1], rel=0, abs=0)
    trained.tape_control.play()
    player.set_speed(None)
    qtbot.waitUntil(lambda: player.position == len(player) > 0 and player.state == "standing", timeout=60_000)
    squares: dict[str, float] = {}
    for one in player.records:
        for name in player.tape.nodes[one.node].parameters:
            layer = name.rpartition(".")[0]
            squares[layer] = squares.get(layer, 0.0) + (one.norm or 0.0) ** 2
    recorded = dict(zip(history.layers, history.gradients.matrix()[:, 1], strict=True))
    assert squares.keys() == recorded.keys()
    for layer, norm in recorded.items():
        assert squares[layer] ** 0.5 == pytest.approx(norm, rel=1e-5)
    trained.findings_control.run_diagnostics()
    assert "This step of a run" in trained.findings_control.page.empty.accessibleDescription()


def test_re_living_is_cancelled_and_what_cannot_be_re_lived_is_said(qtbot, trained: WholeWindow) -> None:
    bar = timeline(trained).timeline
    trained.shown_run.choose_step(40)
    qtbot.mouseClick(bar.relive, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(bar.relive, Qt.MouseButton.LeftButton)
    assert bar.words.text() == "cancelled" and bar.relive.text() == RELIVE
    folder = trained.shown_run.figures.folder
    source = folder / store.SOURCE
    source.write_text(source.read_text("utf-8").replace("class", "# another\nclass", 1), "utf-8")
    qtbot.mouseClick(bar.relive, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: trained.banner.title() == "The step was not re-lived", timeout=60_000)
    assert "differs from what this version" in trained.banner.reason() and bar.relive.text() == RELIVE
