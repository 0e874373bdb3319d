"""Trainable and frozen parameters are counted alike by `check`, `train`, the status bar and the inspector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.main import main
from app.project import file
from app.project.project import Project
from app.source.compiled import make_module
from app.util.resources import path as resource_path
from app.views.status import StatusLine

pytestmark = pytest.mark.usefixtures("no_pictures")

WORDS = "85,066 parameters: 19,466 trainable, 65,600 frozen"


@pytest.fixture
def project() -> Project:
    made = file.read(resource_path("examples", "digits.tape"))
    fc1 = next(node for node in made.graph.nodes.values() if node.name == "fc1")
    return replace(
        made,
        graph=made.graph.with_node(replace(fc1, frozen=True)),
        training=replace(made.training, max_steps=1, device="cpu"),
    )


def test_everybody_counts_them_with_the_same_words(
    qtbot: QtBot, project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write(project, tmp_path / "net.tape")
    assert (
        main(["check", str(tmp_path / "net.tape")]) == 0
        and WORDS in capsys.readouterr().out
    )
    assert main(["check", str(tmp_path / "net.tape"), "--json"]) == 0
    by_layer = json.loads(capsys.readouterr().out)["by_layer"]
    assert by_layer == {"conv1": 320, "conv2": 18_496, "fc1": 65_600, "fc2": 650}
    assert (
        main(["train", str(tmp_path / "net.tape"), "--out", str(tmp_path / "out")]) == 0
    )
    assert f"training on cpu: {WORDS}, " in capsys.readouterr().out
    analysis = analyse(project.graph)
    status = StatusLine()
    qtbot.addWidget(status)
    status.set_parameters(analysis.total_parameters, analysis.frozen_parameters)
    assert status._right["parameters"].text() == WORDS


@pytest.mark.parametrize("name", ["Residual net on digits", "Transformer on digits"])
def test_frozen_nodes_inside_blocks_count(name: str) -> None:
    project = file.read(resource_path("examples", f"{name}.tape"))
    block = next(iter(project.blocks.values()))
    inner = next(
        node
        for node in block.graph.nodes.values()
        if node.op.startswith("nn.")
        and "Conv" in node.op
        or node.op == "nn.Linear"
        or "Attention" in node.op
    )
    edited = replace(block, graph=block.graph.with_node(replace(inner, frozen=True)))
    from app.project.custom_layers import ops_of

    project = replace(project, blocks={**project.blocks, block.name: edited})
    analysis = analyse(project.graph, ops_of(project))
    torch.manual_seed(0)
    held = [p for p in make_module(analysis.source).parameters() if not p.requires_grad]
    assert analysis.frozen_parameters == sum(p.numel() for p in held) > 0
