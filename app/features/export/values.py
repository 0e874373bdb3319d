"""Requests: write an export, then other formats and the certificate with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.engine.requests.capture import WeightsChoice
from app.export.certify.certificate import Certificate
from app.export.format_result import WrittenFormat
from app.project.project import Project
from app.source.generated import Source
from app.training.config import StartWeights
from app.training.job import Job


class ExportChoice(Struct, frozen=True):
    """Which files go into `folder`."""

    folder: Path
    code: bool = True
    safetensors: bool = True
    pt: bool = False
    script: bool = True
    pt2: bool = False
    onnx: bool = False
    certify: bool = False
    best: bool = (
        False  # the weights with the smallest validation loss, in place of the newest
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The files that will be written."""
        selected = (
            self.code,
            self.safetensors,
            self.pt,
            self.script,
            self.pt2,
            self.onnx,
            self.certify,
        )
        return tuple(
            name for name, want in zip(NAMES.values(), selected, strict=True) if want
        )

    @property
    def proves(self) -> bool:
        """Return whether the export writes files that are compared with the net, which takes time."""
        return self.pt2 or self.onnx or self.certify

    @property
    def takes_weights(self) -> bool:
        return self.safetensors or self.pt or self.proves


NAMES = {
    "code": "model.py",
    "safetensors": "weights.safetensors",
    "pt": "weights.pt",
    "script": "train.py",
    "pt2": "model.pt2",
    "onnx": "model.onnx",
    "certify": "model.certificate.json",
}


class ToProve(Struct, frozen=True):
    """Further files to write, by `names`; the engine holds the exported weights under the handle."""

    handle: Handle
    names: tuple[str, ...]


class ExportResult(Struct, frozen=True):
    """Folder and files of an export, the origin of the weights ("" if none), and the comparisons still to run."""

    folder: Path
    names: tuple[str, ...]
    weights: str
    to_prove: ToProve | None = None


class Export(Request[ExportResult], frozen=True):
    """Write the chosen files of a project's net; files written before an error stay."""

    lane: ClassVar[str] = "export"
    choice: ExportChoice
    job: Job
    project: Project
    weights: WeightsChoice


class NameWeights(Request[str], frozen=True):
    """Describe which weights an export would write, as a phrase after "weights"."""

    lane: ClassVar[str] = "export"
    source: Source
    seed: int
    start: StartWeights | None
    weights: WeightsChoice


class Proofs(Struct, frozen=True):
    """The results. `refused` has a sentence for each file that could not be written."""

    certificate: Certificate | None = None
    path: Path | None = None
    written: tuple[WrittenFormat, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        fine = self.certificate is None or self.certificate.passed
        return (
            fine
            and not self.refused
            and all(written_format.passed for written_format in self.written)
        )


class Prove(Request[Proofs], frozen=True):
    """Write the other formats, run them, and certify the code. Progress is words."""

    lane: ClassVar[str] = "proofs"
    handle: Handle
