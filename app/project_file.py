"""Project <-> `.tape`: JSON, versioned, strict. A file is data; nothing in it is ever executed."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from app.builder import literals
from app.builder.catalog import Catalog, catalog
from app.builder.graph import Edge, Graph, Node
from app.builder.params import ParamError, check_node
from app.data.config import DataConfig
from app.frozen import FrozenMap
from app.project import Project
from app.training.config import Choice, TrainingConfig

VERSION = 1
LARGEST_FILE = 64 * 2**20

# A file of version n is lifted to n + 1 by the function under n, on plain data, and so on up to VERSION.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

FARTHEST = 1e9
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Text = Annotated[str, msgspec.Meta(max_length=10_000)]
Finite = Annotated[float, msgspec.Meta(ge=-FARTHEST, le=FARTHEST)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ProjectFileError(ValueError):
    """A file that is not a project; the text names the place and the cure."""


class _NodeRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: Text
    op: Text
    name: Text
    params: dict[str, Any] = {}
    muted: bool = False
    frozen: bool = False


class _EdgeRecord(msgspec.Struct, forbid_unknown_fields=True):
    source: Text
    target: Text
    port: Text
    output: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    index: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0


class _GraphRecord(msgspec.Struct, forbid_unknown_fields=True):
    nodes: list[_NodeRecord] = []
    edges: list[_EdgeRecord] = []


class _DataRecord(msgspec.Struct, forbid_unknown_fields=True):
    source: Text = "sklearn.digits"
    validation_fraction: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.2
    split_seed: Seed = 0


class _ChoiceRecord(msgspec.Struct, forbid_unknown_fields=True):
    name: Text
    params: dict[str, Any] = {}


class _TrainingRecord(msgspec.Struct, forbid_unknown_fields=True):
    optimizer: _ChoiceRecord
    loss: _ChoiceRecord
    epochs: Count = 20
    batch_size: Count = 64
    seed: Seed = 0
    device: Text = "auto"


class _ProjectRecord(msgspec.Struct, forbid_unknown_fields=True):
    tapedeck: int
    name: Text
    graph: _GraphRecord
    training: _TrainingRecord
    data: _DataRecord
    positions: dict[str, tuple[Finite, Finite]] = {}
    notes: str = ""


def read(path: Path) -> Project:
    """The project in a file. Raises ProjectFileError, or OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ProjectFileError(f"{path.name} is larger than {LARGEST_FILE >> 20} MiB, which no project is")
    try:
        return loads(data)
    except ProjectFileError as error:
        raise ProjectFileError(f"{path.name}: {error}") from error


def write(project: Project, path: Path) -> None:
    """Write the file whole or not at all: a temporary file beside it, synced, put in its place.

    Raises OSError, and ProjectFileError for a project that could not be opened again.
    """
    data = dumps(project)
    loads(data)
    path = Path(os.path.realpath(path))  # a link goes on pointing at what it points at
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tapedeck-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where the system lets a folder be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some file systems cannot; the file itself is in its place all the same.
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def loads(data: bytes) -> Project:
    """The project in the bytes of a file; raises ProjectFileError."""
    try:
        raw = msgspec.json.decode(data.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProjectFileError(f"this is not a Tapedeck project, its JSON cannot be read: {error}") from error
    if not isinstance(raw, dict) or type(raw.get("tapedeck")) is not int:
        raise ProjectFileError('this is not a Tapedeck project: it does not begin with "tapedeck": <version>')
    version = raw["tapedeck"]
    if version > VERSION:
        raise ProjectFileError(f"it is of version {version}, this program reads up to {VERSION}; update Tapedeck")
    while version in MIGRATIONS:
        raw = MIGRATIONS[version](raw)
        version = raw["tapedeck"]
    if version != VERSION:
        raise ProjectFileError(f"there never was a version {version} of project files")
    try:
        record = msgspec.convert(raw, _ProjectRecord)
    except msgspec.ValidationError as error:
        raise ProjectFileError(f"{error}") from error
    return _project(record)


def dumps(project: Project) -> bytes:
    """The bytes of a file: indented JSON, so that a version control system shows what changed."""
    graph = project.graph
    raw = {
        "tapedeck": VERSION,
        "name": project.name,
        "graph": {
            "nodes": [
                {"id": n.id, "op": n.op, "name": n.name, "params": _encoded(n.params), **_flags(n)}
                for n in graph.nodes.values()
            ],
            "edges": [
                {"source": e.source, "output": e.output, "target": e.target, "port": e.port, "index": e.index}
                for e in graph.edges
            ],
        },
        "positions": {node: _place(point) for node, point in project.positions.items() if node in graph.nodes},
        "data": {
            "source": project.data.source,
            "validation_fraction": project.data.validation_fraction,
            "split_seed": project.data.split_seed,
        },
        "training": {
            "epochs": project.training.epochs,
            "batch_size": project.training.batch_size,
            "seed": project.training.seed,
            "device": project.training.device,
            "optimizer": _choice_record(project.training.optimizer),
            "loss": _choice_record(project.training.loss),
        },
        "notes": project.notes,
    }
    try:
        data = msgspec.json.encode(raw)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_readable(raw))
    return msgspec.json.format(data, indent=1) + b"\n"


def _place(point: tuple[float, float]) -> list[float]:
    """The point, brought to where a canvas reaches."""
    return [0.0 if math.isnan(c) else min(max(c, -FARTHEST), FARTHEST) for c in point]


def _readable(raw: Any) -> Any:
    """Plain data without halves of characters (lone surrogates), which a file in UTF-8 cannot hold."""
    if isinstance(raw, str):
        return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(raw, dict):
        return {_readable(key): _readable(value) for key, value in raw.items()}
    return [_readable(item) for item in raw] if isinstance(raw, list) else raw


def _choice_record(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, "params": _encoded(choice.params)}


def _flags(node: Node) -> dict[str, bool]:
    """`muted` and `frozen` where they are set."""
    return {name: True for name in ("muted", "frozen") if getattr(node, name)}


def _encoded(params: FrozenMap[str, Any]) -> dict[str, Any]:
    return {name: literals.encode(value) for name, value in params.items()}


def _project(record: _ProjectRecord) -> Project:
    graph = graph_from(record.graph, catalog())
    return Project(
        name=record.name,
        graph=graph,
        positions=FrozenMap({node: point for node, point in record.positions.items() if node in graph.nodes}),
        data=DataConfig(record.data.source, record.data.validation_fraction, record.data.split_seed),
        training=TrainingConfig(
            epochs=record.training.epochs,
            batch_size=record.training.batch_size,
            seed=record.training.seed,
            device=record.training.device,
            optimizer=_choice(record.training.optimizer, "$.training.optimizer"),
            loss=_choice(record.training.loss, "$.training.loss"),
        ),
        notes=record.notes,
    )


def graph_from(record: _GraphRecord, ops: Catalog) -> Graph:
    """Plain records checked against the catalog. Unknown ops pass: they become placeholders that keep their data."""
    nodes: dict[str, Node] = {}
    for i, item in enumerate(record.nodes):
        place = f"$.graph.nodes[{i}]"
        if item.id in nodes:
            raise ProjectFileError(f"two nodes have the id {item.id!r:.60} - at `{place}.id`; give one another id")
        params = _decoded(item.params, f"{place}.params")
        node = Node(item.id, item.op, item.name, params, item.muted, item.frozen)
        if item.op in ops:
            try:
                check_node(ops[item.op], node)
            except ParamError as error:
                raise ProjectFileError(f"{item.name:.60}: {error} - at `{place}.params`") from error
        nodes[item.id] = node
    edges: list[Edge] = []
    graph = Graph(FrozenMap(nodes))
    for i, wire in enumerate(record.edges):
        edge = Edge(wire.source, wire.output, wire.target, wire.port, wire.index)
        _check_edge(graph, edge, f"$.graph.edges[{i}]", ops)
        edges.append(edge)
    _check_ports(edges, graph, ops)
    return Graph(FrozenMap(nodes), tuple(edges))


def _check_edge(graph: Graph, edge: Edge, place: str, ops: Catalog) -> None:
    for end, node_id in (("source", edge.source), ("target", edge.target)):
        if node_id not in graph.nodes:
            raise ProjectFileError(f"a wire ends at node {node_id!r:.60}, which is not there - at `{place}.{end}`")
    source, target = graph.nodes[edge.source], graph.nodes[edge.target]
    if target.op in ops and ops[target.op].input(edge.port) is None:
        ports = ", ".join(port.name for port in ops[target.op].inputs) or "no inputs"
        raise ProjectFileError(f"{target.name:.60} has no input {edge.port!r:.60}, it has {ports} - at `{place}.port`")
    if source.op in ops and edge.output >= len(ops[source.op].outputs):
        count = len(ops[source.op].outputs)
        raise ProjectFileError(f"{source.name:.60} has {count} outputs, not number {edge.output} - at `{place}.output`")


def _check_ports(edges: list[Edge], graph: Graph, ops: Catalog) -> None:
    """No port has two wires in one place. Loops are left to `plan`, which shows them as problems on the canvas."""
    seen: set[tuple[str, str, int]] = set()
    for i, edge in enumerate(edges):
        spec = ops.get(graph.nodes[edge.target].op)
        port = spec.input(edge.port) if spec else None
        place = (edge.target, edge.port, edge.index if port is None or port.variadic else 0)
        if place in seen:
            where = f"{edge.port:.60} of {graph.nodes[edge.target].name:.60}"
            raise ProjectFileError(f"two wires end at {where} - at `$.graph.edges[{i}]`; remove one")
        seen.add(place)


def _choice(record: _ChoiceRecord, place: str) -> Choice:
    return Choice(record.name, _decoded(record.params, f"{place}.params"))


def _decoded(params: dict[str, Any], place: str) -> FrozenMap[str, Any]:
    values = {}
    for name, raw in params.items():
        try:
            values[name] = literals.decode(raw)
        except literals.BadLiteral as error:
            raise ProjectFileError(f"{error} - at `{place}.{name}`") from error
    return FrozenMap(values)
