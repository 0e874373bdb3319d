"""A replay of the backward pass as a page, from the window: of what was played, or of a batch played for it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QFileDialog

from app.views.autograd.tape.replay_control import FILTER
from tests.autograd.test_replay_html import Page
from tests.views.window.test_tape import stands, window  # noqa: F401  a fixture


def wait_for_page(qtbot, path: Path) -> Page:
    def whole() -> bool:
        return path.exists() and path.read_text("utf-8").endswith("</html>\n")

    qtbot.waitUntil(whole)
    return Page(path.read_text("utf-8"))


def test_a_batch_is_played_for_the_page_as_the_graph_is_folded(
    window, qtbot, tmp_path, monkeypatch
) -> None:
    path = tmp_path / "a.html"
    monkeypatch.setattr(
        QFileDialog, "getSaveFileName", lambda *_: (str(path.with_suffix("")), FILTER)
    )
    window.actions_by_key["html-replay"].trigger()
    page, drawing, tape = (
        wait_for_page(qtbot, path),
        window.room.drawing(),
        window.room.tape,
    )
    assert [step["node"] for step in page.data["steps"]] == list(tape.order)
    assert len(page.data["views"][page.data["view"]]["parts"]) == len(
        drawing.boxes
    ) + len(drawing.groups)
    assert (
        window.tape_control.player.position == 0
        and not window.tape_control.player.keeps
    )


def test_what_was_played_is_what_the_page_plays(
    window, qtbot, tmp_path, monkeypatch
) -> None:
    player, path = window.tape_control.player, tmp_path / "b.html"
    player.seek(len(player))
    stands(qtbot, window, len(player))
    asked: list[str] = []

    def answer(_window, _title, _start, filters: str) -> tuple[str, str]:
        asked.append(filters)
        return str(path), FILTER

    monkeypatch.setattr(QFileDialog, "getSaveFileName", answer)
    window.room.head.export.click()
    window.autograd_control.pictures.dialog.save_button.click()
    page = wait_for_page(qtbot, path)
    assert FILTER in asked[0]
    norms = {step["node"]: step["norm"] for step in page.data["steps"]}
    assert norms == {record.node: record.norm for record in player.records}
    assert [step["seconds"] for step in page.data["steps"]] == [
        record.seconds for record in player.records
    ]
