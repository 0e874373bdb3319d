"""In the window: the range test, the dry run, one batch by heart."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.data.config import DataConfig
from app.engine.client import shared
from app.features.trials.compute.trials import rate_test
from app.features.trials.feature import DryRunDialog, FindRateDialog
from app.features.trials.values import RangeTest, RateTest
from app.project import file as project_file
from app.training.config import Choice
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(epochs=10_000), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def test_a_refusal_does_not_outlive_its_reason(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = window.document.project
    window.document.apply(
        "Other data", replace(project, data=DataConfig("sklearn.iris"))
    )
    qtbot.waitUntil(lambda: window.live.up_to_date and bool(window.live.errors))
    window.actions_by_key["run"].trigger()
    window.run_control.run()
    assert window.banner.isVisible() and window.banner.reason() == "Fix 2 errors to run"
    problem = next(
        one for one in window.live.errors if one.message.startswith("logits")
    )
    cure = next(one for one in problem.cures if "out_features" in one.label)
    window.cures.apply_to_network(cure)
    qtbot.waitUntil(lambda: window.banner.reason() == "Fix 1 error to run")
    window.document.apply("As it was", project)
    qtbot.waitUntil(lambda: not window.banner.isVisible())
    window.actions_by_key["run"].trigger()
    qtbot.waitUntil(lambda: window.session.state == "running")
    window.actions_by_key["dry-run"].trigger()
    assert (
        window.banner.isVisible() and "A run is in progress" in window.banner.reason()
    )
    window.session.stop()
    qtbot.waitUntil(lambda: not window.banner.isVisible())


def test_a_rate_is_found_and_used_as_one_step(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["find-rate"].trigger()
    dialog = window.findChild(FindRateDialog)
    dialog.batches.set_value(20)
    qtbot.mouseClick(dialog.start_button, LEFT)
    qtbot.waitUntil(lambda: dialog.result_shown is not None)
    assert dialog.plot.isVisible() and dialog.words.text()
    qtbot.mouseClick(dialog.plot, LEFT, pos=QPoint(dialog.plot.width() // 2, 60))
    rate = dialog.rate.value()
    assert dialog.result_shown.rates[0] < rate < dialog.result_shown.rates[-1]
    qtbot.mouseClick(dialog.use_button, LEFT)
    assert window.document.project.training.optimizer.params["lr"] == rate
    assert window.document.undo_stack.count() == 1
    assert not window.session.runs, "no run was made of it"


def test_closing_the_range_test_ends_it(qtbot: QtBot, window: WholeWindow) -> None:
    window.actions_by_key["find-rate"].trigger()
    dialog = window.findChild(FindRateDialog)
    dialog.batches.set_value(100_000)
    dialog.start()
    job = dialog._job
    qtbot.waitUntil(lambda: dialog.words.text().startswith("Batch "))
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    answers: list[RateTest] = []
    window.engine.ask("next", RangeTest(job, 1e-5, 1.0, 12), on_answer=answers.append)
    qtbot.waitUntil(
        lambda: bool(answers)
    )  # else the one that was closed would still go on
    assert answers[0] == rate_test(job, 1e-5, 1.0, 12)


def test_an_engine_that_ends_in_a_range_test_is_said_and_the_next_tests(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["find-rate"].trigger()
    dialog = window.findChild(FindRateDialog)
    dialog.batches.set_value(100_000)
    qtbot.mouseClick(dialog.start_button, LEFT)
    qtbot.waitUntil(lambda: dialog.words.text().startswith("Batch "))
    os.kill(shared().pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: not dialog.going_on)
    assert "SIGKILL" in dialog.words.text() and dialog.words.text().count(".") == 1
    dialog.batches.set_value(20)
    qtbot.mouseClick(dialog.start_button, LEFT)
    qtbot.waitUntil(lambda: dialog.result_shown is not None)


def test_a_dry_run_says_what_was_measured(qtbot: QtBot, window: WholeWindow) -> None:
    window.right.pane.show_page("training")
    window.actions_by_key["dry-run"].trigger()
    qtbot.waitUntil(lambda: window.findChild(DryRunDialog) is not None)
    dialog = window.findChild(DryRunDialog)
    assert dialog.heading.text() == "Everything matches"
    dialog.accept()
    assert not window.session.runs


def test_one_batch_by_heart_is_a_switch_and_a_command(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["overfit"].trigger()
    assert window.document.project.training.one_batch
    assert window.training_form.numbers.editor("one_batch").field.isChecked()
    window.actions_by_key["overfit"].trigger()
    assert not window.document.project.training.one_batch


def test_what_does_not_go_together_is_said_before_any_run(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = window.document.project
    muon = replace(
        project.training, optimizer=Choice("Muon")
    )  # which takes matrices alone, and there are biases
    window.document.apply("choose", replace(project, training=muon))
    qtbot.waitUntil(lambda: window.live.up_to_date and not window.run_control.blocked)
    window.actions_by_key["dry-run"].trigger()
    qtbot.waitUntil(window.banner.isVisible)
    assert (
        window.banner.title().startswith("The dry run failed: Muon")
        and "2D" in window.banner.title()
    )
