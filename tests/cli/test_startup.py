"""What prevents a start is said in one sentence with its cure, by every way to start the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import commands, display, startup
from app.cli.failures import explained
from app.util.resources import PATH_ENTRY

NOWHERE = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="elsewhere Qt has one platform, always there",
)


def started(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in NOWHERE
    }
    return subprocess.run(
        [sys.executable, "-m", "tapedeck", *arguments],
        cwd=PATH_ENTRY,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def is_one_sentence(done: subprocess.CompletedProcess[str]) -> bool:
    lines = done.stderr.splitlines()
    return (
        done.returncode in (1, 2)
        and len(lines) == 1
        and lines[0].startswith("tapedeck: ")
    )


@linux
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "there is no display"),
        ({"DISPLAY": ":9973"}, "DISPLAY=:9973"),
        ({"WAYLAND_DISPLAY": "wayland-9973"}, "WAYLAND_DISPLAY=wayland-9973"),
        ({"QT_QPA_PLATFORM": "nonsense"}, "Qt has no platform nonsense"),
        ({"QT_QPA_PLATFORM": "xcb"}, "DISPLAY, which is not set"),
    ],
)
def test_without_a_display_the_window_says_why_and_what_to_do(
    variables: dict[str, str], words: str
) -> None:
    done = started([], **variables)
    assert is_one_sentence(done) and words in done.stderr, done.stderr


@linux
@pytest.mark.parametrize(
    "arguments",
    [
        *([["open", "torchvision:resnet18"]] if "open" in commands() else []),
        ["run", "--window", "SCRIPT"],
    ],
)
def test_a_command_that_opens_a_window_says_why_it_does_not(
    tmp_path: Path, arguments: list[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    done = started([word.replace("SCRIPT", str(script)) for word in arguments])
    assert is_one_sentence(done) and "no window can be opened" in done.stderr, (
        done.stderr
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("package", ["torch", "numpy", "msgspec", "PySide6"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.cli import doctor

    find, version = doctor.find_spec, doctor._version
    monkeypatch.setattr(
        doctor, "find_spec", lambda name: None if name == package else find(name)
    )
    monkeypatch.setattr(
        doctor,
        "_version",
        lambda name: None if name.startswith(package) else version(name),
    )
    words = startup.hindrance(window=True)
    assert (
        words.startswith(package)
        and "not installed; " in words
        and "pip install" in words
    )


BROKEN = "raise ImportError('libbroken.so.1: cannot open shared object')\n"


@pytest.mark.parametrize("module", ["torch", "numpy", "msgspec"])
def test_a_package_whose_import_fails_is_named_and_no_traceback_is_shown(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text(BROKEN)
    example = str(PATH_ENTRY / "resources" / "examples" / "digits.tape")
    done = started(["check", example], PYTHONPATH=str(tmp_path))
    assert is_one_sentence(done), done.stderr
    assert (
        module in done.stderr
        and "libbroken.so.1" in done.stderr
        and "pip install" in done.stderr
    )


def test_the_doctor_names_the_packages_that_are_there_and_do_not_import(
    tmp_path: Path,
) -> None:
    packages = {
        "torch": "torch",
        "torchvision": "torchvision",
        "numpy": "numpy",
        "scikit-learn": "sklearn",
        "torchmetrics": "torchmetrics",
        "msgspec": "msgspec",
    }
    for module in packages.values():
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text(BROKEN)
    done = started(["doctor"], PYTHONPATH=str(tmp_path))
    missing = done.stdout.splitlines()[-1].removeprefix("Missing: ").rstrip(".")
    assert done.returncode == 1 and packages.keys() <= {*missing.split(", ")}
    assert done.stdout.count("libbroken.so.1") == len(packages)


def test_an_error_that_no_package_caused_is_left_to_others() -> None:
    try:
        import app.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        assert startup.cause(error) == ""
        assert "no_such_module" in explained(error, whole=False)[0]


@linux
def test_a_platform_that_shows_nothing_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in NOWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert display.obstacle() is None and display.display() is None
    monkeypatch.delenv("QT_QPA_PLATFORM")
    found = display.obstacle()
    assert found is not None and "tapedeck --help" in found.cure
