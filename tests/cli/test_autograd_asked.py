"""`tapedeck autograd` plays a pass into a file, and says what the detectives find."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from app.builder.analysis import analyse
from app.engine.requests.capture import CaptureRequest
from app.engine.tasks.capture import batch_of
from app.main import main
from app.preflight.preflight import job
from app.project.custom_layers import ops_of
from app.project.file import read
from app.util import resources
from tests.autograd.test_replay_html import Page

DIGITS = str(resources.path("examples", "digits.tape"))
NETS = """import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

def frozen():
    made = net()
    made[0].weight.requires_grad_(False)
    return nn.Sequential(made, Cut())

class Cut(nn.Module):
    def forward(self, x):
        return x + x.detach().exp().log() * torch.zeros(1, requires_grad=True).sqrt()

def freed():
    x = torch.ones(2, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    return loss
"""


@pytest.fixture
def nets(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETS)
    return str(tmp_path / "nets.py")


def asked(*words: str) -> int:
    return main(["autograd", *words])


def test_a_page_and_data_of_the_same_pass(tmp_path: Path, capsys) -> None:
    page, data = tmp_path / "p.html", tmp_path / "p.json"
    assert asked(DIGITS, "--batch", "4", "--eval", "--out", str(page)) == 0
    assert asked(DIGITS, "--batch", "4", "--eval", "--play", "--out", str(data)) == 0
    assert capsys.readouterr().out.split() == [str(page), str(data)]
    steps = Page(page.read_text()).data["steps"]
    told: dict[str, Any] = json.loads(data.read_text())
    played = told["played"]
    assert [step["node"] for step in steps] == told["order"] == played[
        "order"
    ] and played["failed"] is None
    assert (
        sum(played["released_bytes"]) == told["held_bytes"]
        and played["held_bytes"][-1] == 0
    )
    norms = {str(step["node"]): step["norm"] for step in steps}
    assert norms == played["node_norms"]
    pairs = {(edge["source"], edge["slot"]) for edge in told["edges"]}
    assert {(edge["source"], edge["slot"]) for edge in played["edge_norms"]} <= pairs


def test_without_being_asked_nothing_is_played(tmp_path: Path) -> None:
    assert asked(DIGITS, "--batch", "2", "--out", str(tmp_path / "p.json")) == 0
    assert "played" not in json.loads((tmp_path / "p.json").read_text())


def test_a_vector_at_an_output_in_autocast(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    words = [
        "--batch",
        "2",
        "--vector",
        "one-hot:3",
        "--outputs",
        "1",
        "--amp",
        "bfloat16",
        "--random",
        "--play",
    ]
    assert asked(DIGITS, *words, "--out", str(out)) == 0
    told = json.loads(out.read_text())
    first = told["played"]["node_norms"][str(told["order"][0])]
    assert told["loss"] is None and math.isclose(first, math.sqrt(2), rel_tol=1e-3), (
        "1 for each of two samples"
    )


def test_the_graph_of_a_gradient_is_played_and_said_to_be_that_of_the_square(
    tmp_path: Path, capsys
) -> None:
    out = tmp_path / "p.json"
    assert (
        asked(DIGITS, "--batch", "2", "--second-order", "--play", "--out", str(out))
        == 0
    )
    told = json.loads(out.read_text())
    assert (
        told["played"]["failed"] is None
        and len(told["played"]["order"]) == len(told["nodes"]) > 40
    )
    assert "the square of the norm" in capsys.readouterr().out
    project = read(Path(DIGITS))
    subject = batch_of(
        CaptureRequest(
            job(project, analyse(project.graph, ops_of(project)))
        ).of_samples(2)
    )
    with subject.hold() as graph:
        weights = list(graph.model.parameters())
        grads = torch.autograd.grad(graph.ends, weights, create_graph=True)
        again = torch.autograd.grad(
            sum(grad.square().sum() for grad in grads), weights, allow_unused=True
        )
    (leaf,) = (
        node["id"] for node in told["nodes"] if node["parameters"] == ["conv1.weight"]
    )
    assert math.isclose(
        told["played"]["node_norms"][str(leaf)], float(again[0].norm()), rel_tol=1e-4
    )


def test_options_that_findings_leave_out_are_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked(
        DIGITS, "--batch", "2", "--checkpoint", "fc1", "--amp", "bfloat16", "--findings"
    )
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(
        "Diagnosed without checkpoint fc1: the batch runs without it"
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--out", "g.gif"],
        ["--play"],
        ["--play", "--out", "g.svg"],
        ["--findings", "--vector", "twos"],
        ["--findings", "--vector", "ones:3"],
        ["--findings", "--outputs", "0"],
        ["--findings", "--outputs", "x"],
        ["--findings", "--second-order", "--vector", "ones"],
    ],
)
def test_wrong_arguments_get_exit_2(words: list[str]) -> None:
    assert asked(DIGITS, *words) == 2
