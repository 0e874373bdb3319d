"""The wheel, installed: its commands work, and a person's own package called `app` is theirs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NET = """
from torch import nn
from app.parts import width

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(x)
"""
TRAIN = """
import torch, app.net
net = app.net.Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
net(torch.ones(2, 3)).sum().backward()
optimizer.step()
print(app.__file__)
"""


def built(checkout: Path, folder: Path) -> Path:
    """Build the wheel of a checkout into a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(
        [*command, "-d", str(folder)], check=True, capture_output=True, cwd=checkout
    )
    (wheel,) = folder.glob("tapedeck_torch-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def test_another_checkout_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """With other times and modes of its files, and another path."""
    parts = ["app", "tapedeck", "resources", "scripts", "build/manual"]
    unlike = shutil.ignore_patterns("__pycache__")
    for name in parts:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name,
                tmp_path / "copy" / name,
                ignore=unlike,
                copy_function=shutil.copyfile,
            )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tmp_path / "copy" / name)
    again = built(tmp_path / "copy", tmp_path / "wheel")
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The commands of a fresh environment, which finds torch where this one has it."""
    folder = tmp_path_factory.mktemp("installed")
    quiet = {"check": True, "capture_output": True, "cwd": ROOT}
    names = zipfile.ZipFile(wheel).namelist()
    fonts = [
        name.rpartition("/")[2]
        for name in names
        if name.startswith("tapedeck/_program/_resources/fonts/")
    ]
    assert sorted(fonts) == sorted(
        file.name for file in (ROOT / "resources" / "fonts").iterdir()
    )
    assert sum(name.endswith(".ttf") for name in fonts) == 6 and {
        "Inter-OFL.txt",
        "JetBrainsMono-OFL.txt",
    } <= {*fonts}
    top = {name.split("/")[0] for name in names}
    assert top == {
        "tapedeck",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    venv.create(folder / "env", with_pip=False)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    (packages / "those_of_this_one.pth").write_text(
        sysconfig.get_paths()["purelib"] + "\n"
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "env"),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run(
        [*pip, "--no-compile", "--disable-pip-version-check", str(wheel)], **quiet
    )
    return folder / "env" / "bin"


@pytest.mark.skipif(
    os.name != "posix", reason="the folders of an environment have other names"
)
def test_the_installed_program_lets_a_person_have_a_package_app(
    installed: Path, tmp_path: Path
) -> None:
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("width = 3")
    (package / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(TRAIN)
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }

    def tapedeck(*words: str) -> str:
        done = subprocess.run(
            [str(installed / "tapedeck"), *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "doctor" in tapedeck("--help") and (installed / "tapedeck-gui").exists()
    assert "PySide6" in tapedeck("doctor")
    tapedeck("draw", "app.net:Net", "--input", "2x3", "--trust", "--out", "net.json")
    assert "head" in {
        node["path"]
        for node in json.loads((tmp_path / "net.json").read_text())["nodes"]
    }
    assert tapedeck("run", "train.py").strip() == str(package / "__init__.py")
    (frames,) = Path(os.environ["XDG_STATE_HOME"]).glob(
        "tapedeck/watched/*/frames.jsonl"
    )
    assert '"event": "step"' in frames.read_text()
    code = "import app; from tapedeck import program; print(program.module('engine.watched.step_server').__file__)"
    found = subprocess.run(
        [str(installed / "python"), "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert Path(found.stdout.strip()).parts[-6:-3] == (
        "site-packages",
        "tapedeck",
        "_program",
    )
