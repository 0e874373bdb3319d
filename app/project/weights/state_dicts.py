"""State_dicts in files: read as data only, and compared with a net, key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.export.errors import WeightsError
from app.project.weights.state_dict_diff import SUFFIXES, Diff, Infos
from app.source.compiled import make_module
from app.source.generated import Source
from app.training.setup.weights_header import TensorInfo
from app.util import tensor_files
from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from torch import Tensor

# Keys under which checkpoints store a state_dict, in order of preference.
NESTED = ("state_dict", "model_state_dict", "model", "net", "module", "weights", "params")
MOST_CHECKED = 1 << 30  # bytes of a file whose values are checked
# Key prefixes of wrapper modules, and their wrapper.
WRAPPERS = {"module.": "DataParallel", "_orig_mod.": "torch.compile"}
_CURES = {
    "unreadable": "",
    "damaged": " Download it or save it again.",
    "unsafe": " Save its state_dict alone: torch.save(model.state_dict(), path).",
}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class StateDict:
    """The content of a file: its tensors by key, on the CPU. `notes` describe how they were extracted."""

    path: Path
    tensors: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()
    infos: Infos = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "infos", {key: TensorInfo.from_tensor(value) for key, value in self.tensors.items()})


def read(path: str | Path, tell: Tell = lambda _words: None) -> StateDict:
    """Read the state_dict of a `.pt`, `.pth` or `.safetensors` file, executing nothing. Raises WeightsError."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise WeightsError(f"{path.name} ends in {path.suffix or 'nothing'}; weights are {', '.join(SUFFIXES)}.")
    with suppress(OSError):  # reported below
        tell(f"Reading {path.name}, {path.stat().st_size / 1e6:,.1f} MB")
    try:
        tensors_alone = path.suffix.lower() == ".safetensors"
        held = tensor_files.load_safetensors(path) if tensors_alone else tensor_files.load(path)
    except tensor_files.UnreadableTensorsError as error:
        raise WeightsError(f"{error}{_CURES[error.fault]}") from error
    found, notes = (held, ()) if tensors_alone else _unwrapped(held, path)
    if not found:
        raise WeightsError(f"{path} holds no tensors.")
    state = _without_wrappers(path, found, notes)
    return replace(state, notes=(*state.notes, *_nonfinite(state.tensors)))


def _nonfinite(tensors: Mapping[str, Tensor]) -> Iterable[str]:
    """Say which tensors have values that are NaN or infinite; a very large file is not read for that."""
    if sum(one.nbytes for one in tensors.values()) > MOST_CHECKED:
        return
    odd = []
    for name, tensor in tensors.items():
        with suppress(RuntimeError, NotImplementedError):  # of dtypes and layouts that torch cannot compare
            if (tensor.is_floating_point() or tensor.is_complex()) and not bool(tensor.isfinite().all()):
                odd.append(name)
    if odd:
        yield f"Values that are NaN or infinite in {_some(odd)}: a net that starts from them may compute NaN."


def _unwrapped(value: Any, path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Extract the state_dict from a file's content, with notes where it was found. Raises WeightsError."""
    if not isinstance(value, Mapping):
        raise WeightsError(f"{path} holds {type(value).__name__}, not a state_dict: it must map names to tensors.")
    for name in NESTED:
        inner = value.get(name)
        if isinstance(inner, Mapping) and _tensors(inner):
            found, notes = _unwrapped(inner, path)
            beside = [str(key) for key in value if key != name]
            more = f"; its other entries are ignored: {_some(beside)}" if beside else ""
            return found, (f"The state_dict is under “{name}”{more}.", *notes)
    found = _tensors(value)
    if not found:
        keys = _some([str(key) for key in value])
        inside = f"under its keys ({keys}) there are no tensors" if keys else "it holds a dict without entries"
        raise WeightsError(f"{path} holds no state_dict: {inside}.")
    others = [str(key) for key in value if key not in found]
    told = f"{len(others)} entries are not plain tensors and are ignored: {_some(others)}."
    return found, (told,) if others else ()


def _tensors(value: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Return the dense, named tensors."""
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
        notes = (*notes, f"Every key had the prefix “{wrapper}” of {WRAPPERS[wrapper]}, which was removed.")
    return StateDict(path, found, notes)


def _some(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# --- Tensors of a net


@lru_cache(maxsize=8)
def net_infos(source: Source) -> Infos:
    """Return names, shapes and dtypes of a net's state_dict, without allocating memory."""
    import torch

    from app.util.rng import borrowed

    try:
        with torch.device("meta"):
            model = make_module(source)
    except (NotImplementedError, RuntimeError, TypeError):  # a custom layer computes with its weights
        with borrowed(0):
            model = make_module(source)
    return {key: TensorInfo.from_tensor(value) for key, value in model.state_dict().items()}


def selected_tensors(state: StateDict, found: Diff, keys: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Select the tensors to load, by the net's own keys: all that fit, or those named. Raises WeightsError."""
    fitting = {row.key: row for row in found.rows if row.fits}
    wanted = list(fitting) if keys is None else list(keys)
    wrong = [key for key in wanted if key not in fitting]
    if wrong:
        raise WeightsError(f"{_some(wrong)} cannot be loaded into this net.")
    return {key: state.tensors[fitting[key].source] for key in wanted}
