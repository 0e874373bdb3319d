"""The model that a net was imported from, and a digest of its computation, which reveals edits since then."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from app.builder.blocks import Block
from app.builder.origin import KeptFile, Origin
from app.builder.sheet import Sheet
from app.project.project import Project
from app.project.sheet_records import block_record, sheet_record
from app.source.generated import Source
from app.training.setup.weights_header import StartError, is_unchanged

_INITIAL = {
    "fill",
    "value",
    "std",
    "low",
    "high",
}  # of a free parameter: its first values


class ImportedNet(Struct, frozen=True):
    """Where a net comes from, and whether its drawing was `edited` since."""

    origin: Origin
    edited: bool = False

    @property
    def comparable(self) -> bool:
        """True if all files for a comparison with the source model exist."""
        return not self.missing

    @property
    def _files(self) -> tuple[KeptFile, ...]:
        return tuple(
            file
            for file in (self.origin.reference, self.origin.weights)
            if file is not None
        )

    @property
    def missing(self) -> str:
        """Return why it cannot be compared, "" if it can."""
        if self.edited:
            return "its drawing was edited since the import"
        if self.origin.reference is None:
            return "no reference was recorded at the import"
        return next(
            (
                f"{file.path} does not exist"
                for file in self._files
                if not Path(file.path).is_file()
            ),
            "",
        )

    def changed(self) -> str:
        """Return which recorded file was modified, "" if none. An edited net needs none."""
        for file in self._files:
            try:
                wrong = not self.missing and not is_unchanged(file)
            except StartError as error:
                return str(error)
            if wrong:
                return f"{file.path} was changed since the import"
        return ""

    def question(self) -> dict[str, str]:
        """Return the question for the clean process."""
        origin = self.origin
        assert origin.reference is not None
        weights = str(Path(origin.weights.path).resolve()) if origin.weights else ""
        return {
            "reference": str(Path(origin.reference.path).resolve()),
            "weights": weights,
        }


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
