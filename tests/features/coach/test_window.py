"""The coach in the window: its line above the curves, its button, and what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QDialog
from pytestqt.qtbot import QtBot

from app.features.coach.feature import (
    SILENT,
    CoachFeature,
    CoachLine,
    PairsDialog,
    WhyDialog,
)
from app.project import file as project_file
from app.training.config import Choice
from app.util.frozen import FrozenMap
from tests.slow import coach
from tests.support.needs import needs
from tests.support.tables import texts_of
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready, wait_for

CASES = {case.name: case for case in (*coach.ILL, *coach.HEALTHY)}


def opened(
    qtbot: QtBot, window: WholeWindow, name: str, folder: Path, **training: object
) -> tuple[CoachFeature, CoachLine]:
    """Open the project of a run, and start it."""
    project = coach.project_of(CASES[name], folder)
    project = replace(project, training=replace(project.training, **training))
    project_file.write(project, folder / "net.tape")
    window.files.open(folder / "net.tape")
    ready(qtbot, window)
    window.run_control.run()
    feature = next(one for one in window.features if isinstance(one, CoachFeature))
    qtbot.waitUntil(lambda: window.session.active)
    assert feature.line is not None
    return feature, feature.line


@pytest.fixture(autouse=True)
def closed(window: WholeWindow):
    yield
    for dialog in window.findChildren(QDialog):
        dialog.close()


@needs("trials")
def test_amid_a_run_that_diverges_it_names_the_rate_and_stops_to_find_one(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    training = {"epochs": 10_000, "optimizer": Choice("SGD", FrozenMap(lr=100.0))}
    feature, line = opened(qtbot, window, "moons", tmp_path, **training)
    qtbot.waitUntil(line.isVisible)
    assert line.sentence.accessibleName() == SILENT
    before = line.height(), window.curves.cards.mapTo(window, QPoint()).y()
    qtbot.waitUntil(lambda: line.remark is not None)
    assert window.session.active and "learning rate of 100" in line.remark.sentence
    now = line.height(), window.curves.cards.mapTo(window, QPoint()).y()
    assert now == before, "nothing moves"
    said = window.curves.gradients.words.toolTip()
    cause = "The learning rate of 100 is too large"
    assert not said or said.endswith(f": {cause}"), "and the map names no other cause"
    line.why.click()
    dialog = window.findChild(WhyDialog)
    assert dialog.heading.text() == line.remark.sentence
    dialog.close()
    assert line.action.text() == "Stop and find a rate…"
    line.action.click()
    wait_for(qtbot, window, "stopped")
    titles = [one.windowTitle() for one in window.findChildren(QDialog)]
    assert "Find a learning rate" in titles
    assert line.action.text() == "Find a rate…"


def test_samples_in_both_parts_are_counted_at_the_end_and_listed(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    feature, line = opened(qtbot, window, "leak: a fifth twice", tmp_path)
    wait_for(qtbot, window, "done")
    qtbot.waitUntil(lambda: line.remark is not None)
    assert line.remark.kind == "leak" and not line.action.isVisibleTo(line)
    line.show_me.click()
    table = window.findChild(PairsDialog).table
    assert len(texts_of(table)) == len(line.remark.pairs) > 5


def test_its_button_changes_the_setting_for_the_next_run(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    feature, line = opened(qtbot, window, "overfitting: few values", tmp_path)
    wait_for(qtbot, window, "done")
    qtbot.waitUntil(lambda: line.remark is not None)
    patience = int(line.action.text().removeprefix("Set patience to "))
    line.action.click()
    assert window.document.project.training.patience == patience
    assert not line.action.isVisibleTo(line)
    line.show_me.click()
    assert window.shown_run.step == line.remark.step


def test_a_healthy_run_has_no_remark(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    feature, line = opened(qtbot, window, "iris", tmp_path)
    wait_for(qtbot, window, "done")
    qtbot.waitUntil(lambda: feature.examined is not None)
    assert line.remark is None and line.sentence.accessibleName() == SILENT
