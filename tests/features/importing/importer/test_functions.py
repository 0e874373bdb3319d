"""Functions of torch that the catalog lacks: a layer of its own for each, with inputs and arguments of the call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.builder.analysis import analyse
from app.builder.catalog.custom import is_custom
from app.features.importing import task
from app.features.importing.values import ImportModel, ModelImportError
from app.project import custom_layers
from app.project.project import Project
from app.sources.spec import InputSpec, SourceSpec
from tests.support import own_code

NET = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cross_entropy, self.fc = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, labels):
        y = self.fc(x)
        {line}
        return self.cross_entropy(y).sum(-1) + z
"""
INPUTS = (InputSpec((3, 4)), InputSpec((3,), "int64"))


@pytest.fixture
def net(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path / "functions_net.py"
    sys.modules.pop("functions_net", None)


def redrawn(net: Path, line: str) -> tuple[Project, str]:
    """Import a net with this line, held against the live model; the project and its source."""
    net.write_text(NET.format(line=line))
    own_code.trust(f"{net}:Net")
    project = task.answer(
        ImportModel(SourceSpec("file", str(net), "Net"), {}, INPUTS), net.parent
    )
    assert project.origin is not None
    assert (
        "outputs, gradients and buffers equal in eval and train mode"
        in project.origin.checked
    )
    found = analyse(project.graph, custom_layers.ops_of(project))
    assert not found.errors
    return project, found.source.text


LINES = {
    "F.cross_entropy(y, labels, label_smoothing=0.1)": "self.cross_entropy2(y, labels, label_smoothing=0.1)",
    "torch.linalg.vector_norm(y, 3, dim=-1)": "self.vector_norm(y, ord=3, dim=-1)",
    "torch.special.i0e(y).sum(-1)": "self.i0e(y)",
    "F.cosine_similarity(y, x[:1], dim=1)": "self.cosine_similarity(y, ",
    "torch.aminmax(y, dim=1).max": "_, max_ = self.aminmax(y, dim=1)",
    "y.logit(eps=0.25).sum(1)": "self.logit(y, eps=0.25)",
    "torch.block_diag(y, x)[:3].sum(1)": "self.block_diag(y, x)",
}


def test_a_function_that_the_catalog_lacks_is_a_layer_with_the_inputs_and_arguments_of_the_call(
    net: Path,
) -> None:
    project, source = redrawn(net, f"z = {' + '.join(LINES)}")
    assert not [text for text in LINES.values() if text not in source]
    assert (
        "self.cross_entropy = nn.Linear(4, 4)" in source
    )  # the model's own layer keeps its name
    made = {node.op for node in project.graph.nodes.values() if is_custom(node.op)}
    assert "custom.torch_i0e:I0e" in made and len(made) == len(LINES) == len(
        project.layer_files
    )


def test_an_input_that_no_output_depends_on_is_told(net: Path) -> None:
    with pytest.raises(
        ModelImportError, match=r"Net takes 2 inputs, but its outputs depend only on x"
    ):
        redrawn(net, "z = y.sum(-1)")
