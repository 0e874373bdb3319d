"""Folded by block: groups within groups as the modules lie, level by level."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.blocks import group_by_block
from app.autograd.grouping import LayerGroup, fold, group_by_layer, opened
from app.autograd.pictures.diagram import draw
from app.autograd.tape import Tape, to_json
from app.builder.analysis import analyse
from app.cli import run
from app.project import file
from app.project.custom_layers import ops_of
from app.util.resources import path as resource_path
from tests.support.autograd_tapes import small_tape


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu() + x


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3)
        self.stage = nn.Sequential(Block(), Block())
        self.head = nn.Sequential(nn.Sequential(nn.Linear(2, 3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stage(self.stem(x)).mean((2, 3)))


def nested() -> tuple[Tape, tuple[LayerGroup, ...]]:
    tape = TrainingBatch(
        Nested(), torch.randn(2, 1, 8, 8), lambda out, _: out.sum()
    ).capture()
    return tape, group_by_block(tape)


def tree(groups: tuple[LayerGroup, ...]) -> list[str]:
    depth: dict[str | None, int] = {None: -1}
    lines = []
    for group in groups:
        depth[group.key] = depth[group.parent] + 1
        lines.append("  " * depth[group.key] + group.title)
    return lines


def test_groups_lie_within_one_another_as_the_modules_do() -> None:
    tape, groups = nested()
    assert tree(groups) == [
        "stem",
        "stage",
        "  stage.0",
        "    conv",
        "    norm",
        "  stage.1",
        "    conv",
        "    norm",
        "Nested",
        "head.0.0",
        "loss",
    ]
    assert sorted(node for group in groups for node in group.own) == list(
        range(len(tape.nodes))
    )
    stage = next(group for group in groups if group.title == "stage")
    assert stage.own == () and stage.kind == "Sequential" and stage.category == "block"
    inner = [group for group in groups if group.parent == stage.key]
    assert [group.kind for group in inner] == ["Block", "Block"]
    assert set(stage.nodes) == {node for group in inner for node in group.nodes}
    assert [tape.nodes[node].name for node in inner[0].own] == [
        "ReluBackward0",
        "AddBackward0",
    ]


def test_it_unfolds_level_by_level() -> None:
    tape, groups = nested()
    by_title = {group.title: group.key for group in groups}

    def titles(*open_ones: str) -> list[str]:
        drawing = draw(
            tape, fold(tape, groups, frozenset(by_title[title] for title in open_ones))
        )
        assert {group.id for group in drawing.groups} <= {
            by_title[title] for title in open_ones
        }
        return [box.title for box in drawing.boxes]

    top = ["stem", "stage", "Nested", "head.0.0", "loss"]
    assert titles() == top
    assert titles("stage") == [
        "stem",
        "stage.0",
        "stage.1",
        "Nested",
        "head.0.0",
        "loss",
    ]
    assert titles("stage", "stage.0") == [
        "stem",
        "conv",
        "norm",
        "ReluBackward0",
        "AddBackward0",
        "stage.1",
        "Nested",
        "head.0.0",
        "loss",
    ]
    assert titles("stage.0") == top, "what is in a closed group is not seen"


def test_what_a_block_holds_and_how_large_it_is_stand_in_its_box() -> None:
    tape, groups = nested()
    box = next(
        box
        for box in draw(tape, fold(tape, groups, frozenset())).boxes
        if box.title == "stage"
    )
    assert (
        box.lines[0] == "16 nodes"
        and box.lines[1].endswith("held")
        and box.lines[2] == "8 parameters"
    )
    assert (
        sum(group.freed for group in groups if group.parent is None) == tape.held_bytes
    )


def test_every_way_of_folding_draws_every_edge_once() -> None:
    tape, groups = nested()
    keys = frozenset(group.key for group in groups)
    for unfolded in (frozenset[str](), keys, opened(groups)):
        folded = fold(tape, groups, unfolded)
        drawing = draw(tape, folded)
        inner = sum(
            1
            for edge in tape.edges
            if folded.place[edge.source] == folded.place[edge.target]
        )
        assert sum(arrow.count for arrow in drawing.arrows) == len(tape.edges) - inner


def test_a_drawing_has_its_own_nodes_at_the_top() -> None:
    tape = small_tape()
    flat, deep = group_by_layer(tape), group_by_block(tape)
    assert [(g.key, g.title, g.link, g.nodes) for g in deep] == [
        (g.key, g.title, g.link, g.nodes) for g in flat
    ]
    assert all(group.parent is None for group in deep)


def test_a_container_that_is_called_again_is_another_group() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(self.part(x) * 2)

    groups = group_by_block(TrainingBatch(Twice(), torch.randn(2, 4)).capture())
    assert tree(groups) == [
        "part",
        "  part.0",
        "  part.1",
        "Twice",
        "part (run 2)",
        "  part.0 (call 2)",
        "  part.1 (call 2)",
    ]
    assert len({group.key for group in groups}) == len(groups)


def test_a_dict_of_modules_is_never_called_so_it_has_parts() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.ModuleDict({name: nn.Linear(4, 4) for name in "abcd"})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.body["b"](self.body["a"](x)) * 2
            return self.body["d"](self.body["c"](x))

    groups = group_by_block(TrainingBatch(Parts(), torch.randn(2, 4)).capture())
    titles = [group.title for group in groups]
    assert "body (part 2)" in titles and not any("run" in title for title in titles)


def test_containers_around_one_thing_are_one_with_it_however_deep() -> None:
    net: nn.Module = nn.Linear(2, 2)
    for _ in range(150):
        net = nn.Sequential(net, nn.Identity())
    (group,) = group_by_block(TrainingBatch(net, torch.randn(1, 2)).capture())
    assert group.title == ".".join("0" * 150) and group.kind == "Linear"


def test_the_command_draws_blocks_as_clusters_within_clusters(tmp_path: Path) -> None:
    project = str(resource_path("examples") / "Residual net on digits.tape")
    open_, closed, plain = (
        tmp_path / f"{name}.dot" for name in ("open", "closed", "plain")
    )
    assert (
        run(
            ["autograd", project, "--out", str(open_), "--group", "block", "--unfolded"]
        )
        == 0
    )
    assert run(["autograd", project, "--out", str(closed), "--group", "block"]) == 0
    assert run(["autograd", project, "--out", str(plain), "--group", "none"]) == 0
    depth, deepest, nodes = 0, 0, 0
    for line in open_.read_text("utf-8").splitlines():
        depth += line.strip().startswith("subgraph")
        depth -= line == "  }"
        deepest, nodes = max(deepest, depth), nodes + ("shape=box" in line)
    assert deepest == 3 and depth == 0, "stage1, stage1.0, conv1"
    assert (
        "subgraph" not in plain.read_text("utf-8")
        and plain.read_text("utf-8").count("shape=box") == nodes
    )
    text = closed.read_text("utf-8")
    assert "subgraph" not in text and "39 nodes" in text and "stage1" in text


def test_inside_a_drawn_block_each_node_has_its_full_path_and_its_own_line() -> None:
    project = file.read(resource_path("examples", "Residual net on digits.tape"))
    tape = compile_batch(
        analyse(project.graph, ops_of(project)).source,
        torch.randn(2, 1, 8, 8),
        None,
        None,
        0,
    ).capture()
    inside = [node for node in tape.nodes if node.layer.startswith("stage2.1.conv")]
    assert {tape.title_of(node) for node in inside} == {
        "stage2.1.conv1",
        "stage2.1.conv2",
    }
    code = {tape.title_of(node): tape.code_of(node) for node in inside}
    assert (
        "self.conv1(" in code["stage2.1.conv1"]
        and "self.conv2(" in code["stage2.1.conv2"]
    )
    assert len({node.line for node in inside}) == 2, "not the line of the block's call"
    assert len({node.node for node in inside}) == 1, "the box is the block's"
    told = to_json(tape)["nodes"]
    assert all(
        one["layer"] == one["module"] for one in told if "." in (one["module"] or "")
    )
