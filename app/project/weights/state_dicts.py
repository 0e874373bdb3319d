"""State_dicts in files: read as data alone, shown as a table, and held against what a net has, key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.export.weights import WeightsError
from app.source.compiled import make_module
from app.source.generated import Source
from app.training.setup.initial_weights import TensorInfo, convertible
from app.util import tensor_files

if TYPE_CHECKING:
    from torch import Tensor

SUFFIXES = (".safetensors", ".pt", ".pth")
# Under which names checkpoints keep a state_dict, in the order in which they are looked for.
NESTED = ("state_dict", "model_state_dict", "model", "net", "module", "weights", "params")
# What wrappers put before every key, and who does.
WRAPPERS = {"module.": "DataParallel", "_orig_mod.": "torch.compile"}
_CURES = {
    "unreadable": "",
    "damaged": " Get it or save it again.",
    "unsafe": " Save its state_dict alone: torch.save(model.state_dict(), path).",
}

Tell = Callable[[str], None]
Infos = Mapping[str, TensorInfo]


@dataclass(frozen=True)
class StateDict:
    """What a file holds: its tensors by key, on the CPU. `notes` say what was done to come by them."""

    path: Path
    tensors: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()
    infos: Infos = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "infos", {key: TensorInfo.of(value) for key, value in self.tensors.items()})


def read(path: str | Path, tell: Tell = lambda _words: None) -> StateDict:
    """The state_dict in a `.pt`, `.pth` or `.safetensors` file. Nothing in it is ever run. Raises WeightsError."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise WeightsError(f"{path.name} ends in {path.suffix or 'nothing'}; weights are {', '.join(SUFFIXES)}.")
    with suppress(OSError):  # which is said below
        tell(f"Reading {path.name}, {path.stat().st_size / 1e6:,.1f} MB")
    try:
        tensors_alone = path.suffix.lower() == ".safetensors"
        held = tensor_files.load_safetensors(path) if tensors_alone else tensor_files.load(path)
    except tensor_files.UnreadableTensors as error:
        raise WeightsError(f"{error}{_CURES[error.fault]}") from error
    found, notes = (held, ()) if tensors_alone else _unwrapped(held, path)
    if not found:
        raise WeightsError(f"{path} holds no tensors.")
    return _without_wrappers(path, found, notes)


def _unwrapped(value: Any, path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The state_dict in what was read, and where it was found. Raises WeightsError."""
    if not isinstance(value, Mapping):
        raise WeightsError(f"{path} holds {type(value).__name__}, and no state_dict: it must map names to tensors.")
    for name in NESTED:
        inner = value.get(name)
        if isinstance(inner, Mapping) and _tensors(inner):
            found, notes = _unwrapped(inner, path)
            beside = [str(key) for key in value if key != name]
            more = f"; what stands beside it is left alone: {_some(beside)}" if beside else ""
            return found, (f"The state_dict is under “{name}”{more}.", *notes)
    found = _tensors(value)
    if not found:
        keys = _some([str(key) for key in value])
        inside = f"under its keys ({keys}) there are no tensors" if keys else "it holds a dict without entries"
        raise WeightsError(f"{path} holds no state_dict: {inside}.")
    others = [str(key) for key in value if key not in found]
    told = f"{len(others)} entries are no plain tensors and are left alone: {_some(others)}."
    return found, (told,) if others else ()


def _tensors(value: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Its plain tensors: dense, with names."""
    import torch

    return {
        key: one.detach()
        for key, one in value.items()
        if isinstance(key, str) and isinstance(one, torch.Tensor) and one.layout == torch.strided
        and not one.is_quantized
    }  # fmt: skip


def _without_wrappers(path: Path, found: dict[str, Tensor], notes: tuple[str, ...]) -> StateDict:
    while wrapper := next((name for name in WRAPPERS if all(key.startswith(name) for key in found)), ""):
        found = {key.removeprefix(wrapper): value for key, value in found.items()}
        notes = (*notes, f"Every key began with “{wrapper}”, as {WRAPPERS[wrapper]} writes it; that is taken off.")
    return StateDict(path, found, notes)


def _some(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# --- What a net has


@lru_cache(maxsize=8)
def net_infos(source: Source) -> Infos:
    """The state_dict of a net as names, shapes and dtypes, from tensors without memory."""
    import torch

    from app.util.rng import borrowed

    try:
        with torch.device("meta"):
            model = make_module(source)
    except (NotImplementedError, RuntimeError, TypeError):  # a layer of a person's own computes with its weights
        with borrowed(0):
            model = make_module(source)
    return {key: TensorInfo.of(value) for key, value in model.state_dict().items()}


# --- The two side by side

SAME, DTYPE, SHAPE, MISSING, UNEXPECTED = "same", "dtype", "shape", "missing", "unexpected"
KINDS = {
    SAME: "fit", DTYPE: "fit in another dtype", SHAPE: "with another shape", MISSING: "missing in the file",
    UNEXPECTED: "not in the net",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One key: what the net has under it and what the file. `source` is its name in the file."""

    key: str
    kind: str
    ours: TensorInfo | None = None
    theirs: TensorInfo | None = None
    source: str = ""

    @property
    def fits(self) -> bool:
        return self.kind in (SAME, DTYPE)


@dataclass(frozen=True)
class Suggestion:
    """Other names for keys of the file, by which more of them would be of the net."""

    text: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class Diff:
    """A file against a net, in the order of the net; what it has not stands last."""

    rows: tuple[Row, ...]

    def of(self, *kinds: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.kind in kinds)

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(self.of(kind)) for kind in KINDS}

    @property
    def fitting(self) -> tuple[str, ...]:
        """The keys that can be taken."""
        return tuple(row.key for row in self.rows if row.fits)

    @property
    def strict(self) -> bool:
        """Whether `load_state_dict(strict=True)` would take it as it is."""
        return bool(self.rows) and all(row.fits for row in self.rows)

    def words(self) -> str:
        """The counts that are not 0: `118 fit, 2 with another shape`."""
        return ", ".join(f"{count:,} {KINDS[kind]}" for kind, count in self.counts.items() if count)


def diff(theirs: Infos, ours: Infos, names: Mapping[str, str] | None = None) -> Diff:
    """Hold a file against a net. `names` gives keys of the file that are taken for others."""
    renamed = {(names or {}).get(key, key): key for key in theirs}
    rows = []
    for key, own in ours.items():
        source = renamed.get(key)
        if source is None:
            rows.append(Row(key, MISSING, own))
        else:
            rows.append(Row(key, _kind(own, theirs[source]), own, theirs[source], source))
    rows += [
        Row(key, UNEXPECTED, None, theirs[source], source) for key, source in renamed.items() if key not in ours
    ]
    return Diff(tuple(rows))


def _kind(ours: TensorInfo, theirs: TensorInfo) -> str:
    if ours.shape != theirs.shape or not convertible(theirs.dtype, ours.dtype):
        return SHAPE
    return SAME if ours.dtype == theirs.dtype else DTYPE


def suggestions(theirs: Infos, ours: Infos) -> tuple[Suggestion, ...]:
    """What might be meant: a prefix to take off or put on, then keys with another name and the same shape."""
    found: list[Suggestion] = []
    names: dict[str, str] = {}
    if prefix := _prefix(theirs, ours):
        found.append(prefix)
        names = dict(prefix.names)
    pairs = _renamed(theirs, ours, names)
    if pairs:
        first, to = next(iter(pairs.items()))
        more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        text = f"{len(pairs)} keys have another name and the same shape: {first} might be {to}{more}."
        found.append(Suggestion(text, {**names, **pairs}))
    return tuple(found)


def _prefix(theirs: Infos, ours: Infos) -> Suggestion | None:
    """The prefix by which most keys would fit that do not fit as they are."""
    fit = most = _matches(theirs, ours, {})
    best: tuple[str, dict[str, str]] = ("", {})
    ways = [(f"Take “{one}” off the keys.", {key: key.removeprefix(one) for key in theirs if key.startswith(one)})
            for one in _prefixes(theirs)]  # fmt: skip
    ways += [(f"Put “{one}” before the keys.", {key: one + key for key in theirs}) for one in _prefixes(ours)]
    for way in ways:
        if (count := _matches(theirs, ours, way[1])) > most:
            most, best = count, way
    return Suggestion(f"{best[0]} Then {most:,} of {len(ours):,} fit instead of {fit:,}.", best[1]) if best[1] else None


def _prefixes(keys: Iterable[str]) -> list[str]:
    """What keys begin with, three steps deep at most."""
    found: dict[str, None] = {}
    for key in keys:
        parts = key.split(".")
        for depth in range(1, min(len(parts), 4)):
            found.setdefault(".".join(parts[:depth]) + ".")
    return list(found)[:200]


def _matches(theirs: Infos, ours: Infos, names: Mapping[str, str]) -> int:
    """How many keys of the net would be filled; two keys under one name are one."""
    taken = {names.get(key, key): info for key, info in theirs.items()}
    return sum(key in ours and _kind(ours[key], info) != SHAPE for key, info in taken.items())


def _renamed(theirs: Infos, ours: Infos, names: Mapping[str, str]) -> dict[str, str]:
    """Pairs of what is missing and what is not of the net: those that are alike and as many here as there, in order."""
    renamed = {names.get(key, key): key for key in theirs}
    missing = _alike({key: info for key, info in ours.items() if key not in renamed})
    unknown = _alike({key: theirs[source] for key, source in renamed.items() if key not in ours})
    pairs: dict[str, str] = {}
    for like, keys in missing.items():
        if len(found := unknown.get(like, [])) == len(keys):
            pairs |= {renamed[key]: to for key, to in zip(found, keys, strict=True)}
    return pairs


def _alike(infos: Infos) -> dict[tuple[str, TensorInfo], list[str]]:
    """Keys by their last part and what is under them."""
    groups: dict[tuple[str, TensorInfo], list[str]] = {}
    for key, info in infos.items():
        groups.setdefault((key.rpartition(".")[2], info), []).append(key)
    return groups


def taken(state: StateDict, found: Diff, keys: Iterable[str] | None = None) -> dict[str, Tensor]:
    """The tensors to be loaded under the net's own keys: all that fit, or those named. Raises WeightsError."""
    fitting = {row.key: row for row in found.rows if row.fits}
    wanted = list(fitting) if keys is None else list(keys)
    wrong = [key for key in wanted if key not in fitting]
    if wrong:
        raise WeightsError(f"{_some(wrong)} cannot be loaded into this net.")
    return {key: state.tensors[fitting[key].source] for key in wanted}


def table(infos: Infos) -> str:
    """A state_dict as text: key, shape, dtype, bytes; a line each, and the sum."""
    rows = [(key, "×".join(map(str, info.shape)) or "()", info.dtype, f"{info.bytes:,}") for key, info in infos.items()]
    total = sum(info.bytes for info in infos.values())
    rows = [("key", "shape", "dtype", "bytes"), *rows, (f"{len(infos):,} tensors", "", "", f"{total:,}")]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = (
        f"{key:<{wide[0]}}  {shape:<{wide[1]}}  {dtype:<{wide[2]}}  {count:>{wide[3]}}"
        for key, shape, dtype, count in rows
    )
    return "\n".join(lines)
