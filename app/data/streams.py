"""Streamed samples, loaded when a batch needs them. The exported `train.py` contains this code verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

import copy
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from app.data.own_files.pictures import (
    name_of,
    open_picture,
    picture_files,
    read_picture,
)
from app.data.own_files.readers import kind_of, parts_of, read_dataset


class SampleLostError(OSError):
    """Raised for a sample that was readable before the run and no longer is."""

    code = "sample_lost"  # no CodedError, which the exported script does not have


class Streamed:
    """Samples (N, ...) that are not held in memory: `read` returns the sample of an index, the same each time.

    With `workers` that many threads read, and prefetch the next batch, see `ahead`; a sample may take `timeout`
    seconds, 0 for no limit. With `pin` batches are copied to a GPU asynchronously from pinned memory.
    """

    def __init__(
        self,
        read: Callable[[int], Tensor],
        numbers: Tensor,
        workers: int,
        timeout: float,
        pin: bool,
    ) -> None:
        self.read, self.numbers = read, numbers
        self.workers, self.timeout, self.pin = workers, timeout, pin
        self.device = torch.device("cpu")
        self.pool = ThreadPoolExecutor(workers) if workers else None
        self.coming: Iterator[Tensor] = iter(())
        self.waiting: tuple[list[int], list[Future[Tensor]]] = ([], [])
        sample = read(int(numbers[0])) if len(numbers) else torch.empty(0)
        self.dtype, self.shape = sample.dtype, (len(numbers), *sample.shape)

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, positions: Tensor) -> "Streamed":
        """Return a subset, without reading it."""
        subset = copy.copy(self)
        subset.numbers, subset.shape = (
            self.numbers[positions],
            (len(positions), *self.shape[1:]),
        )
        return subset

    def to(self, device: Any) -> "Streamed":
        """Return the same for another device; batches are copied when they are read."""
        moved = copy.copy(self)
        moved.device = torch.device(device)
        return moved

    def ahead(self, batches: Iterable[Tensor]) -> "Streamed":
        """Return the same samples with the upcoming batches, for prefetching."""
        duplicate = copy.copy(self)
        duplicate.coming, duplicate.waiting = iter(batches), ([], [])
        duplicate.begin_next()
        return duplicate

    def begin_next(self) -> None:
        batch = next(self.coming, None)
        if batch is not None and self.pool is not None:
            numbers = self.numbers[batch.cpu()].tolist()
            self.waiting = (
                numbers,
                [self.pool.submit(self.read, number) for number in numbers],
            )

    def __getitem__(self, batch: Any) -> Tensor:
        """Return the samples at these indices, read now or prefetched. Raises SampleLostError."""
        numbers = self.numbers[
            batch.cpu() if isinstance(batch, Tensor) else batch
        ].tolist()
        prefetched, futures = self.waiting
        if self.pool is not None and prefetched != numbers:
            futures = [self.pool.submit(self.read, number) for number in numbers]
        self.begin_next()
        try:
            tensors = (
                [self.read(number) for number in numbers]
                if self.pool is None
                else [future.result(self.timeout or None) for future in futures]
            )
        except TimeoutError as error:
            raise SampleLostError(
                f"A sample was not read within {self.timeout:g} seconds. Is the disk connected?"
            ) from error
        samples = (
            torch.stack(tensors)
            if tensors
            else torch.empty(self.shape, dtype=self.dtype)
        )
        pinned = False
        if self.pin and self.device.type != "cpu":
            with suppress(RuntimeError):  # not every accelerator copies from it
                samples, pinned = samples.pin_memory(), True
        return samples.to(self.device, non_blocking=pinned)


class InOrder(Streamed):
    """Samples of an iterable dataset, in its own order: `begin` restarts it.

    Earlier samples are skipped, restoring the generators of torch, NumPy and Python. `labels` are those of all
    `numbers`, read before, to detect a changed order.
    """

    def __init__(
        self,
        begin: Callable[[], Iterator[Any]],
        numbers: Tensor,
        labels: Any,
        pin: bool,
    ) -> None:
        self.begin, self.at = begin, 0
        self.rest: Iterator[Any] = iter(())
        self.known = numbers, labels if isinstance(labels, dict) else {"": labels}
        self.turn = threading.Lock()
        super().__init__(self.pass_to, numbers, 0, 0.0, pin)
        self.at, self.rest = 0, iter(())

    def ahead(self, batches: Iterable[Tensor]) -> "InOrder":
        """Return the same from its first sample on; readers do not share a position."""
        duplicate = copy.copy(self)
        duplicate.at, duplicate.rest, duplicate.read = 0, iter(()), duplicate.pass_to
        return duplicate

    def pass_to(self, number: int) -> Tensor:
        """Return the sample of an index. Raises SampleLostError if the order changed or the dataset ended."""
        with self.turn:
            restarted = not self.at or number < self.at
            self.at = 0 if restarted else self.at
            passing = self.at < number
            if passing:
                before = torch.get_rng_state(), np.random.get_state(), random.getstate()
            self.rest = self.begin() if restarted else self.rest
            try:
                while self.at < number:
                    next(self.rest)
                    self.at += 1
                if passing:
                    torch.set_rng_state(before[0])
                    np.random.set_state(before[1])
                    random.setstate(before[2])
                sample = next(self.rest)
                self.at += 1
            except StopIteration:
                raise SampleLostError(
                    f"Sample {number} no longer exists: there are {self.at} now."
                ) from None
            if not self.has_its_label(number, sample):
                raise SampleLostError(
                    f"Sample {number} has another label than on the first pass: the dataset returns its samples in "
                    "another order, or with other labels, on each pass. Give it a fixed order, for example with a "
                    "seeded generator created in __iter__, or keep the samples in memory."
                )
            value = next(iter(parts_of(sample)[0].values()))
            return value if value.dtype == torch.uint8 else value.to(kind_of(value))

    def has_its_label(self, number: int, sample: Any) -> bool:
        """Return whether a sample has the label that was read before, after conversion; NaN equals NaN."""
        numbers, labels = self.known
        index = int(
            torch.searchsorted(numbers, number)
        )  # bad samples are not among them
        try:
            targets = parts_of(sample)[1]
            targets = (
                targets
                if len(labels) > 1
                else dict(zip(labels, targets.values(), strict=True))
            )
            for name, label in labels.items():
                expected = label[index]
                now = targets[name].to(expected).reshape(expected.shape)
                if not (
                    torch.equal(now, expected)
                    or torch.allclose(now, expected, rtol=0.0, atol=0.0, equal_nan=True)
                ):
                    return False
        except (
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            RuntimeError,
        ):  # not convertible to such a label
            return False
        return True


def stream_noise(
    shape: tuple[int, ...], classes: int, count: int, seed: int
) -> tuple[Streamed, Tensor]:
    """Generate random samples (N, *shape) and class ids (N,), each drawn again from the generator's state before it.

    The samples are those that are drawn at once, bit for bit. Torch draws normal numbers in groups of 16, so a state is
    kept for each block of samples that begins with a group. A sample has 16 numbers at least.
    """
    block = 16 // math.gcd(16, math.prod(shape))
    generator, starts = torch.Generator().manual_seed(seed), range(0, count, block)
    # Both are one piece of memory each: pieces by turns of both sizes would leave holes as large as the samples.
    states = torch.empty(len(starts), len(generator.get_state()), dtype=torch.uint8)
    drawn = torch.empty(block, *shape)
    for index, start in enumerate(starts):
        states[index] = generator.get_state()
        drawn[: count - start].normal_(generator=generator)

    def read(number: int) -> Tensor:
        block_index, block_generator = number // block, torch.Generator()
        block_generator.set_state(
            states[block_index].clone()
        )  # torch crashes with a view of a larger tensor
        return torch.randn(
            min(block, count - block_index * block), *shape, generator=block_generator
        )[number % block]

    return Streamed(read, torch.arange(count), 0, 0.0, False), torch.arange(
        count
    ) % classes


def stream_pictures(
    path: Path,
    classes: Sequence[str],
    size: Sequence[int],
    colour: bool,
    workers: int,
    timeout: float,
    pin: bool,
    span: Sequence[float] | None = None,
    deep: bool = False,
    watch: Callable[[int, int, str], None] | None = None,
) -> tuple[Streamed, Tensor, list[str]]:
    """Stream a folder of images per class like `read_pictures`; that each can be decoded is checked in advance."""
    files, ids, bad = [], [], []
    candidates = [
        (file, number)
        for number, name in enumerate(classes)
        for file in picture_files(path / name)
    ]
    for done, (file, number) in enumerate(candidates):
        if watch is not None:
            watch(done, len(candidates), file.name)
        try:
            with open_picture(file) as opened:
                opened.draft(
                    "L", (1, 1)
                )  # JPEG: the whole file, at an eighth of the size
                opened.load()
            files.append(file)
            ids.append(number)
        except (
            Exception
        ) as error:  # decoders raise any error for damaged or too large files
            bad.append(f"{name_of(file)}: {error}")

    def read(number: int) -> Tensor:
        file = files[number]
        try:
            return read_picture(file, size, colour, span, deep)
        except Exception as error:
            raise SampleLostError(
                f"{file} can no longer be read: {getattr(error, 'strerror', None) or error}"
            ) from error

    numbers = torch.arange(len(files))
    return (
        Streamed(read, numbers, workers, timeout, pin),
        torch.tensor(ids, dtype=torch.int64),
        bad,
    )


def stream_dataset(
    dataset: Any,
    workers: int,
    timeout: float,
    pin: bool,
    watch: Callable[[int, int, str], None] | None = None,
    guard: Callable[[], Any] = nullcontext,
) -> tuple[Streamed, Any, list[str]]:
    """Stream a Dataset like `read_dataset`; only the labels are held in memory.

    All are read once, by `workers` processes; afterwards a sample is read in the requesting thread, so that random
    numbers are drawn in the order of the batches.
    """
    numbers, labels, bad = read_dataset(
        dataset, workers, timeout, watch, guard, keep=False
    )
    turn = threading.Lock()

    def read(number: int) -> Tensor:
        try:
            with turn:
                value = next(iter(parts_of(dataset[number])[0].values()))
        except Exception as error:
            raise SampleLostError(
                f"Sample {number} can no longer be loaded: {type(error).__name__}: {error}"
            ) from error
        return value if value.dtype == torch.uint8 else value.to(kind_of(value))

    with guard():
        if isinstance(dataset, IterableDataset):
            return InOrder(lambda: iter(dataset), numbers, labels, pin), labels, bad
        return Streamed(read, numbers, 0, 0.0, pin), labels, bad
