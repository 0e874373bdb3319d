"""Importing a model in the window: chosen, made beside the window, opened; a file of one's own runs once trusted."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import signal
import subprocess
import sys
import threading
from itertools import combinations
from pathlib import Path

import pytest
import torch
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from torch import nn

from app.features.importing.compute.pipeline import project_of
from app.features.importing.dialogs import ImportDialog
from app.features.importing.process import import_file
from app.features.importing.task import make_torchvision
from app.features.importing.values import ImportModel
from app.project.weights import state_dicts
from app.source import layer_files
from app.source.compiled import make_module
from app.source.trust import TrustStore
from app.sources.finding import files_of
from app.sources.spec import InputSpec, SourceSpec, parse_source
from app.views.navigation import way_to
from app.views.trust_dialog import ModelTrustDialog
from tests.engine.test_child import ROOT, alive, wait_for
from tests.support import own_code
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.support.windows import messages

MINE = """
import pathlib
import time
from torch import nn

pathlib.Path({marker!r}).touch()
{more}

class Unit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + self.fc(x).relu()


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.units = nn.Sequential(Unit(width), Unit(width))

    def forward(self, x):
        return self.units(x)
"""


pytestmark = pytest.mark.usefixtures("nothing_trusted")


def asked(qtbot, window: WholeWindow) -> ImportDialog:
    """The dialog, when it has its list."""
    window.actions_by_key["import"].trigger()
    (dialog,) = [part for part in window.findChildren(ImportDialog) if part.isVisible()]
    qtbot.waitUntil(lambda: bool(dialog.torchvision.known))
    return dialog


def opened(qtbot, window: WholeWindow) -> None:
    """Wait until the dialog has gone, and left another project."""
    before = window.document.project
    qtbot.waitUntil(lambda: window.document.project is not before)
    qtbot.waitUntil(lambda: not window.findChildren(ImportDialog))


def own_file(tmp_path: Path, more: str = "") -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(marker=str(tmp_path / "marker"), more=more))
    return path


def choose_own(dialog: ImportDialog, path: Path) -> None:
    dialog.choose_file(path)
    dialog.file.inputs.setPlainText("2x6")
    dialog.file.arguments.setText(json.dumps({"width": 6}))


def trust(window: WholeWindow) -> ModelTrustDialog:
    """The question that is open."""
    (found,) = [
        part for part in window.findChildren(ModelTrustDialog) if part.isVisible()
    ]
    return found


@needs("weights")
def test_a_model_of_torchvision_is_found_by_name_and_opened_with_its_weights_beside(
    qtbot, window, tmp_path
) -> None:
    dialog = asked(qtbot, window)
    told = messages(window)
    assert "squeezenet1_1" in dialog.torchvision.known
    qtbot.keyClicks(dialog.torchvision.search, "squeezenet1_1")
    assert (
        dialog.torchvision.name == "squeezenet1_1"
        and dialog.torchvision.input.text() == "1x3x224x224"
    )
    assert dialog.weights.isChecked()
    dialog.torchvision.arguments.setText('{"num_classes": 7}')
    qtbot.keyClick(dialog.torchvision.search, Qt.Key.Key_Return)
    opened(qtbot, window)
    project = window.document.project
    assert project.name == "squeezenet1_1" and project.blocks
    assert window.document.dirty and window.document.path is None
    qtbot.waitUntil(lambda: any("squeezenet1_1" in text for text in told))
    (text,) = told
    assert (
        f"{window.live.analysis.total_parameters:,} parameters" in text
        and "the model's weights" in text
    )
    assert (
        "Checked against the model: outputs, gradients and buffers equal in eval and train mode"
        in text
    )
    qtbot.waitUntil(lambda: window.live.up_to_date)
    qtbot.waitUntil(lambda: not window.canvas.callout.isVisible())
    net = make_module(window.live.analysis.source)
    weights = state_dicts.read(project.training.start.path).tensors
    net.load_state_dict(weights, strict=True)
    whole = f"Starts from {len(weights)} of {len(weights)} tensors"  # the engine counts them
    qtbot.waitUntil(lambda: whole in window.status.text("start"))
    assert (
        window.files.save_to(tmp_path / "squeeze.tape")
        and (tmp_path / "squeeze.safetensors").is_file()
    )
    assert net(torch.zeros(1, 3, 64, 64)).shape == (1, 7)


def test_no_nodes_overlap_on_any_sheet(qtbot, window) -> None:
    model = make_torchvision("mobilenet_v3_small", {}, empty=True)
    project = project_of(model, (InputSpec((1, 3, 224, 224)),), "mobilenet_v3_small")
    assert window.import_control.open(project, None)
    for name in ("", *project.blocks):
        assert window.place.go_to(way_to(window.document.project, name) if name else ())
        bodies = [item.body for item in window.canvas.scene.nodes.values()]
        assert bodies and not any(a.intersects(b) for a, b in combinations(bodies, 2))


def test_what_is_wrong_stands_at_its_field_and_nothing_is_lost(qtbot, window) -> None:
    before = window.document.project
    dialog = asked(qtbot, window)
    page = dialog.torchvision
    page.search.setText("resnet18")
    page.input.setText("three")
    dialog.go.click()
    assert not dialog.running and "'three'" in page.entries["inputs"].note.text()
    page.input.setText("1x3x64x64")
    page.arguments.setText('{"num_clases": 3}')
    dialog.go.click()
    qtbot.waitUntil(lambda: not dialog.running)
    assert (
        "num_clases" in page.entries["arguments"].note.text()
        and "three" not in page.entries["inputs"].note.text()
    )
    page.arguments.clear()
    page.pretrained.setChecked(True)
    dialog.go.click()
    qtbot.waitUntil(lambda: not dialog.running)
    assert "not on the disk" in page.entries["pretrained"].note.text()
    assert (
        dialog.isVisible()
        and window.document.project is before
        and page.name == "resnet18"
    )
    dialog.reject()


def test_a_model_that_takes_two_things_is_told_both(qtbot, window) -> None:
    dialog = asked(qtbot, window)
    page = dialog.torchvision
    page.search.setText("raft_small")
    dialog.go.click()
    qtbot.waitUntil(lambda: not dialog.running)
    assert "image2" in page.entries["inputs"].note.text()
    page.input.setText("1x3x128x128 1x3x128x128")
    wanted = page.request()
    assert (
        wanted is not None
        and [one.shape for one in wanted.inputs] == [(1, 3, 128, 128)] * 2
    )
    dialog.reject()


def test_a_file_runs_only_once_it_is_trusted_and_becomes_a_project(
    qtbot, window, tmp_path
) -> None:
    dialog, path = asked(qtbot, window), own_file(tmp_path)
    choose_own(dialog, path)
    names = dialog.file.names
    assert [names.itemText(row) for row in range(names.count())] == [
        "Unit",
        "Net",
    ] and names.currentText() == "Net"
    dialog.go.click()
    trust(window).reject()
    assert not dialog.running and not (tmp_path / "marker").exists()
    dialog.go.click()
    assert trust(window).code.toPlainText().strip() == path.read_text().strip()
    trust(window).trust_button.click()
    opened(qtbot, window)
    assert (tmp_path / "marker").exists()
    assert (
        window.document.project.name == "Net"
        and "Unit" in window.document.project.blocks
    )
    files = files_of(parse_source(f"{path}:Net"))
    assert files is not None and TrustStore(window.layers.trust.file).is_trusted(
        files.key
    )


def test_an_edited_file_is_asked_about_again(qtbot, window, tmp_path) -> None:
    dialog, path = asked(qtbot, window), own_file(tmp_path)
    own_code.trust(f"{path}:Net")
    choose_own(dialog, path)
    path.write_text(path.read_text() + "\n# another\n")
    dialog.go.click()
    assert (
        not dialog.running
        and trust(window).isVisible()
        and not (tmp_path / "marker").exists()
    )
    trust(window).reject()
    dialog.reject()


def test_what_runs_is_the_text_that_was_shown_and_no_cache_beside_it(tmp_path) -> None:
    path, other = own_file(tmp_path), tmp_path / "other.py"
    other.write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'other')!r}).touch()\n"
    )
    cache, mode = (
        importlib.util.cache_from_source(str(path)),
        py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    py_compile.compile(str(other), cfile=cache, doraise=True, invalidation_mode=mode)
    own_code.trust(f"{path}:Net")
    question = ImportModel(
        SourceSpec("file", str(path), "Net"), {"width": 6}, (InputSpec((2, 6)),)
    )
    project = import_file(question, tmp_path)
    assert "Unit" in project.blocks and not (tmp_path / "other").exists()


def test_inputs_are_proposed_where_none_are_described(qtbot, window, tmp_path) -> None:
    dialog, path = asked(qtbot, window), own_file(tmp_path)
    own_code.trust(f"{path}:Net")
    choose_own(dialog, path)
    dialog.file.inputs.clear()
    assert dialog.go.isEnabled()
    dialog.go.click()
    opened(qtbot, window)
    assert window.document.project.name == "Net"


def test_an_import_is_stopped_and_the_form_is_as_it_was(
    qtbot, window, tmp_path
) -> None:
    before = window.document.project
    dialog, path = asked(qtbot, window), own_file(tmp_path, more="time.sleep(600)")
    own_code.trust(f"{path}:Net")
    choose_own(dialog, path)
    dialog.go.click()
    assert dialog.running and not dialog.pages.isEnabled()
    qtbot.waitUntil((tmp_path / "marker").exists)
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not dialog.running)
    assert (
        dialog.isVisible()
        and dialog.pages.isEnabled()
        and "Stopped" in dialog.state.text()
    )
    assert (
        dialog.file.arguments.text() == '{"width": 6}'
        and window.document.project is before
    )
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_who_keeps_unsaved_work_keeps_the_dialog_too(
    qtbot, window, monkeypatch
) -> None:
    monkeypatch.setattr(window.files, "may_leave", lambda: False)
    before = window.document.project
    dialog = asked(qtbot, window)
    dialog.torchvision.search.setText("squeezenet1_1")
    dialog.start()
    qtbot.waitUntil(lambda: not dialog.running)
    assert (
        dialog.isVisible()
        and window.document.project is before
        and "not opened" in dialog.state.text()
    )
    monkeypatch.undo()
    dialog.reject()


def test_what_another_thread_calls_meanwhile_is_not_drawn() -> None:
    other, results = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), []

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            thread = threading.Thread(
                target=lambda: results.append(other(torch.ones(5, 3)))
            )
            thread.start()
            thread.join()
            return self.fc(x)

    project = project_of(Beside(), (InputSpec((1, 4)),), "beside")
    assert len(project.graph.nodes) == 3
    assert results and all(
        type(one) is torch.Tensor and one.shape == (5, 2) for one in results
    )


def test_parts_that_are_one_node_stand_on_the_last_page_before_it_is_opened(
    qtbot, window, tmp_path
) -> None:
    dialog, path = asked(qtbot, window), own_file(tmp_path)
    path.write_text(
        path.read_text().replace(
            "x + self.fc(x).relu()", "x if x.sum() > 0 else self.fc(x)"
        )
    )
    own_code.trust(f"{path}:Net")
    layer_files.allow(layer_files.digest(path.read_text()), tried=True)
    choose_own(dialog, path)
    before = window.document.project
    dialog.go.click()
    qtbot.waitUntil(lambda: not dialog.running)
    told = [part.text() for part in dialog.result_page.findChildren(QLabel)]
    assert "units.0 (Unit)" in told and any(
        "depends on the values of the data" in text for text in told
    )
    assert window.document.project is before and dialog.go.text() == "Open"
    dialog.go.click()
    project = window.document.project
    assert project.layer_files == (str(path),) and "units.1 (Unit)" in project.notes
    qtbot.waitUntil(
        lambda: getattr(window.live.analysis, "total_parameters", 0) == 84,
    )
    assert not [one for one in window.live.analysis.errors if "trusted" in one.message]


def test_a_file_that_goes_before_it_is_read_is_told(qtbot, window, tmp_path) -> None:
    dialog, path = asked(qtbot, window), own_file(tmp_path)
    own_code.trust(f"{path}:Net")
    choose_own(dialog, path)
    path.unlink()
    dialog.go.click()
    qtbot.waitUntil(lambda: not dialog.running)
    assert dialog.isVisible() and "mine.py" in "".join(
        part.text()
        for part in (
            dialog.state,
            *(entry.note for entry in dialog.file.entries.values()),
        )
    )
    dialog.reject()


_PARENT = """
import sys
from app.features.importing.process import ImportProcess
from tests.support import own_code
from app.features.importing.values import ImportModel
from app.sources.spec import InputSpec, SourceSpec
from pathlib import Path
from threading import Thread

process = ImportProcess()
if sys.argv[1:]:
    own_code.trust(f"{sys.argv[1]}:Net")
    question = ImportModel(SourceSpec("file", sys.argv[1], "Net"), {"width": 6}, (InputSpec((2, 6)),))
    Thread(target=process.read, args=(question, Path()), daemon=True).start()
print(process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("busy", [False, True])
def test_the_process_does_not_outlive_a_window_that_is_killed(tmp_path, busy) -> None:
    given = [str(own_file(tmp_path, more="time.sleep(600)"))] * busy
    command = [sys.executable, "-c", _PARENT, *given]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if busy:
            wait_for((tmp_path / "marker").exists)
        os.kill(parent.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))


def test_the_dialog_begins_with_a_file_that_a_page_offers(window, tmp_path) -> None:
    path = own_file(tmp_path)
    window.actions_by_key.trigger("import-file", path)
    (dialog,) = [part for part in window.findChildren(ImportDialog) if part.isVisible()]
    assert dialog.choice.value() == "file" and dialog.file.path.text() == str(path)
    dialog.reject()
