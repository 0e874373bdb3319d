"""`tapedeck autograd` takes any model: its tape, what is played, findings; nothing runs before trust."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from app.cli import run
from tests.support.opened_models import NETS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kinds.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_class_with_keyword_arguments_is_played_in_a_process_of_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "autograd",
        "kinds.py:Masked",
        "--input",
        "x=2x3",
        "--args",
        '{"width": 3}',
        "--out",
        "g.json",
    ]
    assert (
        run(words) == 1
        and "was not run; review it, then pass --trust" in capsys.readouterr().err
    )
    assert run([*words, "--trust", "--train", "--play", "--findings"]) in (0, 1)
    told = json.loads((folder / "g.json").read_text())
    assert (
        told["played"]["order"] == told["order"]
        and told["loss"] is None
        and told["train"]
    )
    modules = {node["module"] for node in told["nodes"]}
    assert {"first", "drop", "last", None} == modules
    assert {Path(node["file"]).name for node in told["nodes"]} == {"kinds.py"}


def test_a_switch_of_torch_that_a_file_turns_is_named_beside_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["import torch", "torch.set_grad_enabled(False)", "Net = torch.nn.Linear"]
    (tmp_path / "switching.py").write_text("\n".join(lines))
    size = '{"in_features": 5, "out_features": 2}'
    words = [
        "autograd",
        "switching.py:Net",
        "--args",
        size,
        "--input",
        "4x5",
        "--trust",
    ]
    assert run([*words, "--out", "g.json", "--findings"]) == 0
    said = "turns gradients off for all of torch (line 2 of switching.py)"
    assert said in capsys.readouterr().err


def test_a_package_is_played_as_a_page_without_trust(folder: Path) -> None:
    assert (
        run(
            [
                "autograd",
                "torchvision:squeezenet1_1",
                "--input",
                "1x3x32x32",
                "--eval",
                "--out",
                "g.html",
            ]
        )
        == 0
    )
    assert "Fire" in (folder / "g.html").read_text()


def test_an_exported_program_is_played_once_it_is_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    torch.export.save(
        torch.export.export(net, (torch.randn(4, 3),)), folder / "net.pt2"
    )
    words = ["autograd", "net.pt2", "--play", "--out", "g.json"]
    assert (
        run(words) == 1
        and "net.pt2 was not run; review it, then pass --trust"
        in capsys.readouterr().err
    )
    assert run([*words, "--trust"]) == 0
    told = json.loads((folder / "g.json").read_text())
    assert {node["parameter"] for node in told["nodes"]} >= {"weight", "bias"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["kinds.py:Pair", "--trust"],
            1,
            "kinds.py:Pair: The forward pass of this network built no graph",
        ),
        (
            ["kinds.py:Tied", "--trust", "--input", "2x5"],
            1,
            "RuntimeError at line 64 of kinds.py: mat1 and mat2",
        ),
        (["kinds.py:Tied", "--trust", "--random"], 2, "--random: not for a model"),
        (
            ["kinds.py:Tied", "--trust", "--outputs", "9", "--input", "2x4"],
            1,
            "the network has fewer outputs",
        ),
        (["none.pt2", "--trust"], 2, "there is no file none.pt2"),
        (["kinds:Nope", "--trust"], 2, "has no class or function Nope"),
        (
            ["kinds.py:Tied", "--trust", "--timeout", "0"],
            2,
            "--timeout: 0 is not a number above 0",
        ),
    ],
)
def test_what_cannot_be_captured_is_said_in_a_line(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    assert run(["autograd", *words, "--out", "g.json"]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and not (folder / "g.json").exists()


def test_a_model_that_ends_its_process_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dies.py").write_text("import os\nclass Net: pass\nos._exit(7)\n")
    assert run(["autograd", "dies.py:Net", "--trust", "--out", "g.json"]) == 1
    assert "ended the process that it ran in" in capsys.readouterr().err
