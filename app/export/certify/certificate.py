"""What a certification found, as a value, as lines to read and as a file beside the code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.export.weights import write_text
from app.util.formatting import plural
from app.util.frozen import FrozenMap

FORMAT = 1
# What may be lost between two runs of the same text: rounding, where threads add in another order.
ALLOWED = {"float64": 1e-10, "float32": 1e-5}
ALLOWED_ELSE = 1e-2  # half and bfloat16


@dataclass(frozen=True)
class Check:
    """One kind of thing that was compared: `what` is outputs, gradients, buffers or values (of a state_dict), `mode` is
    eval or train.

    `largest` is the largest difference, relative to the largest number of the same tensor, at `worst`; None where no
    number says it, and `words` then do. `skipped` says why the net itself has nothing to compare here, "" if it has.
    `count` tensors were compared, of which `empty` have no gradient in either. `odd` says which numbers are not finite,
    "" if all are. With `source` the exported class was compared with the source model of an import.
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
        """What was found, in words."""
        if self.skipped:
            return f"not compared: the network itself fails with {self.skipped}"
        if self.what != "outputs" and self.count == self.empty:
            return "none: no output depends on trainable parameters" if self.count else "the network has none"
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
        if self.skipped or self.words or self.odd or (self.what != "outputs" and self.count == self.empty):
            return self.finding
        if self.equal:
            return "0, bit for bit"
        return self.finding.removeprefix("differ by at most ")


@dataclass(frozen=True)
class Certificate:
    """Whether the exported files are the live net, by every check.

    `message` is one sentence for the person; `details` what the other process wrote, for a traceback. `facts` is what
    the file states beside the checks: versions, hashes, seed, date.
    """

    passed: bool
    message: str
    checks: tuple[Check, ...] = ()
    facts: FrozenMap[str, Any] = FrozenMap()
    details: str = ""
    seconds: float = 0.0

    def check(self, what: str, mode: str) -> Check:
        """The last check of a kind against the net of the project. Raises KeyError if it was not made."""
        for one in reversed(self.checks):
            if (one.what, one.mode, one.source) == (what, mode, False):
                return one
        raise KeyError(f"{what} in {mode} mode")

    @property
    def lines(self) -> tuple[str, ...]:
        """To be read from top to bottom; the verdict first."""
        found = [("passed: " if self.passed else "failed: ") + self.message]
        for one in self.checks:
            mark = "-" if one.skipped else "ok" if one.passed else "!!"
            among = f" ({one.count} {plural(one.count, 'tensor')})" if one.count else ""
            place = "source model: " if one.source else ""
            found.append(f"  {mark:<2}  {place}{one.title}{among}: {one.finding}")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """What the file holds; nothing in it is other than a JSON value."""
        return {
            "certificate": FORMAT,
            "passed": self.passed,
            "message": self.message,
            **dict(self.facts),
            "seconds": round(self.seconds, 2),
            "checks": [_plain(one) for one in self.checks],
            "lines": list(self.lines),
        }


def _plain(check: Check) -> dict[str, Any]:
    return {
        "what": check.what, "mode": check.mode, "dtype": check.dtype, "passed": check.passed,
        "with": "the source model" if check.source else "the project's network", "not finite": check.odd,
        "compared": check.count - check.empty, "without gradient": check.empty, "bit for bit": check.equal,
        "largest relative difference": check.largest, "allowed": check.allowed, "worst": check.worst,
        "finding": check.finding,
    }  # fmt: skip


def certificate_path(code: Path) -> Path:
    """Where the certificate of a file of code lies.

    >>> certificate_path(Path("out/model.py")).name
    'model.certificate.json'
    """
    return code.with_suffix(".certificate.json")


def write_certificate(certificate: Certificate, code: Path) -> Path:
    """Write it beside the code and return where. Raises WeightsError."""
    path = certificate_path(code)
    write_text(path, json.dumps(certificate.to_json(), indent=1, ensure_ascii=False) + "\n")
    return path
