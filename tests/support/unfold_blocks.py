"""A network of blocks in blocks, for the tests of what is unfolded."""

from __future__ import annotations

from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.edits import edits
from app.project.project import Project
from app.util.frozen import FrozenMap


def cell() -> Block:
    """x -> conv -> relu -> add -> out, with x added on again."""
    block, last = edits.add(Block("Cell"), catalog(), "input", (0.0, 0.0))
    first = last
    for i, op in enumerate(("nn.Conv2d", "nn.ReLU", "operator.add", "output"), start=1):
        block, last = edits.add_behind(block, catalog(), op, last, (240.0 * i, 0.0))
        if op == "nn.Conv2d":
            graph = block.graph.with_param(last, "out_channels", 4).with_param(
                last, "padding", 1
            )
            block = edits.changed(block, graph.with_param(last, "kernel_size", (3, 3)))
        if op == "operator.add":
            block = edits.connect(block, catalog(), first, 0, last, "other")
    return block


def stage(ops: Catalog, unfolded: bool = False) -> Block:
    """x -> two cells -> out."""
    block, last = edits.add(Block("Stage"), ops, "input", (0.0, 0.0))
    for i, op in enumerate(("block.Cell", "block.Cell", "output"), start=1):
        block, last = edits.add_behind(block, ops, op, last, (240.0 * i, 0.0))
    return edits.changed(block, unfolded=frozenset(["n2"])) if unfolded else block


def net(unfolded: bool = False) -> tuple[Project, Catalog]:
    """input -> stage -> cell -> relu -> output in a row, by hand, with another node below; and its catalog.

    With `unfolded` the first cell in the stage is unfolded there.
    """
    blocks = FrozenMap({"Cell": cell()})
    blocks = blocks.set("Stage", stage(with_blocks(catalog(), blocks), unfolded))
    ops = with_blocks(catalog(), blocks)
    project, last = edits.add(Project(blocks=blocks), ops, "input", (0.0, 0.0))
    project = edits.changed(project, project.graph.with_param(last, "shape", (4, 8, 8)))
    for i, op in enumerate(("block.Stage", "block.Cell", "nn.ReLU", "output"), start=1):
        project, last = edits.add_behind(
            project, ops, op, last, (248.0 * i, 8.0 * (i % 2))
        )
    project, _ = edits.add(project, ops, "nn.Linear", (240.0, 400.0))
    return project, ops
