"""Files written by `tapedeck train`: weights first, each independent of errors in the others."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from app.builder.analysis import analyse
from app.engine.requests.capture import CaptureRequest, node_labels
from app.engine.tasks.capture import batch_of
from app.export.errors import WeightsError
from app.export.layers import write_models
from app.export.train_script import training_script, write_start
from app.export.weights import save_pt, save_safetensors
from app.project.custom_layers import ops_of
from app.runs.store import plain
from app.training.checkpoints import checkpoint
from app.training.evaluation.evaluator import checkpoint_weights
from app.util.atomic import write_text
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.recorder import Recorder
    from app.training.events import Failed
    from app.training.history import History
    from app.training.job import Job

WEIGHTS = ("weights.safetensors", "weights.pt")
FAILED = "FAILED.txt"  # beside the weights of a run that ended by an error
BEST = (
    "weights-best.safetensors",
    "weights-best.pt",
)  # of the epoch with the smallest validation loss


class Results(Struct):
    """`names` are the files that were written into `folder`, `missing` has those that could not be, by the reason."""

    folder: Path
    names: list[str] = []
    missing: dict[str, list[str]] = {}

    def part(self, name: str, write: Callable[[], Any]) -> None:
        """Write one file; `write` may return the names of further files."""
        try:
            more = write()
        except Exception as error:  # drawing the graph runs user code, whose errors must not prevent the other files
            self.missing.setdefault(_reason(error), []).append(name)
        else:
            self.names += [
                file_name
                for file_name in (name, *(more or ()))
                if (self.folder / file_name).exists()
            ]

    def problem(self, rescued: str) -> str:
        """Describe in one line what was not written and why; "" if everything was."""
        if not self.missing:
            return ""
        lost = " ".join(
            f"{_listed(names)} could not be written: {reason}."
            for reason, names in self.missing.items()
        )
        there = f"In {self.folder}: {_listed(self.names)}." if self.names else ""
        return " ".join(filter(None, (lost, there, rescued)))


def leave(
    project: Project,
    job: Job,
    weights: Mapping[str, Any],
    history: History,
    folder: Path,
    best: Path | None = None,
    failed: Failed | None = None,
) -> Results:
    """Write weights and metrics, then code, then pictures into `folder`. `best` is the checkpoint of the best epoch,
    unless that was the last. Of a run that `failed` a file says so.
    """
    results = Results(folder)
    name = f"{job.source.module_name}.py"
    write_file, model, script = results.part, folder / name, folder / "train.py"

    with suppress(OSError):  # reported per file
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILED).unlink(missing_ok=True)  # of an earlier run
    if failed is not None:
        write_file(FAILED, lambda: write_text(folder / FAILED, failure_text(failed)))
    write_file(
        "weights.safetensors",
        lambda: save_safetensors(weights, folder / "weights.safetensors"),
    )
    write_file("weights.pt", lambda: save_pt(weights, folder / "weights.pt"))
    if best is not None:
        write_file(
            BEST[0],
            lambda: save_safetensors(checkpoint_weights(best), folder / BEST[0]),
        )
        write_file(BEST[1], lambda: save_pt(checkpoint_weights(best), folder / BEST[1]))
    write_file(
        "metrics.csv", lambda: write_text(folder / "metrics.csv", history.to_csv())
    )
    write_file(
        name, lambda: [path.name for path in write_models(job, model, [script])[1:]]
    )
    ran = job.ran_with(history.started.threads if history.started is not None else 0)
    write_file("train.py", lambda: write_text(script, training_script(ran)))
    write_file(
        "what train.py reads", lambda: [path.name for path in write_start(job, script)]
    )
    try:
        from app.views.pictures.headless_pictures import run_pictures
    except ImportError as error:
        print(
            f"tapedeck: no pictures, Qt cannot be loaded ({error}); run tapedeck doctor for details",
            file=sys.stderr,
        )
        return results
    ops, job_now = ops_of(project), job.last
    request = CaptureRequest(job_now, node_labels(project.graph, ops))
    run_pictures(
        project,
        job_now,
        history,
        folder,
        write_file,
        (lambda: analyse(project.graph, ops)) if project.opened is None else None,
        lambda: batch_of(request, weights).capture(),
    )
    return results


def failure_text(failed: Failed) -> str:
    """Say after which step a run failed, and of which the files beside are."""
    reason = " ".join(filter(None, (failed.message, failed.cure)))
    return (
        f"The run failed after step {failed.step}, in epoch {failed.epoch}: {reason}\n\n"
        f"The weights and the curves beside this file are of its {counted(failed.step, 'step')}; train.py repeats the "
        "run, which fails again.\n"
    )


def best_of(recorder: Recorder, steps: int) -> Path | None:
    """Return the checkpoint of the best epoch of a run; None if that was its last, or was not saved."""
    path = recorder.checkpoints / checkpoint.BEST
    try:
        return path if path.is_file() and checkpoint.step_of(path)[0] != steps else None
    except checkpoint.CheckpointError:
        return None


def which_weights(
    history: History, results: Results, failed: bool = False
) -> list[str]:
    """Say of which step the weights are that were written, and their validation losses."""
    steps, losses = history.epochs["step"], history.epochs["val_loss"]
    last = int(history.steps["step"][-1]) if len(history.steps) else 0
    moment = (
        f"of step {last:,}, after which the run failed"
        if failed
        else f"the last, of step {last:,}"
    )
    sentences = [f"weights.*: {moment}"]
    measured = [at for at in range(len(losses)) if losses[at] == losses[at]]
    if not measured or not any(name in results.names for name in WEIGHTS):
        return sentences if not measured else []
    best = min(measured, key=lambda at: losses[at])
    if steps[measured[-1]] == last:
        sentences[0] += f", validation loss {losses[measured[-1]]:.4f}"
    if any(name in results.names for name in BEST):
        epoch = int(history.epochs["epoch"][best])
        sentences.append(
            f"weights-best.*: the smallest validation loss, {losses[best]:.4f}, of epoch {epoch} "
            f"(step {int(steps[best]):,})"
        )
    elif steps[best] == last:
        sentences[0] += ", the smallest of the run"
    return sentences


def rescued(results: Results, weights: Mapping[str, Any], recorder: Recorder) -> str:
    """Save the weights elsewhere if neither weights file could be written, and print where."""
    if any(name in results.names for name in WEIGHTS):
        return ""
    name = f"{plain(recorder.kept.record.project)}-{time.strftime('%Y%m%d-%H%M%S')}.safetensors"
    path = Path(tempfile.gettempdir()) / name
    try:
        save_safetensors(weights, path)
    except WeightsError:
        newest = (
            checkpoint.newest(recorder.checkpoints)
            if recorder.checkpoints.is_dir()
            else None
        )
        return (
            f"The newest checkpoint is {newest}."
            if newest is not None
            else "The trained weights are lost."
        )
    return f"The trained weights are in {path}."


def _reason(error: Exception) -> str:
    """Return why a file could not be written, without its name, so that equal reasons are grouped."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(cause, OSError):
        return (cause.strerror or str(cause)).rstrip(".")
    return (str(error).strip() or type(error).__name__).rstrip(".")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
