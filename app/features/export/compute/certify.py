"""Certification of an export: a clean process runs it, and the results are compared with the program's net.

Outputs in eval mode have to be equal bit for bit. Then both nets are converted to double, and the outputs, the
gradients of a loss and the buffers after the step are compared in eval and in train mode, with the same seed. The class
of an imported net is compared with its source model too. Non-finite numbers do not count as evidence.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from app.export import measure
from app.export.layers import write_model
from app.export.precision import allowed
from app.export.text_files import write_text
from app.export.weights import save_safetensors
from app.features.export.compute import clean_process
from app.features.export.compute.clean_process import (
    PATIENCE,
    Cancelled,
    Tell,
    never,
    silent,
)
from app.features.export.compute.reference import (
    Measurement,
    Measurements,
    NetworkFailsError,
    Stage,
)
from app.features.export.values import (
    Certificate,
    CertificateCheck,
    certificate_path,
)
from app.project.drawing_digest import ImportedNet
from app.source.generated import Source
from app.util.frozen import FrozenMap
from app.util.leftovers import TemporaryFolder

if TYPE_CHECKING:
    from torch import Tensor

    from app.export.weights import StateDict

SLOWER = 10  # how many times the seconds of the net here the clean process may take


class Files(Struct, frozen=True):
    """The exported files: the class, the weights (`.pt` or `.safetensors`), and the files that the class imports."""

    model: Path
    weights: Path
    layers: tuple[Path, ...] = ()


def certify(
    source: Source,
    state_dict: StateDict,
    files: Files,
    *,
    seed: int = 0,
    inputs: Sequence[Tensor] | None = None,
    imported: ImportedNet | None = None,
    tell: Tell = silent,
    cancelled: Cancelled = never,
    patience: float = PATIENCE,
) -> Certificate:
    """Compare the exported `files` with the net of `source` and `state_dict`, on the CPU.

    `inputs` are drawn with `seed` by default, each in its declared range. The class of an `imported` net is compared
    with its source model. `tell` is called with the progress. Raises ExportCancelledError once `cancelled`; other
    errors are in the certificate.
    """
    begun = perf_counter()
    facts = _facts(source, state_dict, seed)
    if imported is not None:
        facts["source model"] = imported.origin.model
        if changed := imported.changed():
            return Certificate(
                False,
                f"No comparison with the source model: {changed}.",
                facts=FrozenMap(facts),
            )
    with TemporaryFolder() as name:
        folder = Path(name)
        try:
            live = Measurement(source, state_dict, seed, folder, tell, cancelled).run(
                tuple(inputs) if inputs else None
            )
            facts |= _inputs(live)
            texts = [
                path.read_text("utf-8-sig") for path in (files.model, *files.layers)
            ]
            facts["packages"] = _versions(texts, files)
            limit = max(patience, SLOWER * (perf_counter() - begun))
            torch.save(dict(live.inputs), folder / "inputs.pt")
            question = _question(source, files, live, seed, folder, texts)
            if imported is not None and imported.comparable:
                question["source"] = imported.question()
            answer = clean_process.run_script(
                Path(measure.__file__), question, folder, tell, cancelled, limit
            )
        except NetworkFailsError as error:
            certificate = Certificate(
                False, f"The network itself returns no outputs: {error}"
            )
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            certificate = Certificate(
                False, f"The exported files cannot be read: {measure.error_text(error)}"
            )
        except clean_process.CleanProcessError as error:
            message = (
                f"The exported files do not run in a clean Python process: {error}"
            )
            certificate = Certificate(False, message, details=error.details)
        else:
            facts["files"] = {
                Path(path).name: digest for path, digest in answer["files"].items()
            }
            certificate = _verdict(live, answer, imported)
    return replace(certificate, facts=FrozenMap(facts), seconds=perf_counter() - begun)


def certify_export(
    source: Source,
    state_dict: StateDict,
    code: Path | None,
    weights: Path | None,
    *,
    about: str = "",
    seed: int = 0,
    imported: ImportedNet | None = None,
    tell: Tell = silent,
    cancelled: Cancelled = never,
) -> tuple[Certificate, Path | None]:
    """Certify an export, and write the certificate next to its code; return the certificate and its path, None without
    exported code.

    Parts that were not exported (`code`, `weights`) are written to a temporary folder. `about` describes the weights.
    Raises ExportCancelledError, OSError, WeightsError.
    """
    with TemporaryFolder() as name:
        folder = Path(name)
        if code is not None:
            layers = tuple(code.parent / file.name for file in source.files)
        else:
            model, *rest = write_model(source, folder / "model.py")
            layers = tuple(rest)
        if weights is None:
            save_safetensors(state_dict, folder / "weights.safetensors")
        files = Files(code or model, weights or folder / "weights.safetensors", layers)
        certificate = certify(
            source,
            state_dict,
            files,
            seed=seed,
            imported=imported,
            tell=tell,
            cancelled=cancelled,
        )
    if about:
        certificate = replace(
            certificate, facts=FrozenMap({**certificate.facts, "weights": about})
        )
    return certificate, write_certificate(
        certificate, code
    ) if code is not None else None


def _question(
    source: Source,
    files: Files,
    live: Measurements,
    seed: int,
    folder: Path,
    texts: list[str],
) -> dict[str, Any]:
    return {
        "model": str(files.model.resolve()),
        "class": source.class_name,
        "layers": [str(path.resolve()) for path in files.layers],
        "weights": str(files.weights.resolve()),
        "inputs": str(folder / "inputs.pt"),
        "barred": clean_process.barred_for(texts),
        "seed": seed,
        "stages": [stage.question() for stage in live.stages if stage.recorded],
    }


def _verdict(
    live: Measurements, answer: dict[str, Any], imported: ImportedNet | None
) -> Certificate:
    answers = iter(answer["stages"])
    source_answer = answer.get("source", {"cases": []})
    odd_modes = {
        "train" if case["train"] else "eval"
        for case in source_answer["cases"]
        if case["odd"]
    }
    checks: list[CertificateCheck] = []
    for stage in live.stages:
        checks += [
            _judged(check, odd_modes)
            for check in _checks(
                stage, live.dtypes, next(answers) if stage.recorded else {}
            )
        ]
    of_source = _source_checks(source_answer)
    wrong = next((check for check in (*of_source, *checks) if not check.passed), None)
    if wrong is not None:
        message = (
            f"The exported files produce different {wrong.title}: {wrong.finding}."
        )
        if wrong.source:
            model = imported.origin.model if imported else ""
            message = f"The exported class is not the source model {model}: {wrong.title}: {wrong.finding}."
        elif wrong.odd and not wrong.words:
            message = (
                f"The network does not produce finite {wrong.title}: {wrong.odd}, so nothing is "
                "proven. Set the range of its inputs, or fix the network."
            )
        return Certificate(False, message, (*checks, *of_source))
    message = f"A clean Python process with torch {answer['torch']} produces the same outputs, bit for bit"
    learnt = [
        check.mode
        for check in checks
        if check.what == "gradients" and not check.skipped and check.count > check.empty
    ]
    if learnt:
        message += f", and the same gradients in {' and in '.join(learnt)} mode"
    if live.double_refused:
        message += f"; the network does not run in float64 ({live.double_refused})"
    if skipped := [check for check in checks if check.skipped]:
        named = " and ".join(
            dict.fromkeys(f"{check.what} in {check.mode} mode" for check in skipped)
        )
        message += f"; {named} could not be compared: {skipped[0].skipped}"
    if imported is not None:
        message += f"; {_comparison_text(imported, of_source)}"
    return Certificate(True, message + ".", (*checks, *of_source))


def _judged(check: CertificateCheck, odd_modes: set[str]) -> CertificateCheck:
    """Fail a check with non-finite numbers, unless the source model has them in that mode."""
    fails = check.odd and check.what != "buffers" and check.mode not in odd_modes
    return replace(check, passed=False) if fails else check


def _checks(
    stage: Stage, own: Mapping[str, str], answer: dict[str, Any]
) -> list[CertificateCheck]:
    """List the checks of one stage: outputs, and after a backward pass gradients and buffers."""
    mode = "train" if stage.kind == "train" else "eval"
    dtypes = dict.fromkeys(own, "float64") if stage.double else own
    exact = stage.kind == "outputs"

    def check(what: str) -> CertificateCheck:
        tolerance = 0.0 if exact else allowed(dtypes[what])
        return _check(what, mode, dtypes[what], tolerance, answer[what])

    checks = [check("outputs")] if "outputs" in answer else []
    if exact:
        return checks
    if stage.refused:
        kinds = ("gradients",) if answer else ("outputs", "gradients")
        return checks + [
            CertificateCheck(kind, mode, dtypes[kind], True, skipped=stage.refused)
            for kind in kinds
        ]
    if "refused" in answer:
        return [
            *checks,
            CertificateCheck(
                "gradients",
                mode,
                dtypes["gradients"],
                False,
                False,
                None,
                allowed(dtypes["gradients"]),
                "they",
                f"not available: {answer['refused']}",
            ),
        ]
    checks.append(check("gradients"))
    if mode == "train" or not answer["buffers"]["equal"]:
        checks.append(check("buffers"))
    return checks


def _check(
    kind: str, mode: str, dtype: str, tolerance: float, comparison: dict[str, Any]
) -> CertificateCheck:
    largest = comparison["largest"]
    passed = comparison["equal"] or (
        largest is not None and largest <= tolerance and tolerance > 0
    )
    return CertificateCheck(
        kind,
        mode,
        dtype,
        passed,
        comparison["equal"],
        largest,
        tolerance,
        comparison["worst"],
        comparison["words"],
        count=comparison["count"],
        empty=comparison["empty"],
        odd=comparison["odd"],
    )


# --- Facts


def _facts(source: Source, state_dict: StateDict, seed: int) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "class": source.class_name,
        "seed": seed,
        "tensors": len(state_dict),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
    }


def _inputs(live: Measurements) -> dict[str, Any]:
    kinds = {
        name: {
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
        }
        for name, value in live.inputs.items()
    }
    return {"inputs": kinds}


def _versions(texts: list[str], files: Files) -> dict[str, str]:
    """Return the version of each package that the code imports, except its own files."""
    stems = {path.stem for path in files.layers}
    versions = {}
    for name in clean_process.top_packages(texts):
        if name not in stems:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = "unknown"
    return versions


def _comparison_text(imported: ImportedNet, checks: Sequence[CertificateCheck]) -> str:
    """Describe the comparison with the source model, as the end of a sentence; all checks have passed."""
    if missing := imported.missing:
        return f"it was not compared with {imported.origin.model}, since {missing}"
    *most, last = dict.fromkeys(
        check.what for check in checks if check.mode and check.count > check.empty
    ) or ["outputs"]
    kinds = f"{', '.join(most)} and {last}" if most else last
    modes = " and ".join(dict.fromkeys(check.mode for check in checks if check.mode))
    odd = next(
        (check.odd for check in checks if check.odd and check.what != "buffers"), ""
    )
    remark = (
        f", of which {odd}, as in the model itself at the import; those are not verified"
        if odd
        else ""
    )
    return f"its {kinds} in {modes} mode are those of the source model {imported.origin.model}{remark}"


def _source_checks(answer: Mapping[str, Any]) -> tuple[CertificateCheck, ...]:
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
        tolerance = allowed(dtype)
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
                    tolerance,
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
                    and comparison["largest"] <= tolerance
                )
                checks.append(
                    CertificateCheck(
                        aspect,
                        mode,
                        dtype,
                        comparison["equal"] or close,
                        comparison["equal"],
                        comparison["largest"],
                        tolerance,
                        comparison["worst"],
                        comparison["words"],
                        count=comparison["count"],
                        empty=comparison["empty"],
                        odd=comparison["odd"],
                        source=True,
                    )
                )
    return tuple(checks)


def write_certificate(certificate: Certificate, code: Path) -> Path:
    """Write it next to the code and return its path. Raises WeightsError."""
    path = certificate_path(code)
    write_text(
        path, json.dumps(certificate.to_json(), indent=1, ensure_ascii=False) + "\n"
    )
    return path
