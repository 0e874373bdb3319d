"""Whose code is taken: an installed package, a folder of its name in the current one, or an adapter's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import run
from app.engine.requests.observe import Observe
from app.engine.tasks.observe import answer
from app.sources.finding import shadowing
from app.sources.spec import SourceError, parse_source
from tests.support import own_code

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width=3):
        super().__init__(nn.Linear(4, width))
"""
ADAPTER = """
import torch
from torch import nn

def make(name, scale=1):
    model = nn.Linear(len(name) * scale, 2)
    return model, (torch.ones(3, len(name) * scale),), {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def package(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)


def test_a_file_with_the_name_of_a_module_that_is_imported_already_is_refused_with_a_cure(
    folder: Path,
) -> None:
    (folder / "gc.py").write_text(NET)
    own_code.trust("gc.py:Net", folder)
    with pytest.raises(
        SourceError, match=r"gc.py has the name of another module .*: rename the file"
    ):
        answer(Observe(parse_source("gc.py:Net"), folder=str(folder)))


def test_a_folder_that_shadows_a_package_is_taken_as_python_would_and_said(
    folder: Path,
) -> None:
    package(folder / "installed", "nets_of_a_kind", NET.replace("width=3", "width=5"))
    package(folder / "here", "nets_of_a_kind", NET)
    (
        folder / "here" / "torch"
    ).mkdir()  # without __init__.py Python takes the installed package
    sys.path.append(str(folder / "installed"))
    own_code.trust("nets_of_a_kind:Net", folder / "here")
    found = answer(
        Observe(parse_source("nets_of_a_kind:Net"), folder=str(folder / "here"))
    )
    assert found.interface is not None and found.interface.parameters == 15
    assert (
        f"nets_of_a_kind is the one in {folder / 'here'}, which Python imports before"
        in found.remarks[-1]
    )
    assert not shadowing(folder / "here", ["torch"])


def test_a_folder_named_like_a_collection_does_not_run(folder: Path) -> None:
    package(folder, "timm", "open('ran', 'w')")
    sys.path.insert(0, "")
    with pytest.raises(SourceError, match="needs the package timm|has no model"):
        answer(Observe(parse_source("timm:none_of_them")))
    assert not (folder / "ran").exists()


def test_an_adapter_of_an_installed_package_gives_a_model_with_inputs_and_asks_for_trust(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = folder / "site"
    package(site, "made_elsewhere", ADAPTER)
    (site / "made_elsewhere-1.0.dist-info").mkdir()
    (site / "made_elsewhere-1.0.dist-info" / "METADATA").write_text(
        "Name: made-elsewhere\nVersion: 1.0\n"
    )
    points = "[tapedeck.sources]\nelsewhere = made_elsewhere:make\n"
    (site / "made_elsewhere-1.0.dist-info" / "entry_points.txt").write_text(points)
    sys.path.insert(0, str(site))
    spec = parse_source("elsewhere:abcd")
    assert spec.kind == "elsewhere" and spec.own_code
    found = answer(Observe(spec))
    assert found.interface is not None and found.interface.takes[0].shape == (3, 4)
    assert run(["train", "elsewhere:abcd", "--on", "iris", "--out", "run"]) == 1
    assert "review it, then pass --trust" in capsys.readouterr().err
