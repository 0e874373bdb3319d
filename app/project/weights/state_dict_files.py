"""Where state_dicts are in files and folders: of checkpoints the nested ones, of split weights those of every file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from app.export.errors import WeightsError
from app.project.weights.state_dict_diff import SUFFIXES
from app.util import tensor_files

if TYPE_CHECKING:
    from torch import Tensor

# Keys under which checkpoints store a state_dict, in order of preference.
NESTED = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "module",
    "generator",
    "weights",
    "params",
)
# Keys of what has tensors and is no state_dict of a model.
_OTHERS = ("optim", "scheduler", "scaler", "amp", "rng", "callback", "loop", "hyper")
DEEPEST = 6
_CURES = {
    "unreadable": "",
    "damaged": " Download it or save it again.",
    "unsafe": " Save its state_dict alone: torch.save(model.state_dict(), path).",
}
Tell = Callable[[str], None]


class Content(Struct, frozen=True):
    """The tensors of one state_dict by key, sentences about how they were found, and the names of all in the file."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


def chosen_part(path: Path) -> tuple[Path, str]:
    """Split `FILE:NAME` into the file and the name of one of its state_dicts, "" for the usual one."""
    before, colon, name = str(path).rpartition(":")
    return (
        (Path(before), name)
        if colon and not path.exists() and Path(before).exists()
        else (path, "")
    )


def holds_weights(path: Path) -> bool:
    """Return whether a name is that of a weights file, of one of its state_dicts, or of a folder of weights."""
    file, _ = chosen_part(path)
    if file.is_dir():
        return tensor_files.index_in(file) is not None or _only_file(file) is not None
    return file.name.lower().endswith((*SUFFIXES, tensor_files.INDEX))


def content_of(path: Path, tell: Tell) -> Content:
    """Read a file or a folder, executing nothing. Raises WeightsError."""
    file, dict_name = chosen_part(path)
    try:
        if file.is_dir():
            index = tensor_files.index_in(file)
            only = _only_file(file) if index is None else None
            if index is None and only is None:
                raise WeightsError(
                    f"{file} is a folder without an index of weights (*{tensor_files.INDEX})."
                )
            file = index or only or file
        if file.name.endswith(tensor_files.INDEX):
            return _of_shards(file, tell)
    except (OSError, ValueError) as error:
        raise WeightsError(f"{getattr(error, 'strerror', None) or error}.") from error
    return _of_file(file, dict_name, tell)


def _only_file(folder: Path) -> Path | None:
    """Return the weights file of a folder that has one; of the same weights in two formats the safetensors."""
    files = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and path.is_file()
    ]
    safe = [path for path in files if path.suffix == ".safetensors"]
    return next(iter(safe or files)) if len(safe or files) == 1 else None


def _of_shards(index: Path, tell: Tell) -> Content:
    files = tensor_files.files_of_index(index)
    tensors: dict[str, Tensor] = {}
    names = dict.fromkeys(files.values())
    for path in names:
        shard_tensors = _of_file(path, "", tell).tensors
        shard_keys = [key for key, shard in files.items() if shard == path]
        if lost := [key for key in shard_keys if key not in shard_tensors]:
            raise WeightsError(
                f"{path} has no {some(lost)}, which {index.name} says that it has."
            )
        tensors |= {key: shard_tensors[key] for key in shard_keys}
    return Content(
        tensors, (f"The state_dict is in {len(names)} files, by {index.name}.",)
    )


def _of_file(path: Path, dict_name: str, tell: Tell) -> Content:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise WeightsError(
            f"{path.name} ends in {path.suffix or 'nothing'}; weights are {', '.join(SUFFIXES)}."
        )
    try:
        tell(f"Reading {path.name}, {path.stat().st_size / 1e6:,.1f} MB")
    except OSError:
        pass  # reported below
    try:
        if suffix == ".safetensors":
            return _of_safetensors(path)
        try:
            value, left_out = tensor_files.load(path), list[str]()
        except tensor_files.UnreadableTensorsError as error:
            value, left_out = _tensors_alone(path, error)
    except tensor_files.UnreadableTensorsError as error:
        raise WeightsError(f"{error}{_CURES[error.fault]}") from error
    content = _found_in(value, path, dict_name)
    if left_out:
        note = f"Of {some(left_out)} in the file nothing was made or run; only tensors were read."
        content = replace(content, notes=(note, *content.notes))
    return content


def _tensors_alone(
    path: Path, refusal: tensor_files.UnreadableTensorsError
) -> tuple[Any, list[str]]:
    """Read a dictionary with tensors beside objects of other classes. Raises `refusal` for anything else."""
    if refusal.fault != "unsafe":
        raise refusal
    try:
        value, names = tensor_files.load_tensors_alone(path)
    except tensor_files.UnreadableTensorsError:
        raise refusal from None
    if not isinstance(value, Mapping) or not _state_dicts(value):
        raise refusal
    return value, names


def _of_safetensors(path: Path) -> Content:
    tensors = tensor_files.load_safetensors(path)
    if not tensors:
        raise WeightsError(f"{path} holds no tensors.")
    keys_by_id = {id(value): key for key, value in reversed(tensors.items())}
    tied = [
        f"{key} ({keys_by_id[id(value)]})"
        for key, value in tensors.items()
        if keys_by_id[id(value)] != key
    ]
    return Content(
        tensors, (f"Tied tensors of one memory: {some(tied)}.",) if tied else ()
    )


def _found_in(value: Any, path: Path, dict_name: str) -> Content:
    """Return one of the state_dicts of a file's content. Raises WeightsError."""
    if not isinstance(value, Mapping):
        raise WeightsError(
            f"{path} holds {type(value).__name__}, not a state_dict: it must map names to tensors."
        )
    state_dicts = _state_dicts(value)
    if not state_dicts:
        keys = some([str(key) for key in value])
        inside = (
            f"under its keys ({keys}) there are no tensors"
            if keys
            else "it holds a dict without entries"
        )
        raise WeightsError(f"{path} holds no state_dict: {inside}.")
    if dict_name and dict_name not in state_dicts:
        raise WeightsError(
            f"{path} has no state_dict “{dict_name}”. It has: "
            f"{', '.join(name or 'tensors at the top' for name in state_dicts)}."
        )
    name = dict_name or next(iter(state_dicts))
    tensors, others = (
        state_dicts[name],
        [other for other in state_dicts if other != name],
    )
    notes = []
    if name:
        beside = [str(key) for key in value if str(key) != name.partition(".")[0]]
        more = f"; its other entries are ignored: {some(beside)}" if beside else ""
        notes.append(f"The state_dict is under “{name}”{more}.")
    if nested := [other for other in others if other]:
        notes.append(
            f"It has {some(nested)} too; to take that, add “:{nested[0]}” to the name of the file."
        )
    mapping = _at(value, name)
    ignored = [
        str(key)
        for key, entry in mapping.items()
        if key not in tensors and not (name == "" and str(key) in state_dicts)
    ]
    if ignored:
        notes.append(
            f"{len(ignored)} entries are not plain tensors and are ignored: {some(ignored)}."
        )
    return Content(tensors, tuple(notes), tuple(state_dicts))


def _at(value: Any, name: str) -> Mapping[Any, Any]:
    """Return the mapping under a name of `_state_dicts`."""
    for key in name.split(".") if name else ():
        value = value[key]
    mapping: Mapping[Any, Any] = value
    return mapping


def _state_dicts(
    value: Mapping[Any, Any], path: str = "", depth: int = 0
) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of each state_dict in a nested dictionary by its keys with points, the usual one first.

    Under usual names is what a checkpoint calls so; tensors at the top come before what is under other names.
    """
    tensors = tensors_of(value)
    state_dicts: dict[str, dict[str, Tensor]] = {}
    usual_names = [name for name in NESTED if name in value]
    others = [key for key in value if isinstance(key, str) and key not in usual_names]
    for names in (usual_names, [""] if tensors else [], others):
        for name in names:
            inner = value.get(name)
            if not name:
                state_dicts[path] = tensors
            elif (
                depth < DEEPEST
                and isinstance(inner, Mapping)
                and "." not in name
                and _may_be_model(name, inner)
            ):
                state_dicts |= _state_dicts(
                    inner, f"{path}.{name}" if path else name, depth + 1
                )
    return state_dicts


def _may_be_model(name: str, value: Mapping[Any, Any]) -> bool:
    return (
        not any(other in name.lower() for other in _OTHERS)
        and "param_groups" not in value
    )


def tensors_of(value: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Return the dense, named tensors."""
    return {
        key: tensor.detach()
        for key, tensor in value.items()
        if isinstance(key, str) and isinstance(tensor, torch.Tensor)
        if tensor.layout == torch.strided and not tensor.is_quantized
    }


def some(names: list[str], most: int = 4) -> str:
    """Return the first of some names, and how many more there are."""
    return ", ".join(names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
