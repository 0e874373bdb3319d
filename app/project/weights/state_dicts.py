"""State_dicts in files: read as data only, and compared with a net, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from msgspec import Struct

from app.export.errors import WeightsError
from app.project.weights.state_dict_diff import Diff, Infos
from app.project.weights.state_dict_files import Tell, chosen_part, content_of, some
from app.source.compiled import make_module
from app.source.generated import Source
from app.training.setup.weights_header import TensorInfo
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

MOST_CHECKED = 1 << 30  # bytes of a file whose values are checked
# Parts of keys that wrappers of modules add, and which wrapper; those of DataParallel at the start alone.
WRAPPERS = {
    "_orig_mod": "torch.compile",
    "_fsdp_wrapped_module": "FSDP",
    "_checkpoint_wrapped_module": "activation checkpointing",
}
DATA_PARALLEL, AVERAGED = "module.", "n_averaged"


class StateDict(Struct, frozen=True, dict=True):
    """The content of a file: its tensors by key, on the CPU. `notes` describe how they were extracted; `parts` are the
    names of all state_dicts in it."""

    path: Path
    tensors: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @cached_property
    def infos(self) -> Infos:
        return {
            key: TensorInfo.from_tensor(value) for key, value in self.tensors.items()
        }


def read(path: str | Path, tell: Tell = lambda _words: None) -> StateDict:
    """Read a state_dict, executing nothing: of a file, a folder of several, or FILE:NAME, one of those in a checkpoint.

    Raises WeightsError.
    """
    path = Path(path)
    content = content_of(path, tell)
    tensors, notes = _without_wrappers(content.tensors)
    remarks = (*content.notes, *notes, *_precision(tensors), *_nonfinite(tensors))
    return StateDict(chosen_part(path)[0], tensors, remarks, content.parts)


def _nonfinite(tensors: Mapping[str, Tensor]) -> Iterable[str]:
    """Say which tensors have values that are NaN or infinite; a very large file is not read for that."""
    if sum(stored.nbytes for stored in tensors.values()) > MOST_CHECKED:
        return
    odd = []
    for name, tensor in tensors.items():
        with suppress(
            RuntimeError, NotImplementedError
        ):  # of dtypes and layouts that torch cannot compare
            if (tensor.is_floating_point() or tensor.is_complex()) and not bool(
                tensor.isfinite().all()
            ):
                odd.append(name)
    if odd:
        yield f"Values that are NaN or infinite in {some(odd)}: a net that starts from them may compute NaN."


def _precision(tensors: Mapping[str, Tensor]) -> Iterable[str]:
    """Say which tensors have 8 bits of a float, which are converted when they are loaded."""
    coarse = [key for key, value in tensors.items() if "float8" in str(value.dtype)]
    if coarse:
        kind = str(tensors[coarse[0]].dtype).removeprefix("torch.")
        yield f"{kind} in {some(coarse)}: two or three digits, without the scales that such files may need."


def _without_wrappers(
    tensors: dict[str, Tensor],
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Remove what wrappers of modules add to keys, in any order, and say which."""
    notes = []
    if (
        AVERAGED in tensors
        and len(tensors) > 1
        and _all_start(tensors.keys() - {AVERAGED})
    ):
        tensors = {key: value for key, value in tensors.items() if key != AVERAGED}
        notes.append(f"{AVERAGED}, the count of an AveragedModel, is ignored.")
    while True:
        wrapper = next(
            (
                name
                for name in WRAPPERS
                if any(name in key.split(".") for key in tensors)
            ),
            "",
        )
        if wrapper:
            tensors = {
                ".".join(p for p in key.split(".") if p != wrapper): value
                for key, value in tensors.items()
            }
            notes.append(
                f"Keys had “{wrapper}.” of {WRAPPERS[wrapper]}, which was removed."
            )
        elif tensors and _all_start(tensors):
            tensors = {
                key.removeprefix(DATA_PARALLEL): value for key, value in tensors.items()
            }
            notes.append(
                f"Every key had the prefix “{DATA_PARALLEL}” of DataParallel, which was removed."
            )
        else:
            return tensors, tuple(notes)


def _all_start(keys: Iterable[str]) -> bool:
    return all(key.startswith(DATA_PARALLEL) for key in keys)


# --- Tensors of a net


@lru_cache(maxsize=8)
def net_infos(source: Source) -> Infos:
    """Return names, shapes and dtypes of a net's state_dict, without allocating memory."""
    try:
        with torch.device("meta"):
            model = make_module(source)
    except (
        NotImplementedError,
        RuntimeError,
        TypeError,
    ):  # a custom layer computes with its weights
        with borrowed(0):
            model = make_module(source)
    return {
        key: TensorInfo.from_tensor(value) for key, value in model.state_dict().items()
    }


def selected_tensors(
    state: StateDict, comparison: Diff, keys: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """Select the tensors to load, by the net's own keys: all that fit, or those named. Raises WeightsError."""
    fitting = {row.key: row for row in comparison.rows if row.fits}
    chosen_keys = list(fitting) if keys is None else list(keys)
    wrong = [key for key in chosen_keys if key not in fitting]
    if wrong:
        raise WeightsError(f"{some(wrong)} cannot be loaded into this net.")
    return {key: state.tensors[fitting[key].source] for key in chosen_keys}
