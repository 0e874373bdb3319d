"""Comparison of a state_dict with a net, key by key, by names, shapes and dtypes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from app.training.setup.weights_header import TensorInfo, convertible
from app.util.formatting import shape_text

SUFFIXES = (
    ".safetensors",
    ".pt",
    ".pth",
    ".ckpt",
    ".bin",
    ".th",
    ".tar",
)  # .tar: .pth.tar, a usual name
PATTERNS = " ".join(
    f"*{suffix}" for suffix in (*SUFFIXES, ".index.json")
)  # of file dialogs
Infos = Mapping[str, TensorInfo]

SAME, DTYPE, SHAPE, MISSING, UNEXPECTED = (
    "same",
    "dtype",
    "shape",
    "missing",
    "unexpected",
)
KINDS = {
    SAME: "fit",
    DTYPE: "fit in another dtype",
    SHAPE: "with another shape",
    MISSING: "missing in the file",
    UNEXPECTED: "not in the net",
}


class KeyRow(Struct, frozen=True):
    """One key with the tensors of the net and of the file. `source` is its name in the file."""

    key: str
    kind: str
    ours: TensorInfo | None = None
    theirs: TensorInfo | None = None
    source: str = ""

    @property
    def fits(self) -> bool:
        return self.kind in (SAME, DTYPE)


class Suggestion(Struct, frozen=True):
    """Other names for keys of the file, by which more of them would be of the net."""

    text: str
    names: Mapping[str, str]


class Diff(Struct, frozen=True):
    """A file compared with a net, in the order of the net; unknown keys come last."""

    rows: tuple[KeyRow, ...]

    def rows_of(self, *kinds: str) -> tuple[KeyRow, ...]:
        return tuple(row for row in self.rows if row.kind in kinds)

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(self.rows_of(kind)) for kind in KINDS}

    @property
    def fitting(self) -> tuple[str, ...]:
        """The keys that can be taken."""
        return tuple(row.key for row in self.rows if row.fits)

    @property
    def strict(self) -> bool:
        """Return whether `load_state_dict(strict=True)` would accept the file unchanged."""
        return bool(self.rows) and all(row.fits for row in self.rows)

    def counts_text(self) -> str:
        """Format the nonzero counts: `118 fit, 2 with another shape`."""
        return ", ".join(
            f"{count:,} {KINDS[kind]}" for kind, count in self.counts.items() if count
        )


def diff(theirs: Infos, ours: Infos, names: Mapping[str, str] | None = None) -> Diff:
    """Compare a file with a net. `names` maps keys of the net to the keys of the file assigned to them."""
    renamed = {(names or {}).get(key, key): key for key in theirs}
    rows = []
    for key, info in ours.items():
        source = renamed.get(key)
        if source is None:
            rows.append(KeyRow(key, MISSING, info))
        else:
            rows.append(
                KeyRow(key, _kind(info, theirs[source]), info, theirs[source], source)
            )
    rows += [
        KeyRow(key, UNEXPECTED, None, theirs[source], source)
        for key, source in renamed.items()
        if key not in ours
    ]
    return Diff(tuple(rows))


def _kind(ours: TensorInfo, theirs: TensorInfo) -> str:
    if ours.shape != theirs.shape or not convertible(theirs.dtype, ours.dtype):
        return SHAPE
    return SAME if ours.dtype == theirs.dtype else DTYPE


def suggestions(theirs: Infos, ours: Infos) -> tuple[Suggestion, ...]:
    """Suggest mappings of keys: another form of a parametrization, a prefix, then renamed keys of the same shape."""
    suggested: list[Suggestion] = []
    fit = _matches(theirs, ours, {})
    names, form = _other_form(theirs, ours)
    prefix, sentence = _prefix(
        {names.get(key, key): info for key, info in theirs.items()}, ours
    )
    names = {
        key: to
        for key in theirs
        if (to := prefix.get(named := names.get(key, key), named)) != key
    }
    if sentence := " ".join(filter(None, (form, sentence))):
        most = _matches(theirs, ours, names)
        suggested.append(
            Suggestion(
                f"{sentence} Then {most:,} of {len(ours):,} fit instead of {fit:,}.",
                names,
            )
        )
    pairs = _renamed(theirs, ours, names)
    if pairs:
        first, to = next(iter(pairs.items()))
        more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        text = f"{len(pairs)} keys have another name and the same shape: {first} might be {to}{more}."
        suggested.append(Suggestion(text, {**names, **pairs}))
    return tuple(suggested)


# Keys of torch.nn.utils.parametrizations, and those of the functions in torch.nn.utils that were before them: of
# weight_norm, then of spectral_norm.
_FORMS = (
    (r"parametrizations\.(\w+)\.original0$", r"\1_g"),
    (r"parametrizations\.(\w+)\.original1$", r"\1_v"),
    (r"parametrizations\.(\w+)\.original$", r"\1_orig"),
    (r"parametrizations\.(\w+)\.0\._u$", r"\1_u"),
    (r"parametrizations\.(\w+)\.0\._v$", r"\1_v"),
)


def _old_form(key: str) -> str:
    for new, old in _FORMS:
        key = re.sub(new, old, key)
    return key


def _other_form(theirs: Infos, ours: Infos) -> tuple[dict[str, str], str]:
    """Return how keys of a parametrization are to be called in the net, and a sentence that says so."""
    old_keys = {_old_form(key) for key in theirs} - theirs.keys()
    if old_keys:  # the file has the new form
        names = {key: _old_form(key) for key in theirs if _old_form(key) != key}
        if not any(_ends_like(key, ours) for key in names.values()):
            return {}, ""
    else:
        new_of_old = {
            _last_parts(_old_form(key)): _new_end(key)
            for key in ours
            if _old_form(key) != key
        }
        names = {}
        for key in theirs:
            if end := new_of_old.get(_last_parts(key)):
                stem = key.rpartition(".")[0]
                names[key] = f"{stem}.{end}" if stem else end
    if not names:
        return {}, ""
    first, to = next(iter(names.items()))
    return (
        names,
        f"{len(names):,} keys are of another form of a parametrization: {first} is {to} here.",
    )


def _last_parts(key: str) -> tuple[str, ...]:
    """Return the last two parts of a key, by which a layer is the same in both, whatever is before it."""
    return tuple(key.split(".")[-2:])


def _new_end(key: str) -> str:
    return key[key.index("parametrizations.") :]


def _ends_like(key: str, others: Iterable[str]) -> bool:
    return any(_last_parts(key) == _last_parts(other) for other in others)


def transposed(theirs: Infos, ours: Infos) -> str:
    """Name the tensors that have the sizes of the net's in the opposite order, as other frameworks store them."""
    by_stem: dict[str, list[TensorInfo]] = {}
    for key, info in ours.items():
        by_stem.setdefault(key.rpartition(".")[0], []).append(info)
    turned = [
        key
        for key, info in theirs.items()
        if info.shape != info.shape[::-1]
        and not (key in ours and ours[key].shape == info.shape)
        and any(
            net_tensor.shape == info.shape[::-1]
            for net_tensor in by_stem.get(key.rpartition(".")[0], ())
        )
    ]
    if not turned:
        return ""
    more = f" and {len(turned) - 3} more" if len(turned) > 3 else ""
    return (
        f"{', '.join(turned[:3])}{more} fit the network only transposed, as other frameworks store them, and are not "
        "loaded. Square ones may be transposed too."
    )


def _prefix(theirs: Infos, ours: Infos) -> tuple[dict[str, str], str]:
    """Return the change of a prefix with which most keys fit, and a sentence; nothing if none is better."""
    most, best = _matches(theirs, ours, {}), (dict[str, str](), "")
    ways = [
        (
            {key: key.removeprefix(prefix) for key in theirs if key.startswith(prefix)},
            f"Remove “{prefix}” from the start of the keys.",
        )
        for prefix in _prefixes(theirs)
    ]
    ways += [
        (
            {key: prefix + key for key in theirs},
            f"Add “{prefix}” to the start of the keys.",
        )
        for prefix in _prefixes(ours)
    ]
    for way in ways:
        if (count := _matches(theirs, ours, way[0])) > most:
            most, best = count, way
    return best


def _prefixes(keys: Iterable[str]) -> list[str]:
    """List the prefixes of keys, at most three parts deep."""
    prefixes: dict[str, None] = {}
    for key in keys:
        parts = key.split(".")
        for depth in range(1, min(len(parts), 4)):
            prefixes.setdefault(".".join(parts[:depth]) + ".")
    return list(prefixes)[:200]


def _matches(theirs: Infos, ours: Infos, names: Mapping[str, str]) -> int:
    """Count the net's keys that would be filled; two keys under one name count once."""
    renamed = {names.get(key, key): info for key, info in theirs.items()}
    return sum(
        key in ours and _kind(ours[key], info) != SHAPE for key, info in renamed.items()
    )


def _renamed(theirs: Infos, ours: Infos, names: Mapping[str, str]) -> dict[str, str]:
    """Pair missing keys with unknown ones of the same kind, in order, if there are equally many."""
    renamed = {names.get(key, key): key for key in theirs}
    missing = _alike({key: info for key, info in ours.items() if key not in renamed})
    unknown = _alike(
        {key: theirs[source] for key, source in renamed.items() if key not in ours}
    )
    pairs: dict[str, str] = {}
    for like, keys in missing.items():
        if len(candidates := unknown.get(like, [])) == len(keys):
            pairs |= {
                renamed[key]: to for key, to in zip(candidates, keys, strict=True)
            }
    return pairs


def _alike(infos: Infos) -> dict[tuple[str, TensorInfo], list[str]]:
    """Group keys by their last part and their tensor's shape and dtype."""
    groups: dict[tuple[str, TensorInfo], list[str]] = {}
    for key, info in infos.items():
        groups.setdefault((key.rpartition(".")[2], info), []).append(key)
    return groups


def table(infos: Infos) -> str:
    """Format a state_dict as text: key, shape, dtype, bytes; a line each, and the sum."""
    rows = [
        (key, shape_text(info.shape, "()"), info.dtype, f"{info.bytes:,}")
        for key, info in infos.items()
    ]
    total = sum(info.bytes for info in infos.values())
    rows = [
        ("key", "shape", "dtype", "bytes"),
        *rows,
        (f"{len(infos):,} tensors", "", "", f"{total:,}"),
    ]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = (
        f"{key:<{wide[0]}}  {shape:<{wide[1]}}  {dtype:<{wide[2]}}  {count:>{wide[3]}}"
        for key, shape, dtype, count in rows
    )
    return "\n".join(lines)
