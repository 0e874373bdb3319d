"""In the window: evaluating while a run goes on, checkpoints, cancelling, and trying the net."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QToolTip
from pytestqt.qtbot import QtBot

from app.engine.client import shared
from app.engine.own_engine import OwnEngine
from app.engine.protocol import Answer
from app.engine.requests.capture import InitialWeights
from app.engine.requests.measure import Measure
from app.features.evaluation import confusion_matrix, stored
from app.features.evaluation.values import PrepareEvaluation
from app.main import main
from app.project import file as project_file
from app.training.evaluation.evaluator import Evaluator
from app.views.run.session import Run
from app.views.ui import theme
from app.views.ui.widgets import Button
from tests.engine.test_own_engine import PATIENCE, engine  # noqa: F401  a fixture
from tests.support import windows
from tests.support.engines import asked, stop
from tests.support.run_windows import closed, opened, small
from tests.support.training_jobs import SMALL_NET, job, losses, run
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import DIGITS, ready


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(epochs=3), file)
    window.files.open(file)
    ready(qtbot, window)
    window.pages.show("evaluation")
    return window


ARROW = 12  # px of a heading that is sorted by


def evaluated(qtbot: QtBot, window: WholeWindow) -> None:
    page, before = window.evaluation, window.evaluation.found
    page.run.click()
    qtbot.waitUntil(lambda: page.found is not before or page.banner.isVisible())
    assert not page.banner.isVisible(), page.banner.reason()


def trained(qtbot: QtBot, window: WholeWindow) -> Run:
    window.start_run()
    qtbot.waitUntil(lambda: not window.session.active and bool(window.session.runs))
    window.pages.show("evaluation")
    return window.session.runs[-1]


def test_newest_weights_start_weights_and_a_checkpoint(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    page, control = window.evaluation, window.evaluation_control
    evaluated(qtbot, window)
    assert page.found.weights == "start weights, since there is no run yet"
    first = page.found.loss
    made = trained(qtbot, window)
    evaluated(qtbot, window)
    assert page.found.loss == made.history.epochs["val_loss"][
        -1
    ] and page.found.weights.startswith("newest")
    qtbot.waitUntil(lambda: bool(page.samples.samples))
    control._list_weights()
    words = {
        action.text(): str(action.data()) for action in page.weights_menu.actions()
    }
    best = next(
        key for text, key in words.items() if "the best validation loss" in text
    )
    control.choose(best, "best")
    evaluated(qtbot, window)
    assert (
        page.found.loss == made.history.epochs["val_loss"].min()
        and page.weights.text() == "best"
    )
    control.choose("start")
    evaluated(qtbot, window)
    assert page.found.loss == first
    control.write("samples", tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(encoding="utf-8")))
    assert len(rows) == page.found.count


def test_long_class_names_have_room_and_no_column_is_beyond_the_edge(
    qtbot: QtBot, window: WholeWindow
) -> None:
    names = ("Actinic keratosis", "Basal cell carcinoma", "Malignant melanoma")
    window.resize(1280, 800)
    evaluated(qtbot, window)
    page, classes = window.evaluation, window.evaluation.classes
    matrix = np.array([[40, 3, 2], [1, 30, 9], [4, 8, 20]])
    page.set_found(replace(page.found, classes=names, confusion=matrix))
    QApplication.processEvents()
    assert [row[1].name for row in classes.rows] == list(names)
    for table in (page.results, classes):
        assert table.horizontalScrollBar().maximum() == 0
    header = classes.horizontalHeader()
    for section in range(header.count()):
        title = classes.cells.columns[section].title
        wanted = header.fontMetrics().horizontalAdvance(title)
        assert wanted + ARROW <= header.sectionSize(section)
    wanted = max(map(classes.fontMetrics().horizontalAdvance, names))
    assert wanted < classes.visualRect(classes.cells.index(0, 0)).width()
    right = page.samples.mapTo(page, page.samples.rect().topRight()).x()
    assert right <= page.width() and page.samples.width() > 200


CLASSES = (
    tuple(map(str, range(10))),
    (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    ("Actinic keratosis", "Basal cell carcinoma", "Malignant melanoma"),
)


@pytest.mark.parametrize("names", CLASSES, ids=["digits", "clothes", "long"])
def test_each_row_and_column_of_the_matrix_has_its_whole_name_in_a_small_window(
    qtbot: QtBot,
    window: WholeWindow,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
) -> None:
    window.resize(1280, 800)
    evaluated(qtbot, window)
    matrix, page = window.evaluation.matrix, window.evaluation
    counts = page.found.confusion[: len(names), : len(names)]
    page.set_found(replace(page.found, classes=names, confusion=counts))
    QApplication.processEvents()
    written = []
    monkeypatch.setattr(
        confusion_matrix,
        "_write",
        lambda _painter, area, name, _side: written.append((name, area.width())),
    )
    matrix.grab()
    assert sorted(name.replace("\n", " ") for name, _ in written) == sorted(2 * names)
    metrics = QFontMetricsF(theme.font("axis"))
    for name, room in written:
        assert all(metrics.horizontalAdvance(line) <= room for line in name.split("\n"))
    last = len(names) - 1
    cell = matrix.centre_of(1, 0).y() - matrix.centre_of(0, 0).y()
    assert cell >= 12, "numbers are written in cells of that size"
    assert page.results.horizontalScrollBar().maximum() == 0
    corner = matrix.centre_of(last, 0)
    for head in (corner - QPointF(cell, 0), corner + QPointF(0, cell + 8)):
        QToolTip.hideText()
        qtbot.mouseMove(matrix, head.toPoint())
        named = names[last] if head.x() < corner.x() else names[0]
        qtbot.waitUntil(lambda named=named: QToolTip.text() == named)


def test_a_run_does_not_notice_that_it_is_evaluated(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.start_run()
    history = lambda: window.session.history  # noqa: E731
    qtbot.waitUntil(lambda: bool(history()) and len(history().steps) > 2)
    window.pages.show("evaluation")
    evaluated(qtbot, window)
    qtbot.waitUntil(lambda: not window.session.active)
    made = window.session.runs[-1]
    assert made.history.steps["loss"].tolist() == losses(run(made.job))


def test_an_evaluation_is_cancelled_and_a_part_without_samples_is_explained(
    qtbot: QtBot, window: WholeWindow
) -> None:
    page = window.evaluation
    page.run.click()
    assert page.cancel.isVisible() and not page.run.isVisible()
    page.cancel.click()
    assert page.run.isVisible() and page.found is None
    page.part.set_value("test")
    page.run.click()
    qtbot.waitUntil(page.banner.isVisible)
    assert page.banner.title() == "No samples are held out for test"


def test_a_click_holds_out_a_test_part_and_no_old_figures_stand_under_it(
    qtbot: QtBot, window: WholeWindow
) -> None:
    page = window.evaluation
    segment = lambda text: next(  # noqa: E731
        each for each in page.part.findChildren(QAbstractButton) if each.text() == text
    )
    trained(qtbot, window)
    evaluated(qtbot, window)
    assert page.results.isVisible() and page.found.part == "validation"
    qtbot.mouseClick(segment("Test"), Qt.MouseButton.LeftButton)
    assert not page.results.isVisible() and page.empty.isVisible()
    assert page.empty.title() == "Not evaluated on test samples yet"
    qtbot.mouseClick(segment("Validation"), Qt.MouseButton.LeftButton)
    assert page.results.isVisible()
    page.part.set_value("test")
    page.run.click()
    qtbot.waitUntil(page.banner.isVisible)
    action = lambda text: next(  # noqa: E731
        button for button in page.banner.findChildren(Button) if button.text() == text
    )
    qtbot.mouseClick(action("Hold out 10 % for test"), Qt.MouseButton.LeftButton)
    assert window.document.project.data.test_fraction == 0.1
    qtbot.waitUntil(
        lambda: page.banner.isVisible() and "before" in page.banner.title(),
    )
    qtbot.waitUntil(lambda: not window.run_control.blocked)
    qtbot.mouseClick(action("Run"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(
        lambda: not window.session.active and len(window.session.runs) == 2,
    )
    window.pages.show("evaluation")
    evaluated(qtbot, window)
    assert page.found.part == "test" and page.results.isVisible()


def test_the_engine_finds_what_an_evaluation_here_finds(
    qtbot: QtBot, window: WholeWindow
) -> None:
    page = window.evaluation
    evaluated(qtbot, window)
    here = Evaluator(window.evaluation_control._source()[0]).evaluate()
    assert (page.found.loss, page.found.accuracy, page.found.metrics) == (
        here.loss,
        here.accuracy,
        here.metrics,
    )
    assert (
        np.array_equal(page.found.confusion, here.confusion)
        and page.found.classes == here.classes
    )
    assert all(
        np.array_equal(page.found.columns[name], here.columns[name], equal_nan=True)
        for name in here.columns
    )


def test_an_engine_that_ends_is_said_and_the_next_evaluates(
    qtbot: QtBot, window: WholeWindow
) -> None:
    page = window.evaluation
    evaluated(qtbot, window)
    stop(shared().pid)  # so that the question is still open when it ends
    page.run.click()
    qtbot.waitUntil(lambda: asked(shared(), PrepareEvaluation))
    os.kill(shared().pid, signal.SIGKILL)
    qtbot.waitUntil(page.banner.isVisible)
    assert (
        "SIGKILL" in page.banner.reason()
        and page.banner.reason().count(".") == 1
        and page.run.isVisible()
    )
    page.wanted.emit([0])  # of the evaluation that is still shown
    qtbot.waitUntil(lambda: page.banner.reason().endswith("has ended. Evaluate again."))
    page.view.set_value("try")
    page.trying.pad.stroke(
        QPointF(40, 40), QPointF(120, 150)
    )  # the net is made ready again for it
    qtbot.waitUntil(lambda: page.trying.bars.called != "")
    page.view.set_value("results")
    evaluated(qtbot, window)
    qtbot.waitUntil(lambda: bool(page.samples.samples))


def test_what_is_shown_no_more_is_let_go(qtbot: QtBot, window: WholeWindow) -> None:
    kept: list[int] = []
    for _ in range(2):
        evaluated(qtbot, window)
        window.engine.ask(
            "measure", Measure(), on_answer=lambda vitals: kept.append(vitals.kept)
        )
        qtbot.waitUntil(lambda: bool(kept))
    assert kept[0] == kept[-1]


def test_a_drawing_does_not_come_along_into_the_next_project(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    trying, file = window.evaluation.trying, window.document.path
    window.evaluation.view.set_value("try")
    window.evaluation_control.prepare()
    qtbot.waitUntil(lambda: trying.survey is not None)
    trying.pad.stroke(QPointF(40, 40), QPointF(120, 150))
    trying.invert.setChecked(True)
    qtbot.waitUntil(lambda: trying.bars.called != "")
    window.files.open(file)
    assert (
        trying.pad.empty and not trying.invert.isChecked() and trying.bars.called == ""
    )


def test_a_drawing_and_a_sample_are_tried(qtbot: QtBot, window: WholeWindow) -> None:
    page = window.evaluation
    evaluated(qtbot, window)
    page.view.set_value("try")
    assert page.trying.bars.called == "", "nothing is drawn yet"
    with qtbot.waitSignal(page.trying.prediction_requested):
        page.trying.pad.stroke(QPointF(40, 40), QPointF(120, 150))
    qtbot.waitUntil(lambda: page.trying.bars.called != "")
    page.view.set_value("results")
    number = int(page.found.worst()[0])
    page.sampleOpened.emit(number)
    qtbot.waitUntil(lambda: f"sample {number}" in page.trying.words.text())
    assert page.view.value() == "try"
    called = str(page.found.columns["called"][number, 0])
    qtbot.waitUntil(lambda: page.trying.bars.called == called)


def test_newest_weights_are_those_of_the_newest_kept_run_also_after_reopening(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theme.apply(qapp, "dark")
    path = tmp_path / "net.tape"
    project_file.write(small(epochs=3), path)
    window = opened(qtbot, path)
    made = trained(qtbot, window)
    last = float(made.history.epochs["val_loss"][-1])
    window.files.open(
        path
    )  # the same window, whose last run is of what was open before
    qtbot.waitUntil(lambda: window.live.up_to_date and not window.run_control.blocked)
    evaluated(qtbot, window)
    assert window.evaluation.found.weights.startswith(
        "newest weights, of Run 1 at step "
    )
    closed(window)
    again = opened(qtbot, path)
    try:
        again.pages.show("evaluation")
        evaluated(qtbot, again)
        assert again.evaluation.found.weights == "newest weights, of Run 1 at step 69"
        assert again.evaluation.found.loss == last
    finally:
        closed(again)
    capsys.readouterr()
    assert main(["evaluate", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["weights"], told["loss"]) == (
        "newest weights, of Run 1 at step 69",
        last,
    )


def test_what_is_asked_while_torch_is_loading_is_done_when_it_is_there(
    qtbot: QtBot, qapp: QApplication
) -> None:
    with windows.shown(qapp, "evaluated early") as window:
        window.files.open(DIGITS)
        window.pages.show("evaluation")
        page, left = window.evaluation, Qt.MouseButton.LeftButton
        QTest.mouseClick(page.empty.button, left)
        assert page.state.text() == "PyTorch is loading…"
        assert page.empty.title() == "Evaluating" and not page.empty.button.isVisible()
        QTest.mouseClick(page.cancel, left)
        assert not page.state.text() and page.empty.title() == "Nothing evaluated yet"
        QTest.mouseClick(page.empty.button, left)
        window.start()
        qtbot.waitUntil(lambda: page.found is not None)


def test_what_an_answer_names_is_released_when_nobody_waits_for_it_any_more(
    monkeypatch: pytest.MonkeyPatch, engine: OwnEngine
) -> None:
    """An evaluation that is cancelled at the moment when it is ready would leave its net in the engine."""
    hear, answered, stopped = engine._receive, threading.Event(), threading.Event()

    def heard_late(process: object, message: object) -> None:
        if isinstance(message, Answer):
            answered.set()
            assert stopped.wait(PATIENCE)
        hear(process, message)

    monkeypatch.setattr(engine, "_receive", heard_late)
    question = engine.ask(PrepareEvaluation(job(SMALL_NET), InitialWeights(), None))
    assert answered.wait(PATIENCE)
    question.stop()
    stopped.set()
    assert question.cancelled() or isinstance(question.exception(), CancelledError)
    assert engine.ask(Measure()).result(PATIENCE).kept == 0


def test_an_evaluation_is_shown_again_when_its_project_is_reopened(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path
) -> None:
    theme.apply(qapp, "dark")
    path = tmp_path / "net.tape"
    project_file.write(small(epochs=3), path)
    window = opened(qtbot, path)
    made = trained(qtbot, window)
    evaluated(qtbot, window)
    before = window.evaluation.found
    closed(window)
    again = opened(qtbot, path)
    try:
        again.pages.show("evaluation")
        page = again.evaluation
        qtbot.waitUntil(lambda: page.found is not None)
        assert page.found.summary() == before.summary()
        assert page.found.to_csv() == before.to_csv()
        assert page.results.isVisible() and page._unread.isVisible()
        page.part.set_value("training")
        page.part.changed.emit("training")
        assert page.found is None and page.empty.isVisible()
        page.part.set_value("validation")
        evaluated(qtbot, again)
        qtbot.waitUntil(lambda: bool(page.samples.samples))
        assert not page._unread.isVisible()
    finally:
        closed(again)
    (file,) = made.recorder.kept.folder.glob("evaluation-*")
    for broken in (file.read_bytes()[:-9], b"", b"\x81\xa4loss\xc0"):
        file.write_bytes(broken)
        assert stored.read(file.parent) == {}


def test_a_run_that_is_done_leads_to_its_prediction_until_another_project_is_open(
    qtbot: QtBot, window: WholeWindow
) -> None:
    trained(qtbot, window)
    said = next(each for each in window.toasts.toasts() if each.button is not None)
    assert said.button.text() == "Predict"
    QTest.mouseClick(said.button, Qt.MouseButton.LeftButton)
    page = window.evaluation
    qtbot.waitUntil(lambda: page.trying.survey is not None)
    assert page.view.value() == "try"
    qtbot.waitUntil(lambda: page.trying.isAncestorOf(window.focusWidget()))
    window.workspace.notifier.say("Training is done", "", "Predict", page.show_try)
    window.files.open_example("MLP on digits.tape")
    assert not any(each.button is not None for each in window.toasts.toasts())
