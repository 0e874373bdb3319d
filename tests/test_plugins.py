"""A package of somebody else's adds a page, a finding, a source and a lesson; one that is broken is named, and all
else works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.cli import run
from app.features.lessons import lesson as lessons
from app.features.lessons.page import LearnPage
from app.project import file
from app.project.project import Project
from app.util import shelf
from app.util.resources import path as resource_path
from tests.support.windows import shown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with one that was made of the template and installed."""
    folder = tmp_path_factory.mktemp("plugin")
    assert run(["plugin", "new", str(folder / "tapedeck-my-nets")]) == 0
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    subprocess.run(
        [*pip, *options, str(folder / "site"), str(folder / "tapedeck-my-nets")],
        check=True,
        capture_output=True,
    )
    return folder / "site"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shelf as at the start of a process, and again after the test."""
    modules = {*sys.modules}
    monkeypatch.setattr(shelf, "_broken", {})
    shelf.plugins.cache_clear()
    yield
    shelf.plugins.cache_clear()
    for name in {*sys.modules} - modules:
        if name.startswith("tapedeck_"):
            del sys.modules[name]


def broken_package(site: Path, name: str, **files: str) -> None:
    """Install a package with these modules."""
    (site / name).mkdir(parents=True)
    for module, text in {"__init__": "", **files}.items():
        (site / name / f"{module}.py").write_text(text)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{shelf.GROUP}]\nx = {name}\n")


@pytest.mark.usefixtures("fresh")
def test_a_package_of_the_template_adds_a_source_and_a_finding(
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))  # of the processes that it starts
    monkeypatch.chdir(tmp_path)
    assert run(["plugin", "list"]) == 0
    assert "tapedeck_my_nets " in capsys.readouterr().out
    source = ["my_nets:mlp", "--args", '{"width": 5}', "--trust"]
    assert run(["draw", *source, "--out", "net.json"]) == 0
    assert "Linear" in (tmp_path / "net.json").read_text()
    net = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 4), nn.Dropout(0.0))
"""
    (tmp_path / "net.py").write_text(net)
    model = ["net.py:Net", "--input", "2x4", "--trust", "--out", "graph.json"]
    run(["autograd", *model, "--findings"])
    assert "This dropout drops nothing: its p is 0." in capsys.readouterr().out


@pytest.mark.usefixtures("fresh")
def test_a_package_of_the_template_adds_a_page_and_a_lesson(
    qapp: QApplication, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(site)
    with shown(qapp, "plugin") as window:
        window.document.new(file.read(resource_path("examples", "digits.tape")))
        window.actions_by_key["show.my_nets"].trigger()
        label = window.bottom.pane.widget_of("my_nets")
        assert "1 × nn.Flatten" in label.text() and label.isVisible()
        window.document.new(Project())
        assert "nn.Flatten" not in label.text()
        window.actions_by_key["lessons"].trigger()
        (learn,) = window.findChildren(LearnPage)
        assert "A lesson of tapedeck-my-nets" in [
            lesson.title for lesson in lessons.bundled()
        ]
        assert learn.isVisible() and not window.banner.isVisible()


BROKEN = {
    "imported": "import nothing_of_the_kind",
    "ended": "raise SystemExit(3)",
    "made": "class Broken(Feature):\n    def __init__(self, workspace): raise KeyError(1)",
    "asked": "class Broken(Feature):\n    def pages(self): yield Page('x', 'X', 'no icon', 'left', None)",
    "begun": "class Broken(Feature):\n    def begin(self): raise KeyError(1)",
    "finished": "class Broken(Feature):\n    def finish(self): raise KeyError(1)",
}


@pytest.mark.usefixtures("fresh")
def test_each_broken_package_is_named_and_the_window_opens(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails at the start is said once a project is open, what fails in a page when it is made."""
    for name, text in BROKEN.items():
        feature = f"from tapedeck.plugin import Feature, Page\n{text}\n"
        broken_package(tmp_path, f"tapedeck_{name}", feature=feature)
    monkeypatch.syspath_prepend(tmp_path)
    at_start = BROKEN.keys() - {"finished"}
    with shown(qapp, "broken") as window:
        window.open_on(str(resource_path("examples", "digits.tape")), None)
        qtbot.waitUntil(lambda: window.document.path is not None)
        window.start()
        qtbot.waitUntil(window.banner.isVisible)
        assert all(f"tapedeck_{name}: " in window.banner.reason() for name in at_start)
        window.furnish()
        assert "tapedeck_finished: KeyError: 1." in window.banner.reason()
        assert "TAPEDECK_PLUGINS=none" in window.banner.reason()
        assert window.actions_by_key["run"].isEnabled()


@pytest.mark.usefixtures("fresh")
def test_what_lies_in_the_current_folder_adds_nothing_nor_does_anything_if_none_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_package(tmp_path, "tapedeck_here")
    monkeypatch.syspath_prepend(tmp_path)
    assert [*shelf.plugins()] == ["tapedeck_here"]
    shelf.plugins.cache_clear()
    monkeypatch.setenv("TAPEDECK_PLUGINS", "none")
    assert not shelf.plugins()
    shelf.plugins.cache_clear()
    monkeypatch.delenv("TAPEDECK_PLUGINS")
    monkeypatch.chdir(tmp_path)
    assert not shelf.plugins()


def test_a_folder_that_names_no_package_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plugin", "new", str(tmp_path / "two words")]) == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    assert run(["plugin", "new", str(tmp_path / "full")]) == 2
    assert "not empty" in capsys.readouterr().err
