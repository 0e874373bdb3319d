"""The accelerator in the window: its box, its memory curve, and the buttons where memory ends or the device is gone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.training.events import Failed
from app.views.training.charts.charts import MemoryChart
from app.views.ui.widgets import Button
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import change, ready, wait_for


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    window.document.new(small(epochs=1, device="auto"))
    ready(qtbot, window)
    return window


def button(window: WholeWindow, text: str) -> Button:
    return next(each for each in window.findChildren(Button) if each.text() == text)


def test_a_run_on_it_has_its_device_and_its_memory_curve(
    qtbot, window: WholeWindow, device: str
) -> None:
    box = window.toolbar.device
    listed = [box.itemData(index) for index in range(box.count())]
    assert listed == ["auto", device, "cpu"] and f"({device})" in box.itemText(0)
    window.run_control.run()
    wait_for(qtbot, window, "done")
    history = window.session.history
    assert history.started.device == device
    assert len(history.memory) and history.memory["allocated"][-1] > 0
    window.pages.show("curves")
    qtbot.waitUntil(lambda: window.curves.chart(MemoryChart).of_device)
    window.curves.chart(MemoryChart).redraw()
    assert window.curves.chart(MemoryChart).heading.texts[:2] == (
        "Device memory",
        f"MiB, {device}",
    )


def test_memory_that_ends_is_mended_by_a_button(
    qtbot, window: WholeWindow, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not device.startswith("sim"):
        pytest.skip("the memory of the simulated accelerator alone is so small")
    with monkeypatch.context() as scarce:
        scarce.setenv("SIM_MEMORY", str(2**20))
        window.run_control.run()
        wait_for(qtbot, window, "failed")
    run = window.session.current
    assert run is not None and isinstance(run.failed, Failed)
    assert run.failed.kind == "memory"
    qtbot.waitUntil(lambda: "ran out of memory" in window.notifier.title)
    before = window.document.project.training
    button(window, f"Accumulate 2 batches of {before.batch_size // 2}").click()
    after = window.document.project.training
    assert (after.batch_size, after.accumulate) == (before.batch_size // 2, 2)
    ready(qtbot, window)
    window.run_control.run()
    wait_for(qtbot, window, "done")


def test_a_device_that_is_gone_is_said_with_a_cure(
    qtbot, window: WholeWindow, device: str
) -> None:
    change(window, device="npu:3")
    ready(qtbot, window)
    (problem,) = (
        each for each in window.live.analysis.problems if each.code == "device-absent"
    )
    assert problem.message == "npu:3 is not available here"
    assert problem.severity == "warning"
    assert window.toolbar.device.currentText() == "npu:3 (not available)"
    window.cures.apply(problem.cures[0])
    assert window.document.project.training.device == "auto"
    assert window.toolbar.device.currentText() == f"auto ({device})"
    project = window.document.project
    window.document.apply(
        "there", replace(project, training=replace(project.training, device=device))
    )
    ready(qtbot, window)
    assert not [p for p in window.live.analysis.problems if p.code == "device-absent"]
