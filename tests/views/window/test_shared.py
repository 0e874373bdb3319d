"""The window that tests share: a page with something that is not put back would have each of them make a new one."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.support.needs import needs
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


@needs("lessons")
def test_it_is_lent_again_after_a_lesson_was_begun(
    qtbot: QtBot, qapp: QApplication, window: WholeWindow, shared_window: SharedWindow
) -> None:
    from tests.features.lessons.hand import Hand

    hand = Hand(window, qtbot.waitUntil, "01-what-a-tape-is")
    assert hand.control.lesson is not None
    shared_window.take_back()
    assert shared_window.lend(qtbot, qapp) is window, shared_window.changed


def test_it_is_lent_again_after_a_script_was_watched(
    qtbot: QtBot,
    qapp: QApplication,
    window: WholeWindow,
    shared_window: SharedWindow,
    tmp_path: Path,
) -> None:
    frames = tmp_path / "frames.jsonl"
    frames.write_text('{"event": "script", "script": "train.py"}\n')
    window.actions_by_key.trigger("watch-file", frames)
    qtbot.waitUntil(lambda: window.run_control.shows_script)
    shared_window.take_back()
    assert shared_window.lend(qtbot, qapp) is window, shared_window.changed
