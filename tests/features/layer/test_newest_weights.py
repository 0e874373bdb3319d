"""In the window: the page "Layer" of the newest run."""

from __future__ import annotations

from pathlib import Path

import torch
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.support.run_windows import closed, listed, opened, small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_newest_weights import (  # noqa: F401  fixtures
    WORDS,
    learnt,
    path,
    trained,
    window,
)


def test_the_layer_page_shows_pictures_and_figures_of_it(
    qtbot: QtBot, window: WholeWindow, path: Path
) -> None:
    window.pages.show("layer")
    qtbot.waitUntil(lambda: window.furnished)
    page = window.layer_page
    qtbot.waitUntil(lambda: "conv1" in page._layers)
    page.show_layer("conv1")
    page.layerChosen.emit("conv1")
    qtbot.waitUntil(lambda: page.inside.inside is not None)
    assert page.inside.inside.weights == WORDS and page.inside.words.toolTip().endswith(
        f"with {WORDS}"
    )
    pictures = torch.from_numpy(page.inside.inside.filters.pictures)
    assert torch.equal(pictures, learnt(path)["conv1.weight"].flatten(0, 1))
    listed(qtbot, window, 1)  # a page of runs shows the newest
    qtbot.waitUntil(lambda: page.run_title == "Run 1")
    steps, ratios = page.ratio.ratios
    assert (
        len(steps)
        and ratios[-1] > 0
        and page.values.history.seen.histograms["weights"].samples_of("conv1")
    )
    window.document.new(small())
    assert (
        not page.run_title
        and not page.ratio.ratios[0].size
        and page.inside.inside is None
    ), "of another project"


def test_the_page_is_made_when_it_is_first_shown_with_the_layer_and_the_run_of_then(
    qtbot: QtBot, path: Path
) -> None:
    window = opened(qtbot, path, charts=False)
    assert not hasattr(window, "layer_page")
    listed(qtbot, window, 1)
    nodes = window.document.project.graph.nodes.values()
    linear = next(node.id for node in nodes if node.op == "nn.Linear")
    window.selection.set({linear})
    layer = window.live.analysis.source.modules[linear]
    tabs = window.bottom.pane.tabs
    place = next(at for at in range(tabs.count()) if tabs.tabText(at) == "Layer")
    qtbot.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs.tabRect(place).center())
    qtbot.waitUntil(lambda: hasattr(window, "layer_control"))
    qtbot.waitUntil(lambda: window.layer_page.run_title == "Run 1")
    assert window.layer_page.layer == layer
    window.selection.set(())
    window.selection.set({linear})
    assert window.layer_page.isVisible() and window.layer_page.layer == layer
    closed(window)
