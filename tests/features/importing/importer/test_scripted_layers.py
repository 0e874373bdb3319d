"""Parts that hold no Python code, scripted or traced by torch.jit: a node each, and the rest is drawn as ever."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.cli import run
from tests.support.forked_python import run_forked
from tests.support.needs import needs

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.usefixtures("forked_trials", "no_pictures"),
]
NET = """
from typing import Dict, Tuple

import torch
from torch import nn


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.g(torch.relu(self.f(x)))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.drop(self.norm(x)) * self.scale


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.b.bias.requires_grad_(False)

    def forward(self, x) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        return self.a(x), {"one": self.b(x), "two": x}


def as_it_is(part):
    return part


class Net(nn.Module):
    def __init__(self, compiled=torch.jit.script, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(4, 4)
        self.parts = nn.ModuleList(compiled(Body()) for _ in range(2))
        self.counting, self.nested = compiled(Counting()), compiled(Nested())
        self.traced = torch.jit.trace(Body(), torch.zeros(2, 4)) if compiled is torch.jit.script else Body()

    def forward(self, x):
        x = self.parts[1](self.parts[0](self.parts[0](self.first(x))))
        y, more = self.nested(self.counting(x))
        return self.traced(y) + more["one"] * more["two"]


def plain():
    return Net(as_it_is)


def one_part():
    return nn.Sequential(nn.Linear(4, 4), torch.jit.script(Body()))


def plain_part():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Body())


def scripted_part():
    torch.manual_seed(0)
    return one_part()


def root():
    return torch.jit.script(Body())


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.jit.script(Body())

    def forward(self, x):
        return nn.functional.linear(self.part(x), self.part.f.weight)


def constant():
    return nn.Sequential(torch.jit.freeze(torch.jit.script(nn.Linear(600, 600).eval())))
"""
CLEAN = """
import copy, torch
from safetensors.torch import load_file
from model import Net
from net import Net as Theirs

ours, theirs = Net(), Theirs(seed=1)
theirs.load_state_dict(load_file("weights.safetensors"))
ours.load_state_dict(load_file("weights.safetensors"))
assert list(ours.state_dict()) == list(theirs.state_dict()), "keys"
for train in (True, False):
    results = []
    for net in (ours.train(train), copy.deepcopy(ours.train(train)), theirs.train(train)):
        torch.manual_seed(3)
        found = net(torch.linspace(-1, 1, 12).view(3, 4))
        found.sum().backward()
        results.append([found, *(p.grad for p in net.parameters() if p.requires_grad), *net.buffers()])
        net.zero_grad()
        net.load_state_dict(load_file("weights.safetensors"))
    assert all(map(torch.equal, results[0], results[2])), "values"
    for ours_, copied in zip(*results[:2]):
        assert torch.allclose(ours_, copied, atol=1e-4), "values of the copy"  # whose code is optimised anew
print("equal")
"""


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def imported(name: str, out: str = "n.tape", size: str = "2x4") -> int:
    source = f"net.py:{name}" if name[0].isupper() else f"net.py:{name}()"
    return run(
        ["import", source, "--trust", "--input", size, "-o", out, "--synthetic-data"]
    )


def losses(out: str) -> list[float]:
    with (
        Path(out) / "metrics.csv"
    ).open() as file:  # a row of steps has no loss of an epoch
        return [
            float(row["train_loss"])
            for row in csv.DictReader(file)
            if row["train_loss"]
        ]


def test_parts_of_torchscript_are_nodes_with_their_names_and_their_code_is_stored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported("Net") == 0
    text = capsys.readouterr().out
    assert "outputs, gradients and buffers equal in eval and train mode" in text
    for part in (
        "parts.0 (Body)",
        "counting (Counting)",
        "nested (Nested)",
        "traced (Body)",
    ):
        assert f"{part} is one node" in text
    assert "The whole model" not in text
    nodes = json.loads((folder / "n.tape").read_text())["graph"]["nodes"]
    named = {
        node["name"]: node["op"]
        for node in (nodes.values() if isinstance(nodes, dict) else nodes)
    }
    assert named["first"] == "nn.Linear"
    assert all(
        named[name].startswith("custom.torch_jit_")
        for name in ("parts.0", "parts.1", "counting", "nested", "traced")
    )
    assert {"counting.calls", "parts.1.f.weight", "traced.g.bias"} <= load_file(
        "n.safetensors"
    ).keys()


@needs("export")
def test_the_exported_code_computes_what_the_model_does_and_can_be_copied(
    folder: Path,
) -> None:
    assert imported("Net") == 0
    (folder / "code").mkdir()
    assert (
        run(
            [
                "export",
                "n.tape",
                "--code",
                "code/model.py",
                "--weights",
                "code/weights.safetensors",
            ]
        )
        == 0
    )
    (folder / "net.py").rename(folder / "code" / "net.py")
    clean = folder / "code" / "clean.py"
    clean.write_text(CLEAN)
    done = run_forked(clean, cwd=clean.parent)
    assert done.stdout == "equal\n", done.stderr


def test_a_scripted_part_trains_to_the_losses_of_the_plain_model(folder: Path) -> None:
    for name in ("scripted_part", "plain_part"):
        assert imported(name, f"{name}.tape") == 0
        assert run(["train", f"{name}.tape", "--epochs", "2", "--out", name]) == 0
    assert len(losses("plain_part")) > 1
    assert losses("scripted_part") == pytest.approx(losses("plain_part"), rel=1e-5)


def test_an_observed_model_with_a_scripted_part_trains(folder: Path) -> None:
    command = [
        "import",
        "net.py:scripted_part()",
        "--observe",
        "--trust",
        "--input",
        "2x4",
        "-o",
        "n.tape",
    ]
    assert run([*command, "--synthetic-data"]) == 0
    assert run(["train", "n.tape", "--epochs", "2", "--out", "run"]) == 0
    assert len(losses("run")) > 1


def test_a_backward_pass_names_the_scripted_part(folder: Path) -> None:
    command = [
        "autograd",
        "net.py:one_part()",
        "--play",
        "--trust",
        "--input",
        "2x4",
        "--out",
        "played.json",
    ]
    assert run(command) == 0
    layers = {
        node["layer"] for node in json.loads(Path("played.json").read_text())["nodes"]
    }
    assert {"0", "1"} <= layers


def test_a_model_that_is_torchscript_is_one_node(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported("root") == 0
    out = capsys.readouterr().out
    assert (
        "Checked against the model" in out
        and "The whole model (Body) is one node" in out
    )


def test_a_model_that_reads_a_weight_of_its_part_is_one_node_itself(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported("Reading") == 0
    out = capsys.readouterr().out
    assert (
        "Checked against the model" in out
        and "The whole model (Reading) is one node" in out
    )


def test_another_import_into_the_same_folder_leaves_the_first_as_it_is(
    folder: Path,
) -> None:
    assert imported("one_part", "a.tape") == 0
    before = {path.name: path.read_bytes() for path in folder.glob("torch_jit_*.py")}
    assert imported("one_part", "b.tape") == 0
    assert (
        all((folder / name).read_bytes() == data for name, data in before.items())
        and len(before) == 1
    )


def test_a_part_with_its_weights_as_constants_that_are_too_many_is_refused_with_the_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported("constant", size="2x600") == 1
    assert (
        "is larger than 1 MiB, the limit for a custom layer file"
        in capsys.readouterr().err
    )
