"""Checkpoints: everything needed to resume a run bit for bit, in one file that is complete or absent.

A checkpoint is a `.pt` file of tensors, numbers and strings, readable by `torch.load(path, weights_only=True)`. It
contains the SHA-256 of each tensor and of the rest, which are verified on load. It has the `state_dict()` of model,
optimizer, scheduler, scaler and EMA; the generator states of torch, CUDA, MPS, numpy and random; the position in the
shuffled order of samples.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import asdict
from torch import distributed

from app.training.checkpoints import checksums
from app.training.checkpoints.fixed_settings import FROM_WEIGHTS, refusal, refusals
from app.training.job import JobError
from app.util import atomic, leftovers, tensor_files
from app.util.formatting import plural
from tapedeck.devices import rng_states, set_rng_states

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from app.training.stepper import Stepper

VERSION = 2
WITHOUT_CHECKSUMS = 1  # checkpoints of programs before this one
LAST, BEST = "last.pt", "best.pt"
FIRST_STAGE = 1
KEPT = 2  # checkpoints by step: where the newest was not finished, the one before it is there
_BY_STEP = re.compile(r"step-(\d+)\.pt")
_TO_REVISIT = re.compile(r"revisit-(\d+)\.pt")  # never pruned
_OF_STAGE = re.compile(
    r"stage-(\d+)-(start|end|best)\.pt"
)  # around a surgery, never pruned


_PARTS = (
    "position",
    "source",
    "shuffle",
    "generators",
    "model",
    "optimizer",
    "schedule",
    "scaler",
    "average",
    "waiting",
    "gradients",
)


class CheckpointError(JobError):
    """Raised for a checkpoint that cannot be read or belongs to another run; the message says which and the fix."""


class ForeignCheckpointError(CheckpointError):
    """A file of tensors that no run wrote."""


class DamagedCheckpointError(CheckpointError):
    """Raised for a checkpoint with a part missing or changed since it was written."""


class Position(Struct):
    """Position of a run: in `epoch`, from 1, after `batch` of its batches; `done` epochs are complete.

    `order` is the state of the shuffling generator before the order of this epoch was drawn. `total`, `correct` and
    `ignored`, labels that the loss leaves out, are sums over the samples of this epoch so far, without `left_out`,
    whose loss was not finite; `best` is the smallest validation loss, `stale` the number of epochs since.
    """

    epoch: int = 0
    done: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    total: float = 0.0
    correct: int = 0
    best: float | None = None
    stale: int = 0
    order: Tensor | None = None
    left_out: int = 0
    samples: int = 0
    ignored: int = 0


def state_of(
    source: str,
    at: Position,
    shuffle: Generator,
    stepper: Stepper,
    settings: Mapping[str, str],
    stage: int = FIRST_STAGE,
) -> dict[str, Any]:
    """Return the state_dict of a run between two steps; `settings` are those of `fixed_settings.with_samples`. The
    caller must hold `app.util.rng.GENERATOR`.
    """
    return {
        "settings": dict(settings),
        "position": asdict(at),
        "source": source,
        "stage": stage,
        "shuffle": shuffle.get_state(),
        "generators": generators(),
        "ran_on": ran_on(stepper.kind),
        **stepper.state(),
    }


def ran_on(device: str) -> dict[str, Any]:
    """Return the environment that the numbers depend on besides the settings: torch version, threads, processes, and
    the type of the `device`.
    """
    return {
        "device": device,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "processes": distributed.get_world_size() if _is_split() else 1,
    }


def _is_split() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def changed(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Describe how the environment differs from the one in a checkpoint; "" if it does not.

    >>> changed({"torch": "2.13.0", "threads": 2}, {"torch": "2.13.0", "threads": 8})
    'It resumes with 8 threads instead of 2: its numbers may differ from those of a run that was never stopped.'
    >>> changed({"processes": 2}, {"torch": "2.13.0", "threads": 2, "processes": 1})[:46]
    'It resumes with 1 process instead of 2: its nu'
    """
    differences = []
    if before.get("torch", now["torch"]) != now["torch"]:
        differences.append(f"PyTorch {now['torch']} instead of {before['torch']}")
    if before.get("threads", now["threads"]) != now["threads"]:
        differences.append(
            f"{now['threads']} {plural(now['threads'], 'thread')} instead of {before['threads']}"
        )
    device = now.get("device", "cpu")
    if before.get("device", device) != device:
        differences.append(f"{device} instead of {before['device']}")
    processes = now.get("processes", 1)
    if before.get("processes", processes) != processes:
        differences.append(
            f"{processes} process{'es' * (processes > 1)} instead of {before['processes']}"
        )
    if not differences:
        return ""
    return (
        f"It resumes with {' and '.join(differences)}: its numbers may differ from those of a run "
        "that was never stopped."
    )


def go_on(
    path: Path,
    source: str,
    shuffle: Generator,
    stepper: Stepper,
    settings: Mapping[str, str],
) -> tuple[Position, str]:
    """Restore a run from a checkpoint; return its position and the differences of the environment, see `changed`.

    Raises CheckpointError for another net, and for other `settings` where these cannot be changed amid a run.
    """
    state = load(path)
    check_source(state, path, source)
    if wrong := refusal(
        refusals(state.get("settings", {}), settings, state["waiting"] > 0)
    ):
        raise CheckpointError(f"{path.name} was saved with {wrong}")
    at = Position(**state["position"])
    if at.batch and not at.samples:  # as programs before this one saved it
        at.samples = at.batch * stepper.config.batch_size
    try:
        stepper.restore(state)
        # Within an epoch its order is drawn again; after it, the next epoch's.
        shuffle.set_state(
            at.order if at.batch and at.order is not None else state["shuffle"]
        )
        ranks = state.get("ranks", [state["generators"]])
        rank = distributed.get_rank() if _is_split() else 0
        if rank < len(ranks):
            restore_generators(ranks[rank])
    except (ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path.name} was saved with other settings: {error}. Leave them, or {FROM_WEIGHTS}."
        ) from error
    return at, " ".join(
        filter(
            None,
            (
                unverified(state, path),
                changed(state.get("ran_on", {}), ran_on(stepper.kind)),
            ),
        )
    )


def check_source(state: dict[str, Any], path: Path, source: str) -> None:
    """Raise CheckpointError for a checkpoint of another network."""
    if state["source"] != source:
        raise CheckpointError(
            f"{path.name} belongs to another network: its code differs from this one's. Restore the project of that "
            "run, or start a new run from its weights."
        )


def keep(folder: Path, name: str, state: dict[str, Any]) -> str:
    """Write a checkpoint into a folder and delete old ones; return the error message, "" on success."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clean(folder)
        save(folder / name, state)
        prune(folder)
    except OSError as error:
        return f"{folder / name} could not be written: {error.strerror or error}. The run continues without it."
    return ""


def stage_file(stage: int, moment: str) -> str:
    """Return the file name of a checkpoint of a stage: of its "start", its "end", or its "best" epoch."""
    return f"stage-{stage:02d}-{moment}.pt"


def step_file(step: int) -> str:
    """Return the file name of the checkpoint after a step."""
    return f"step-{step:08d}.pt"


def revisit_file(step: int) -> str:
    """Return the file name of a checkpoint after a step that is kept for revisiting later ones."""
    return f"revisit-{step:08d}.pt"


def step_by_name(path: Path) -> int | None:
    """Return the step in the name of a checkpoint, None for one that is called otherwise.

    >>> step_by_name(Path("revisit-00000120.pt")), step_by_name(Path("best.pt"))
    (120, None)
    """
    match = _BY_STEP.fullmatch(path.name) or _TO_REVISIT.fullmatch(path.name)
    return int(match[1]) if match else None


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically. Raises OSError."""
    contents = {"tapedeck_checkpoint": VERSION, **state}
    digests = checksums.checksums(contents)

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            torch.save({**contents, checksums.NAME: digests}, file)

    atomic.write(path, fill)


def prune(folder: Path) -> None:
    """Keep the newest checkpoints by step. Raises OSError."""
    checkpoints = sorted(
        file for file in folder.iterdir() if _BY_STEP.fullmatch(file.name)
    )
    for file in checkpoints[:-KEPT]:
        file.unlink(missing_ok=True)


def clean(folder: Path) -> None:
    """Delete temporary files of a program that was killed while writing. Raises OSError."""
    leftovers.sweep(folder)
    for file in folder.glob(
        ".*.pt.*"
    ):  # as versions before this one, and scripts, call theirs
        file.unlink(missing_ok=True)


def newest(
    folder: Path,
    tell: Callable[[str], None] = lambda _words: None,
    stages: int | None = None,
) -> Path | None:
    """Return the newest intact checkpoint, which a run resumes from; `tell` is called for each one skipped, as also for
    those of a stage after the `stages` that are known."""
    candidates = []
    for file in _named(folder):
        try:
            state = _read(file, mmap=True)
            _check_position(state, file)
            if stages is not None and state.get("stage", FIRST_STAGE) > stages:
                tell(
                    f"A checkpoint is skipped: the surgery before {file} was not recorded."
                )
                continue
            candidates.append(
                (
                    state["position"]["step"],
                    state.get("stage", FIRST_STAGE),
                    file.name,
                    file,
                )
            )
        except CheckpointError as error:
            tell(f"A checkpoint is skipped: {error}")
    for *_, file in sorted(candidates, reverse=True):
        try:
            load(file)
        except CheckpointError as error:
            tell(f"A checkpoint is skipped: {error}")
        else:
            return file
    return None


def resume_hint(folder: Path | None, resumed: Path | None = None) -> str:
    """Describe what a run that ended without a message can be resumed from, given its checkpoint folder."""
    checkpoint = newest(folder) if folder is not None and folder.is_dir() else None
    checkpoint = checkpoint or (
        resumed if resumed is not None and resumed.exists() else None
    )
    if checkpoint is None:
        return "No checkpoint had been saved, so its progress is lost; set save_every to save one every N steps."
    return f"The newest checkpoint is {checkpoint}: the run can be resumed from it."


def _named(folder: Path) -> list[Path]:
    by_step = (_BY_STEP, _TO_REVISIT, _OF_STAGE)
    named_files = (
        file
        for file in folder.glob("*.pt")
        if any(pattern.fullmatch(file.name) for pattern in by_step)
    )
    return sorted(
        (
            *named_files,
            *(folder / name for name in (LAST, BEST) if (folder / name).exists()),
        )
    )


def load_chosen(path: Path) -> dict[str, Any]:
    """Read a checkpoint chosen by the user. Raises CheckpointError; Damaged names an intact one in the same folder."""
    try:
        return load(path)
    except DamagedCheckpointError as error:
        other = newest(path.parent)
        cure = (
            f"{other} is intact: use that one."
            if other is not None
            else "No other checkpoint in its folder is intact."
        )
        raise DamagedCheckpointError(f"{error} {cure}") from error


def load(path: Path) -> dict[str, Any]:
    """Read and verify a checkpoint on the CPU, without executing code. Raises CheckpointError: Damaged if not whole."""
    state = _read(path)
    if wrong := checksums.difference(state):
        raise DamagedCheckpointError(f"{path} is damaged: {wrong}.")
    missing = [name for name in _PARTS if name not in state]
    if (
        missing
        or state["tapedeck_checkpoint"] != WITHOUT_CHECKSUMS
        and checksums.NAME not in state
    ):
        raise DamagedCheckpointError(
            f"{path} is damaged: {', '.join(missing) or 'checksums'} missing."
        )
    _check_position(state, path)
    return state


def step_of(path: Path) -> tuple[int, int]:
    """Return the step of a checkpoint and how many epochs had ended then, without verifying its tensors.

    Raises CheckpointError.
    """
    at = _position(path)
    return at["step"], at["done"]


def seconds_of(path: Path) -> float:
    """Return the seconds that the run had taken at a checkpoint. Raises CheckpointError."""
    return float(_position(path)["seconds"])


def stage_of(path: Path) -> int:
    """Return the stage of the run at a checkpoint, without verifying its tensors. Raises CheckpointError."""
    stage = _read(path, mmap=True).get("stage", FIRST_STAGE)
    if not isinstance(stage, int) or stage < FIRST_STAGE:
        raise DamagedCheckpointError(
            f"{path} is damaged: the stage of the run is missing."
        )
    return stage


def ran_on_of(path: Path) -> dict[str, Any]:
    """Return the environment of a checkpoint, see `ran_on`, without verifying its tensors. Raises CheckpointError."""
    environment = _read(path, mmap=True).get("ran_on")
    return dict(environment) if isinstance(environment, dict) else {}


def unverified(state: dict[str, Any], path: Path) -> str:
    """Return the warning that a checkpoint of an older version has no checksums; "" if it was verified."""
    if checksums.NAME in state:
        return ""
    return (
        f"{path.name} is of an older version and has no checksums: it was not verified."
    )


def _position(path: Path) -> dict[str, Any]:
    state = _read(path, mmap=True)
    _check_position(state, path)
    at: dict[str, Any] = state["position"]
    return at


def _read(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint without verifying it; with `mmap`, tensors are loaded lazily."""
    try:
        state = tensor_files.load(path, mmap=mmap)
    except tensor_files.UnreadableTensorsError as error:
        kind = (
            CheckpointError if error.fault == "unreadable" else DamagedCheckpointError
        )
        raise kind(f"{error}") from error
    version = state.get("tapedeck_checkpoint") if isinstance(state, dict) else None
    if version not in (WITHOUT_CHECKSUMS, VERSION):
        raise ForeignCheckpointError(
            f"{path} is not a checkpoint of a run"
            + (f" (version {version})." if version else ".")
        )
    return dict(state)


def _check_position(state: dict[str, Any], path: Path) -> None:
    at, field_names = state.get("position"), set(Position.__struct_fields__)
    if (
        not isinstance(at, dict)
        or not {"step", "done", "epoch", "batch"} <= set(at) <= field_names
    ):
        raise DamagedCheckpointError(
            f"{path} is damaged: the position of the run is missing."
        )
    if not all(
        isinstance(at[name], int) for name in ("step", "done", "epoch", "batch")
    ):
        raise DamagedCheckpointError(
            f"{path} is damaged: the position of the run is missing."
        )


def generators() -> dict[str, Any]:
    """Return the states of all random generators that a run uses."""
    numpy_state: Any = np.random.get_state()
    _, key_array, position, has_gauss, gauss = numpy_state
    version, state, spare = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        **rng_states(),
        "numpy": (
            torch.from_numpy(key_array.astype(np.int64)),
            position,
            has_gauss,
            gauss,
        ),
        "random": (version, torch.tensor(state), spare),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Restore the random generators; those of absent devices are skipped."""
    torch.set_rng_state(states["torch"])
    set_rng_states(states)
    key_array, position, has_gauss, gauss = states["numpy"]
    np.random.set_state(
        ("MT19937", key_array.numpy().astype(np.uint32), position, has_gauss, gauss)
    )
    version, state, spare = states["random"]
    random.setstate((version, tuple(state.tolist()), spare))
