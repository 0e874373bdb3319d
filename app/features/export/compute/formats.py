"""Export as PT2 (`torch.export`) or ONNX, and verification of the file against the program's net.

Both are written in a separate process, since torch.export changes global state that would affect a run. Another clean
process then runs the file, for the batch size that it was made with and, if dynamic, another.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.export.layers import write_model
from app.export.text_files import write_atomically
from app.export.weights import save_pt
from app.features.export.compute import clean_process
from app.features.export.compute.clean_process import (
    PATIENCE,
    Cancelled,
    Tell,
    never,
    silent,
)
from app.features.export.compute.reference import Measurement, NetworkFailsError
from app.features.export.values import (
    FormatError,
    Kind,
    OpenAxis,
    WrittenFormat,
    onnx_missing,
)
from app.source.generated import InputSpec, Source
from app.util.leftovers import TemporaryFolder

if TYPE_CHECKING:
    from app.export.weights import StateDict

# Of the largest number of an output: torch's own operators, and those of another library.
ALLOWED: Mapping[Kind, float] = {"PT2": 1e-5, "ONNX": 1e-4}
SLOWER = 30  # how many times the seconds of the net here the writing may take
OTHER_BATCH = 3
JOBS = Path(__file__).with_name("format_jobs.py")


def write_format(
    source: Source,
    state_dict: StateDict,
    path: Path,
    kind: Kind,
    *,
    seed: int = 0,
    tell: Tell = silent,
    cancelled: Cancelled = never,
    patience: float = PATIENCE,
    open_axes: Sequence[OpenAxis] = (),
) -> WrittenFormat:
    """Write the net in eval mode as `kind`, run the file in a clean process, and compare its outputs with the net's.

    The file takes any size of the `open_axes`, and is run with another one too. ONNX of more than 2 GB leaves a second
    file, `path.data`. Raises FormatError, WeightsError, OSError, ExportCancelledError.
    """
    if kind == "ONNX" and (missing := onnx_missing()):
        raise FormatError(missing)
    _check_axes(source, open_axes)
    begun = perf_counter()
    with TemporaryFolder() as name:
        folder = Path(name)
        live = Measurement(source, state_dict, seed, folder, tell, cancelled)
        try:
            compare, random = live.eval_outputs((2, OTHER_BATCH, 1))
            resized = _resized(live, source, open_axes)
        except NetworkFailsError as error:
            raise FormatError(
                f"The network itself returns no outputs: {error}"
            ) from error
        limit = max(patience, SLOWER * (perf_counter() - begun))
        exporting = _Exporting(source, kind, seed, folder, tell, cancelled, limit)
        try:
            written = exporting.write(state_dict, compare, path.name, open_axes)
            _move_result(Path(written["file"]), path)
            answer = exporting.run(path, compare, resized, written["dynamic"])
        except clean_process.CleanProcessError as error:
            raise FormatError(f"{path.name} cannot be created: {error}") from error
    return _judged(
        path,
        kind,
        written,
        answer,
        random,
        perf_counter() - begun,
        _fixed(source, open_axes),
    )


def _check_axes(source: Source, open_axes: Sequence[OpenAxis]) -> None:
    """Raise FormatError for an axis that the net's inputs do not have."""
    axes = {spec.name: len(spec.sizes(1)) for spec in source.inputs}
    for open_axis in open_axes:
        if open_axis.axis >= axes.get(open_axis.name, 0):
            there = ", ".join(
                f"{name}.1 to {name}.{count - 1}"
                for name, count in axes.items()
                if count > 1
            )
            raise FormatError(
                f"the network has no axis {open_axis}; its axes beside the batch are {there or 'none'}"
            )


def _fixed(source: Source, open_axes: Sequence[OpenAxis]) -> tuple[str, ...]:
    """Return the sizes that a file takes in no other size."""
    return tuple(
        f"{spec.name}.{axis} = {size}"
        for spec in source.inputs
        for axis, size in enumerate(spec.sizes(1))
        if axis != spec.batch and OpenAxis(spec.name, axis) not in open_axes
    )


def _resized(
    live: Measurement, source: Source, open_axes: Sequence[OpenAxis]
) -> dict[int, dict[str, str]]:
    """Write inputs of other sizes of the open axes, and their outputs, by the batch; the first sizes that the network
    takes. Raises FormatError if it takes none."""
    if not open_axes:
        return {}
    reason = ""
    for other in (
        lambda size: max(2, size // 2),
        lambda size: size + 1,
        lambda size: size * 2,
    ):
        inputs = tuple(_with_sizes(spec, open_axes, other) for spec in source.inputs)
        try:
            return live.eval_outputs((2, 1), replace(source, inputs=inputs), "other")[0]
        except NetworkFailsError as error:
            reason = str(error)
    names = ", ".join(map(str, open_axes))
    raise FormatError(f"the network itself takes no other size of {names}: {reason}")


def _with_sizes(
    spec: InputSpec, open_axes: Sequence[OpenAxis], other: Callable[[int], int]
) -> InputSpec:
    axes = {open_axis.axis for open_axis in open_axes if open_axis.name == spec.name}
    sizes = [
        other(size) if axis in axes else size for axis, size in enumerate(spec.sizes(1))
    ]
    if spec.batch is not None:
        del sizes[spec.batch]
    return replace(spec, shape=tuple(sizes))


class _Exporting:
    """The two processes: one that writes, one that runs."""

    def __init__(
        self,
        source: Source,
        kind: Kind,
        seed: int,
        folder: Path,
        tell: Tell,
        cancelled: Cancelled,
        limit: float,
    ) -> None:
        self._source, self._kind, self._seed, self._folder = source, kind, seed, folder
        self._tell, self._cancelled, self._limit = tell, cancelled, limit
        self._texts = [source.text, *(file.text for file in source.files)]

    def write(
        self,
        state_dict: StateDict,
        compare: Mapping[int, Mapping[str, str]],
        name: str,
        open_axes: Sequence[OpenAxis],
    ) -> dict[str, Any]:
        model, *layers = write_model(self._source, self._folder / "model.py")
        save_pt(state_dict, self._folder / "weights.pt")
        # A separate folder: all files written there belong to the export.
        out = self._folder / "out"
        out.mkdir()
        question = {
            "model": str(model),
            "class": self._source.class_name,
            "layers": [str(path) for path in layers],
            "weights": str(self._folder / "weights.pt"),
            "inputs": compare[2 if 2 in compare else 1]["inputs"],
            "file": str(out / name),
            "open": [[open_axis.name, open_axis.axis] for open_axis in open_axes],
        }
        return {**self._run_job("write", question), "file": question["file"]}

    def run(
        self,
        path: Path,
        compare: Mapping[int, Mapping[str, str]],
        resized: Mapping[int, Mapping[str, str]],
        any_batch: bool,
    ) -> dict[str, Any]:
        compared = [
            files
            for batch, files in (*compare.items(), *resized.items())
            if any_batch or batch == 1
        ]
        packages = [
            name
            for name in clean_process.top_packages(self._texts)
            if name == "torchvision"
        ]
        return self._run_job(
            "run",
            {"file": str(path.resolve()), "compare": compared, "packages": packages},
        )

    def _run_job(self, job: str, question: dict[str, Any]) -> dict[str, Any]:
        barred = clean_process.barred_for(self._texts)
        request = {
            **question,
            "job": job,
            "kind": self._kind,
            "seed": self._seed,
            "barred": barred,
        }
        return clean_process.run_script(
            JOBS, request, self._folder, self._tell, self._cancelled, self._limit
        )


def _move_result(file: Path, path: Path) -> None:
    """Move the written file to its path, with the external data of a large one next to it."""
    data = file.with_name(f"{file.name}.data")
    if data.exists():
        write_atomically(
            path.with_name(data.name), lambda temporary: _move(data, temporary)
        )
    write_atomically(path, lambda temporary: _move(file, temporary))


def _move(file: Path, temporary: Path) -> None:
    shutil.copyfile(file, temporary)
    file.unlink()


def _judged(
    path: Path,
    kind: Kind,
    written: dict[str, Any],
    answer: dict[str, Any],
    random: bool,
    seconds: float,
    fixed: tuple[str, ...],
) -> WrittenFormat:
    comparisons = answer["found"]
    largest = (
        None
        if any(comparison["largest"] is None for comparison in comparisons)
        else max(comparison["largest"] for comparison in comparisons)
    )
    worst = next(
        (comparison for comparison in comparisons if comparison["largest"] == largest),
        comparisons[0],
    )
    equal = all(comparison["equal"] for comparison in comparisons)
    odd = next(
        (comparison["odd"] for comparison in comparisons if "NaN" in comparison["odd"]),
        "",
    )
    passed = not odd and (
        equal or random or (largest is not None and largest <= ALLOWED[kind])
    )
    if odd:
        finding = f"runs it, which proves nothing, since {odd}"
    elif equal:
        finding = "produces the same outputs, bit for bit"
    elif random:
        finding = "runs it; the network uses random numbers in eval mode, so its outputs cannot be compared"
    elif largest is None:
        finding = f"produces different outputs: {worst['worst']} {worst['words']}"
    else:
        finding = f"produces outputs that differ by at most {largest:.3g} ({ALLOWED[kind]:g} is allowed)"
    by = (
        f"onnxruntime {answer['onnxruntime']}"
        if kind == "ONNX"
        else f"a clean process with torch {answer['torch']}"
    )
    return WrittenFormat(
        path,
        kind,
        passed,
        written["dynamic"],
        written["why"],
        largest,
        equal,
        finding,
        by,
        random,
        seconds,
        fixed,
    )
