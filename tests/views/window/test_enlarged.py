"""A page or a chart as large as the window, the whole screen, and charts for a class."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.views.training.charts.charts import RateChart
from app.views.ui import theme
from tests.support.run_windows import run, small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.document.new(small(epochs=1))
    ready(qtbot, window)
    return window


def double_click(qtbot: QtBot, window: WholeWindow, pane: str, title: str) -> None:
    tabs = getattr(window, pane).tabs if pane == "centre" else window.bottom.pane.tabs
    place = next(at for at in range(tabs.count()) if tabs.tabText(at) == title)
    spot = tabs.tabRect(place).center()
    qtbot.mouseClick(tabs, LEFT, pos=spot)
    qtbot.mouseDClick(tabs, LEFT, pos=spot)


def seen(window: WholeWindow) -> tuple[bool, bool, bool, bool]:
    return (
        window.left.isVisible(),
        window.centre.isVisible(),
        window.right.isVisible(),
        window.bottom.isVisible(),
    )


def test_a_double_click_on_a_tab_gives_its_page_the_window_and_a_second_one_or_esc_puts_it_back(
    qtbot: QtBot, window: WholeWindow
) -> None:
    height, width = window.bottom.height(), window.left.width()
    double_click(qtbot, window, "bottom", "Problems")
    assert seen(window) == (False, False, False, True)
    qtbot.waitUntil(lambda: window.bottom.height() > 500)
    double_click(qtbot, window, "bottom", "Problems")
    assert seen(window) == (True, True, True, True)
    qtbot.waitUntil(lambda: window.bottom.height() == height)
    assert window.left.width() == width

    double_click(qtbot, window, "centre", "Network")
    assert seen(window) == (False, True, False, False)
    qtbot.keyClick(window.centre.tabs, Qt.Key.Key_Escape)
    assert seen(window) == (True, True, True, True)
    window.bottom.pane.tabs.setFocus()
    qtbot.keyClick(window, Qt.Key.Key_F11, modifier=Qt.KeyboardModifier.ShiftModifier)
    assert seen(window) == (False, False, False, True)
    window.pages.show("network")  # what asks for another page is seen
    assert seen(window) == (True, True, True, True)


def test_a_double_click_on_a_chart_makes_it_large_and_chooses_no_step(
    qtbot: QtBot, window: WholeWindow
) -> None:
    run(qtbot, window)
    curves = window.curves
    before = curves.loss.height()
    surface = curves.loss.plot.viewport()
    qtbot.mouseClick(surface, LEFT)
    qtbot.mouseDClick(surface, LEFT)
    assert not curves.accuracy.isVisible() and seen(window) == (
        False,
        False,
        False,
        True,
    )
    qtbot.waitUntil(lambda: curves.loss.height() > 1.5 * before)
    qtbot.waitUntil(lambda: curves.loss.width() > 0.9 * window.width())
    assert window.shown_run.step is None
    qtbot.mouseDClick(curves.loss.heading, LEFT)
    assert curves.accuracy.isVisible() and all(seen(window))

    double_click(qtbot, window, "bottom", "Curves")
    qtbot.mouseDClick(curves.accuracy.heading, LEFT)
    assert not curves.loss.isVisible()
    qtbot.mouseDClick(curves.accuracy.heading, LEFT)
    assert curves.loss.isVisible() and not window.left.isVisible()
    qtbot.mouseDClick(curves.chart(RateChart).heading, LEFT)
    qtbot.keyClick(curves, Qt.Key.Key_Escape)
    assert curves.loss.isVisible() and all(seen(window))


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_nothing_is_printed_over_the_footer_of_the_layers_however_low_they_are(
    qtbot: QtBot, window: WholeWindow, scale: float
) -> None:
    window.actions_by_key[f"text-size.{scale}"].trigger()
    qtbot.waitUntil(lambda: theme.manager().scale == scale)
    window.resizeDocks([window.bottom], [2000], Qt.Orientation.Vertical)
    footer = window.own_files
    qtbot.waitUntil(lambda: footer.height() >= footer.minimumSizeHint().height())
    heading, words = (
        widget.rect().translated(widget.mapTo(window.palette_view, QPoint()))
        for widget in (footer.heading, footer.words)
    )
    assert not heading.intersects(words)
    assert words.bottom() <= window.palette_view.height()
    window.actions_by_key["text-size.1.0"].trigger()


def test_f11_takes_the_whole_screen_and_gives_it_back(
    qtbot: QtBot, window: WholeWindow
) -> None:
    qtbot.keyClick(window, Qt.Key.Key_F11)
    assert window.isFullScreen()
    qtbot.keyClick(window, Qt.Key.Key_F11)
    assert not window.isFullScreen()


def test_a_projector_shows_the_whole_net_and_the_charts_in_half_of_the_window(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.canvas.view.zoom_to(2.0)
    height = window.bottom.height()
    window.settings.projector = True  # as in the Settings dialog
    assert theme.manager().scale == 1.5
    assert window.actions_by_key["projector"].isChecked()
    qtbot.waitUntil(lambda: window.bottom.height() > 0.4 * window.height())
    qtbot.waitUntil(lambda: window.canvas.view.whole)
    window.actions_by_key["projector"].trigger()
    assert theme.manager().scale == 1.0 and not window.settings.projector
    qtbot.waitUntil(lambda: abs(window.bottom.height() - height) < 8)


def test_a_window_that_is_closed_with_a_large_page_has_all_docks_again(
    qtbot: QtBot, window: WholeWindow
) -> None:
    double_click(qtbot, window, "bottom", "Problems")
    window.document.undo_stack.setClean()
    window.close()
    assert not window.pages.enlarged.name
