"""Import a class of a file, held against the live model, as `tapedeck import` does."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from app.builder.analysis import analyse
from app.features.importing import task
from app.features.importing.values import ImportModel
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from tests.support import own_code


def redrawn(file: Path, text: str, *inputs: InputSpec) -> tuple[Project, str]:
    """Import `Net` of a file with this text; the project as its file has it, and its source. Outputs, gradients and
    buffers were equal in both modes, and parameters have the names and the order of the model's."""
    file.write_text(text)
    torch.manual_seed(0)
    own_code.trust(f"{file}:Net")
    project = task.answer(
        ImportModel(SourceSpec("file", str(file), "Net"), {}, inputs), file.parent
    )
    assert project.origin is not None
    assert (
        "outputs, gradients and buffers equal in eval and train mode"
        in project.origin.checked
    ), project.notes
    assert "Not compared" not in project.notes
    project_file.write(project, file.parent / "net.tape")
    project = project_file.read(file.parent / "net.tape")
    found = analyse(project.graph, custom_layers.ops_of(project))
    assert not found.errors
    theirs, ours = sys.modules[file.stem].Net(), make_module(found.source)
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]
    assert set(ours.state_dict()) == set(theirs.state_dict())
    return project, found.source.text


def own_ops(project: Project) -> list[str]:
    """The nodes that run a class's own code, by their ops."""
    graphs = (project.graph, *(block.graph for block in project.blocks.values()))
    return [
        node.op
        for graph in graphs
        for node in graph.nodes.values()
        if node.op.startswith("custom.")
    ]
