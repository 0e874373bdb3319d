"""Analyse a bundled example."""

from __future__ import annotations

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.engine.server import Context, handles
from app.features.gallery.values import DescribeExample, Facts, facts


@handles(DescribeExample)
def describe_example(request: DescribeExample, _context: Context) -> Facts:
    project = request.project
    answer = analyse(project.graph, with_blocks(catalog(), project.blocks))
    return facts(project, answer, request.data_root)
