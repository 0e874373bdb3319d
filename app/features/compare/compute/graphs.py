"""Compare the graphs of two files, ONNX or exported programs, and the weights in them, without running either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from app.engine.requests.observe import Observe
from app.engine.tasks import observe
from app.features.compare.compute import stored_tensors, weights
from app.features.compare.compute.stored_tensors import StoredTensors
from app.features.compare.compute.structure import ModuleFacts
from app.features.compare.compute.structure import compare as match
from app.features.compare.values import Difference, DiffSide, Distance, Structure
from app.observe.observation import Call, Observation, TensorFacts
from app.sources.spec import SourceError
from app.util.formatting import shape_text


class Graph(Struct, frozen=True):
    """The graph of a file as modules: each call is one, an operation by its number in the module that it is called in.
    `stored` are the names of the weights that the operation at a path reads, `names` what it is shown as.
    """

    modules: tuple[ModuleFacts, ...]
    stored: dict[str, tuple[str, ...]]
    names: dict[str, str]

    def shown(self, path: str) -> str:
        """Return the path of an operation as it is shown: "norm.Conv_0", where it is matched by the number alone."""
        return self.names.get(path, path)


def is_graph(side: DiffSide) -> bool:
    """Return whether a side is a file whose graph is looked at, and not run."""
    return isinstance(side.model, Observe) and side.model.source.looked_at


def compare_graphs(
    a: DiffSide,
    b: DiffSide,
    with_weights: bool = True,
    tell: Callable[[str], None] = lambda _words: None,
) -> Difference:
    """Compare two files: their operations, sizes and settings, and the stored weights of operations that match.

    Raises SourceError for a file that cannot be read, and for weights that are not there.
    """
    first, other = (_graph(side, tell) for side in (a, b))
    structure = match(first.modules, other.modules)
    tell("Comparing the weights")
    distances = _distances(a, b, structure.pairs, first, other) if with_weights else ()
    return Difference(
        a.name,
        b.name,
        structure=_named(structure, first, other),
        distances=distances,
        ran=False,
    )


def _named(structure: Structure, a: Graph, b: Graph) -> Structure:
    """Return the structure with operations under the names that they are shown by."""
    return Structure(
        tuple((a.shown(first), b.shown(other)) for first, other in structure.pairs),
        tuple(replace(alone, path=b.shown(alone.path)) for alone in structure.added),
        tuple(replace(alone, path=a.shown(alone.path)) for alone in structure.removed),
        tuple(
            replace(moved, a=a.shown(moved.a), b=b.shown(moved.b))
            for moved in structure.moved
        ),
        tuple(
            replace(changed, a=a.shown(changed.a), b=b.shown(changed.b))
            for changed in structure.changed
        ),
    )


def _graph(side: DiffSide, tell: Callable[[str], None]) -> Graph:
    assert isinstance(side.model, Observe)
    if side.has_weights:
        raise SourceError(
            f"{side.name}: the file has its weights, and cannot take others"
        )
    return graph_of(observe.answer(side.model, tell))


def graph_of(observation: Observation) -> Graph:
    """Return the calls of a graph as modules, each after the one that it is in."""
    modules = [ModuleFacts("", "graph", -1, tuple(_borders(observation)))]
    stored: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    position: dict[int | None, int] = {None: 0}
    counts: Counter[int] = Counter()
    for call in observation.calls:
        if call.kind in ("input", "output"):
            continue
        around = position[call.parent]
        prefix = f"{modules[around].path}." if modules[around].path else ""
        if call.kind == "module" and not call.path:
            position[call.id] = around
            continue
        if call.kind == "module":
            path = call.path if call.call < 2 else f"{call.path} (call {call.call})"
        else:
            number = counts[around]
            path = f"{prefix}{number}"
            counts[around] += 1
            stored[path] = call.parameters
            names[path] = f"{prefix}{call.name}_{number}"
        position[call.id] = len(modules)
        modules.append(
            ModuleFacts(path, call.op or "module", around, tuple(_settings(call)))
        )
    return Graph(tuple(modules), stored, names)


def _borders(observation: Observation) -> Iterator[tuple[str, str]]:
    for call in observation.calls:
        if call.kind in ("input", "output"):
            tensors = (*call.outputs, *call.inputs)
            yield f"{call.kind} {call.path}", ", ".join(map(_tensor, tensors))


def _settings(call: Call) -> Iterator[tuple[str, str]]:
    if call.kind == "module":
        return
    for number, setting in enumerate(call.settings):
        name, equals, value = setting.partition("=")
        yield (name, value) if equals else (f"argument {number}", setting)
    if call.parameters:
        yield "stored weights", str(len(call.parameters))
    for number, facts in enumerate(call.outputs):
        yield f"output {number}" if number else "output", _tensor(facts)


def _tensor(facts: TensorFacts) -> str:
    return f"{shape_text(facts.shape, 'scalar')} {facts.dtype}"


def _distances(
    a: DiffSide,
    b: DiffSide,
    pairs: Sequence[tuple[str, str]],
    first: Graph,
    other: Graph,
) -> tuple[Distance, ...]:
    """Compare the weights of operations that match, by their order there: each export numbers their names again."""
    of_a, of_b = _tensors_of(a), _tensors_of(b)
    distances: list[Distance] = []
    compared: set[tuple[str, str]] = set()
    for path_a, path_b in pairs:
        names = [
            (name, twin)
            for name, twin in zip(
                first.stored.get(path_a, ()), other.stored.get(path_b, ()), strict=False
            )
            if name in of_a and twin in of_b and (name, twin) not in compared
        ]
        compared.update(names)
        try:
            tensors = [(of_a[name](), of_b[twin]()) for name, twin in names]
        except SourceError as error:
            raise SourceError(
                f"{error}; pass --structure to leave the weights out"
            ) from error
        if tensors:
            shown = first.shown(path_a), other.shown(path_b)
            distances.append(weights.distance(*shown, tensors))
    return tuple(distances)


def _tensors_of(side: DiffSide) -> StoredTensors:
    assert isinstance(side.model, Observe)
    source = side.model.source
    path = Path(side.model.folder, source.where)
    read = stored_tensors.of_pt2 if source.kind == "pt2" else stored_tensors.of_onnx
    return read(path)
