"""A window without PyTorch: it can be installed from there, never over one that is there, and what was begun ends."""

from __future__ import annotations

import sys
from importlib import metadata, util
from pathlib import Path

import pytest
from PySide6.QtCore import QProcess, Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.features.torch_setup import installing
from app.features.torch_setup.dialog import TorchDialog
from app.features.torch_setup.installing import NoInstallerError
from app.util.errors import CodedError
from app.views.ui.background import WorkerFailure
from tests.support.whole_window import WholeWindow

DOWNLOADS = """
import sys
print("Collecting torch", flush=True)
print("Progress 1 of 4", flush=True)
open({begun!r}, "w").close()
sys.stdin.read() if {waits} else None
print("Successfully installed torch" if not {code} else "ERROR: No matching distribution", flush=True)
sys.exit({code})
"""


class Installer:
    """Stands in for pip: what it does, and whether torch is there by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.begun, self.version = folder / "begun", ""
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(installing, "there", lambda: self.version)

    def does(self, code: int = 0, waits: bool = False) -> None:
        text = DOWNLOADS.format(begun=str(self.begun), code=code, waits=waits)
        command = [sys.executable, "-c", text]
        self._monkeypatch.setattr(installing, "command", lambda _index="": command)


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installer:
    return Installer(monkeypatch, tmp_path)


def dialog(qtbot: QtBot) -> TorchDialog:
    shown = TorchDialog("No module named 'torch'.", places=True)
    qtbot.addWidget(shown)
    with qtbot.waitExposed(shown):
        shown.open()
    return shown


def press(qtbot: QtBot, button: QPushButton) -> None:
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_it_is_installed_and_said_to_be(qtbot: QtBot, installer: Installer) -> None:
    installer.does()
    shown = dialog(qtbot)
    told: list[str] = []
    shown.installed.connect(lambda: told.append("installed"))
    press(qtbot, shown.install)
    installer.version = "2.13.0"
    qtbot.waitUntil(lambda: told == ["installed"])
    assert "PyTorch 2.13.0 is installed" in shown.state.text()
    assert not shown.progress.isVisible()


def test_a_download_shows_how_far_it_is_and_is_cancelled_by_a_key(
    qtbot: QtBot, installer: Installer
) -> None:
    installer.does(waits=True)
    shown = dialog(qtbot)
    press(qtbot, shown.install)
    qtbot.waitUntil(lambda: shown.progress.value() == 250)
    process = shown.findChild(QProcess)
    assert shown.progress.isVisible() and not shown.install.isEnabled()
    with qtbot.waitSignal(process.finished):
        qtbot.keyClick(shown, Qt.Key.Key_Escape)
    assert "cancelled" in shown.state.text() and shown.isVisible()
    assert shown.install.isEnabled() and not shown.progress.isVisible()


def test_what_failed_is_said_with_the_words_of_the_installer(
    qtbot: QtBot, installer: Installer
) -> None:
    installer.does(code=1)
    shown = dialog(qtbot)
    press(qtbot, shown.install)
    qtbot.waitUntil(lambda: shown.state.text().startswith("The installation failed"))
    assert "No matching distribution" in shown.state.text()
    assert shown.install.isEnabled()


def test_a_torch_that_is_there_is_never_replaced(
    qtbot: QtBot, installer: Installer
) -> None:
    installer.version = "2.13.0"
    shown = dialog(qtbot)
    assert not shown.install.isVisible() and not shown.index.isVisible()
    assert "--force-reinstall torch" in shown.command.text()


def test_one_that_came_while_the_dialog_was_open_is_kept(
    qtbot: QtBot, installer: Installer
) -> None:
    installer.does()
    shown = dialog(qtbot)
    installer.version = "2.13.0"
    with qtbot.waitSignal(shown.installed):
        press(qtbot, shown.install)
    assert not installer.begun.exists()


def test_the_command_is_of_this_python_and_the_index(
    qtbot: QtBot, installer: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = dialog(qtbot)
    index = "https://index.example/cpu"
    qtbot.keyClicks(shown.index, index)
    words = shown.command.text().split()
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[words.index("--index-url") + 1] == index
    assert words[-1].startswith("torchvision") and "--upgrade" not in words


def test_without_an_installer_the_cure_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _name: None)
    monkeypatch.setattr(installing.shutil, "which", lambda _name: None)
    with pytest.raises(NoInstallerError, match="ensurepip"):
        installing.command()
    monkeypatch.setattr(installing.shutil, "which", lambda name: f"/bin/{name}")
    assert installing.command()[:3] == ["/bin/uv", "pip", "install"]


def test_an_older_pip_is_not_asked_for_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: "23.3.2")
    assert "--progress-bar" not in installing.command()


def test_the_banner_leads_to_it_and_goes_once_torch_is_there(
    qtbot: QtBot, window: WholeWindow, installer: Installer
) -> None:
    qtbot.waitUntil(lambda: window.live.torch is not None)
    torch = window.live.torch
    installer.does()
    failure = WorkerFailure(CodedError("No module named 'torch'"), "")
    window.live.torch_failed.emit(failure)
    press(qtbot, window.banner.button("What to do…"))
    qtbot.waitUntil(lambda: bool(window.findChildren(TorchDialog)))
    shown = window.findChild(TorchDialog)
    closed: list[int] = []
    shown.finished.connect(closed.append)
    press(qtbot, shown.install)
    installer.version = torch.version
    qtbot.waitUntil(lambda: bool(closed))
    assert not window.banner.isVisible() and window.live.failure is None
