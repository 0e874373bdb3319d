"""The page with which the program begins where no project is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.features.start.page import OfferRow, StartPage
from app.project import file
from app.project.project import Project
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow


@pytest.fixture
def page(qtbot: QtBot, window: WholeWindow) -> StartPage:
    """The page as a start without a project shows it, once it has all its rows."""
    window.settings.reopen = False
    window.open_on(None, None)
    page = window.findChild(StartPage)
    qtbot.waitUntil(lambda: bool(page.examples.rows))
    return page


def click(qtbot: QtBot, page: StartPage, target: QWidget) -> None:
    page.ensureWidgetVisible(target)
    qtbot.waitUntil(
        lambda: (
            target.isVisible()
            and not target.visibleRegion().isEmpty()
            and target.rect().contains(target.visibleRegion().boundingRect().center())
        )
    )
    spot: QPoint = target.visibleRegion().boundingRect().center()
    qtbot.mouseClick(target, Qt.MouseButton.LeftButton, pos=spot)


def named(rows: list[OfferRow], text: str) -> OfferRow:
    return next(row for row in rows if row.offer.text == text)


def test_a_start_without_a_project_shows_the_page_until_an_example_is_opened(
    qtbot: QtBot, window: WholeWindow, page: StartPage
) -> None:
    assert window.pages.is_front("start")
    click(qtbot, page, named(page.examples.rows, "digits"))
    qtbot.waitUntil(lambda: window.document.project.name == "digits")
    assert window.pages.is_front("network")
    assert not window.pages.is_offered("centre", "start")


def test_the_projects_opened_last_are_reached_by_keys(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        file.write(Project(name), tmp_path / f"{name}.tape")
        window.settings.add_recent(tmp_path / f"{name}.tape")
    window.settings.add_recent(tmp_path / "gone.tape")
    window.open_on(None, None)
    page = window.findChild(StartPage)
    rows = page.recent.rows
    assert [row.offer.text for row in rows[:2]] == ["second", "first"]
    qtbot.waitUntil(lambda: all(row.isVisible() for row in rows))
    assert page.home() is rows[0]
    qtbot.keyClick(rows[0], Qt.Key.Key_Down)
    assert window.focusWidget() is rows[1]
    qtbot.keyClick(rows[1], Qt.Key.Key_Return)
    assert window.document.path == tmp_path / "first.tape"
    assert window.pages.is_front("network")


def test_the_settings_have_the_last_project_opened_instead(
    window: WholeWindow, tmp_path: Path
) -> None:
    project = tmp_path / "mine.tape"
    file.write(Project("mine"), project)
    window.settings.add_recent(project)
    window.settings.reopen = True
    window.open_on(None, None)
    assert window.document.path == project and not window.pages.is_front("start")


def test_data_of_ones_own_lead_to_the_list_of_data_beside_an_empty_canvas(
    qtbot: QtBot, window: WholeWindow, page: StartPage
) -> None:
    click(qtbot, page, page.data)
    qtbot.waitUntil(lambda: window.pages.is_front("training"))
    assert window.pages.is_front("network")
    assert not window.document.project.graph.nodes


@needs("opened")
def test_a_model_is_asked_for(
    qtbot: QtBot, window: WholeWindow, page: StartPage
) -> None:
    from app.features.opened.open_dialog import OpenModelDialog

    click(qtbot, page, page.model)
    qtbot.waitUntil(lambda: bool(window.findChildren(OpenModelDialog)))
    window.findChild(OpenModelDialog).reject()


@needs("lessons")
def test_a_lesson_begins(qtbot: QtBot, window: WholeWindow, page: StartPage) -> None:
    click(qtbot, page, page.lessons.rows[0])
    qtbot.waitUntil(lambda: window.pages.is_front("learn"))
    assert not window.pages.is_offered("centre", "start")


def test_the_page_is_left_as_it_came_while_a_project_is_open(
    window: WholeWindow,
) -> None:
    window.files.open_example("digits.tape")
    window.actions_by_key["start-page"].trigger()
    assert window.pages.is_front("start")
    assert window.document.project.name == "digits"
    window.pages.show("network")
    assert window.canvas.scene.nodes
