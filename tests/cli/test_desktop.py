"""`tapedeck desktop`: the program is among those of the desktop, and `.tape` files are its."""

from __future__ import annotations

import os
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from app.cli import run
from app.cli.desktop_command import MIME

KIND_OF = """
import sys
from PySide6.QtCore import QMimeDatabase
kind = QMimeDatabase().mimeTypeForFile(sys.argv[1])
print(kind.name(), kind.iconName(), kind.inherits("application/json"))
"""


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share"


def kind_of(file: Path) -> str:
    """Return what a new program says of a file: its MIME type and icon, and whether it is a kind of JSON."""
    command = [sys.executable, "-c", KIND_OF, str(file)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ
    ).stdout.strip()


@pytest.mark.skipif(
    sys.platform in ("win32", "darwin"), reason="these desktops keep it elsewhere"
)
def test_a_tape_file_is_of_the_program_until_it_is_removed(
    share: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.tape"
    file.write_text("{}")
    assert run(["desktop", "install"]) == 0
    assert kind_of(file) == f"{MIME} application-x-tapedeck True"
    parser = RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(share / "applications" / "tapedeck.desktop", "utf-8")
    entry = parser["Desktop Entry"]
    assert (
        entry["Exec"].endswith(" -P -m tapedeck %f")
        and sys.executable in (entry["Exec"])
    )
    assert entry["MimeType"] == f"{MIME};" and entry["Icon"] == "tapedeck"
    assert [*share.glob("icons/hicolor/scalable/apps/tapedeck.svg")]
    assert run(["desktop", "remove"]) == 0
    assert not [path for path in share.rglob("*tapedeck*") if path.is_file()]
    assert not kind_of(file).startswith(MIME)


def test_another_system_is_told_what_to_do(
    share: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run(["desktop", "install"]) == 2
    assert "choose it for all" in capsys.readouterr().err and not share.exists()
