"""`tapedeck draw`: a picture of any model, and of where one raises."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from pathlib import Path

import pytest

from app.cli import run
from app.project import file
from app.project.picture_file import as_element
from app.project.project import Project
from tests.sources.test_files import Runs, files  # noqa: F401
from tests.support import quantised_nets

NET = """
import torch
from torch import nn
from .parts import Part

class Net(nn.Module):
    def __init__(self, width=4, wrong=0):
        super().__init__()
        self.parts = nn.ModuleList(Part(width) for _ in range(3))
        self.head = nn.Linear(width + wrong, 2)

    def forward(self, x, *, scale=None):
        for part in self.parts:
            x = part(x)
        if scale is not None:
            x = x * scale
        return {"logits": self.head(x)}

def make(): return Net(8)
"""
PART = """
from torch import nn

class Part(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, width), nn.ReLU())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(NET)
    (package / "parts.py").write_text(PART)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drawn(out: Path) -> dict[str, object]:
    return json.loads(out.read_text())


def test_nothing_of_the_user_runs_before_trust(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine" / "net.py").write_text("open('ran', 'w')")
    for source in ("mine/net.py:Net", "mine.net:Net"):
        assert run(["draw", source, "--out", "net.json"]) == 1
        assert "was not run; review it, then pass --trust" in capsys.readouterr().err
    assert not (folder / "ran").exists() and not (folder / "net.json").exists()


@pytest.mark.parametrize(
    "source", ["mine.net:Net", "mine/net.py:Net", "mine.net:make()"]
)
def test_a_model_of_a_package_is_drawn_with_its_relative_imports(
    folder: Path, source: str
) -> None:
    width = 8 if "make" in source else 4
    assert (
        run(
            [
                "draw",
                source,
                "--trust",
                "--out",
                "net.json",
                "--input",
                f"2x{width}",
                "--input",
                "scale=2x1",
            ]
        )
        == 0
    )
    plain = drawn(folder / "net.json")
    nodes = {
        node["path"]: node
        for node in plain["nodes"]
        if node["op"].endswith((".Net", ".Part", ".ReLU", ".Linear"))
    }
    assert {"", "parts.0", "parts.2.0", "parts.2.1", "head"} <= set(nodes) and plain[
        "failed"
    ] is None
    assert nodes["head"]["outputs"] == [[2, 2]] and nodes["head"]["inputs"] == [
        [2, width]
    ]
    assert [node["path"] for node in plain["nodes"] if node["op"] == "input"] == [
        "x",
        "scale",
    ]
    assert [node["path"] for node in plain["nodes"] if node["op"] == "output"] == [
        "logits"
    ]
    ids = {node["id"] for node in plain["nodes"]}
    assert all(a in ids and b in ids for a, b in plain["edges"])
    assert "mine.net" not in sys.modules


def test_inputs_are_proposed_and_a_model_that_raises_is_drawn_to_where_it_did(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                "draw",
                "mine.net:Net",
                "--trust",
                "--args",
                '{"wrong": 1}',
                "--out",
                "net.json",
            ]
        )
        == 1
    )
    plain = drawn(folder / "net.json")
    failed = next(node for node in plain["nodes"] if node["id"] == plain["failed"])
    assert (
        failed["path"] == "head"
        and failed["inputs"] == [[2, 4]]
        and failed["line"] == 17
    )
    assert (
        "head: linear, line 17 of net.py: RuntimeError: mat1 and mat2"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nets", "--trust"], 2, "does not name a model; write"),
        (
            ["mine.net:Nope", "--trust"],
            2,
            "has no class or function Nope; it has Net, make()",
        ),
        (
            ["mine.net:Net", "--trust", "--args", '{"depth": 2}'],
            2,
            "takes no depth; its arguments are width, wrong",
        ),
        (
            ["mine.net:Net", "--trust", "--args", "[1]"],
            2,
            "the arguments must be a JSON object",
        ),
        (["mine.net:Net", "--trust", "--input", "x"], 2, "does not describe an input"),
        (["there.is.none:Net", "--trust"], 2, "there is no module there.is.none"),
        (["none.py:Net", "--trust"], 2, "there is no file none.py"),
        (
            ["torchvision:resnet", "--meta"],
            2,
            "torchvision has no model resnet; there are resnet101",
        ),
        (
            ["torchvision:alexnet", "--meta", "--args", '{"weights": "DEFAULT"}'],
            2,
            "weights are not downloaded; leave",
        ),
        (
            ["mine.net:Net", "--trust", "--timeout", "0"],
            2,
            "--timeout: 0 is not a number above 0",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    assert run(["draw", *arguments, "--out", "net.json"]) == code
    told = capsys.readouterr().err
    assert (
        words in told and told.count("\n") == 1 and not (folder / "net.json").exists()
    )


def test_a_model_that_ends_its_process_or_never_ends_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hangs.py").write_text("while True: pass\n")
    assert (
        run(["draw", "hangs.py:Net", "--trust", "--timeout", "1", "--out", "net.json"])
        == 1
    )
    assert "did not finish within 1 s" in capsys.readouterr().err
    (folder / "dies.py").write_text("import os\nos._exit(7)\n")
    assert run(["draw", "dies.py:Net", "--trust", "--out", "net.json"]) == 1
    assert "ended the process that it ran in" in capsys.readouterr().err


def test_a_model_of_torchvision_is_drawn_without_trust(folder: Path) -> None:
    assert (
        run(
            [
                "draw",
                "torchvision:resnet50",
                "--args",
                '{"weights": null}',
                "--out",
                "net.dot",
            ]
        )
        == 0
    )
    assert (
        "layer3.1–5" in (folder / "net.dot").read_text("utf-8")
        and "layer3.4.bn2" not in (folder / "net.dot").read_text()
    )
    assert run(["draw", "torchvision:resnet50", "--unfolded", "--out", "net.dot"]) == 0
    assert "layer3.4.bn2" in (folder / "net.dot").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nets"], "does not name a model; write"),
        (["mine:Net", "--args", "[1]"], "the arguments must be a JSON object"),
        (["mine:Net", "--input", "x"], "does not describe an input"),
    ],
)
def test_a_window_opens_on_nothing_that_names_no_model(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["open", *arguments]) == 2 and words in capsys.readouterr().err


def test_a_picture_has_as_many_levels_and_the_modules_that_are_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def boxes(*options: str) -> str:
        assert (
            run(["draw", "mine.net:Net", "--trust", "--out", "net.dot", *options]) == 0
        )
        return (folder / "net.dot").read_text()

    assert "head" not in boxes("--depth", "0")
    assert "head" in boxes("--depth", "1") and "ReLU" not in boxes("--depth", "1")
    assert "ReLU" in boxes("--unfold", "parts.1") and "ReLU" in boxes(
        "--unfold", "parts.*"
    )
    assert (
        run(
            [
                "draw",
                "mine.net:Net",
                "--trust",
                "--out",
                "net.dot",
                "--unfold",
                "part.1",
            ]
        )
        == 2
    )
    assert (
        "--unfold part.1: no module with parts was called so; near it are parts.1"
        in capsys.readouterr().err
    )


def test_nothing_that_a_pt2_has_pickled_runs_when_it_is_drawn(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    marker, harmful = tmp_path / "ran", Path("harmful.pt2")
    with (
        zipfile.ZipFile(files / "net.pt2") as source,
        zipfile.ZipFile(harmful, "w") as target,
    ):
        for name in source.namelist():
            evil = name.endswith((".pt", "weight_0")) or "/data/weights/weight" in name
            target.writestr(
                name, pickle.dumps(Runs(marker)) if evil else source.read(name)
            )
    assert run(["draw", str(harmful), "--out", "net.json"]) == 0
    assert "nothing was run" in capsys.readouterr().err and not marker.exists()
    plain = json.loads(Path("net.json").read_text())
    assert {"parts.2.norm", "head"} <= {
        node["path"] for node in plain["nodes"]
    } and plain["failed"] is None


def test_a_trusted_pt2_is_run_in_a_process_of_its_own(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "net.json"
    assert run(["draw", str(files / "net.pt2"), "--trust", "--out", str(out)]) == 0
    assert "nothing was run" not in capsys.readouterr().err
    assert {"aten.relu.default", "aten.linear.default"} <= {
        node["op"] for node in json.loads(out.read_text())["nodes"]
    }


def test_a_model_is_called_with_the_first_batch_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flat.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    asked = ["draw", "flat.py:net()", "--on", "digits", "--trust", "--out", "o.json"]
    assert run(asked) == 0
    assert (
        "inputs: the first batch of digits, 64x1x8x8:float32" in capsys.readouterr().err
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["linear", "recurrent", "static"])
def test_a_quantised_part_is_drawn_as_a_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(quantised_nets.TEXT)
    model = [f"net.py:{name}()", "--trust", "--input", "2x4"]
    assert run(["draw", *model, "--out", "n.svg"]) == 0


def test_open_takes_a_picture_that_carries_its_project_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, bare = tmp_path / "net.svg", tmp_path / "bare.svg"
    svg = '<svg xmlns="http://www.w3.org/2000/svg">{}</svg>'
    full.write_text(svg.format(as_element(file.dumps(Project()))), "utf-8")
    bare.write_text(svg.format(""), "utf-8")
    opened: list[str] = []
    monkeypatch.setattr(
        "app.views.app.run_window", lambda file, model=None: opened.append(file) or 0
    )
    assert run(["open", str(full)]) == 0 and opened == [str(full)]
    assert run(["open", str(bare)]) == 2 and len(opened) == 1
