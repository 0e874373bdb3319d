"""How an exported script reads the samples of each source, as `app.data.loaders` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.data import readers, streams
from app.data.archives import COLLECTIONS
from app.data.config import DataConfig
from app.data.drawn_samples import drawn_by_batch
from app.data.known_sources import DIGITS, PICTURES
from app.data.own_files import dataset_class, pictures, tables
from app.data.own_files import readers as file_readers
from app.data.sources import options_of
from app.data.spec import SourceSpec
from app.data.synthetic_fields import arguments_of
from app.training.job import Job
from app.util import atomic

Function = Callable[..., Any]
_MADE: dict[str, Function] = {
    "made.own": readers.read_points,
    "made.shapes": readers.make_shapes,
    "made.dates": readers.make_dates,
}


class OwnClass(Struct, frozen=True):
    """A user's Dataset class, whose file is in the script's folder."""

    module: str
    name: str


class ReadingCode(Struct, frozen=True):
    """How a script reads its data. `call` is an expression for inputs and labels of all samples; `functions` are those
    that it needs.

    For data with a split of their authors it returns the training samples, and `held_out` the others. `needs` lists the
    required packages as text. `folder` has the data, "" without one. Of a download, `place` is an expression for a file
    that exists afterwards, and `fetched_with` are the arguments to download it. Of the user's data, `named` is their
    name in an f-string, and `how` the arguments of their reader.
    """

    call: str
    functions: tuple[Function, ...]
    needs: str = "torch"
    folder: str = ""
    collection: str = ""
    place: str = ""
    fetched_with: str = ""
    held_out: str = ""
    named: str = ""
    how: Mapping[str, Any] | None = None
    own_class: OwnClass | None = None


def reading_of(job: Job, spec: SourceSpec) -> ReadingCode:
    """Choose how the samples of a job are read."""
    source, _, name = spec.key.partition(".")
    if spec.key == dataset_class.KEY:
        return _own_class(spec, job)
    if spec.picks:
        return _own_file(spec, job)
    if source == "torchvision":
        return _download(name, job.data_root or "data")
    if spec.key == DIGITS:
        return ReadingCode(
            "read_digits()", (readers.read_digits,), "torch and scikit-learn"
        )
    if source == "sklearn":
        return ReadingCode(
            call("read_table", name), (readers.read_table,), "torch and scikit-learn"
        )
    if spec.key == "made.pairs":
        code = call("make_pairs", **options_of(job.data))
        return ReadingCode(
            code, (readers.read_digits, readers.make_pairs), "torch and scikit-learn"
        )
    if spec.key in _MADE:
        function = _MADE[spec.key]
        code = call(function.__name__, **options_of(job.data))
        return ReadingCode(code, (function,))
    if spec.key == "made.fields":
        return ReadingCode(
            call("make_fields", **arguments_of(options_of(job.data))),
            (readers.make_fields,),
        )
    if source == "made" and name != "fake":
        points = call("make_points", name, **options_of(job.data))
        return ReadingCode(points, (readers.make_points,), "torch and scikit-learn")
    if is_streamed(spec, job.data):
        functions = streams.SampleLostError, streams.Streamed, streams.stream_noise
        return ReadingCode(call("stream_noise", **options_of(job.data)), functions)
    return ReadingCode(
        call("make_noise", **options_of(job.data)), (readers.make_noise,)
    )


def _download(name: str, folder: str) -> ReadingCode:
    functions: tuple[Function, ...]
    needs, location, more = f"torch and the files of {name}", "", ""
    match name:
        case "CIFAR10" | "CIFAR100":
            functions, needs = (
                (readers.read_cifar,),
                f"torch, torchvision and the files of {name}",
            )
            location = f'path / "{COLLECTIONS[f"torchvision.{name}"].folder}"'
            parts = [
                f'read_cifar(path, "{name}", train={train})' for train in (True, False)
            ]
        case "SVHN":
            functions, needs = (
                (readers.read_svhn,),
                "torch, scipy and the files of SVHN",
            )
            location, more = 'path / "test_32x32.mat"', "split='test', "
            parts = [
                f'read_svhn(path / "{split_name}_32x32.mat")'
                for split_name in ("train", "test")
            ]
        case "STL10":
            functions, location = (readers.read_stl10,), 'path / "stl10_binary"'
            parts = [
                f'read_stl10({location}, "{split_name}")'
                for split_name in ("train", "test")
            ]
        case _:
            functions, needs = (
                (readers.read_idx, readers.read_mnist),
                f"torch alone and the files of {name}",
            )
            location = f'path / "{name}" / "raw"'
            parts = [
                f'read_mnist({location}, "{split_name}")'
                for split_name in ("train", "t10k")
            ]
    return ReadingCode(
        parts[0],
        functions,
        needs,
        folder,
        held_out=parts[1],
        collection=name,
        place=location,
        fetched_with=more,
    )


def _own_file(spec: SourceSpec, job: Job) -> ReadingCode:
    """Read a user's file with the arguments found when it was surveyed, which are constants at the top of the
    script."""
    by_key: dict[str, tuple[Function, ...]] = {
        "file.csv": (
            tables.table_rows,
            tables.column_names,
            tables.cut_blank_end,
            tables.number_of,
            tables.cell_values,
            tables.alone,
            tables.read_csv,
        ),
        "file.tensors": (
            file_readers.kind_of,
            file_readers.field_of,
            tables.alone,
            file_readers.tensor_of,
            file_readers.class_ids,
            file_readers.read_tensors,
        ),
        PICTURES: (
            pictures.picture_files,
            pictures.open_picture,
            pictures.is_deep,
            pictures.white_of,
            pictures.span_of,
            pictures.brightness,
            pictures.read_picture,
            pictures.name_of,
            pictures.read_pictures,
        ),
        "file.text": (file_readers.read_text,),
    }
    functions = by_key[spec.key]
    needs = "torch and Pillow" if spec.key == PICTURES else "torch"
    if is_streamed(spec, job.data):
        functions = (
            *functions[:-1],
            streams.SampleLostError,
            streams.Streamed,
            streams.stream_pictures,
        )
    reader = functions[-1].__name__
    return ReadingCode(
        f"{reader}(path, **HOW)",
        functions,
        needs,
        job.data.path,
        named="{path}",
        how=spec.arguments,
    )


def _own_class(spec: SourceSpec, job: Job) -> ReadingCode:
    """Read a Dataset class, whose file is in the script's folder, see `beside`."""
    made_as = dataset_class.parse_call(spec.arguments["name"])
    user_class = OwnClass(Path(job.data.path).stem, made_as.name)
    how = (
        f"{made_as.code}, {spec.arguments['workers']!r}, {spec.arguments['timeout']!r}"
    )
    code = f"read_dataset({how})"
    functions: tuple[Function, ...] = (
        file_readers.kind_of,
        file_readers.label_kind,
        file_readers.field_of,
        tables.alone,
        file_readers.filled,
        file_readers.target_values,
        file_readers.targets_of,
        file_readers.parts_of,
        file_readers.Careful,
        file_readers.read_dataset,
    )
    if is_streamed(spec, job.data):
        code = f"stream_dataset({how}, {spec.arguments['pin']!r})"
        functions += (
            streams.SampleLostError,
            streams.Streamed,
            streams.InOrder,
            streams.stream_dataset,
        )
    return ReadingCode(
        code,
        functions,
        f"torch and {user_class.module}.py beside it",
        named=user_class.name,
        own_class=user_class,
    )


def is_streamed(spec: SourceSpec, data: DataConfig) -> bool:
    """Return whether samples are read, or drawn, on demand, per batch."""
    if spec.key == "made.fake":
        options = options_of(data)
        return drawn_by_batch(options["shape"], options["count"])
    return "pin" in spec.arguments


def beside(job: Job, script: Path) -> list[Path]:
    """Write the files that a script's data need to its folder: the file of a Dataset class. Raises OSError,
    DataError."""
    if job.data.source != dataset_class.KEY:
        return []
    file = dataset_class.file_of(Path(job.data.path))
    path = script.with_name(file.name)
    if path.resolve() != Path(job.data.path).resolve():
        atomic.write_text(path, file.text)
    return [path]


def quoted(text: str) -> str:
    """Format a string literal, in double quotes if that needs no escape.

    >>> print(quoted("data"), quoted('a"b'))
    "data" 'a"b'
    """
    plain = text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}
    return f'"{text}"' if plain else repr(text)


def call(name: str, *values: Any, **named: Any) -> str:
    """Format a call; values of a project enter through `repr`, after validation."""
    written = [
        quoted(value) if isinstance(value, str) else repr(value) for value in values
    ]
    return f"{name}({', '.join([*written, *(f'{key}={value!r}' for key, value in named.items())])})"
