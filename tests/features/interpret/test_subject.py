"""Which of a model's inputs are samples, and which are one sample as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from app.cli import run
from app.features.interpret.compute import subject

GRAPH = """
import torch
from torch import nn


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x, edge_index):
        source, target = edge_index
        h = self.act(self.first(x))
        return self.last(h + torch.zeros_like(h).index_add(0, target, h[source]))


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)

    def forward(self, x):
        h = self.act(self.first(x))
        return self.last(h) + self.act(h.exp_()).sum()
"""


class Adjacency(nn.Module):
    """Nodes and a matrix of which are neighbours: both have a row for each node."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        return torch.softmax(near, 0) @ self.first(x)


def test_rows_are_samples_where_each_gives_alone_what_it_gives_among_others() -> None:
    rows = subject.in_samples(
        subject.of_model(nn.Linear(6, 3), (torch.randn(4, 6),), {})
    )
    assert rows.batch == 4 and not rows.remarks
    graph = subject.in_samples(
        subject.of_model(Adjacency(), (torch.randn(4, 6), torch.randn(4, 4)), {})
    )
    assert graph.batch == 1 and graph.remarks == (subject.WHOLE,)
    assert graph.run(*graph.tensors).shape == (1, 4, 3)


@pytest.fixture
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "graphs.py").write_text(GRAPH)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command", [["attention"], ["patch", "--mute", "first"], ["attribute"]]
)
def test_a_graph_stays_whole_in_every_command(
    command: list[str], graphs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == ["attribute"]:
        pytest.importorskip("captum", reason="attributions are an extra")
    inputs = ["--input", "20x6", "--input", "2x40:int64"]
    assert run([command[0], "graphs.py:Graph", *command[1:], *inputs, "--trust"]) == (
        command == ["attention"]
    )
    assert subject.WHOLE in capsys.readouterr().out


def test_an_attribution_names_what_overwrites_what_backward_needs(
    graphs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("captum", reason="attributions are an extra")
    assert run(["attribute", "graphs.py:Broken", "--trust"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[-1].startswith("tapedeck: backward of graphs.py:Broken fails: ")
        and "line 24 of graphs.py" in lines[-1]
    )
    assert not any("app/" in line for line in lines)
