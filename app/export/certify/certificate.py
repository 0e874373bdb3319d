"""The result of a certification, as a value, as text lines and as a file next to the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.export.text_files import write_text
from app.util.formatting import plural
from app.util.frozen import FrozenMap

FORMAT = 1
# Tolerated differences between two runs of the same code: rounding, as threads change the order of sums.
ALLOWED = {"float64": 1e-10, "float32": 1e-5}
ALLOWED_ELSE = 1e-2  # half and bfloat16


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
            "certificate": FORMAT,
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


def write_certificate(certificate: Certificate, code: Path) -> Path:
    """Write it next to the code and return its path. Raises WeightsError."""
    path = certificate_path(code)
    write_text(
        path, json.dumps(certificate.to_json(), indent=1, ensure_ascii=False) + "\n"
    )
    return path
