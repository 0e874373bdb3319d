"""The bundled example projects, with summaries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.builder.blocks import Block, block_of, with_blocks
from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.graph import Graph
from app.builder.results import Analysis
from app.data.sources import SOURCES, is_present
from app.engine.protocol import Request
from app.preflight import preflight
from app.project import file
from app.project.project import Project
from app.util.resources import path as resource_path

OFFLINE, DOWNLOAD, NO_DATA, BROKEN = "offline", "download", "no data", "broken"
_SENTENCES, _LETTERS = 2, 170
_NAMED = 6
_WEIGHTED = {"conv", "linear", "norm", "seq"}  # categories whose modules have weights
_WEIGHTLESS = {
    "nn.Unfold",
    "nn.Fold",
    "nn.Identity",
    "nn.LocalResponseNorm",
    "nn.CrossMapLRN2d",
}  # of these


class Example(Struct, frozen=True):
    """A bundled project. `words` describe it in a sentence or two."""

    path: Path
    project: Project
    words: str
    layers: int


class Facts(Struct, frozen=True):
    """Facts of the analysis of an example: its parameters, and whether it can be trained as it is.

    `training` is OFFLINE, DOWNLOAD if the data must be downloaded first, NO_DATA if no known data fit, BROKEN if the
    net does not run. `data` describes it.
    """

    parameters: int
    training: str
    data: str
    analysis: Analysis


class DescribeExample(Request[Facts], frozen=True):
    """Analyse a bundled example; `data_root` is where downloaded data are."""

    lane: ClassVar[str] = "shapes"
    project: Project
    data_root: Path


def paths() -> tuple[Path, ...]:
    """List the example files, sorted by name."""
    return tuple(
        sorted(
            resource_path("examples").glob("*.tape"),
            key=lambda path: path.stem.casefold(),
        )
    )


def read(path: Path) -> Example:
    """Read an example project. Raises `ProjectFileError` or OSError."""
    project = file.read(path)
    ops = with_blocks(catalog(), project.blocks)
    return Example(
        path,
        project,
        _summary(project, ops),
        layers(project.graph, project.blocks, ops),
    )


def facts(project: Project, analysis: Analysis, data_root: Path | None = None) -> Facts:
    """Collect what the analysis knows about an example; `data_root` shows whether its data is downloaded."""
    return Facts(
        analysis.total_parameters, *_training(project, analysis, data_root), analysis
    )


def layers(graph: Graph, blocks: Mapping[str, Block], ops: Catalog) -> int:
    """Count the modules with weights, including those inside blocks and repetitions; a shared one counts once.

    A ReLU may be a module or a function, and a Flatten a view: what has weights is counted alike in every style.
    """
    count = 0
    for node in graph.nodes.values():
        inner = blocks.get(block_of(node.op))
        if node.shares:
            continue
        if inner is not None:
            count += node.repeat * layers(inner.graph, blocks, ops)
        elif _has_weights(ops.spec_of(graph, node)):
            count += node.repeat
    return count


def _has_weights(spec: OpSpec) -> bool:
    if spec.kind == "module":
        return spec.category in _WEIGHTED and spec.key not in _WEIGHTLESS
    return spec.kind == "custom"


def _summary(project: Project, ops: Catalog) -> str:
    """Return the first sentences of the notes, or the list of layers without notes."""
    paragraph = " ".join(project.notes.strip().partition("\n\n")[0].split())
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph)
    summary = sentences[0]
    for sentence in sentences[1:_SENTENCES]:
        if len(summary) + len(sentence) < _LETTERS:
            summary += f" {sentence}"
    if summary:
        return summary
    graph = project.graph
    labels = dict.fromkeys(
        ops.spec_of(graph, n).label
        for n in graph.nodes.values()
        if n.op not in ("input", "output")
    )
    named = list(labels)[:_NAMED]
    if len(named) < 2:
        return "".join(named)
    return f"{', '.join(named[:-1])} and {named[-1] if len(named) == len(labels) else 'more'}."


def _training(
    project: Project, analysis: Analysis, data_root: Path | None
) -> tuple[str, str]:
    if analysis.errors:
        return BROKEN, "Does not run as drawn"
    spec = SOURCES.get(project.data.source)
    stopped = (
        problem.severity == "error" for problem in preflight.problems(project, analysis)
    )
    if spec is None or spec.picks or any(stopped):
        return NO_DATA, "Its data are not available here yet, so it cannot be trained"
    if is_present(spec.key, data_root):
        return OFFLINE, f"{spec.label}, trains offline"
    if project.data.options.get("stand_in"):
        return (
            OFFLINE,
            f"A stand-in for {spec.label}, until its {spec.megabytes:.0f} MB are downloaded",
        )
    return DOWNLOAD, f"{spec.label}, a download of {spec.megabytes:.0f} MB"
