"""Store evaluations of a run's weights: `evaluations/<part>.npz` in its folder, arrays and a description as JSON."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from app.features.panels.values import RunEvaluation
from app.project.run_records import data_record
from app.runs.checkpoint_files import measured
from app.runs.named import NamedRun
from app.runs.record import RunError
from app.runs.store import Kept
from app.training.evaluation.result import Evaluation
from app.training.job import Job
from app.util import atomic

FOLDER, ABOUT, CONFUSION, COLUMN = "evaluations", "about", "confusion", "column:"
_PLAIN = (
    "source",
    "part",
    "weights",
    "kind",
    "count",
    "loss",
    "accuracy",
    "views",
    "seconds",
)
_OF_THE_SPLIT = ("validation_fraction", "split_seed", "test_fraction")
_OF_TRAINING = (
    "shuffle",
    "drop_last",
    "class_weights",
    "train_transforms",
    "eval_transforms",
)


def checkpoint_of(stored_run: Kept) -> str:
    """Return what identifies the weights that a run is evaluated with. Raises RunError, OSError."""
    if not measured(stored_run.checkpoints).any:
        cure = (
            "yet: evaluate it after its first epoch"
            if stored_run.goes_on
            else "with weights to evaluate"
        )
        raise RunError(f"{stored_run.record.title} has no checkpoint {cure}.")
    path = NamedRun(stored_run).checkpoint()
    about = path.stat()
    return f"{path.name} {about.st_size} {about.st_mtime_ns}"


def space_of(job: Job, evaluation: Evaluation) -> str:
    """Return what the samples of an evaluation have in common with those of another run, as text."""
    data = {
        name: value
        for name, value in data_record(job.data).items()
        if name not in _OF_TRAINING
    }
    if "row" in evaluation.columns:
        data = {
            name: value for name, value in data.items() if name not in _OF_THE_SPLIT
        }
    else:
        data["part"] = evaluation.part
    return json.dumps([evaluation.source, data], sort_keys=True, default=str)


def write(stored_run: Kept, evaluation: RunEvaluation) -> None:
    """Store an evaluation, in place of the one of the same part. Raises OSError."""
    outcome = evaluation.found
    about = {name: getattr(outcome, name) for name in _PLAIN}
    about |= {
        "classes": outcome.classes,
        "metrics": outcome.metrics,
        "augment": outcome.augment,
    }
    about |= {
        "space": evaluation.space,
        "unit": evaluation.unit,
        "checkpoint": evaluation.checkpoint,
    }
    arrays: dict[str, Any] = {
        f"{COLUMN}{name}": values for name, values in outcome.columns.items()
    }
    if outcome.confusion is not None:
        arrays[CONFUSION] = outcome.confusion
    file = io.BytesIO()
    arrays[ABOUT] = np.array(json.dumps(about))
    np.savez_compressed(file, **arrays)
    folder = stored_run.folder / FOLDER
    folder.mkdir(exist_ok=True)
    atomic.write_bytes(folder / f"{outcome.part}.npz", file.getvalue())


def read(stored_run: Kept, subset: str) -> RunEvaluation | None:
    """Read the evaluation of a part; None if there is none. Raises RunError."""
    path: Path = stored_run.folder / FOLDER / f"{subset}.npz"
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file[ABOUT]))
            columns = {
                name.removeprefix(COLUMN): file[name]
                for name in file.files
                if name.startswith(COLUMN)
            }
            confusion = file[CONFUSION] if CONFUSION in file.files else None
        metrics = tuple((str(name), float(value)) for name, value in about["metrics"])
        plain = {name: about[name] for name in _PLAIN}
        evaluation = Evaluation(
            **plain,
            classes=tuple(about["classes"]),
            metrics=metrics,
            confusion=confusion,
            columns=columns,
            augment=tuple(about["augment"]),
        )
        if (
            any(len(values) != evaluation.count for values in columns.values())
            or "loss" not in columns
        ):
            raise ValueError("its columns differ in length")
        return RunEvaluation(
            evaluation, about["space"], about["unit"], about["checkpoint"]
        )
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} is not an evaluation: {error}") from error
