"""In the window: the learning rate of a run under way, the range test, the dry run, one batch by heart."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject, QPoint, Qt
from pytestqt.qtbot import QtBot

from app.data.config import DataConfig
from app.engine.client import shared
from app.engine.requests.trials import RangeTest
from app.project import file as project_file
from app.training.config import Choice, ParameterGroup
from app.training.trials.lr_range_test import rate_test
from app.training.trials.results import RateTest
from app.util.frozen import FrozenMap
from app.views.training.trials.dry_run_dialog import DryRunDialog
from app.views.training.trials.lr_finder_dialog import FindRateDialog
from tests.support.whole_window import WholeWindow
from tests.views.window.test_runs import small
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(epochs=10_000), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def test_the_rate_of_a_run_is_typed_and_drawn_and_told(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["run"].trigger()
    rates = window.training_form.live_rate
    qtbot.waitUntil(
        lambda: bool(window.session.history) and len(window.session.history.steps) > 3,
        timeout=60_000,
    )
    window.actions_by_key["set-rate"].trigger()
    qtbot.waitUntil(lambda: rates.field.isEnabled() and rates.isVisible())
    window.actions_by_key["set-rate"].trigger()
    assert rates.field.hasFocus()
    qtbot.keyClicks(rates.field, "0.0002")
    qtbot.keyClick(rates.field, Qt.Key.Key_Return)
    qtbot.waitUntil(
        lambda: window.session.history.steps["rate"][-1] == pytest.approx(0.0002),
        timeout=60_000,
    )
    assert list(window.session.history.rates_set["rate"]) == [pytest.approx(0.0002)]
    qtbot.waitUntil(
        lambda: any("set to 2e−4 by hand" in text for text in window.console.texts)
    )
    assert window.document.project == project_file.read(window.document.path), (
        "the project keeps its own"
    )
    window.session.stop()
    qtbot.waitUntil(lambda: not window.session.active)
    assert not rates.isVisible()
    window.actions_by_key["set-rate"].trigger()
    assert window.training_form.optimizer.form.editor("lr").has_focus()


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
    window.cures.apply_to_network(problem.cures[-1])
    qtbot.waitUntil(lambda: window.banner.reason() == "Fix 1 error to run")
    window.document.apply("As it was", project)
    qtbot.waitUntil(lambda: not window.banner.isVisible())
    window.actions_by_key["run"].trigger()
    qtbot.waitUntil(lambda: window.session.state == "running", timeout=60_000)
    window.actions_by_key["dry-run"].trigger()
    assert (
        window.banner.isVisible() and "A run is in progress" in window.banner.reason()
    )
    window.session.stop()
    qtbot.waitUntil(lambda: not window.banner.isVisible(), timeout=60_000)


def test_a_rate_that_is_none_is_refused_in_words(
    qtbot: QtBot, window: WholeWindow, request: pytest.FixtureRequest
) -> None:
    window.run_control.set_rate(0.1)
    assert (
        window.banner.isVisible() and window.banner.title() == "No run is in progress"
    )
    rates = window.training_form.live_rate
    rates.show_rates({"": 0.5})
    rates.field.set_value(0.0)
    heard: list[tuple[object, ...]] = []
    connection = rates.rate_requested.connect(lambda *told: heard.append(told))
    request.addfinalizer(lambda: QObject.disconnect(connection))
    rates.apply()
    assert rates.field.invalid() == "A learning rate must be above 0." and not heard


def test_a_rate_is_found_and_used_as_one_step(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["find-rate"].trigger()
    dialog = window.findChild(FindRateDialog)
    dialog.batches.set_value(20)
    qtbot.mouseClick(dialog.start_button, LEFT)
    qtbot.waitUntil(lambda: dialog.result_shown is not None, timeout=60_000)
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
    qtbot.waitUntil(lambda: window.findChild(DryRunDialog) is not None, timeout=60_000)
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


def test_what_is_typed_is_not_written_over_by_the_run(
    qtbot: QtBot, window: WholeWindow
) -> None:
    rates = window.training_form.live_rate
    window.right.pane.show_page("training")
    window.training_form.set_running(True)
    rates.show_rates({"": 0.5})
    qtbot.mouseClick(rates.field, LEFT, pos=QPoint(8, 10))
    qtbot.keyClick(rates.field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(rates.field, "0.25")
    rates.button.setFocus()
    rates.show_rates({"": 0.4})
    with qtbot.waitSignal(rates.rate_requested) as asked:
        qtbot.mouseClick(rates.button, LEFT)
    assert asked.args == [0.25, ""]
    rates.show_rates({"": 0.25})
    rates.show_rates({"": 0.2})
    assert rates.field.value() == 0.2


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
    qtbot.waitUntil(window.banner.isVisible, timeout=60_000)
    assert (
        window.banner.title().startswith("The dry run failed: Muon")
        and "2D" in window.banner.title()
    )


def test_each_parameter_group_has_a_field_and_a_curve_of_its_own(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = window.document.project
    groups = (ParameterGroup("fc1", FrozenMap(lr=0.0003)),)
    training = replace(
        project.training, optimizer=Choice("SGD", FrozenMap(lr=0.01)), groups=groups
    )
    window.document.apply("a group", replace(project, training=training))
    qtbot.waitUntil(lambda: window.live.up_to_date and not window.run_control.blocked)
    window.actions_by_key["run"].trigger()
    rates = window.training_form.live_rate
    qtbot.waitUntil(
        lambda: len(rates.lines) == 2 and rates.lines[1].field.isEnabled(),
        timeout=60_000,
    )
    window.actions_by_key["set-rate"].trigger()
    assert [line.now.text() for line in rates.lines] == [
        "Learning rate of the main group: 0.0100 now",
        "Learning rate of fc1: 3e−4 now",
    ]
    assert "Other parameter groups keep their rates." in rates.why.text()
    field = rates.lines[1].field
    qtbot.mouseClick(field, LEFT, pos=QPoint(8, 10))
    qtbot.keyClick(field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(field, "0.0006")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    history = window.session.history
    qtbot.waitUntil(
        lambda: history.newest_rates() == {"": 0.01, "fc1": 0.0006}, timeout=60_000
    )
    qtbot.waitUntil(
        lambda: any(
            "Learning rate of fc1 set to 6e−4 by hand" in text
            for text in window.console.texts
        )
    )
    qtbot.waitUntil(
        lambda: window.curves.rate.legend.texts == ["the main group 0.0100", "fc1 6e−4"]
    )
    assert rates.lines[0].now.text() == "Learning rate of the main group: 0.0100 now"
    window.session.stop()
    qtbot.waitUntil(lambda: not window.session.active)


def test_letters_in_the_field_of_the_rate_set_no_rate(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["run"].trigger()
    rates = window.training_form.live_rate
    qtbot.waitUntil(
        lambda: bool(window.session.history) and len(window.session.history.steps) > 3,
        timeout=60_000,
    )
    window.actions_by_key["set-rate"].trigger()
    qtbot.waitUntil(lambda: rates.field.isEnabled() and rates.isVisible())
    window.actions_by_key["set-rate"].trigger()
    requested: list[float] = []
    rates.rate_requested.connect(lambda rate, _path: requested.append(rate))
    for text in ("fast", "0", "1e400", "1e40"):
        rates.field.setFocus()
        rates.field.selectAll()
        qtbot.keyClicks(rates.field, text)
        qtbot.keyClick(rates.field, Qt.Key.Key_Return)
        assert rates.field.text().startswith(text) and rates.field.invalid(), (
            "its mark stays, and so does the text"
        )
    assert rates.field.invalid() == "At most 3.4e38."
    qtbot.mouseClick(rates.button, LEFT)
    assert not requested and window.session.active
    rates.field.setFocus()
    rates.field.selectAll()
    qtbot.keyClicks(rates.field, "0.0002")
    qtbot.keyClick(rates.field, Qt.Key.Key_Return)
    assert requested == [0.0002]
