"""Requests: write an export, then other formats and the certificate with the same weights; and what they answer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.engine.requests.capture import WeightsChoice
from app.project.project import Project
from app.source.generated import Source
from app.training.config import StartWeights
from app.training.job import Job
from app.util.errors import CodedError
from app.util.formatting import plural
from app.util.frozen import FrozenMap

# --- What is written in other formats, and how it compares

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def onnx_missing() -> str:
    """Return why ONNX cannot be exported and how to install it, "" if it can. Imports none of the packages."""
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if not missing:
        return ""
    verb = "are" if len(missing) > 1 else "is"
    return f"ONNX needs {', '.join(missing)}, which {verb} not installed: pip install tapedeck-torch[onnx]"


Kind = Literal["PT2", "ONNX"]


class FormatError(CodedError):
    """A net that a format does not support, or a file that does not run; the text says which and why."""


class OpenAxis(Struct, frozen=True):
    """An axis of an input that a file takes in any size, counted from 0, which is the batch."""

    name: str
    axis: int

    def __str__(self) -> str:
        return f"{self.name}.{self.axis}"


def parse_axis(text: str) -> OpenAxis:
    """Parse an axis, written as NAME.AXIS. Raises FormatError.

    >>> parse_axis("tokens.1")
    OpenAxis(name='tokens', axis=1)
    """
    name, _, axis = text.rpartition(".")
    if not name or not axis.isdecimal() or not int(axis):
        raise FormatError(
            f"{text!r} does not name an axis; write NAME.AXIS, such as tokens.1; axis 0 is the batch"
        )
    return OpenAxis(name, int(axis))


class WrittenFormat(Struct, frozen=True):
    """A file that was written and run. `any_batch` is False if it is limited to batches of one, because of `why`.

    `largest` is the largest difference to the outputs of the live net, relative to the largest number of the same
    output, None if not numeric; `random` means that the net draws random numbers, so that runs may differ. `fixed`
    are the sizes that are those of the inputs that it was made with, such as "tokens.1 = 16".
    """

    path: Path
    kind: Kind
    passed: bool
    any_batch: bool
    why: str
    largest: float | None
    equal: bool
    finding: str
    by: str
    random: bool = False
    seconds: float = 0.0
    fixed: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """A sentence for the user."""
        batch = (
            "batches of any size" if self.any_batch else f"batches of one ({self.why})"
        )
        batch += f" with {', '.join(self.fixed)}" if self.fixed else ""
        return f"{self.path.name} takes {batch}; {self.by} {self.finding}."


# --- The certificate

CERTIFICATE_FORMAT = 1


class CertificateCheck(Struct, frozen=True):
    """One comparison: `what` is outputs, gradients, buffers or values (of a state_dict), `mode` is eval or train.

    `largest` is the largest difference, relative to the largest number of the same tensor, at `worst`; None if it is
    not numeric, described by `words`. `skipped` tells why the net itself has nothing to compare, "" if it has. `count`
    tensors were compared, of which `empty` have no gradient in either. `odd` describes non-finite numbers, "" for none.
    With `source` the exported class was compared with the source model of an import.
    """

    what: str
    mode: str
    dtype: str
    passed: bool
    equal: bool = True
    largest: float | None = 0.0
    allowed: float = 0.0
    worst: str = ""
    words: str = ""
    skipped: str = ""
    count: int = 0
    empty: int = 0
    odd: str = ""
    source: bool = False

    @property
    def title(self) -> str:
        """`gradients in train mode, float64`."""
        if self.what == "values":
            return "weights and buffers"
        return f"{self.what} in {self.mode} mode, {self.dtype}"

    @property
    def finding(self) -> str:
        """The result as text."""
        if self.skipped:
            return f"not compared: the network itself fails with {self.skipped}"
        if self.what != "outputs" and self.count == self.empty:
            return (
                "none: no output depends on trainable parameters"
                if self.count
                else "the network has none"
            )
        if self.words:
            return f"{self.worst} {self.words}"
        if self.odd:
            return self.odd
        if self.equal:
            return "the same, bit for bit"
        at = f" at {self.worst}" if self.worst else ""
        allowed = f"{self.allowed:g}" if self.allowed else "nothing"
        return f"differ by at most {self.largest:.3g}{at} ({allowed} is allowed)"

    @property
    def figure(self) -> str:
        """The largest difference, or why there is none, in few words."""
        if (
            self.skipped
            or self.words
            or self.odd
            or (self.what != "outputs" and self.count == self.empty)
        ):
            return self.finding
        if self.equal:
            return "0, bit for bit"
        return self.finding.removeprefix("differ by at most ")


class Certificate(Struct, frozen=True):
    """Result of certification: if the exported files are equivalent to the live net, with every check.

    `message` is one sentence for the user; `details` the stderr of the other process, for a traceback. `facts` are
    further entries of the file: versions, hashes, seed, date.
    """

    passed: bool
    message: str
    checks: tuple[CertificateCheck, ...] = ()
    facts: FrozenMap[str, Any] = FrozenMap()
    details: str = ""
    seconds: float = 0.0

    def check(self, kind: str, mode: str) -> CertificateCheck:
        """Return the last check of a kind against the project's net. Raises KeyError if it was not made."""
        for check in reversed(self.checks):
            if (check.what, check.mode, check.source) == (kind, mode, False):
                return check
        raise KeyError(f"{kind} in {mode} mode")

    @property
    def lines(self) -> tuple[str, ...]:
        """To be read from top to bottom; the verdict first."""
        lines = [("passed: " if self.passed else "failed: ") + self.message]
        for check in self.checks:
            mark = "-" if check.skipped else "ok" if check.passed else "!!"
            among = (
                f" ({check.count} {plural(check.count, 'tensor')})"
                if check.count
                else ""
            )
            prefix = "source model: " if check.source else ""
            lines.append(f"  {mark:<2}  {prefix}{check.title}{among}: {check.finding}")
        return tuple(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the file's content as JSON values."""
        return {
            "certificate": CERTIFICATE_FORMAT,
            "passed": self.passed,
            "message": self.message,
            **dict(self.facts),
            "seconds": round(self.seconds, 2),
            "checks": [_plain(check) for check in self.checks],
            "lines": list(self.lines),
        }


def _plain(check: CertificateCheck) -> dict[str, Any]:
    return {
        "what": check.what,
        "mode": check.mode,
        "dtype": check.dtype,
        "passed": check.passed,
        "with": "the source model" if check.source else "the project's network",
        "not finite": check.odd,
        "compared": check.count - check.empty,
        "without gradient": check.empty,
        "bit for bit": check.equal,
        "largest relative difference": check.largest,
        "allowed": check.allowed,
        "worst": check.worst,
        "finding": check.finding,
    }


def certificate_path(code: Path) -> Path:
    """Return the path of the certificate of a code file.

    >>> certificate_path(Path("out/model.py")).name
    'model.certificate.json'
    """
    return code.with_suffix(".certificate.json")


# --- Requests


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
