"""`tapedeck diff`: two versions of a file, weights, runs and one model in two modes."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from app.main import main
from app.runs import record, store
from app.source import layer_files
from app.source.trust import TrustStore, default_file
from app.util.resources import path as resource_path
from tests.support import opened_projects

pytestmark = pytest.mark.usefixtures("no_pictures")

NET = """
import torch
from torch import nn
from parts import scale

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + scale * torch.tanh(self.fc(self.norm(x)))

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        print("a model may print")
        return self.head(x)
"""
THERE = """
import os
import torch
from torch import nn

class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (3 if "NEW_TORCH" in os.environ else 2)

class Apply(nn.Module):
    def forward(self, x):
        return Half.apply(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
        self.drop, self.halve = nn.Dropout(0.5), Apply()

    def forward(self, x):
        x = self.drop(self.norm(self.first(x)).relu_())
        return self.last(self.halve(x))
"""
DIGITS = resource_path("examples", "digits.tape")


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, scale in (("old", "1.0"), ("new", "0.5")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(NET)
        (tmp_path / name / "parts.py").write_text(f"scale = {scale}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, dict[str, Any]]:
    code = main(["diff", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code in (0, 1) and not err, err
    plain: dict[str, Any] = json.loads(out)
    return code, plain


def test_two_versions_of_a_file_are_told_apart(
    versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, plain = found(capsys, "old/net.py:Net", "new/net.py:Net", "--trust")
    first = plain["first"]
    line = (
        NET.splitlines().index(
            "        return x + scale * torch.tanh(self.fc(self.norm(x)))"
        )
        + 1
    )
    assert code == 1
    assert (first["a"], first["b"], first["pass"]) == (
        "blocks.0",
        "blocks.0",
        "forward",
    )
    assert (first["line_a"], first["line_b"]) == (line, line)
    assert first["file_a"].endswith("old/net.py") and first["file_b"].endswith(
        "new/net.py"
    )
    assert (first["operation_a"], first["operation_b"]) == ("mul(1.0)", "mul(0.5)")
    assert (
        plain["structure"]["added"]
        == plain["structure"]["removed"]
        == plain["structure"]["changed"]
        == []
    )
    assert {"a", "b", "relative_error", "added", "cosine"} <= plain["layers"][0].keys()
    assert found(capsys, "old/net.py:Net", "old/net.py:Net", "--trust")[0] == 0


def test_projects_of_a_file_run_it_once_it_is_trusted(
    versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("old", "new"):
        opened_projects.write(f"{name}/net.py:Net", Path(f"{name}.tape"))
    capsys.readouterr()
    TrustStore(default_file()).file.unlink()
    layer_files.trust_only((), ())
    assert main(["diff", "old.tape", "new.tape"]) == 1
    assert "pass --trust" in capsys.readouterr().err
    code, plain = found(capsys, "old.tape", "new.tape", "--trust")
    assert code == 1 and plain["first"]["a"] == "blocks.0"


def test_nothing_of_the_user_runs_before_trust(
    versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (versions / "new" / "net.py").write_text("open('ran', 'w')")
    assert main(["diff", "torchvision:resnet18", "new/net.py:Net"]) == 1
    assert "pass --trust" in capsys.readouterr().err and not [*versions.rglob("ran")]


def test_weights_of_a_file_belong_to_their_side(
    versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    state = {"weight": torch.randn(1000, 512), "bias": torch.randn(1000)}
    torch.save(state, "a.pt")
    torch.save(
        {
            **state,
            "weight": state["weight"].clone().index_fill_(0, torch.tensor([3]), 1.0),
        },
        "b.pt",
    )
    source = "torch.nn:Linear"
    options = (
        "--trust",
        "--args",
        '{"in_features": 512, "out_features": 1000}',
        "--eval",
    )
    assert found(capsys, f"{source}@a.pt", f"{source}@a.pt", *options)[0] == 0
    assert (
        found(capsys, f"{source}@a.pt", source, *options)[0] == 0
    )  # the other side gets them
    code, plain = found(
        capsys, f"{source}@a.pt", source, "--weights-b", "b.pt", *options
    )
    assert code == 1 and plain["first"]["a"] == ""
    assert (
        plain["weights"][0]["differing"] == 512
        and plain["weights"][0]["count"] == 513_000
    )
    code, alone = found(capsys, "a.pt", "b.pt")
    assert (
        code == 1 and alone["first"] is None and alone["weights"][0]["differing"] == 512
    )


def test_runs_are_compared_with_their_settings_and_at_their_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "digits.tape"
    project.write_bytes(Path(DIGITS).read_bytes())
    for seed in ("1", "2"):
        train = [
            "train",
            str(project),
            "--epochs",
            "1",
            "--device",
            "cpu",
            "--seed",
            seed,
            "--save-every",
            "20",
        ]
        assert main([*train, "--out", str(tmp_path / seed)]) == 0
        capsys.readouterr()
        if seed == "1":
            assert (
                found(
                    capsys, str(tmp_path / seed), f"{tmp_path / seed}@1/20", "--eval"
                )[0]
                == 1
            )  # its only run
            shutil.copytree(
                tmp_path / "1" / "runs" / "0001", tmp_path / "1" / "runs" / "0002"
            )
            assert main(["diff", str(tmp_path / seed), str(project)]) == 2
            said = capsys.readouterr().err
            assert (
                "1 holds 2 runs; name one: " in said and f"{tmp_path / '1'}@1" in said
            )
            shutil.rmtree(tmp_path / "1" / "runs" / "0002")
        stored = next((tmp_path / seed).rglob("project.tape")).parent
        store.move(store.Kept(stored, record.read(stored)), store.runs_beside(project))
    capsys.readouterr()
    code, plain = found(capsys, f"{project}@1", f"{project}@2", "--eval")
    assert code == 1 and plain["first"]["pass"] == "forward"
    assert all(one["relative"] > 0.1 for one in plain["weights"] if one["count"])
    settings = {one["name"]: (one["a"], one["b"]) for one in plain["settings"]}
    assert (
        settings["training.seed"] == ("1", "2")
        and settings["net"] == ("net A", "net A")
        and "torch" in settings
    )
    folder = tmp_path / "digits.runs" / "0001"
    assert found(capsys, f"{project}@1", str(folder), "--eval")[0] == 0
    # a step that has a checkpoint, and the same one recomputed in a copy that has lost it
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("step-*"))
    code, plain = found(capsys, f"{project}@1/20", f"{copied}@20", "--eval")
    assert code == 0 and not any(one["distance"] for one in plain["weights"])
    assert "from its checkpoint step-00000020.pt" in plain["remarks"][0]
    assert (
        "recomputed from its start" in plain["remarks"][1]
        and "verified by the hashes" in plain["remarks"][1]
    )
    code, plain = found(capsys, f"{copied}@0", f"{copied}@2", "--eval")
    assert (
        code == 1
        and plain["a"] == "Run 1 at step 0"
        and all(one["distance"] for one in plain["weights"])
    )
    assert main(["diff", f"{copied}@0", f"{copied}@999"]) == 2
    assert "has no step 999: it has steps 1 to 23" in capsys.readouterr().err


def test_a_project_equals_itself_and_one_model_its_lower_precision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert found(capsys, str(DIGITS), str(DIGITS))[0] == 0
    code, plain = found(capsys, str(DIGITS), "--modes", "float32", "bfloat16")
    assert code == 0
    assert any(one["relative_error"] > 1e-4 for one in plain["layers"])
    assert all(one["added"] <= one["bound"] for one in plain["layers"])


def test_a_model_is_compared_with_itself_in_another_interpreter(
    versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (versions / "there.py").write_text(THERE)
    options = ("--trust", "--input", "3x4", "--python")
    other = versions / "other"  # the same interpreter, in another environment
    other.write_text(
        f'#!/bin/sh\nexport NEW_TORCH=1 OMP_NUM_THREADS=1\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    other.chmod(0o755)
    assert found(capsys, "there.py:Net", "--train", *options, sys.executable)[0] == 0
    code, plain = found(capsys, "there.py:Net", *options, str(other))
    assert code == 1 and (plain["first"]["a"], plain["first"]["pass"]) == (
        "halve",
        "backward",
    )
    assert (
        plain["first"]["line_a"]
        == THERE.splitlines().index("        return self.last(self.halve(x))") + 1
    )
    adding = [
        one["a"]
        for one in plain["layers"]
        if not one["backward"]["added"] <= one["backward"]["bound"]
    ]
    assert adding == ["halve"] and all(
        one["added"] <= one["bound"] for one in plain["layers"]
    )
    assert {"torch", "python", "threads"} <= {one["name"] for one in plain["settings"]}
    assert main(["diff", "there.py:Net", *options, "/bin/false"]) == 2
    assert (
        "/bin/false could not run the model: it ended with code 1"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.py:Net"], "pass A and B"),
        pytest.param(
            ["torchvision:squeezenet1_1", "--modes", "cpu", "cuda"],
            "cuda is not available here: this torch",
            marks=pytest.mark.skipif(
                torch.cuda.is_available(), reason="refuses a device that is not here"
            ),
        ),
        (
            ["torchvision:resnet18", "--modes", "float32", "cuda"],
            "not two modes of one kind",
        ),
        (
            ["torchvision:resnet18", "--python", "no_such"],
            "no_such is not an executable",
        ),
        (
            ["torchvision:resnet18@gone.pt", "torchvision:resnet18"],
            "there is no file gone.pt",
        ),
        (
            ["torchvision:resnet18", "torchvision:nothing"],
            "torchvision has no model nothing",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_the_cure(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *arguments]) == 2
    assert words in capsys.readouterr().err
