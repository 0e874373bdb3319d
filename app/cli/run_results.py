"""Files written by `tapedeck train`: weights first, each independent of errors in the others."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.recorder import Recorder
    from app.training.history import History
    from app.training.job import Job

WEIGHTS = ("weights.safetensors", "weights.pt")


@dataclass
class Results:
    """`names` are the files that were written into `folder`, `missing` has those that could not be, by the reason."""

    folder: Path
    names: list[str] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)

    def part(self, name: str, write: Callable[[], Any]) -> None:
        """Write one file; `write` may return the names of further files."""
        try:
            more = write()
        except Exception as error:  # drawing the graph runs user code, whose errors must not prevent the other files
            self.missing.setdefault(_reason(error), []).append(name)
        else:
            self.names += [one for one in (name, *(more or ())) if (self.folder / one).exists()]

    def problem(self, rescued: str) -> str:
        """Describe in one line what was not written and why; "" if everything was."""
        if not self.missing:
            return ""
        lost = " ".join(f"{_listed(names)} could not be written: {reason}." for reason, names in self.missing.items())
        there = f"In {self.folder}: {_listed(self.names)}." if self.names else ""
        return " ".join(filter(None, (lost, there, rescued)))


def leave(project: Project, job: Job, weights: Mapping[str, Any], history: History, folder: Path) -> Results:
    """Write weights and metrics, then code, then pictures into `folder`."""
    from app.builder.analysis import analyse
    from app.engine.requests.capture import CaptureRequest, node_labels
    from app.engine.tasks.capture import batch_of
    from app.export.layers import write_models
    from app.export.script.script import training_script, write_start
    from app.export.weights import save_pt, save_safetensors
    from app.project.custom_layers import ops_of
    from app.util.atomic import write_text

    results = Results(folder)
    name = f"{job.source.module_name}.py"
    part, model, script = results.part, folder / name, folder / "train.py"

    with suppress(OSError):  # reported per file
        folder.mkdir(parents=True, exist_ok=True)
    part("weights.safetensors", lambda: save_safetensors(weights, folder / "weights.safetensors"))
    part("weights.pt", lambda: save_pt(weights, folder / "weights.pt"))
    part("metrics.csv", lambda: write_text(folder / "metrics.csv", history.to_csv()))
    part(name, lambda: [path.name for path in write_models(job, model, [script])[1:]])
    part("train.py", lambda: write_text(script, training_script(job)))
    part("what train.py reads", lambda: [path.name for path in write_start(job, script)])
    try:
        from app.views.export.headless_pictures import run_pictures
    except ImportError as error:
        print(f"tapedeck: no pictures, Qt cannot be loaded ({error}); run tapedeck doctor for details", file=sys.stderr)
        return results
    ops, job_now = ops_of(project), job.last
    request = CaptureRequest(job_now, node_labels(project.graph, ops))
    run_pictures(
        project, job_now, history, folder, part,
        (lambda: analyse(project.graph, ops)) if project.opened is None else None,
        lambda: batch_of(request, weights).capture(),
    )  # fmt: skip
    return results


def rescued(results: Results, weights: Mapping[str, Any], recorder: Recorder) -> str:
    """Save the weights elsewhere if neither weights file could be written, and print where."""
    from app.export.errors import WeightsError
    from app.export.weights import save_safetensors
    from app.runs.store import plain
    from app.training.checkpoints import checkpoint

    if any(name in results.names for name in WEIGHTS):
        return ""
    name = f"{plain(recorder.kept.record.project)}-{time.strftime('%Y%m%d-%H%M%S')}.safetensors"
    path = Path(tempfile.gettempdir()) / name
    try:
        save_safetensors(weights, path)
    except WeightsError:
        found = checkpoint.newest(recorder.checkpoints) if recorder.checkpoints.is_dir() else None
        return f"The newest checkpoint is {found}." if found is not None else "The trained weights are lost."
    return f"The trained weights are in {path}."


def _reason(error: Exception) -> str:
    """Return why a file could not be written, without its name, so that equal reasons are grouped."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(cause, OSError):
        return (cause.strerror or str(cause)).rstrip(".")
    return (str(error).strip() or type(error).__name__).rstrip(".")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
