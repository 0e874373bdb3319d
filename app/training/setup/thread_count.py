"""Choose the number of CPU threads of a run, by steps on synthetic data and by what else the machine does."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from msgspec.structs import replace

from app.training.job import Job, check_input
from app.training.objectives import info_of
from app.training.setup.devices import resolve
from app.training.setup.isolated_step import (
    aside,
    stepper_of,
    synthetic_batch,
    synthetic_info,
)
from app.training.setup.torch_flags import cpu_threads
from app.util import processors

STEPS, SECONDS = (
    5,
    0.3,
)  # of each number of threads: until there are so many, or it took so long
GAIN = 1.1  # times as many steps a second, for which twice the threads are taken


def choose_threads(job: Job) -> int:
    """Return the number of threads of a run that nobody chose: OMP_NUM_THREADS, else as many as pay.

    One processor is left free, more if other programs use them. Of the rest as many are taken as make a step of the net
    faster; measured on synthetic data, and not for an opened model, whose code should not run a second time.
    """
    if count := processors.requested():
        return count
    most = processors.free_threads(_load, wait=True)
    if most == 1 or job.source.opened or resolve(job.training.device).id != "cpu":
        return most
    try:
        return _fastest(job, most)
    except Exception:  # the run meets the same error, and reports it
        return most


_load = processors.Load()


def _fastest(job: Job, most: int) -> int:
    """Return the number up to which more threads make a step faster, at most `most`."""
    info = info_of(job, synthetic_info(job))
    check_input(job, info)
    job = replace(
        job,
        training=replace(job.training, compile=False),
        data=replace(job.data, class_weights=False),
    )
    with aside(job.training.seed):
        stepper = stepper_of(job, info, "cpu")
        inputs, labels = synthetic_batch(job, info, "cpu")
        stepper.model.train()
        best, fastest = 1, float("inf")
        for count in _doubled(most):
            with cpu_threads(count):
                stepper.take(inputs, labels, True)  # begins the threads
                seconds = min(_timed(lambda: stepper.take(inputs, labels, True)))
            if seconds * GAIN > fastest:
                break
            best, fastest = count, seconds
    return best


def _doubled(most: int) -> Iterator[int]:
    """Yield 1, 2, 4, ... and `most`.

    >>> list(_doubled(6)), list(_doubled(1))
    ([1, 2, 4, 6], [1])
    """
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def _timed(step: object) -> Iterator[float]:
    """Yield the seconds of some steps."""
    begun = perf_counter()
    for _ in range(STEPS):
        before = perf_counter()
        step()  # type: ignore[operator]
        after = perf_counter()
        yield after - before
        if after - begun > SECONDS:
            return
