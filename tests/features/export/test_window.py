"""Other formats and the certificate in the window: chosen, made beside it, told with the figures, and stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.engine.client import Engine, Question, shared
from app.engine.protocol import Handle
from app.engine.requests.measure import Measure
from app.features.export import values
from app.features.export.compute import formats
from app.features.export.export_dialog import ExportDialog
from app.features.export.feature import ProofsDialog
from app.features.export.task import Rest, prove
from app.features.export.values import ToProve
from app.source.compiled import make_module
from app.views.engine_service import EngineService
from tests.features.export.export_here import work_here
from tests.support.training_jobs import CONV_NET
from tests.support.whole_window import WholeWindow


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("MLP on digits.tape")
    qtbot.waitUntil(lambda: window.live.up_to_date)
    return window


def chosen(window: WholeWindow, folder: Path, *keys: str) -> ExportDialog:
    """The dialog with these boxes ticked alone."""
    window.export_control.ask()
    (dialog,) = [one for one in window.findChildren(ExportDialog) if one.isVisible()]
    dialog.folder.setText(str(folder))
    for key, box in dialog.boxes.items():
        box.setChecked(key in keys)
    return dialog


def kept_things() -> int:
    """How many things the engine keeps alive; other tests of this process may have left some."""
    return shared().ask(Measure()).result(60).kept


def words_of(dialog: ProofsDialog) -> str:
    return "\n".join(part.text() for part in dialog.findChildren(QLabel))


def test_an_export_is_certified_and_the_figures_are_shown(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    before = kept_things()
    dialog = chosen(window, tmp_path, "code", "safetensors", "certify")
    qtbot.waitUntil(lambda: "initialised with seed" in dialog.weights.text())
    with qtbot.waitSignal(window.export_control.proved):
        qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    (proofs,) = window.findChildren(ProofsDialog)
    assert not proofs.isModal()
    shown = words_of(proofs)
    assert "The export matches this net" in shown
    assert shown.count("0, bit for bit") == 5 and "model.certificate.json" in shown
    kept = json.loads((tmp_path / "model.certificate.json").read_text("utf-8"))
    assert kept["passed"] and set(kept["files"]) == {"model.py", "weights.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.py",
        "weights.safetensors",
        "model.certificate.json",
    }
    qtbot.mouseClick(proofs.stop_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not window.findChildren(ProofsDialog))
    qtbot.waitUntil(
        lambda: kept_things() == before
    )  # the weights are let go with the dialog


def test_cancel_ends_what_goes_on(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    dialog = chosen(window, tmp_path, "code", "certify")
    qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(window.findChildren(ProofsDialog)))
    (proofs,) = window.findChildren(ProofsDialog)
    qtbot.waitUntil(lambda: not proofs.state.text().startswith("Starting"))
    proofs.close()  # as the button in its frame does: first it stops
    qtbot.waitUntil(lambda: not window.findChildren(ProofsDialog))
    pids: list[int] = []
    window.engine.ask(
        "alive", Measure(), on_answer=lambda vitals: pids.append(vitals.pid)
    )
    qtbot.waitUntil(lambda: bool(pids))
    qtbot.waitUntil(lambda: not children(pids[0]))  # the clean process is ended
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]


def test_an_engine_that_is_killed_while_it_proves_is_told_and_the_files_stay(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    dialog = chosen(window, tmp_path, "code", "safetensors", "certify")
    qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(window.findChildren(ProofsDialog)))
    (proofs,) = window.findChildren(ProofsDialog)
    qtbot.waitUntil(lambda: not proofs.state.text().startswith("Starting"))
    os.kill(shared().pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: "SIGKILL" in proofs.state.text())
    assert proofs.heading.text() == "The export is not complete"
    proofs.close()
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.py",
        "weights.safetensors",
    }
    dialog = chosen(window, tmp_path, "pt")
    with qtbot.waitSignal(window.export_control.exported):
        qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    assert (tmp_path / "weights.pt").is_file()


def test_what_was_said_of_an_export_that_failed_goes_with_the_next(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "model.py"
    dialog = chosen(window, tmp_path, "code")
    in_the_way.mkdir()  # after the dialog looked
    qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(window.banner.isVisible)
    assert (
        window.banner.title() == "The export is not complete"
        and "model.py" in window.banner.reason()
    )
    in_the_way.rmdir()
    dialog = chosen(window, tmp_path, "code")
    assert window.banner.isVisible()
    with qtbot.waitSignal(window.export_control.exported):
        qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    assert in_the_way.is_file() and window.banner.isHidden()


def children(pid: int) -> list[str]:
    """The processes that a process has started and that have not ended."""
    tasks = Path(f"/proc/{pid}/task")
    return [
        child
        for task in tasks.iterdir()
        for child in (task / "children").read_text().split()
    ]


def test_what_does_not_pass_is_told_with_its_place(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch)
    torch.manual_seed(0)
    state = make_module(CONV_NET).state_dict()
    (tmp_path / "model.py").write_text(
        CONV_NET.text.replace("self.conv1(x)", "self.conv1(x).detach()")
    )
    monkeypatch.setattr(formats, "onnx_missing", lambda: "ONNX needs what is not there")
    wanted = Rest(
        CONV_NET,
        state,
        "trained",
        0,
        onnx=tmp_path / "model.onnx",
        model=tmp_path / "model.py",
    )
    assert wanted.names == ("model.onnx", "the certificate")
    service = EngineService(
        engine=AnswersHere(prove(wanted, lambda _words: None, lambda: False))
    )
    dialog = ProofsDialog(service, ToProve(Handle(1, 1), wanted.names))
    qtbot.addWidget(dialog)
    with qtbot.waitSignal(dialog.proved):
        dialog.show()
    shown = words_of(dialog)
    assert "Some checks failed" in shown and "ONNX needs what is not there" in shown
    assert (
        "conv1.bias has no gradient and should have one" in shown
        and "Do not rely on these files" in shown
    )
    service.close()


def test_weights_of_a_run_that_diverged_are_not_said_to_differ(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch)
    state = {
        name: value * torch.nan if value.is_floating_point() else value
        for name, value in make_module(CONV_NET).state_dict().items()
    }
    (tmp_path / "model.py").write_text(CONV_NET.text)
    wanted = Rest(CONV_NET, state, "trained", 0, model=tmp_path / "model.py")
    service = EngineService(
        engine=AnswersHere(prove(wanted, lambda _words: None, lambda: False))
    )
    dialog = ProofsDialog(service, ToProve(Handle(1, 1), wanted.names))
    qtbot.addWidget(dialog)
    with qtbot.waitSignal(dialog.proved):
        dialog.show()
    shown = words_of(dialog)
    assert (
        "Nothing is proven of these files" in shown
        and "differ from the network" not in shown
    )
    service.close()


class AnswersHere(Engine):
    """Answers every request with one value."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self._answer = answer

    def ask(self, request: Any, progress: Any = None) -> Question[Any]:
        question: Question[Any] = Question(request, progress, lambda _said: None)
        question.set_result(self._answer)
        return question

    def release(self, handle: Handle) -> None:
        """Nothing is held."""


def test_the_dialog_says_what_onnx_lacks_and_what_a_certificate_needs(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "ONNX_PACKAGES", ("onnx_of_nowhere",))
    dialog = ExportDialog(tmp_path, "untrained, initialised with seed 0")
    qtbot.addWidget(dialog)
    dialog.show()
    assert (
        not dialog.boxes["onnx"].isEnabled()
        and "pip install tapedeck-torch[onnx]" in dialog.words["onnx"].text()
    )
    dialog.boxes["certify"].setChecked(True)
    assert dialog.export_button.isEnabled() and dialog.choice().certify
    dialog.boxes["code"].setChecked(False)
    assert (
        "A certificate needs model.py" in dialog.note.text()
        and not dialog.export_button.isEnabled()
    )


def test_weights_that_are_named_after_their_dialog_is_gone_are_nobodys(
    qtbot: QtBot, tmp_path: Path
) -> None:
    dialog = ExportDialog(tmp_path, "are looked for", None, opened=False)
    with qtbot.waitSignal(dialog.destroyed):
        dialog.deleteLater()
    dialog.set_weights("of Run 1")
