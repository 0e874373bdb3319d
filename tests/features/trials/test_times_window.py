"""In the window: the time of each layer, on its page and on the canvas."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.features.trials.times_page import TimesPage, TimesTable, node_seconds
from app.features.trials.values import LayerTime, LayerTimes
from app.project import file as project_file
from app.source.generated import ClassText, Source
from app.training.config import Choice
from app.util.frozen import FrozenMap
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import node, ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(epochs=1), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def measured(qtbot: QtBot, window: WholeWindow) -> TimesPage:
    """The page, once the layers have been measured."""
    window.actions_by_key["layer-times"].trigger()
    page: TimesPage = window.pages.widget("times")
    qtbot.waitUntil(lambda: page.times is not None)
    return page


def test_layers_are_measured_listed_and_drawn_until_the_net_changes(
    qtbot: QtBot, window: WholeWindow
) -> None:
    drawn: list[set[str]] = []
    window.overlays.heat_drawn.connect(lambda shares, *_: drawn.append(set(shares)))
    page = measured(qtbot, window)
    times = page.times
    layers = [row.layer for row in times.layers]
    modules = dict(window.live.analysis.source.modules)
    assert set(layers[:-1]) == set(modules.values())
    assert [row.name for row in page.table.rows] == [
        *layers[:-1],
        "Between layers",
        "Optimizer",
    ]
    together = sum(row.together for row in page.table.rows)
    assert together >= times.step_seconds * 0.999
    assert f"on {times.device}" in page.summary.text()
    assert window.overlay.is_offered("Time")

    window.overlays.choose("Time")
    assert drawn[-1] <= set(modules) and drawn[-1]
    before = window.document.project
    name = next(iter(modules))
    window.document.apply(
        "Another net",
        replace(before, graph=before.graph.with_param(name, "out_features", 11)),
    )
    assert "measure again" in page.summary.text()
    assert not window.overlay.is_offered("Time") and drawn[-1] == set()
    window.document.undo_stack.undo()
    assert window.overlay.is_offered("Time")


def test_enter_on_a_row_goes_to_the_node(qtbot: QtBot, window: WholeWindow) -> None:
    page = measured(qtbot, window)
    table: TimesTable = page.table
    row = next(row for row in table.rows if row.layer)
    table.setFocus()
    table.choose_quietly(row)
    table.setCurrentIndex(table.model().index(table.rows.index(row), 0))
    qtbot.keyClick(table, Qt.Key.Key_Return)
    assert window.selection.ids == {node(window, row.layer)}


def test_an_optimizer_that_calls_the_net_several_times_is_refused(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = window.document.project
    window.document.apply(
        "LBFGS",
        replace(project, training=replace(project.training, optimizer=Choice("LBFGS"))),
    )
    ready(qtbot, window)
    window.actions_by_key["layer-times"].trigger()
    assert window.banner.isVisible() and "LBFGS" in window.banner.reason()


def test_another_project_takes_page_and_overlay_away(
    qtbot: QtBot, window: WholeWindow
) -> None:
    measured(qtbot, window)
    window.overlays.choose("Time")
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    assert not window.overlay.is_offered("Time")
    assert window.overlays.chosen != "Time"
    assert window.pages.widget("times").times is None


def test_a_block_has_the_time_of_what_is_in_it() -> None:
    inner = ClassText(modules=FrozenMap({"c": "conv"}))
    source = Source(
        "",
        modules=FrozenMap({"a": "block1", "b": "fc"}),
        classes=FrozenMap(
            {
                "": ClassText(
                    modules=FrozenMap({"a": "block1", "b": "fc"}),
                    blocks=FrozenMap({"a": "Block"}),
                ),
                "Block": inner,
            }
        ),
    )

    def row(layer: str, forward: float, backward: float) -> LayerTime:
        return LayerTime(layer, forward, backward, 0.0, 0.0)

    rows = (
        row("block1", 1.0, 0.0),
        row("block1.conv", 2.0, 3.0),
        row("block10", 64.0, 0.0),
        row("fc", 4.0, 0.0),
        row("between layers", 8.0, 0.0),
    )
    times = LayerTimes("cpu", 82.0, 82.0, 1.0, 1.0, rows, 0.0)
    assert node_seconds(times, source) == {"a": 6.0, "b": 4.0}
    assert node_seconds(times, source.within((("a", 0),))) == {"c": 5.0}
