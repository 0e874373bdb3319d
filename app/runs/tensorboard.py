"""Export a run as TensorBoard event files: grouped scalars, histograms, input images, and the graph.

Events of an active run are written as they come, its weights at every checkpoint; a stored run is exported to the same
tags. TensorBoard is an extra: `pip install tapedeck-torch[tensorboard]`.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from app.runs import checkpoint_files, layer_tables, store, tables
from app.runs.record import RunError
from app.runs.store import Kept
from app.source.compiled import make_module
from app.telemetry.histogram import Histogram
from app.training.checkpoints.checkpoint import CheckpointError, load
from app.training.events import (
    EpochDone,
    Event,
    GradientNorms,
    GroupRates,
    Histograms,
    LayerFigures,
    LossParts,
    MemorySample,
    Saved,
    StepDone,
)
from app.training.inputs import arguments, fields_of
from app.util import atomic
from app.util.leftovers import TemporaryFolder
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.tensorboard import SummaryWriter

    from app.training.job import Job

FOLDER = "tensorboard"
MISSING = (
    "TensorBoard is not installed. Install it: pip install tapedeck-torch[tensorboard]"
)
PICTURES = 32  # samples of the batch that is shown

# The tag of each field of an event; the part before the slash is its group in TensorBoard.
STEP = {"loss": "loss/train", "rate": "rate/learning rate"}
EPOCH = {
    "train_loss": "loss/train, epoch",
    "val_loss": "loss/validation",
    "train_accuracy": "accuracy/train",
    "val_accuracy": "accuracy/validation",
}
MEMORY = {
    "allocated": "memory/allocated",
    "reserved": "memory/reserved",
    "peak": "memory/peak",
}
PROCESS = "memory/process"


def writer(folder: Path) -> SummaryWriter:
    """Create a writer of event files. Raises RunError without TensorBoard, OSError if the folder is not writable."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RunError(MISSING) from error
    folder.mkdir(parents=True, exist_ok=True)
    return SummaryWriter(str(folder))


class EventWriter:
    """Writes events. `began` is the time of the run's first step, in seconds since 1970."""

    def __init__(self, out: Any, began: float) -> None:
        self._out, self._began = out, began
        self._rates: list[GroupRates] = []  # by their steps

    def write(self, events: list[Event]) -> None:
        """Write events; histograms of the weights come with their checkpoints."""
        for event in events:
            match event:
                case StepDone():
                    self._scalars(event, STEP, event.seconds)
                    self._group_rates(event)
                case GroupRates():
                    self._rates.append(event)
                case LossParts():
                    for name, value in zip(event.outputs, event.losses, strict=True):
                        self._scalar(f"loss of outputs/{name}", value, event.step, None)
                case EpochDone():
                    self._scalars(event, EPOCH, event.seconds)
                    for name, value in event.metrics:
                        self._scalar(
                            f"metrics/{name}", value, event.step, event.seconds
                        )
                case GradientNorms():
                    for layer, norm in zip(event.layers, event.norms, strict=True):
                        self._scalar(f"gradient norm/{layer}", norm, event.step, None)
                case MemorySample():
                    self._scalars(event, MEMORY, event.seconds)
                    self._scalar(PROCESS, event.resident, event.step, event.seconds)
                case Histograms():
                    for histogram in event.layers:
                        self._histogram(
                            f"{event.kind}/{histogram.layer}", histogram, event.step
                        )
                case LayerFigures():
                    for layer, ratio in zip(event.layers, event.ratios, strict=True):
                        self._scalar(
                            f"update over weight/{layer}", ratio, event.step, None
                        )
                case Saved() if not event.problem:
                    self.weights(Path(event.path))

    def _group_rates(self, step: StepDone) -> None:
        """Write the rates at every step, although events have changes only: else TensorBoard draws a slope between
        them."""
        at = bisect_right(self._rates, step.step, key=lambda rates: rates.step) - 1
        if at >= 0:
            for group, rate in zip(
                self._rates[at].groups, self._rates[at].rates, strict=True
            ):
                if group:
                    self._scalar(f"rate/{group}", rate, step.step, step.seconds)

    def weights(self, checkpoint: Path) -> None:
        """Write histograms of the weights in a checkpoint; a deleted one is skipped."""
        try:
            state = load(checkpoint)
        except CheckpointError:
            return
        for name, value in state["model"].items():
            if value.is_floating_point() and value.numel() > 1:
                self._out.add_histogram(
                    f"weights/{name}", value, state["position"]["step"]
                )

    def close(self) -> None:
        self._out.close()

    def _histogram(self, tag: str, shown: Histogram, step: int) -> None:
        """Write a precomputed histogram; its sums are approximated by bin centres."""
        count, width = sum(shown.counts), (shown.high - shown.low) / len(shown.counts)
        if not count:
            return
        middles = [
            shown.low + (number + 0.5) * width for number in range(len(shown.counts))
        ]
        total = sum(m * n for m, n in zip(middles, shown.counts, strict=True))
        squares = sum(m * m * n for m, n in zip(middles, shown.counts, strict=True))
        ends = [shown.low + (number + 1) * width for number in range(len(shown.counts))]
        self._out.add_histogram_raw(
            tag,
            shown.low,
            shown.high,
            count,
            total,
            squares,
            ends,
            list(shown.counts),
            step,
        )

    def _scalars(self, event: Any, tags: dict[str, str], seconds: float) -> None:
        for column, tag in tags.items():
            self._scalar(tag, getattr(event, column), event.step, seconds)

    def _scalar(
        self, tag: str, value: float | None, step: int, seconds: float | None
    ) -> None:
        if value is not None and value == value:
            self._out.add_scalar(
                tag, value, step, None if seconds is None else self._began + seconds
            )


def begin(out: Any, job: Job) -> None:
    """Write the pictures of the first samples, and the graph of the net. Draws from no generator of the run's."""
    from app.data.loaders import load

    data = load(job.data, job.data_root)
    with borrowed():
        torch.manual_seed(job.training.seed)
        chunk = torch.arange(min(PICTURES, job.training.batch_size, len(data.train)))
        batch, _labels = next(iter(data.train.batches(iter([chunk]))))
        fields = fields_of(job.source, job.training.inputs, data.info)
        inputs = arguments(batch, fields)
        pictures = _pictures(inputs[0])
        if pictures is not None:
            out.add_images("batch/samples", pictures, 0)
        model = make_module(job.source).eval()
        try:
            out.add_graph(model, tuple(tensor[:1] for tensor in inputs))
        except Exception as error:  # tracing runs the net, which may raise anything
            out.add_text("graph", f"The net cannot be traced: {error}")
    out.flush()


def _pictures(batch: Tensor) -> Tensor | None:
    """Convert samples to images from 0 to 1, shape (samples, channels, height, width); None if they are none."""
    if batch.ndim != 4 or batch.shape[1] not in (1, 3) or not batch.is_floating_point():
        return None
    low, high = batch.amin(), batch.amax()
    return (batch - low) / (high - low).clamp_min(1e-12)


def watch(folder: Path, job: Job) -> EventWriter:
    """Write event files during a run. Raises as `writer` and `begin`."""
    out = writer(folder / FOLDER)
    begin(out, job)
    return EventWriter(out, datetime.now().timestamp())


def export(stored_run: Kept, job: Job, folder: Path) -> Path:
    """Export a stored run as event files atomically; return their folder.

    Raises RunError, OSError, and DataError where the data are not there any more.
    """
    target = folder / store.plain(
        f"{stored_run.record.project}-{stored_run.record.title}"
    )
    with (
        TemporaryFolder() as name
    ):  # TensorBoard's writer appends on a thread, which fails on a full disk
        output_folder = Path(name)
        out = writer(output_folder)
        events = EventWriter(
            out, datetime.fromisoformat(stored_run.record.began).timestamp()
        )
        try:
            begin(out, job)
            events.write(list(_stored_events(stored_run)))
            for checkpoint in reversed(checkpoint_files.checkpoints(stored_run)):
                events.weights(checkpoint.path)
        finally:
            events.close()
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(path for path in output_folder.rglob("*") if path.is_file()):
            destination = target / file.relative_to(output_folder)
            destination.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(destination, partial(shutil.copyfile, file))
    return target


def _stored_events(stored_run: Kept) -> list[Event]:
    """Return the events that a run's tables were written from."""
    events: list[Event] = [*layer_tables.read_events(stored_run.folder)]
    names, columns = tables.read(stored_run.folder / store.STEPS)
    integer_columns = {"step", "epoch", "samples"}
    for row in columns.T.tolist():
        events.append(
            StepDone(
                **{
                    n: int(v) if n in integer_columns else v
                    for n, v in zip(names, row, strict=True)
                }
            )
        )
    names, columns = tables.read(stored_run.folder / store.EPOCHS)
    for row in columns.T.tolist():
        values: dict[str, Any] = {
            n: None if v != v else v for n, v in zip(names, row, strict=True)
        }
        metrics = tuple((name, values.pop(name)) for name in names[7:])
        values |= {"epoch": int(values["epoch"]), "step": int(values["step"])}
        events.append(EpochDone(**values, metrics=metrics))
    names, columns = tables.read(stored_run.folder / store.GRADIENTS)
    for row in columns.T.tolist():
        events.append(GradientNorms(int(row[0]), tuple(names[1:]), tuple(row[1:])))
    names, columns = tables.read(stored_run.folder / store.LOSSES)
    outputs = tuple(name.removeprefix("loss_") for name in names[1:])
    for row in columns.T.tolist():
        events.append(LossParts(0, int(row[0]), outputs, tuple(row[1:])))
    names, columns = tables.read(stored_run.folder / store.MEMORY)
    for row in columns.T.tolist():
        values = {n: None if v != v else v for n, v in zip(names, row, strict=True)}
        values |= {
            "step": int(row[0]),
            "scope": "device" if values["allocated"] is not None else "process",
        }
        events.append(MemorySample(**values))
    return events
