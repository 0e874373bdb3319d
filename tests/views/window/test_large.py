"""A sheet of many nodes: an edit touches what it changes, views hear of it in turns, and in the end all is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.project import file
from app.views.fields.line_edits import TOO_LONG, NotesField
from app.views.inspector.io_section import MOST, InputsOutputsSection
from app.views.ui.widgets import ShapeChip
from tests.slow.material.monsters import MONSTERS
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.support.windows import shown
from tests.views.window.test_window import ready


@pytest.fixture(scope="module")
def large(
    qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WholeWindow]:
    path = tmp_path_factory.mktemp("large") / "chain.tape"
    path.write_bytes(MONSTERS["a chain of 1000 nodes"]())
    with shown(qapp, "large") as made:
        assert made.files.open(path)
        made.start()
        yield made


@pytest.fixture
def many(qtbot: QtBot, large: WholeWindow) -> WholeWindow:
    large.document.undo_stack.setIndex(0)
    ready(qtbot, large)
    at_rest(qtbot, large)
    return large


@pytest.fixture
def window(many: WholeWindow) -> WholeWindow:
    return many


def at_rest(qtbot: QtBot, window: WholeWindow) -> None:
    qtbot.waitUntil(
        lambda: (
            window.live.up_to_date
            and window.canvas.scene.analysis is window.live.in_front
        )
    )


@needs("weights")
def test_the_last_layer_is_looked_for_when_a_menu_opens_and_not_at_every_click(
    window: WholeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.features.weights import feature

    walks: list[object] = []
    real = feature.last_layer
    monkeypatch.setattr(
        feature, "last_layer", lambda *given: (walks.append(given), real(*given))[1]
    )
    nodes = list(window.document.project.graph.nodes)
    for node in nodes[500:520]:
        window.selection.set([node], None)
    assert not walks
    assert (
        window.actions_by_key["replace-last"] not in window.canvas.more_actions()
        and len(walks) == 1
    )


def test_a_file_far_from_rest_is_left_at_once(
    window: WholeWindow, tmp_path: Path
) -> None:
    before = len(window.canvas.scene.nodes)
    window.document.new()
    assert before and not window.canvas.scene.nodes and not window.canvas.scene.wires


def test_notes_with_a_line_that_takes_a_minute_to_lay_out_are_cut_where_they_are_shown(
    qtbot: QtBot, window: WholeWindow
) -> None:
    page_of = window.inspector
    field = next(
        field
        for field in page_of.findChildren(NotesField)
        if field.accessibleName() == "Notes"
    )
    words = "x" * 100_000 + "\nshort"
    field.show_text(words)
    assert (
        field.isReadOnly()
        and TOO_LONG in field.toPlainText()
        and len(field.toPlainText()) < 11_000
    )
    field.show_text("short\nagain")
    assert not field.isReadOnly() and field.toPlainText() == "short\nagain"
    field.show_text(window.document.project.notes)


def test_wires_that_are_wanted_again_between_nodes_that_are_there_come_in_order(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = file.loads(MONSTERS["5,000 wires into one cat"]())
    some = replace(
        project, graph=replace(project.graph, edges=project.graph.edges[:1_500])
    )
    window.document.new(some)
    at_rest(qtbot, window)
    window.document.apply("Cut", replace(some, graph=replace(some.graph, edges=())))
    scene = window.canvas.scene
    assert not scene.wires and not scene.wiring.index.inside(scene.content_rect())
    window.document.undo_stack.undo()
    at_rest(qtbot, window)
    assert len(scene.wires) == 1_500 and len(scene.wiring.index) == 1_500
    assert [item.rank for item in map(scene.wires.get, some.graph.edges)] == list(
        range(1_500)
    )


def test_of_a_thousand_outputs_the_first_are_listed_and_the_others_counted(
    qtbot: QtBot,
) -> None:
    section = InputsOutputsSection("none")
    qtbot.addWidget(section)
    section.show_ends(file.loads(MONSTERS["1,000 outputs"]()).graph, None)
    said = [each.text() for each in section.findChildren(QLabel)]
    assert "and 961 more" in said and len(section.findChildren(ShapeChip)) == MOST
