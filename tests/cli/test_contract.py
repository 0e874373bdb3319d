"""What every command says where a model raises or a file cannot be read: one sentence, one exit code, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import COMMANDS, run
from app.project import file
from app.util.resources import path as resource_path

pytestmark = pytest.mark.usefixtures("no_pictures")

MODELS = """
import torch
from torch import nn


class InInit(nn.Module):
    def __init__(self):
        super().__init__()
        raise KeyError("in the constructor")


class InForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(64, 10)

    def forward(self, x):
        return self.l(x).view(3, 5, 7)


class Refused(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise KeyError("in backward")


class InBackward(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(64, 10)

    def forward(self, x):
        return Refused.apply(self.l(x.flatten(1)))


class Exits(InForward):
    def forward(self, x):
        raise SystemExit(3)
"""

INPUT = ["--input", "x=2x64"]
ON = ["--on", "digits"]
# The commands that take a model from anywhere, with what else they need.
ON_MODELS = {
    "draw": ["--out", "o.json", *INPUT],
    "autograd": ["--out", "o.json", "--play", *INPUT],
    "import": ["-o", "o.tape", *INPUT],
    "attention": INPUT,
    "attribute": INPUT,
    "patch": ["--mute", "l", *INPUT],
    "diff": ["models.py:InForward", *INPUT],
    "check": [*ON, *INPUT],
    "train": ["--out", "out", "--epochs", "1", *ON, *INPUT],
    "try": [*ON, *INPUT],
    "evaluate": [*ON, *INPUT],
    "export": ["--weights", "o.pt", *INPUT],
    "sweep": ["--set", "lr=0.1", *ON, *INPUT],
    "data": [*ON, *INPUT],
}
IN_BACKWARD = ("autograd", "attribute", "train", "try", "sweep")
# The commands that take a project, with what else they need.
ON_PROJECTS = {
    "check": [],
    "train": ["--out", "out"],
    "sweep": ["--set", "lr=0.1"],
    "data": [],
    "try": [],
    "evaluate": [],
    "export": ["--code", "o.py"],
    "attention": [],
    "attribute": [],
    "patch": ["--mute", "l"],
    "revisit": ["--step", "1"],
    "autograd": ["--out", "o.json"],
    "diff": [str(resource_path("examples", "digits.tape"))],
    "open": [],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with models that raise, and with files that cannot be read."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "folder.tape").mkdir()
    (tmp_path / "damaged.tape").write_bytes(b'{"format": 1, \xff')
    (tmp_path / "unreadable.tape").symlink_to("unreadable.tape")  # as a file that one may not read, for every user
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    """Run a command that fails; return its exit code and its sentence, and check that no code of ours is shown."""
    capsys.readouterr()
    code = run(arguments)
    lines = capsys.readouterr().err.splitlines()
    assert lines, arguments
    assert not any("site-packages" in line or "/app/" in line for line in lines), lines
    return code, lines[-1]


def test_every_command_is_in_these_tables() -> None:
    assert {*COMMANDS} - {*ON_MODELS} - {*ON_PROJECTS} == {
        "run",
        "runs",
        "doctor",
    }  # which read no project and no model


@pytest.mark.parametrize("command", ON_MODELS)
def test_a_model_that_raises_is_one_sentence_with_its_line(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "attribute":
        pytest.importorskip("captum", reason="attributions are an extra")
    failed = 2 if command == "diff" else 1
    code, words = refused(capsys, [command, "models.py:InInit", *ON_MODELS[command], "--trust"])
    assert (code, "KeyError: 'in the constructor' (line 9 of models.py)" in words) == (failed, True), words
    code, words = refused(capsys, [command, "models.py:InForward", *ON_MODELS[command], "--trust"])
    place = "(models.py, line 18)" if command == "import" else "line 18 of models.py"
    assert (code, place in words) == (failed, True), words
    if command in ("draw", "train", "attention"):
        code, words = refused(capsys, [command, "models.py:Exits", *ON_MODELS[command], "--trust"])
        assert (code, "SystemExit" in words) == (failed, True), words


@pytest.mark.parametrize("command", IN_BACKWARD)
def test_a_model_that_raises_in_backward_is_one_sentence_with_its_line(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "attribute":
        pytest.importorskip("captum", reason="attributions are an extra")
    code, words = refused(capsys, [command, "models.py:InBackward", *ON_MODELS[command], "--trust"])
    assert (code, "KeyError" in words and "line 28 of models.py" in words) == (1, True), words


@pytest.mark.parametrize("command", ON_MODELS)
def test_a_model_that_is_not_there_is_what_was_asked_wrongly(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in ("none.py:Net", "no_such_package:Net"):
        code, words = refused(capsys, [command, source, *ON_MODELS[command], "--trust"])
        assert code == 2, (source, words)


@pytest.mark.parametrize("command", ON_PROJECTS)
@pytest.mark.parametrize("name", ["missing", "folder", "damaged", "unreadable"])
def test_a_project_that_cannot_be_read_is_exit_2(
    command: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = refused(capsys, [command, f"{name}.tape", *ON_PROJECTS[command]])
    assert (code, f"{name}.tape" in words) == (2, True), words


@pytest.mark.parametrize("command", ["evaluate", "attention", "patch"])
@pytest.mark.parametrize("name", ["missing", "folder", "damaged", "unreadable"])
def test_weights_that_cannot_be_read_are_exit_2(
    command: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write(file.read(resource_path("examples", "digits.tape")), folder / "p.tape")
    weights = folder / f"{name}.pt"
    if name != "missing":
        (folder / f"{name}.tape").rename(weights)
    more = ["--mute", "conv1"] if command == "patch" else []
    code, words = refused(capsys, [command, "p.tape", "--weights", str(weights), *more])
    assert (code, weights.name in words) == (2, True), words
