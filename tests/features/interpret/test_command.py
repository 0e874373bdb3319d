"""`tapedeck attention`, `attribute` and `patch`: of projects, and of any model; nothing runs before trust."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from app.cli import run
from app.features.interpret.compute import attribution
from app.util import resources

FLAT = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(64, 10)

    def forward(self, x):
        return self.l(x.flatten(1))
"""
EXAMPLES = resources.path("examples")
OWN = '''
import torch
from torch import nn


class Small(nn.Module):
    """Attention that is written out, twice by one module."""

    def __init__(self):
        super().__init__()
        self.words, self.mix = nn.Embedding(12, 8), Mix()
        self.head = nn.Linear(8, 3)

    def forward(self, ids):
        x = self.words(ids)
        return self.head(self.mix(self.mix(x))[:, -1])


class Mix(nn.Module):
    def forward(self, x):
        q = x.unflatten(-1, (2, 4)).transpose(1, 2)
        weights = torch.softmax(q @ q.transpose(-2, -1) / 2, -1)
        return x + (weights @ q).transpose(1, 2).flatten(2)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_attention_of_a_drawn_net_is_written_as_json_arrays_and_a_picture(
    folder, capsys
):
    project = str(EXAMPLES / "Transformer on digits.tape")
    for name in ("maps.json", "maps.npz"):
        assert run(["attention", project, "--sample", "3", "--out", name]) == 0
    said = capsys.readouterr().out
    assert (
        "encoder.1.attn" in said
        and "2 of 2 give the output of their call to rounding" in said
    )
    told = json.loads((folder / "maps.json").read_text())
    assert told["sample"]["number"] == 3 and [
        one["heads"] for one in told["attentions"]
    ] == [4, 4]
    maps = np.array(told["attentions"][1]["maps"])
    assert maps.shape == (1, 4, 8, 8) and np.allclose(maps.sum(-1), 1, atol=1e-5)
    assert np.allclose(np.load("maps.npz")["encoder.1.attn"], maps)
    assert (
        run(["attention", project, "--layer", "encoder.0.attn", "--out", "maps.png"])
        == 0
    )
    assert Image.open("maps.png").width > 400


def test_a_persons_own_model_is_looked_at_in_a_process_of_its_own_once_it_is_trusted(
    folder, capsys
):
    words = ["own.py:Small", "--input", "2x5:int64"]
    assert (
        run(["attention", *words]) == 1
        and "review it, then pass --trust" in capsys.readouterr().err
    )
    assert run(["attention", *words, "--trust", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["path"], one["call"], one["kind"]) for one in told["attentions"]] == [
        ("mix", 1, "softmax"),
        ("mix", 2, "softmax"),
    ]
    assert all(
        one["checked"] and one["place"].startswith("own.py:")
        for one in told["attentions"]
    )
    assert (
        run(
            [
                "patch",
                *words,
                "--trust",
                "--sample",
                "1",
                "--mute",
                "mix#2:head=1",
                "--json",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (
        told["measure"] == "cross entropy against its own prediction"
        and told["change"] != 0
    )
    assert told["samples"] == [1] and told["changes"] == ["mix#2:head=1"]


def test_the_loss_of_a_project_with_a_part_taken_from_another_sample(folder, capsys):
    project = str(EXAMPLES / "digits.tape")
    words = ["patch", project, "--sample", "0", "--sample", "4"]
    assert (
        run([*words, "--take", "conv1", "--from", "7", "--mute", "conv2:channel=2"])
        == 0
    )
    said = capsys.readouterr().out
    assert (
        "CrossEntropyLoss" in said
        and "sample 4:" in said
        and "conv2: channels are axis 1" in said
    )


def test_integrated_gradients_of_a_project(folder, capsys):
    pytest.importorskip("captum", reason="attributions are an extra")
    project = str(EXAMPLES / "digits.tape")
    assert run(["attribute", project, "--worst", "2", "--out", "a.png", "--json"]) == 0
    out = capsys.readouterr().out
    first, second = json.loads(out.splitlines()[0])["attributions"]
    assert (
        first["steps"] >= 50
        and abs(first["total"] - first["score"] + first["baseline"])
        < abs(first["total"]) / 50
    )
    assert (
        first["sample"]["number"] != second["sample"]["number"]
        and Image.open("a.png").height > 400
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["attention", "digits", "--out", "a.txt"],
            2,
            "maps can end in .json or .npz or .png",
        ),
        (
            ["attention", "digits", "--layer", "conv1"],
            1,
            "conv1 computes no attention itself; modules that do: none",
        ),
        (
            ["attention", "digits", "--sample", "9999"],
            2,
            "validation samples, counted from 0",
        ),
        (["patch", "digits"], 2, "pass --mute PART, or --take PART with --from N"),
        (
            ["patch", "digits", "--mute", "conv1:head"],
            2,
            "does not name a part of a net",
        ),
        (
            ["patch", "digits", "--mute", "conv9"],
            2,
            "no module conv9; near it are conv",
        ),
        (
            ["attribute", "digits", "--worst", "2", "--sample", "1"],
            2,
            "choose --sample or --worst",
        ),
    ],
)
def test_what_cannot_be_looked_at_is_said_in_a_line(folder, capsys, words, code, said):
    given = [str(EXAMPLES / "digits.tape") if one == "digits" else one for one in words]
    assert run(given) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_without_captum_a_command_says_what_to_install(folder, capsys, monkeypatch):
    monkeypatch.setattr(attribution, "find_spec", lambda _name: None)
    assert run(["attribute", str(EXAMPLES / "digits.tape")]) == 1
    assert "pip install tapedeck-torch[attribution]" in capsys.readouterr().err


def test_a_model_has_the_weights_of_a_file(folder, capsys, monkeypatch):
    (folder / "line.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Linear(3, 2)\n"
    )
    torch.save({"weight": torch.zeros(2, 3), "bias": torch.tensor([3.0, 5.0])}, "w.pt")
    line = ["line.py:make()", "--trust", "--input", "1x3", "--weights"]
    pytest.importorskip("captum", reason="attributions are an extra")
    assert (
        run(["attribute", *line, "w.pt"]) == 0
        and "(score 5)" in capsys.readouterr().out
    )
    assert (
        run(["autograd", *line, "none.pt", "--out", "g.json"]) == 2
        and "none.pt" in capsys.readouterr().err
    )
    torch.save({"weight": torch.zeros(4, 3)}, "other.pt")
    assert run(["autograd", *line, "other.pt", "--out", "g.json"]) == 2
    assert "weight is 4×3, and 2×3 in the model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "more", "code"),
    [("attention", [], 1), ("patch", ["--mute", "l"], 0)],
)
def test_a_model_is_called_with_the_first_batch_of_the_data(
    command: str,
    more: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "nets.py").write_text(FLAT)
    monkeypatch.chdir(tmp_path)
    words = [command, "nets.py:Net", "--on", "digits", "--trust", *more]
    assert run(words) == code, "the model has no attention"
    assert "the first batch of digits, 64x1x8x8:float32" in capsys.readouterr().err


def test_it_asks_again_once_a_file_beside_the_model_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(f"import parts\n{FLAT}")
    (tmp_path / "parts.py").write_text("SIZE = 1\n")
    attribute = ["attribute", "net.py:Net", "--input", "1x64", "--out", "a.png"]
    assert run([*attribute, "--trust"]) == 0 and run(attribute) == 0
    (tmp_path / "parts.py").write_text("open('ran', 'w').close()\n")
    assert run(attribute) == 1
    assert not (tmp_path / "ran").exists()
