"""Other formats and the certificate of an export take seconds: they are made beside the window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.source.generated import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.export.certify.certificate import Certificate
    from app.export.formats import Written
    from app.export.imported import Imported
    from app.views.ui.work import Cancelled, Tell


@dataclass(frozen=True)
class ToProve:
    """What is made of a net after its files are written; a path is None for what is not wanted.

    `model` and `weights` are the files that a certificate is about; without `weights` a copy of `state` is looked at.
    """

    source: Source
    state: Mapping[str, Any]
    words: str
    seed: int
    pt2: Path | None = None
    onnx: Path | None = None
    model: Path | None = None
    weights: Path | None = None
    imported: Imported | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What is wanted, in words."""
        certificate = "the certificate" if self.model else ""
        return tuple(filter(None, (self.pt2 and self.pt2.name, self.onnx and self.onnx.name, certificate)))


@dataclass(frozen=True)
class Proofs:
    """What was found. `refused` has a sentence for each file that could not be made."""

    certificate: Certificate | None = None
    path: Path | None = None
    written: tuple[Written, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        fine = self.certificate is None or self.certificate.passed
        return fine and not self.refused and all(one.passed for one in self.written)


def prove(wanted: ToProve, tell: Tell, cancelled: Cancelled) -> Proofs:
    """Write and compare what is wanted. Raises Stopped, OSError, WeightsError."""
    from app.export.certify.certify import certify_export
    from app.export.formats import FormatError, Kind, write_format

    files: list[tuple[Kind, Path | None]] = [("PT2", wanted.pt2), ("ONNX", wanted.onnx)]
    written, refused = [], []
    for kind, path in files:
        if path is not None:
            try:
                written.append(
                    write_format(
                        wanted.source, wanted.state, path, kind, seed=wanted.seed, tell=tell, cancelled=cancelled
                    )
                )
            except FormatError as error:
                refused.append(str(error))
    certificate, where = None, None
    if wanted.model is not None:
        certificate, where = certify_export(
            wanted.source, wanted.state, wanted.model, wanted.weights, about=wanted.words, seed=wanted.seed,
            imported=wanted.imported, tell=tell, cancelled=cancelled,
        )  # fmt: skip
    return Proofs(certificate, where, tuple(written), tuple(refused))
