"""Memory and profile of a step in the window: estimated, measured on a run that stands, and written to files."""

import json
import pickle

import pytest
from PySide6.QtCore import Qt

from app.features.memory.control import MemoryDialog, device_text
from app.features.memory.feature import NOTHING, ProfileDialog
from app.features.memory.snapshot_dialog import SnapshotDialog
from app.telemetry import gpu
from app.telemetry.gpu import Allocator, GpuReading
from app.telemetry.layer_bytes import LayerBytes, StepBytes
from app.training.monitoring import memory_report
from app.training.monitoring.looks import OpTime, StepProfile
from tests.support.allocator_snapshots import snapshot
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


def opened_snapshot(window, file, monkeypatch) -> SnapshotDialog:
    choose = "PySide6.QtWidgets.QFileDialog.getOpenFileName"
    monkeypatch.setattr(choose, lambda *_: (str(file), ""))
    window.actions_by_key["memory_snapshot"].trigger()
    return window.findChild(SnapshotDialog)


def test_a_snapshot_is_shown_by_line(qtbot, window, tmp_path, monkeypatch):
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(snapshot()))
    dialog = opened_snapshot(window, file, monkeypatch)
    qtbot.waitUntil(lambda: bool(dialog.table.cells.rows))
    assert "1.50 KiB in use of 4.00 KiB reserved" in dialog.summary.text()
    assert "8.00 GiB wanted" in dialog.failures.text() and dialog.plot.isVisible()
    rows = texts_of(dialog.table)
    assert rows[0][0].startswith("/home/me/net.py:11 forward")
    assert rows[0][1:] == ["2.00 KiB", "0 B", "0"]
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_a_snapshot_that_cannot_be_read_says_why(qtbot, window, tmp_path, monkeypatch):
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(pytest.raises))
    dialog = opened_snapshot(window, file, monkeypatch)
    qtbot.waitUntil(lambda: "cannot be read" in dialog.summary.text())
    assert "nothing of it was run" in dialog.summary.text()
    dialog.reject()
