"""`tapedeck draw`: a picture of any model, from one forward pass."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from app.cli import arguments, console, files, models, streams
from app.diagram.numbers import Numbers, painted, read
from app.engine.tasks import observe as task
from app.features.opened.folding import Tree, to_plain
from app.features.opened.picture import module_paths, summary, to_drawing
from app.graphviz_export import TEXTS
from app.sources.spec import SourceError
from app.util import tensor_files
from app.util.formatting import figure, shape_text

if TYPE_CHECKING:
    from app.diagram.diagram import Drawing
    from app.observe.observation import Observation

# --- Weights of one layer in a folder of safetensors, whole or sharded: only the bytes of that layer are read

WHOLE = "model.safetensors"
PIECE = 1 << 26  # bytes that are read at a time
LARGEST_HEADER = 1 << 27
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class StoredWeight(Struct, frozen=True):
    """A tensor of a file: its shape and dtype, and statistics of its elements, NaN for one without any."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float
    least: float
    greatest: float


class _Place(Struct, frozen=True):
    file: Path
    begin: int
    end: int
    shape: tuple[int, ...]
    dtype: str


def weights_of(folder: Path, layer: str) -> tuple[StoredWeight, ...]:
    """Return the weights of a layer and its submodules, by its path. Raises SourceError if there are none."""
    try:
        names = [
            name
            for name in _files(folder)
            if not layer or name == layer or name.startswith(f"{layer}.")
        ]
        if not names:
            some = sorted({name.rpartition(".")[0] or name for name in _files(folder)})
            raise SourceError(
                f"{folder} has no weights of {layer}; there are {', '.join(some[:8])}"
            )
        return tuple(
            _described(name, location) for name, location in _places(folder, names)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"the safetensors of {folder} cannot be read: {error}"
        ) from error


def _files(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor, by the index or the header of the only file."""
    if (index := tensor_files.index_in(folder)) is not None:
        return tensor_files.files_of_index(index)
    if not (folder / WHOLE).is_file():
        raise SourceError(f"{folder} has neither an index of files nor {WHOLE}")
    return dict.fromkeys(_header(folder / WHOLE)[0], folder / WHOLE)


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """Return the tensors described in a file's header, and the offset of their bytes."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if not 0 < size <= LARGEST_HEADER:
            raise ValueError(f"{file.name} is not a safetensors file")
        header: dict[str, Any] = json.loads(stream.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def _places(folder: Path, names: list[str]) -> Iterator[tuple[str, _Place]]:
    files, headers = _files(folder), {}
    for name in names:
        file = files[name]
        if file not in headers:
            headers[file] = _header(file)
        header, start = headers[file]
        entry = header[name]
        begin, end = entry["data_offsets"]
        yield (
            name,
            _Place(
                file, start + begin, start + end, tuple(entry["shape"]), entry["dtype"]
            ),
        )


def _described(name: str, location: _Place) -> StoredWeight:
    kind = _DTYPES.get(location.dtype)
    dtype = str(kind).removeprefix("torch.") if kind is not None else location.dtype
    if kind is None or location.begin == location.end:
        return StoredWeight(name, location.shape, dtype, *(math.nan,) * 4)
    count, total, squares, least, greatest = 0, 0.0, 0.0, math.inf, -math.inf
    for piece in _pieces(location, kind):
        count += piece.numel()
        total += float(piece.sum())
        squares += float((piece * piece).sum())
        least, greatest = (
            min(least, float(piece.min())),
            max(greatest, float(piece.max())),
        )
    mean = total / count
    return StoredWeight(
        name,
        location.shape,
        dtype,
        mean,
        math.sqrt(max(squares / count - mean**2, 0.0)),
        least,
        greatest,
    )


def _pieces(location: _Place, kind: torch.dtype) -> Iterator[Tensor]:
    """Yield the elements in float64, some at a time."""
    with location.file.open("rb") as stream:
        stream.seek(location.begin)
        left = location.end - location.begin
        while left:
            data = bytearray(stream.read(min(left, PIECE)))
            if not data:
                raise ValueError(f"{location.file.name} ends before its tensors do")
            left -= len(data)
            yield torch.frombuffer(data, dtype=kind).to(torch.float64)


def run(options: argparse.Namespace) -> int:
    """Observe a model and write its picture; exit with 1 if it raised."""
    console.can_be_written(options.out, arguments.PICTURES, "a picture can end in")
    if options.numbers is not None and options.out.suffix.lower() == ".json":
        raise console.CommandError(
            "--numbers colours a picture, and a .json file has the calls alone; end --out in .svg, .pdf, .png, .tex or "
            ".dot"
        )
    request = models.request_of(options, options.source, viewed=True)
    source = request.source
    if options.weights is not None and not (
        source.kind in ("hf", "diffusers") and Path(source.name).is_dir()
    ):
        raise console.CommandError(
            "--weights is for hf:FOLDER, a folder with safetensors"
        )
    with streams.StatusLine() as tell:
        observation = models.answer(
            request, request, options.timeout, partial(task.answer, tell=tell)
        )
    lines = (
        weight_lines(Path(source.name), options.weights)
        if options.weights is not None
        else []
    )
    numbers = None
    if options.numbers is not None:
        numbers = read(options.numbers, module_paths(observation))
    _write(observation, options, numbers)
    status = _report(observation)
    for line in lines:
        print(console.printable(line))
    return status


def weight_lines(folder: Path, layer: str) -> list[str]:
    """Describe the stored weights of a layer, one a line. Raises SourceError."""
    return [
        f"{row.name}  {shape_text(row.shape, 'scalar')} {row.dtype}  mean {figure(row.mean)}, std {figure(row.std)}, "
        f"from {figure(row.least)} to {figure(row.greatest)}"
        for row in weights_of(folder, layer)
    ]


def _write(
    observation: Observation, options: argparse.Namespace, numbers: Numbers | None
) -> None:
    if options.out.suffix.lower() == ".json":
        plain = msgspec.json.format(
            json.dumps(to_plain(observation)).encode(), indent=1
        )  # json itself indents slowly
        files.write_text(options.out, plain.decode() + "\n")
        return
    with streams.StatusLine() as tell:
        tell("Choosing the modules that are open")
        drawing = _drawing(observation, options)
        if numbers is not None:
            drawing = painted(drawing, numbers)
        tell(f"Drawing {len(drawing.boxes):,} boxes")
        description = files.picture(drawing, options.out, options)
    print(description)


def _drawing(observation: Observation, options: argparse.Namespace) -> Drawing:
    """Draw with everything open, or with as many levels as fit the size of the picture."""
    tree = Tree(observation)
    if options.unfold or options.depth is not None:
        return to_drawing(observation, _opened(tree, options), tree)
    if options.unfolded:
        return to_drawing(observation, frozenset(tree.by_key), tree)
    first = tree.opened()
    if (
        options.out.suffix.lower().removeprefix(".") in TEXTS
        or options.arranged == "dot"
    ):
        return to_drawing(observation, first, tree)
    from app.views.pictures.headless_pictures import first_that_fits

    levels = [
        first,
        *reversed([opened for opened, _ in tree.levels() if opened < first]),
    ]
    drawings = [partial(to_drawing, observation, opened, tree) for opened in levels]
    return first_that_fits(drawings, options.purpose, options.arranged)


def _opened(tree: Tree, options: argparse.Namespace) -> frozenset[str]:
    """Return what --depth and --unfold open. Raises CommandError for a module that was not called."""

    opened = tree.depth(1 if options.depth is None else options.depth)
    for path in options.unfold:
        more = tree.around(path)
        if not more:
            paths = {
                call.path
                for call in tree.observation.calls
                if call.kind == "module" and call.path
            }
            near = get_close_matches(path, paths, 4, 0.3) or sorted(paths)[:4]
            raise console.CommandError(
                f"--unfold {path}: no module with parts was called so; near it are {', '.join(near)}"
            )
        opened |= more
    return opened


def _report(observation: Observation) -> int:
    print(summary(observation))
    for remark in observation.remarks:
        console.warn(remark)
    if observation.failed is None:
        return 0
    call = observation.calls[observation.failed]
    where = f", line {call.line} of {Path(call.file).name}" if call.line else ""
    console.warn(
        f"{call.path or observation.name}: {call.name or observation.name}{where}: {observation.error}"
    )
    return 1
