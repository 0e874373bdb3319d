"""Start weights of a project: set from a state_dict, and validated against the edited net."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.builder.diagnostics.problems import Cure, Problem, SetTraining
from app.export.weights import save_safetensors
from app.project.weights import files, state_dicts
from app.project.weights.model_buffers import node_of
from app.project.weights.state_dict_diff import Diff
from app.project.weights.state_dicts import StateDict
from app.source.generated import Source
from app.training.config import StartWeights
from app.training.setup.weights_header import (
    StartError,
    header,
    is_unchanged,
    misfit_text,
    misfits,
)

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_HASHED = (
    256 * 2**20
)  # of a file that is read whole each time it changes; larger ones are when a run begins


def chosen(
    state: StateDict, comparison: Diff, keys: Iterable[str] | None = None
) -> StartWeights:
    """Store the chosen tensors of a file, under the net's own keys. Raises WeightsError, OSError."""
    return store_tensors(
        state_dicts.selected_tensors(state, comparison, keys), state.path.name
    )


def store_tensors(tensors: Mapping[str, Tensor], name: str) -> StartWeights:
    """Store tensors with the net's keys. Raises WeightsError, OSError."""
    return files.keep(lambda path: save_safetensors(tensors, path), name)


def problems(start: StartWeights | None, source: Source) -> tuple[Problem, ...]:
    """List problems with start weights: a missing or changed file, keys that no longer fit."""
    if start is None:
        return ()
    try:
        wrong = misfits(header(start), state_dicts.net_infos(source))
        size = Path(start.path).stat().st_size
        if size <= LARGEST_HASHED and not is_unchanged(start):
            raise StartError(f"{start.path} was changed since its weights were loaded.")
    except (StartError, OSError) as error:
        reason = str(error).partition(" Load the weights again")[0]
        return (
            Problem(
                "error",
                None,
                "The start weights cannot be used",
                reason,
                cures=(_without(),),
                code="start-weights-unusable",
            ),
        )
    return (_unfit(start, source, wrong),) if wrong else ()


def _unfit(start: StartWeights, source: Source, wrong: Mapping[str, str]) -> Problem:
    fitting = tuple(key for key in header(start) if key not in wrong)
    cures = [_without()]
    if fitting:
        text = (
            f"Load the other {len(fitting):,}"
            if len(fitting) > 1
            else "Load the other one"
        )
        cures.insert(
            0, Cure(text, (SetTraining("", "start", replace(start, keys=fitting)),))
        )
    many = (
        "A start weight does" if len(wrong) == 1 else f"{len(wrong):,} start weights do"
    )
    reason = (
        f"{misfit_text(start, wrong)} The other tensors are initialised from the seed."
    )
    node = node_of(next(iter(wrong)), source)
    return Problem(
        "error",
        node,
        f"{many} not fit the net",
        reason,
        port="",
        cures=tuple(cures),
        code="start-weights-do-not-fit",
    )


def _without() -> Cure:
    return Cure("Start from random weights", (SetTraining("", "start", None),))


def summary(start: StartWeights, source: Source) -> str:
    """Summarise the start weights. Raises StartError."""
    loaded, total = counted(start, source)
    return f"Starts from {loaded:,} of {total:,} tensors of {start.name or Path(start.path).name}"


@lru_cache(maxsize=8)
def counted(start: StartWeights, source: Source) -> tuple[int, int]:
    """Return how many of the net's tensors start from the file, and how many the net has. Raises StartError."""
    return len(header(start)), len(state_dicts.net_infos(source))
