"""Samples by number, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Samples(Protocol):
    """Samples of a run on its device. Batches are read when they are asked for, in the order of their numbers."""

    def __len__(self) -> int: ...

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of each chunk of sample numbers, which are int64 on the device of the samples."""
        ...


@dataclass(frozen=True)
class TensorSamples:
    """Samples that lie on the device as they are: inputs (N, ...) and labels (N, ...)."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        for chunk in chunks:
            yield self.inputs[chunk], self.labels[chunk]
