"""In the window: the page "Layer" of fresh weights, and of a step that was recomputed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.project import file as project_file
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import DIGITS, ready, wait_for


def test_it_follows_the_selection_and_looks_into_fresh_weights(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.files.open(DIGITS)
    ready(qtbot, window)
    window.pages.show("layer")
    analysis = window.live.analysis
    node = next(
        node for node, path in analysis.source.modules.items() if path == "conv1"
    )
    window.network_selection.set([node], None)
    page = window.layer_page
    qtbot.waitUntil(lambda: page.inside.inside is not None)
    assert (
        page.layer == "conv1"
        and page.inside.inside.weights == "weights untrained, initialised with seed 0"
    )
    assert page.inside.grid.count == page.inside.inside.channels.count


def test_it_shows_a_step_that_was_recomputed_and_the_newest_again(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    if not window.actions_by_key.has("debug-step"):
        pytest.skip("another feature recomputes steps, and is not there")
    project_file.write(small(epochs=2), tmp_path / "net.tape")
    window.files.open(tmp_path / "net.tape")
    ready(qtbot, window)
    window.run_control.run()
    wait_for(qtbot, window, "done")
    history = window.session.history
    step = int(history.gradient_steps[1])
    recorded = dict(zip(history.layers, history.gradients.matrix()[:, 1], strict=True))
    window.shown_run.choose_step(step)
    window.actions_by_key.trigger("debug-step")
    qtbot.waitUntil(lambda: hasattr(window, "layer_control"))
    page = window.layer_page
    qtbot.waitUntil(lambda: page.batch.isVisible())
    qtbot.waitUntil(lambda: page.values.at_step.shown)
    assert page.layer == max(recorded, key=recorded.__getitem__)
    assert page.run_words.text() == f"Step {step} of Run 1, recomputed"
    weights = page.values.at_step.shown[0].values
    page.values.kind.set_value("gradients")
    page.values.redraw()
    gradients = page.values.at_step.shown[0].values
    assert sum(gradients.counts) == sum(weights.counts)
    assert gradients.high < recorded[page.layer]
    assert page.inside.inside.count == 64 and page.inside.shown_channels.count
    window.pages.show("layer")
    qtbot.mouseClick(page.newest, Qt.MouseButton.LeftButton)
    assert window.shown_run.step is None
    assert page.values.at_step.isHidden() and not page.values.plot.isHidden()
    qtbot.waitUntil(lambda: page.inside.inside is not None)
    assert "at step 46" in page.inside.inside.weights
