"""Project file `.tape`: versioned, strictly validated JSON. A file is data and never executed."""

from __future__ import annotations

import filecmp
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from app.builder.catalog.catalog import catalog
from app.builder.catalog.inits import check_inits
from app.builder.graph import Init
from app.builder.origin import KeptFile, ModelInit, Origin
from app.builder.params import ParamError
from app.project import file_lock, limits, picture_file
from app.project.opened_records import (
    OpenedRecord,
    anchored,
    loosened,
    opened_from,
    opened_record,
)
from app.project.project import LessonWork, Project
from app.project.run_records import (
    DataRecord,
    TrainingRecord,
    data_from,
    data_record,
    training_from,
    training_record,
)
from app.project.sheet_records import (
    BendRecord,
    BlockRecord,
    CommentRecord,
    GraphRecord,
    InitRecord,
    Places,
    ProjectFileError,
    Text,
    block_record,
    blocks_from,
    decoded,
    encoded,
    graph_from,
    sheet_parts,
    sheet_record,
)
from app.project.weights.files import origin_beside, weights_beside
from app.source import layer_files
from app.training.config import StartWeights
from app.util import atomic, regular_files
from app.util.frozen import FrozenMap

VERSION = 2

# Migrations of plain data from version n to n + 1, applied up to VERSION. Version 2 added blocks, comments, bends,
# shared modules, repeats, initialisation: all optional.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda raw: {**raw, "tapedeck": 2}
}

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _FileRecord(Struct, forbid_unknown_fields=True):
    file: Annotated[str, Meta(pattern=r"\.safetensors$", max_length=4096)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _ModelInitRecord(InitRecord, forbid_unknown_fields=True, kw_only=True):
    block: Text = ""
    node: Text
    parameter: Text = ""


class _OriginRecord(Struct, forbid_unknown_fields=True):
    model: Text
    drawing: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    checked: Text = ""
    weights: _FileRecord | None = None
    buffers: list[Text] = []
    reference: _FileRecord | None = None
    inits: list[_ModelInitRecord] = []


class _LessonRecord(Struct, forbid_unknown_fields=True):
    name: Text
    answers: Annotated[dict[Text, Text], Meta(max_length=limits.MOST_GOALS)] = {}
    # A list in files of earlier versions.
    reached: (
        Annotated[dict[Text, Text], Meta(max_length=limits.MOST_GOALS)]
        | Annotated[list[Text], Meta(max_length=limits.MOST_GOALS)]
    ) = {}
    text: Annotated[str, Meta(max_length=limits.LARGEST_LESSON)] = ""
    student: Text = ""


class _ProjectRecord(Struct, forbid_unknown_fields=True):
    tapedeck: int
    name: Text
    graph: GraphRecord
    training: TrainingRecord
    data: DataRecord
    positions: Places = {}
    comments: dict[Text, CommentRecord] = {}
    bends: list[BendRecord] = []
    blocks: list[BlockRecord] = []
    layer_files: list[Text] = []
    notes: str = ""
    unfolded: list[Text] = []
    origin: _OriginRecord | None = None
    model: OpenedRecord | None = None
    lesson: _LessonRecord | None = None


# msgspec makes its tables of a type when it first needs them, and two threads that need them at once end the process.
msgspec.json.Decoder(_ProjectRecord)


def read(path: Path) -> Project:
    """Read a project file, or the project in a picture. Raises ProjectFileError, or OSError if it cannot be read."""
    return read_with_digest(path)[0]


def read_with_digest(path: Path) -> tuple[Project, str]:
    """Read a project file with the digest of its bytes. Raises as `read`."""
    regular_files.check(path)
    picture = picture_file.is_picture(path)
    with path.open("rb") as file:
        data = file.read(
            (picture_file.LARGEST_PICTURE if picture else limits.LARGEST_FILE) + 1
        )
    try:
        text = picture_file.project_in(data, path.suffix) if picture else data
        return _anchored(loads(text), path.parent), hashlib.sha256(data).hexdigest()
    except ProjectFileError as error:
        raise ProjectFileError(f"{path.name}: {error}") from error


class _Version(Struct):
    tapedeck: int


_versions = msgspec.json.Decoder(_Version)  # made here for the same reason


def version_of(path: Path) -> int | None:
    """Read the format version of a project file; None if it is missing or not a project. Raises OSError."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(limits.LARGEST_FILE + 1)
    try:
        return _versions.decode(data.removeprefix(BYTE_ORDER_MARK)).tapedeck
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def back_up_old(path: Path) -> Path | None:
    """Back up a project file of an older version to `NAME.vN.tape` in its folder before it is overwritten.

    An existing backup is never overwritten: the copy gets a number, unless one has the same bytes. Returns the backup,
    None if the file is missing, of this version, or not a project. Raises OSError.
    """
    version = version_of(path)
    if version is None or version not in MIGRATIONS:
        return None
    for number in itertools.count(1):
        copy = path.with_name(
            f"{path.stem}.v{version}{f'-{number}' if number > 1 else ''}{path.suffix}"
        )
        if not copy.exists():
            atomic.write(copy, partial(shutil.copyfile, path))
            shutil.copystat(path, copy)
            return copy
        if copy.is_file() and filecmp.cmp(path, copy, shallow=False):
            return copy
    raise AssertionError


def is_backup(path: Path) -> bool:
    """Return whether a file is a backup that `back_up_old` made of another one in its folder."""
    original = re.sub(r"\.v\d+(-\d+)?$", "", path.stem)
    return original != path.stem and path.with_name(original + path.suffix).exists()


class ChangedOnDiskError(ProjectFileError):
    """A file changed since its project was read or last written; it was not overwritten."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content in hex, "" if there is no file. Raises OSError."""
    try:
        regular_files.check(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def write(
    project: Project,
    path: Path,
    expected: str | None = None,
    before: Callable[[str], object] | None = None,
) -> Path | None:
    """Write the file atomically.

    Start weights in other folders are copied to its folder first. A file of an older version is backed up; returns the
    backup. `before` is called with the digest of the new content just before it is replaced.

    Args:
        expected: The digest that the file has, unless it was changed; None to write over whatever there is. A file
            that is missing is created.

    Raises OSError, ProjectFileError for a project that could not be opened again, and ChangedOnDiskError.
    """
    path = Path(os.path.realpath(path))  # write to the target of a link
    if picture_file.is_picture(path):
        raise ProjectFileError(
            f"{path.name} is a picture, which is not written over; name a file that ends in .tape"
        )
    if project.training.start is not None:
        project = with_start(project, weights_beside(project.training.start, path))
    if project.origin is not None:
        project = replace(project, origin=origin_beside(project.origin, path))
    project = replace(
        project,
        layer_files=tuple(_layers_beside(name, path) for name in project.layer_files),
    )
    data = dumps(_loosened(project, path.parent))
    loads(data)
    with file_lock.exclusive(path):
        new = hashlib.sha256(data).hexdigest()
        if expected is not None and digest(path) not in ("", expected, new):
            raise ChangedOnDiskError(
                f"{path.name} was changed on the disk since it was read, so it was left as it is"
            )
        if before is not None:
            before(new)
        return _put(data, path)


def _layers_beside(name: str, project: Path) -> str:
    """Copy a layer file that an import wrote to the project's folder; leave others in place. Raises OSError."""
    file = Path(name)
    if file.parent.parent.name != layer_files.FOLDER or not file.is_file():
        return name
    target, data = project.parent / file.name, file.read_bytes()
    if not target.exists():
        atomic.write_bytes(target, data)
    elif target.read_bytes() != data:
        raise OSError(
            f"{target} already exists with other layers; move it, or save in another folder"
        )
    return str(target)


def _put(data: bytes, path: Path) -> Path | None:
    backup = back_up_old(path)
    atomic.write_bytes(path, data)
    return backup


def _anchored(project: Project, folder: Path) -> Project:
    """Make the paths of layer files, data and weights absolute."""
    files = tuple(
        os.path.abspath(folder / name) if name else name for name in project.layer_files
    )
    project = (
        replace(project, layer_files=files) if files != project.layer_files else project
    )
    project = _with_data(project, lambda path: os.path.abspath(folder / path))
    project = _with_files(project, lambda path: os.path.abspath(folder / path))
    if project.opened is not None:
        project = replace(project, opened=anchored(project.opened, folder))
    start = project.training.start
    return (
        with_start(project, replace(start, path=os.path.abspath(folder / start.path)))
        if start
        else project
    )


def _with_data(project: Project, relocate: Callable[[str], str]) -> Project:
    """Replace the paths of the data by `relocate` of them."""
    data, labels = project.data, project.data.options.get("labels_file")
    if data.path:
        data = replace(data, path=relocate(data.path))
    if isinstance(labels, str) and labels:
        data = replace(data, options=data.options.set("labels_file", relocate(labels)))
    return replace(project, data=data) if data is not project.data else project


def _with_files(project: Project, relocate: Callable[[str], str]) -> Project:
    """Replace the paths of the origin's files by `relocate` of them."""
    if (origin := project.origin) is None:
        return project
    weights, reference = (
        file and replace(file, path=relocate(file.path))
        for file in (origin.weights, origin.reference)
    )
    return replace(
        project, origin=replace(origin, weights=weights, reference=reference)
    )


def with_start(project: Project, start: StartWeights | None) -> Project:
    """Set the start weights, None for random ones."""
    return replace(project, training=replace(project.training, start=start))


def _loosened(project: Project, folder: Path) -> Project:
    """Make paths in the project's folder or a sibling folder relative, so that both can be moved together. Start
    weights in its folder are stored by name."""
    start = project.training.start
    if start is not None:
        project = with_start(project, replace(start, path=_beside(start.path, folder)))
    project = _with_data(project, lambda path: _beside(path, folder))
    project = _with_files(project, lambda path: _beside(path, folder))
    if project.opened is not None:
        project = replace(
            project, opened=loosened(project.opened, lambda path: _beside(path, folder))
        )
    return replace(
        project,
        layer_files=tuple(_beside(name, folder) for name in project.layer_files),
    )


def _beside(name: str, folder: Path) -> str:
    try:
        relative = Path(os.path.relpath(name, os.path.abspath(folder)))
    except ValueError:  # on another drive
        return name
    return relative.as_posix() if relative.parts[:2].count("..") < 2 else name


def bytes_for(project: Project, path: Path) -> bytes:
    """Return the bytes of a project file that a picture at `path` carries, with its paths relative to the picture."""
    return dumps(_loosened(project, path.absolute().parent))


def loads(data: bytes) -> Project:
    """Parse the bytes of a project file; raises ProjectFileError."""
    if message := limits.beyond_text(data):
        raise ProjectFileError(message)
    try:
        raw = msgspec.json.decode(data.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProjectFileError(
            f"this is not a Tapedeck project, its JSON cannot be read: {error}"
        ) from error
    if not isinstance(raw, dict) or type(raw.get("tapedeck")) is not int:
        raise ProjectFileError(
            'this is not a Tapedeck project: it does not begin with "tapedeck": <version>'
        )
    version = raw["tapedeck"]
    if version > VERSION:
        raise ProjectFileError(
            f"it is of version {version}, this program reads up to {VERSION}; update Tapedeck"
        )
    while version in MIGRATIONS:
        raw = MIGRATIONS[version](raw)
        version = raw["tapedeck"]
    if version != VERSION:
        raise ProjectFileError(f"there is no version {version} of project files")
    if message := limits.beyond(raw):
        raise ProjectFileError(message)
    try:
        record = msgspec.convert(raw, _ProjectRecord)
    except msgspec.ValidationError as error:
        raise ProjectFileError(f"{error}") from error
    return _project(record)


def dumps(project: Project) -> bytes:
    """Serialize a project: indented JSON, for readable diffs under version control."""
    raw = {
        "tapedeck": VERSION,
        "name": project.name,
        **sheet_record(project),
        **(
            {"blocks": [block_record(block) for block in project.blocks.values()]}
            if project.blocks
            else {}
        ),
        **({"layer_files": list(project.layer_files)} if project.layer_files else {}),
        "data": data_record(project.data),
        "training": training_record(project.training),
        "notes": project.notes,
        **(
            {"origin": _origin_record(project.origin)}
            if project.origin is not None
            else {}
        ),
        **(
            {"model": opened_record(project.opened)}
            if project.opened is not None
            else {}
        ),
        **(
            {"lesson": _lesson_record(project.lesson)}
            if project.lesson is not None
            else {}
        ),
    }
    try:
        data = msgspec.json.encode(raw)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_readable(raw))
    return msgspec.json.format(data, indent=1) + b"\n"


def _readable(raw: Any) -> Any:
    """Replace lone surrogates in plain data, which cannot be encoded in UTF-8."""
    if isinstance(raw, str):
        return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(raw, dict):
        return {_readable(key): _readable(value) for key, value in raw.items()}
    return [_readable(item) for item in raw] if isinstance(raw, list) else raw


def _project(record: _ProjectRecord) -> Project:
    blocks, ops = blocks_from(record.blocks, catalog(), record.graph)
    graph = graph_from(record.graph, ops)
    return Project(
        name=record.name,
        graph=graph,
        **sheet_parts(record, graph, "$"),
        blocks=blocks,
        layer_files=tuple(record.layer_files),
        data=data_from(record.data),
        training=training_from(record.training),
        notes=record.notes,
        origin=_origin(record.origin),
        opened=opened_from(record.model) if record.model is not None else None,
        lesson=_lesson(record.lesson) if record.lesson is not None else None,
    )


def _lesson(record: _LessonRecord) -> LessonWork:
    reached = record.reached
    seen = reached if isinstance(reached, dict) else dict.fromkeys(reached, "")
    return LessonWork(
        record.name,
        FrozenMap(record.answers),
        FrozenMap(seen),
        record.text,
        record.student,
    )


def _lesson_record(work: LessonWork) -> dict[str, Any]:
    raw = {
        "name": work.name,
        "answers": dict(work.answers),
        "reached": dict(work.reached),
    }
    raw |= {"text": work.text} if work.text else {}
    return raw | ({"student": work.student} if work.student else {})


def _origin_record(origin: Origin) -> dict[str, Any]:
    raw: dict[str, Any] = {"model": origin.model, "drawing": origin.drawing}
    raw |= {"checked": origin.checked} if origin.checked else {}
    raw |= {"buffers": list(origin.buffers)} if origin.buffers else {}
    if origin.inits:
        raw["inits"] = [
            {
                "block": model_init.block,
                "node": model_init.node,
                "parameter": model_init.parameter,
                "name": model_init.init.name,
                "params": encoded(model_init.init.params),
            }
            for model_init in origin.inits
        ]
    files = {"weights": origin.weights, "reference": origin.reference}
    return raw | {
        name: {"file": file.path, "sha256": file.sha256}
        for name, file in files.items()
        if file
    }


def _origin(record: _OriginRecord | None) -> Origin | None:
    if record is None:
        return None
    weights, reference = (
        KeptFile(file_record.file, file_record.sha256) if file_record else None
        for file_record in (record.weights, record.reference)
    )
    locations = [f"$.origin.inits[{i}].params" for i in range(len(record.inits))]
    inits = tuple(
        ModelInit(
            init_record.block,
            init_record.node,
            init_record.parameter,
            Init(init_record.name, decoded(init_record.params, location)),
        )
        for init_record, location in zip(record.inits, locations, strict=True)
    )
    try:
        for model_init in inits:
            check_inits({model_init.parameter: model_init.init})
    except ParamError as error:
        raise ProjectFileError(f"{error} - at `$.origin.inits`") from error
    return Origin(
        record.model,
        record.drawing,
        record.checked,
        weights,
        tuple(record.buffers),
        reference,
        inits,
    )
