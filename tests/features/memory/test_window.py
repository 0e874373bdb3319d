"""Memory and profile of a step in the window: estimated, measured on a run that stands, and written to files."""

import json

import pytest

from app.features.memory.control import MemoryDialog, device_text
from app.features.memory.feature import NOTHING, ProfileDialog
from app.telemetry import gpu
from app.telemetry.gpu import Allocator, GpuReading
from app.telemetry.layer_bytes import LayerBytes, StepBytes
from app.training.monitoring import memory_report
from app.training.monitoring.looks import OpTime, StepProfile
from tests.support.tables import texts_of
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import DIGITS, ready


def test_the_dialog_says_what_is_measured_what_is_estimated_and_what_is_not_available(
    qtbot,
):
    dialog = MemoryDialog()
    qtbot.addWidget(dialog)
    step = StepBytes(
        (LayerBytes("conv1", 640, 640, 1280, 2**21), LayerBytes("", 0, 0, 0, 512)), 64
    )
    report = memory_report.MemoryReport(
        "cpu", step, True, None, gpu.read("cpu"), 600 * 2**20
    )
    dialog.show_report(report)
    texts = texts_of(dialog.table)
    assert (
        texts[0] == ["All", "640 B", "640 B", "1.25 KiB", "2.00 MiB", "2.00 MiB"]
        and texts[2][0] == "Outside layers"
    )
    assert (
        dialog.summary.text()
        == "Estimated, without running anything: 2.00 MiB for a batch of 64."
    )
    assert (
        "not available" in dialog.device.text()
        and not dialog.empty.isEnabled()
        and dialog.empty.toolTip()
    )
    on_cuda = memory_report.MemoryReport(
        "cuda:0",
        step,
        False,
        Allocator(2**20, 2**22, 2**21, 2**20),
        GpuReading("Some GPU", 43, 61),
        None,
    )
    dialog.show_report(on_cuda, "The estimate was off.")
    assert dialog.empty.isEnabled() and dialog.summary.text().endswith(
        "64. The estimate was off."
    )
    assert "25.00 % of the reserved memory is fragmented" in device_text(on_cuda)
    assert "Some GPU: 43 % busy, 61 °C." in device_text(on_cuda)
    dialog.show_report(
        memory_report.MemoryReport("cpu", None, True, None, gpu.read("cpu"), None)
    )
    assert "cannot be estimated" in dialog.summary.text() and not dialog.table.rows


def test_the_dialog_has_a_column_of_the_device_where_there_is_one(qtbot):
    dialog = ProfileDialog()
    qtbot.addWidget(dialog)
    dialog.show_profile(
        StepProfile(
            "cpu", 64, 2.5, 2000.0, None, (OpTime("aten::addmm", 2, 500.0, None),), 3
        )
    )
    assert texts_of(dialog.table) == [
        ["All", "", "2.000", "100.00 %"],
        ["aten::addmm", "2", "0.500", "25.00 %"],
    ]
    assert "3 more" in dialog.summary.text()
    dialog.show_profile(
        StepProfile(
            "cuda:0",
            64,
            2.5,
            2000.0,
            100.0,
            (OpTime("aten::addmm", 2, 500.0, 80.0),),
            0,
        )
    )
    row = ["aten::addmm", "2", "0.500", "0.080", "80.00 %"]
    assert texts_of(dialog.table)[1] == row
    assert "not listed" not in dialog.summary.text()


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    window.files.open(DIGITS)
    ready(qtbot, window)
    return window


def test_a_run_that_stands_is_profiled_in_the_window(qtbot, window, tmp_path):
    window.actions_by_key["profile"].trigger()
    control = window.profile_control
    dialog = control.dialog
    assert (
        dialog.isVisible()
        and dialog.summary.text() == NOTHING
        and not dialog.write.isEnabled()
    )
    dialog.accept()
    window.run_control.step()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    window.actions_by_key["profile"].trigger()
    qtbot.waitUntil(lambda: dialog.profile is not None)
    names = [row[0] for row in texts_of(dialog.table)]
    assert (
        names[0] == "All"
        and any(name.startswith("aten::") for name in names)
        and dialog.write.isEnabled()
    )
    path = tmp_path / "trace.json"
    control.write(path)
    qtbot.waitUntil(path.exists)
    assert json.loads(path.read_text())["traceEvents"]
    qtbot.waitUntil(
        lambda: dialog.told.text() == f"The trace of this step was saved to {path}"
    )
    control.write(tmp_path / "nowhere" / "trace.json")
    qtbot.waitUntil(
        lambda: dialog.told.text().startswith("The trace could not be saved: ")
    )
    assert dialog.profile is not None and dialog.told.isVisible()
    dialog.accept()


def test_the_memory_is_estimated_before_a_run_measured_in_it_and_written(
    qtbot, window, tmp_path
):
    window.actions_by_key["memory"].trigger()
    control = window.memory_control
    qtbot.waitUntil(lambda: control.dialog.report is not None)
    estimated = control.dialog.report
    assert estimated.estimated and "Estimated" in control.dialog.summary.text()
    control.dialog.accept()
    window.run_control.step()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    qtbot.waitUntil(lambda: bool(control.estimates))
    window.actions_by_key["memory"].trigger()
    qtbot.waitUntil(lambda: not control.dialog.report.estimated)
    assert control.dialog.report.step == estimated.step
    assert "The estimate before the run was" in control.dialog.summary.text()
    control.write(tmp_path / "memory.json")
    assert "activations" in (tmp_path / "memory.json").read_text()
    control.dialog.accept()
