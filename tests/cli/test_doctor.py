"""`tapedeck doctor`: what is missing is named, with the line that brings it."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from app.cli import doctor
from app.cli.system_packages import install_line


def test_this_machine_has_what_is_needed() -> None:
    text = io.StringIO()
    assert doctor.print_report(text) == 0, text.getvalue()
    assert "All requirements are installed." in text.getvalue()


def test_something_missing_is_named_with_its_cure_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = doctor.DoctorCheck(
        "fonts", "missing", "not found", "apt-get install fontconfig"
    )
    monkeypatch.setattr(
        doctor, "report", lambda: (doctor.DoctorCheck("Python", "ok", "3.11.7"), gone)
    )
    text = io.StringIO()
    assert doctor.print_report(text) == 1
    assert "-> apt-get install fontconfig" in text.getvalue()
    assert text.getvalue().endswith("Missing: fonts.\n")


def test_a_library_that_the_loader_does_not_find_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ldd = tmp_path / "ldd"
    ldd.write_text(
        "#!/bin/sh\nprintf '\\tlibxcb-cursor.so.0 => not found\\n\\tlibc.so.6 => /lib/libc.so.6 (0x1)\\n'\n"
    )
    ldd.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.missing_libraries([Path("libqxcb.so")]) == ("libxcb-cursor.so.0",)


def test_without_ldd_the_loader_itself_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.missing_libraries([tmp_path / "libnowhere.so.7"]) == (
        str(tmp_path / "libnowhere.so.7"),
    )


@pytest.mark.parametrize(
    ("managers", "line"),
    [
        ({"apt-get"}, "apt-get install libxcb-cursor0 fontconfig"),
        ({"dnf"}, "dnf install xcb-util-cursor fontconfig"),
        ({"pacman"}, "pacman -S xcb-util-cursor fontconfig"),
        (set(), "Debian's packages: libxcb-cursor0 fontconfig"),
    ],
)
def test_packages_are_named_as_the_system_calls_them(
    managers: set[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "which", lambda tool: tool if tool in managers else None
    )
    assert install_line(["libxcb-cursor.so.0", "fontconfig"]) == line


def test_a_library_without_a_known_package_is_named_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    assert install_line(["libodd.so.3"]) == "the package that contains libodd.so.3"


def test_a_display_is_not_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sys, "platform", "linux")
    for variable in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    assert doctor.display() is None
    monkeypatch.setenv("DISPLAY", ":7")
    assert doctor.display() == "DISPLAY=:7"
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert doctor.display() is None


def test_a_data_folder_that_cannot_be_written_is_missing(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    check = doctor._data_folder()
    assert check.state == "missing" and "Permission denied" in check.found
