"""Find the newest weights of a network among its stored runs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app.export.weights_choice import ExportWeights
from app.runs import store
from app.runs.record import RunError
from app.source.compiled import make_module
from app.training.checkpoints.checkpoint import (
    BEST,
    CheckpointError,
    load,
    newest,
    step_of,
)
from app.training.evaluation.evaluator import checkpoint_weights
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

    from app.runs.store import Kept
    from app.source.generated import Source


def newest_of(folder: Path, source: Source, best: bool = False) -> ExportWeights | None:
    """Return the newest weights of the runs in a folder that trained this very network, None without any.

    They are those of its newest whole checkpoint, of the running mean where there is one; with `best` those with the
    smallest validation loss of the newest run. Raises OSError, and RunError for a run without best weights.
    """
    choice = (best_checkpoint if best else newest_checkpoint)(folder, source)
    return (
        ExportWeights(weights_in(choice[0]), choice[1]) if choice is not None else None
    )


def newest_checkpoint(folder: Path, source: Source) -> tuple[Path, str] | None:
    """Return the newest checkpoint with weights that fit the net, and its run and step as text. Raises OSError."""
    for stored_run in store.listed(folder):
        if not _trained(stored_run, source):
            continue
        checkpoint = _newest(
            stored_run.checkpoints,
            _state(stored_run.checkpoints),
            stored_run.record.title,
        )
        if checkpoint is not None and _fits(checkpoint[0], source):
            return checkpoint
    return None


def threads_of_newest(folder: Path, source: Source) -> int:
    """Return the CPU threads of the newest run of this network in one process, 0 without one. Raises OSError."""
    ran = next(
        (
            stored_run.record.environment
            for stored_run in store.listed(folder)
            if _trained(stored_run, source)
        ),
        None,
    )
    return ran.threads if ran is not None and ran.processes == 1 else 0


def best_checkpoint(folder: Path, source: Source) -> tuple[Path, str]:
    """Return the checkpoint with the smallest validation loss of the newest run with weights that fit the net, and its
    run and step as text. Raises OSError, and RunError if that run has none."""
    for stored_run in store.listed(folder):
        if not _trained(stored_run, source):
            continue
        path = stored_run.checkpoints / BEST
        if not path.is_file():
            raise RunError(
                f"{stored_run.record.title} has no best weights: it ended before an epoch was validated."
            )
        try:
            load(path)
            step = step_of(path)[0]
        except CheckpointError as error:
            raise RunError(
                f"The best weights of {stored_run.record.title} cannot be read: {error}"
            ) from error
        if _fits(path, source):
            return (
                path,
                f"of {stored_run.record.title} at step {step:,}, its best validation loss",
            )
    raise RunError(
        "No stored run has trained this network, so there are no best weights."
    )


def weights_in(checkpoint: Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint: the EMA if there is one. Raises OSError and CheckpointError."""
    stat = checkpoint.stat()
    return _weights(checkpoint, stat.st_mtime_ns, stat.st_size)


def _trained(stored_run: Kept, source: Source) -> bool:
    try:
        return (stored_run.folder / store.SOURCE).read_text(
            encoding="utf-8"
        ) == source.text
    except (OSError, UnicodeDecodeError):
        return False


def _fits(checkpoint: Path, source: Source) -> bool:
    """Return whether the network has the same tensors, since imported layer files may have changed."""
    if not source.files:
        return True
    with borrowed(0):
        state_dict = make_module(source).state_dict()
    return {key: value.shape for key, value in state_dict.items()} == {
        key: value.shape for key, value in weights_in(checkpoint).items()
    }


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the modification state of a checkpoint folder, without reading it."""
    if not folder.is_dir():
        return ()
    stats = [(file.name, file.stat()) for file in sorted(folder.glob("*.pt"))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


@lru_cache(
    maxsize=1
)  # shared by views of several layers, since verifying a checkpoint reads it
def _newest(
    folder: Path, state: tuple[tuple[str, int, int], ...], title: str
) -> tuple[Path, str] | None:
    path = newest(folder) if state else None
    return (
        (path, f"of {title} at step {step_of(path)[0]:,}") if path is not None else None
    )


@lru_cache(maxsize=1)
def _weights(checkpoint: Path, _written: int, _size: int) -> dict[str, Tensor]:
    return checkpoint_weights(checkpoint)
