"""Samples that are read when a batch asks for them. The exported `train.py` carries these texts word for word.

torch is imported at the top because they stand alone in that script: import this module lazily.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from app.data.file_readers import picture_files, read_picture


class SampleLost(OSError):
    """A sample that could be read before the run and cannot be any more."""


class Streamed:
    """Samples (N, ...) of which none is kept: `read` gives the one of a number, the same each time.

    With `workers` so many threads read, and the next batch while one is learnt from, see `ahead`; a sample may take
    `timeout` seconds, 0 for any time. With `pin` a batch goes to a GPU from pinned memory, without waiting for it.
    """

    def __init__(
        self, read: Callable[[int], Tensor], numbers: Tensor, workers: int, timeout: float, pin: bool
    ) -> None:
        self.read, self.numbers = read, numbers
        self.workers, self.timeout, self.pin = workers, timeout, pin
        self.device = torch.device("cpu")
        self.pool = ThreadPoolExecutor(workers) if workers else None
        self.coming: Iterator[Tensor] = iter(())
        self.waiting: tuple[list[int], list[Future[Tensor]]] = ([], [])
        one = read(int(numbers[0])) if len(numbers) else torch.empty(0)
        self.dtype, self.shape = one.dtype, (len(numbers), *one.shape)

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, places: Tensor) -> "Streamed":
        """Some of them, of which none is read yet."""
        own = copy.copy(self)
        own.numbers, own.shape = self.numbers[places], (len(places), *self.shape[1:])
        return own

    def to(self, device: Any) -> "Streamed":
        """The same for another device; batches go there when they are read."""
        own = copy.copy(self)
        own.device = torch.device(device)
        return own

    def ahead(self, batches: Iterable[Tensor]) -> "Streamed":
        """The same, told which batches it will be asked for, so that it can begin with the next."""
        own = copy.copy(self)
        own.coming, own.waiting = iter(batches), ([], [])
        own.begin_next()
        return own

    def begin_next(self) -> None:
        batch = next(self.coming, None)
        if batch is not None and self.pool is not None:
            numbers = self.numbers[batch.cpu()].tolist()
            self.waiting = numbers, [self.pool.submit(self.read, number) for number in numbers]

    def __getitem__(self, batch: Any) -> Tensor:
        """The samples at these places, read now or begun with before. Raises SampleLost."""
        numbers = self.numbers[batch.cpu() if isinstance(batch, Tensor) else batch].tolist()
        known, futures = self.waiting
        if self.pool is not None and known != numbers:
            futures = [self.pool.submit(self.read, number) for number in numbers]
        self.begin_next()
        try:
            found = [self.read(number) for number in numbers] if self.pool is None else [
                future.result(self.timeout or None) for future in futures
            ]  # fmt: skip
        except TimeoutError as error:
            raise SampleLost(f"A sample was not read within {self.timeout:g} seconds. Is the disk there?") from error
        samples = torch.stack(found) if found else torch.empty(self.shape, dtype=self.dtype)
        if self.pin and self.device.type == "cuda":
            return samples.pin_memory().to(self.device, non_blocking=True)
        return samples.to(self.device)


def stream_pictures(
    path: Path,
    classes: Sequence[str],
    size: Sequence[int],
    colour: bool,
    workers: int,
    timeout: float,
    pin: bool,
    watch: Callable[[int, int, str], None] | None = None,
) -> tuple[Streamed, Tensor, list[str]]:
    """Pictures in a folder for each class as `read_pictures` has them, but none is kept: only whether it is whole."""
    from PIL import Image

    files, ids, bad = [], [], []
    found = [(file, number) for number, name in enumerate(classes) for file in picture_files(path / name)]
    for done, (file, number) in enumerate(found):
        if watch is not None:
            watch(done, len(found), file.name)
        try:
            with Image.open(file) as opened:
                opened.verify()
            files.append(file)
            ids.append(number)
        except (OSError, ValueError, SyntaxError) as error:
            bad.append(f"{file.parent.name}/{file.name}: {error}")

    def read(number: int) -> Tensor:
        file = files[number]
        try:
            return read_picture(file, size, colour)
        except (OSError, ValueError, SyntaxError) as error:
            raise SampleLost(f"{file} cannot be read any more: {error}") from error

    numbers = torch.arange(len(files))
    return Streamed(read, numbers, workers, timeout, pin), torch.tensor(ids, dtype=torch.int64), bad
