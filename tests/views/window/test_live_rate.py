"""In the window: the learning rate of a run under way."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject, QPoint, Qt
from pytestqt.qtbot import QtBot

from app.project import file as project_file
from app.training.config import Choice, ParameterGroup
from app.util.frozen import FrozenMap
from app.views.training.charts.charts import RateChart
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


def test_the_rate_of_a_run_is_typed_and_drawn_and_told(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["run"].trigger()
    rates = window.training_form.live_rate
    qtbot.waitUntil(
        lambda: bool(window.session.history) and len(window.session.history.steps) > 3,
    )
    window.actions_by_key["set-rate"].trigger()
    qtbot.waitUntil(lambda: rates.field.isEnabled() and rates.isVisible())
    window.actions_by_key["set-rate"].trigger()
    assert rates.field.hasFocus()
    qtbot.keyClicks(rates.field, "0.0002")
    qtbot.keyClick(rates.field, Qt.Key.Key_Return)
    qtbot.waitUntil(
        lambda: window.session.history.steps["rate"][-1] == pytest.approx(0.0002),
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
    qtbot.waitUntil(lambda: history.newest_rates() == {"": 0.01, "fc1": 0.0006})
    qtbot.waitUntil(
        lambda: any(
            "Learning rate of fc1 set to 6e−4 by hand" in text
            for text in window.console.texts
        )
    )
    qtbot.waitUntil(
        lambda: (
            window.curves.chart(RateChart).legend.texts
            == ["the main group 0.0100", "fc1 6e−4"]
        )
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
