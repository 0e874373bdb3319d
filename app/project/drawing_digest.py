"""Digest of the computation of a net, which reveals edits since its import."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from app.builder.blocks import Block
from app.builder.sheet import Sheet
from app.export.imported import ImportedNet
from app.project.project import Project
from app.project.sheet_records import block_record, sheet_record
from app.source.generated import Source

_INITIAL = {
    "fill",
    "value",
    "std",
    "low",
    "high",
}  # of a free parameter: its first values


def digest(project: Project, source: Source) -> str:
    """Hash the nodes, wires and blocks of a net and the files of layers that it uses.

    Positions, comments and initial values of parameters are left out: they change no output of given weights.
    """
    blocks = [
        [block.name, _computes(block), _defaults(block)]
        for _, block in sorted(project.blocks.items())
    ]
    files = [[file.module, file.sha256] for file in source.files]
    return hashlib.sha256(
        msgspec.json.encode([_computes(project), blocks, files])
    ).hexdigest()


def imported(project: Project, source: Source) -> ImportedNet | None:
    """Return the model that a project was imported from, and whether it was edited since; None if not imported."""
    origin = project.origin
    return (
        None
        if origin is None
        else ImportedNet(origin, origin.drawing != digest(project, source))
    )


def _defaults(block: Block) -> list[list[Any]]:
    """Return the default parameters of a block's instances."""
    return [
        [param["name"], param["kind"], param["default"]]
        for param in block_record(block).get("params", [])
    ]


def _computes(sheet: Sheet) -> dict[str, Any]:
    graph: dict[str, Any] = sheet_record(sheet)["graph"]
    for node in graph["nodes"]:
        node.pop("inits", None)
        if node["op"] == "parameter":
            node["params"] = {
                name: value
                for name, value in node["params"].items()
                if name not in _INITIAL
            }
    return graph
