"""The window that tests share: a page with something that is not put back would have each of them make a new one."""

from __future__ import annotations

from msgspec.structs import replace
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.support.shared_window import SharedWindow
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready


def test_it_is_lent_again_after_a_project_was_opened_and_edited(
    qtbot: QtBot, qapp: QApplication, window: WholeWindow, shared_window: SharedWindow
) -> None:
    window.files.open_example("MLP on digits.tape")
    ready(qtbot, window)
    node = next(iter(window.document.project.graph.nodes))
    project = window.document.project
    window.document.apply(
        "Rename", replace(project, graph=project.graph.with_name(node, "renamed"))
    )
    shared_window.take_back()
    assert shared_window.lend(qtbot, qapp) is window, shared_window.changed
