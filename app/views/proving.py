"""Other formats and the certificate of an export take seconds: they are made in a thread of their own."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QCoreApplication, QThread, Signal

from app.background import Failure
from app.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from app.export.certificate import Certificate
    from app.export.formats import Written


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


def prove(wanted: ToProve, tell: Callable[[str], None], cancelled: Callable[[], bool]) -> Proofs:
    """Write and compare what is wanted. Raises Stopped, OSError, WeightsError."""
    from app.export.certify import certify_export
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
            tell=tell, cancelled=cancelled,
        )  # fmt: skip
    return Proofs(certificate, where, tuple(written), tuple(refused))


# A thread that is dropped while it runs ends the program; each stays here until it has ended.
_running: set[Prover] = set()


class Prover(QThread):
    """Proves one export. `ended(answer)` brings Proofs, or a Failure."""

    ended = Signal(object)

    def __init__(self, wanted: ToProve) -> None:
        super().__init__()
        self._wanted = wanted
        self._cancelled = threading.Event()
        self.progress = ""
        application = QCoreApplication.instance()
        if application is not None:
            application.aboutToQuit.connect(self._leave)
        _running.add(self)
        self.finished.connect(self._gone)

    def _gone(self) -> None:
        _running.discard(self)

    def _leave(self) -> None:
        self.cancel()
        self.wait()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _tell(self, words: str) -> None:
        self.progress = words  # one assignment: the window looks at it whenever it likes

    def run(self) -> None:
        answer: Proofs | Failure
        try:
            answer = prove(self._wanted, self._tell, self._cancelled.is_set)
        except Exception as error:  # whatever it is, the person who asked is told
            answer = Failure(error, traceback.format_exc())
        self.ended.emit(answer)
