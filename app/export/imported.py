"""Comparison of an imported net with its source model, as part of a certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.builder.importer.origin import KeptFile, Origin
from app.export.certify.certificate import ALLOWED, ALLOWED_ELSE, CertificateCheck
from app.training.setup.weights_header import StartError, is_unchanged


class ImportedNet(Struct, frozen=True):
    """Where a net comes from, and whether its drawing was `edited` since."""

    origin: Origin
    edited: bool = False

    @property
    def comparable(self) -> bool:
        """True if all files for a comparison with the source model exist."""
        return not self._missing()

    @property
    def _files(self) -> tuple[KeptFile, ...]:
        return tuple(
            file
            for file in (self.origin.reference, self.origin.weights)
            if file is not None
        )

    def _missing(self) -> str:
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
                wrong = not self._missing() and not is_unchanged(file)
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

    def comparison_text(self, checks: Sequence[CertificateCheck]) -> str:
        """Describe the comparison with the source model, as the end of a sentence; all checks have passed."""
        if missing := self._missing():
            return f"it was not compared with {self.origin.model}, since {missing}"
        *most, last = dict.fromkeys(
            check.what for check in checks if check.mode and check.count > check.empty
        ) or ["outputs"]
        kinds = f"{', '.join(most)} and {last}" if most else last
        modes = " and ".join(
            dict.fromkeys(check.mode for check in checks if check.mode)
        )
        odd = next(
            (check.odd for check in checks if check.odd and check.what != "buffers"), ""
        )
        remark = (
            f", of which {odd}, as in the model itself at the import; those are not verified"
            if odd
            else ""
        )
        return f"its {kinds} in {modes} mode are those of the source model {self.origin.model}{remark}"


def source_checks(answer: Mapping[str, Any]) -> tuple[CertificateCheck, ...]:
    """Convert the clean process's answer to checks."""
    checks: list[CertificateCheck] = []
    if "values" in answer:
        other = answer["other"]
        description = (
            f"{'is' if len(other) == 1 else f'and {len(other) - 1} more are'} not as in the model"
            if other
            else ""
        )
        worst, same = other[0] if other else "", not other
        checks.append(
            CertificateCheck(
                "values",
                "",
                "",
                same,
                same,
                worst=worst,
                words=description,
                count=answer["values"],
                source=True,
            )
        )
    for case in answer["cases"]:
        mode, dtype = "train" if case["train"] else "eval", answer["dtype"]
        allowed = ALLOWED.get(dtype, ALLOWED_ELSE)
        if "stops" in case:
            description = f"not available: {case['stops']}"
            checks.append(
                CertificateCheck(
                    "outputs",
                    mode,
                    dtype,
                    False,
                    False,
                    None,
                    allowed,
                    "they",
                    description,
                    source=True,
                )
            )
            continue
        for aspect in ("outputs", "gradients", "buffers"):
            comparison = case[aspect]
            if comparison["count"]:
                close = (
                    comparison["largest"] is not None
                    and comparison["largest"] <= allowed
                )
                checks.append(
                    CertificateCheck(
                        aspect,
                        mode,
                        dtype,
                        comparison["equal"] or close,
                        comparison["equal"],
                        comparison["largest"],
                        allowed,
                        comparison["worst"],
                        comparison["words"],
                        count=comparison["count"],
                        empty=comparison["empty"],
                        odd=comparison["odd"],
                        source=True,
                    )
                )
    return tuple(checks)
