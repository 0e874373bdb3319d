"""One batch of a project's data through its net, for the autograd graph: where drawing, data, loss and tape meet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from app.autograd.capture_options import CaptureOptions
from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.data.config import DataConfig
from app.data.own_files.cache import key_of
from app.util import rng

if TYPE_CHECKING:
    from torch import Tensor

    from app.autograd.batch import Subject
    from app.autograd.playback.kept_graph import LiveGraph
    from app.autograd.tape import Label, Tape
    from app.data.sources import Dataset
    from app.training.job import Job



@lru_cache(maxsize=1)
def _dataset(config: DataConfig, root: str | None, _state: Hashable) -> Dataset:
    from app.data.sources import load

    return load(config, root)


def capture_batch(
    job: Job,
    labels: Mapping[str, Label],
    *,
    train: bool = True,
    weights: Callable[[], Mapping[str, Tensor] | None] | None = None,
    batch: int | None = None,
    options: CaptureOptions | None = None,
) -> Tape:
    """One forward on the first `batch` training samples of the job's data, and the graph below its loss.

    `options` say what differs from a plain capture. Without `batch` it has the size that they choose, or that of the
    job's steps.

    `weights` gives a state_dict; without one they are those that a run begins with. Raises CaptureError, DataError, and
    StartError for start weights that cannot be used.
    """
    with hold_batch(job, labels, train=train, weights=weights, batch=batch, options=options) as graph:
        return graph.tape


def hold_batch(
    job: Job,
    labels: Mapping[str, Label],
    *,
    train: bool = True,
    weights: Callable[[], Mapping[str, Tensor] | None] | None = None,
    batch: int | None = None,
    options: CaptureOptions | None = None,
) -> LiveGraph:
    """As `capture_batch`, and the graph is kept for playing: whoever asks for it calls `release()`."""
    from app.autograd.capture import hold_source

    options = options or CaptureOptions()
    given, more = _arguments(job, weights, batch, options)
    graph = hold_source(*given, train=train, labels=labels, special=options.special, **more)
    try:
        graph.seeds = options.seeds(graph.ends) if options.seeds is not None else None
    except ValueError:
        graph.release()
        raise
    return graph


def batch_subject(
    job: Job,
    labels: Mapping[str, Label],
    *,
    train: bool = True,
    weights: Callable[[], Mapping[str, Tensor] | None] | None = None,
    batch: int | None = None,
    options: CaptureOptions | None = None,
) -> Subject:
    """The net with that batch and its loss, for detectives that run it as often as they need; raises as above."""
    from app.autograd.batch import prepare

    options = options or CaptureOptions()
    given, more = _arguments(job, weights, batch, options)
    return prepare(*given, train=train, labels=labels, special=options.special, seeds=options.seeds, **more)


def _arguments(
    job: Job, weights: Callable[[], Mapping[str, Tensor] | None] | None, batch: int | None, options: CaptureOptions
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `hold_source` takes: text, inputs, target, loss and seed; weights, and what the loss takes of the output."""
    from app.training.objectives import prepared, task_of
    from app.training.registry import make_loss
    from app.training.setup.initial_weights import initial_weights

    state = weights() if weights is not None else None
    if state is None and job.training.start is not None:
        state = initial_weights(job.source, job.training.seed, job.training.start)
    batch = batch or options.batch
    if options.data == "random":
        return _random_arguments(job, state, batch, options)
    data = prepared(job, _dataset(job.data, job.data_root, key_of(job.data)))
    with rng.borrowed(job.training.seed):  # augmentation draws, and every look at this batch is to see the same one
        inputs, ids = data.batch(batch or job.training.batch_size)
    task = task_of(job, data.info)
    loss: Any = task.loss_module()
    targets = task.targets(ids)
    if not options.loss:
        plain = {"state_dict": state, "ready": None}
        return (job.source, inputs, None, None, job.training.seed), plain
    ready = None if loss is not None else task.ready
    loss = loss or make_loss(job.training.loss)
    given = (job.source, inputs, getattr(targets, "parts", targets), loss, job.training.seed)
    return given, {"state_dict": state, "ready": ready}


def _random_arguments(
    job: Job, state: Mapping[str, Tensor] | None, batch: int, options: CaptureOptions
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same of random numbers that the net takes; the data are not read."""
    from app.preflight import random_batch

    inputs = random_batch.inputs(job.source, batch or random_batch.samples(job), job.training.seed)
    loss: Any = random_batch.loss_of(job) if options.loss else None
    plain = {"state_dict": state, "ready": None}
    return (job.source, inputs, None, loss, job.training.seed), plain


def node_labels(graph: Graph, catalog: Catalog) -> dict[str, Any]:
    """How the autograd graph calls and colours the nodes of the drawing."""
    from app.autograd.tape import Label

    return {node.id: Label(node.name, catalog.of(graph, node).category) for node in graph.nodes.values()}
