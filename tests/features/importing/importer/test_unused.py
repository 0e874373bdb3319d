"""What a model has and its `forward` never uses stays: the state_dict has the keys of the model."""

from __future__ import annotations

import torch
from msgspec.structs import replace
from torch import nn

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Keep, apply_cure
from app.builder.graph import Edge, Graph, Node
from app.builder.layout import TITLE
from app.builder.shapes.cost import cost
from app.project import custom_layers, file
from app.project.project import Project
from app.util.frozen import FrozenMap
from tests.features.importing.importer.test_models import code_of, same


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.idle = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x):
        return torch.relu(self.used(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Inner(), Inner()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.Embedding(3, 2)
        self.off = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.kernel = nn.Conv1d(4, 4, 1)

    def forward(self, x):
        x = self.b(self.a(x))
        for layer in self.layers[:2]:
            x = torch.relu(layer(x))
        return x @ self.kernel.weight[:, :, 0]


def test_what_forward_never_uses_is_kept_under_its_keys() -> None:
    model = Model()
    project = same(model, torch.randn(2, 4))
    code = code_of(project)
    assert (
        code.text.count("class Inner") == 1
        and "nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])" in code.text
    )
    kept = [node.name for node in project.graph.nodes.values() if node.kept]
    assert sorted(kept) == ["kernel.bias", "layers.2", "off", "table"]
    whole = sum(parameter.numel() for parameter in model.parameters())
    ops = custom_layers.ops_of(project)
    assert analyse(project.graph, ops).total_parameters == whole
    assert cost(project.graph, ops).parameters == whole


def test_it_is_said_calmly_and_stands_in_a_frame() -> None:
    project = same(Model(), torch.randn(2, 4))
    problems = analyse(project.graph, custom_layers.ops_of(project)).problems
    assert {problem.severity for problem in problems} == {"info"} and len(problems) == 2
    for sheet in (project, project.blocks["Inner"]):
        (frame,) = sheet.comments.values()
        assert frame.text == TITLE
        inside = {
            node
            for node, (x, y) in sheet.positions.items()
            if frame.x < x < frame.x + frame.width
            and frame.y < y < frame.y + frame.height
        }
        assert inside == {node.id for node in sheet.graph.nodes.values() if node.kept}


def drawing(kept: bool) -> Graph:
    nodes = (
        Node("a", "input", "x", FrozenMap({"shape": (4,)})),
        Node("b", "nn.Linear", "fc", FrozenMap({"out_features": 2})),
        Node("c", "output", "y"),
        Node(
            "d",
            "nn.Linear",
            "head",
            FrozenMap({"in_features": 4, "out_features": 3}),
            kept=kept,
        ),
    )
    return Graph(
        FrozenMap({node.id: node for node in nodes}),
        (Edge("a", 0, "b", "input"), Edge("b", 0, "c", "input")),
    )


def test_a_person_keeps_a_layer_and_leaves_it_out_again() -> None:
    ops = catalog()
    before = analyse(drawing(kept=False))
    (problem,) = [one for one in before.problems if one.node == "d"]
    assert problem.severity == "warning" and "self.head" not in before.source.text
    keep = next(cure for cure in problem.cures if cure.edits == (Keep("d"),))
    graph = apply_cure(drawing(kept=False), ops, keep)
    after = analyse(graph)
    assert (
        "self.head = nn.Linear(4, 3)" in after.source.text
        and "self.head(" not in after.source.text
    )
    assert after.parameters["d"] == 15 and after.total_parameters == 25
    (told,) = [one for one in after.problems if one.node == "d"]
    assert told.severity == "info"
    assert (
        analyse(apply_cure(graph, ops, told.cures[0])).source.text == before.source.text
    )


def test_one_that_is_used_after_all_is_a_node_like_others() -> None:
    graph = drawing(kept=True)
    wired = replace(
        graph,
        edges=(
            *graph.edges[:1],
            Edge("a", 0, "d", "input"),
            Edge("d", 0, "c", "input"),
        ),
    )
    answer = analyse(wired)
    assert "self.head(x)" in answer.source.text
    assert {one.node: one.severity for one in answer.problems} == {"b": "warning"}
    project = Project(graph=graph)
    assert file.loads(file.dumps(project)).graph == graph


def test_one_that_does_not_know_its_sizes_says_so() -> None:
    graph = drawing(kept=True)
    graph = graph.without_param("d", "in_features")
    (error,) = analyse(graph).errors
    assert error.node == "d" and "in_features" in error.message
