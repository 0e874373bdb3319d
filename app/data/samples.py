"""Batched access to samples by index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import tee
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Samples(Protocol):
    """Samples of a run on its device. Batches are read when they are asked for, in the order of their numbers."""

    def __len__(self) -> int: ...

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of each chunk of sample numbers, which are int64 on the device of the samples.

        What is drawn at random is drawn from torch's global generator when a batch is asked for.
        """
        ...

    def to(self, device: str) -> Samples:
        """The same samples for another device."""
        ...


@dataclass(frozen=True)
class TensorSamples:
    """Samples that lie on the device as they are: inputs (N, ...) and labels (N, ...), or Targets of several. Inputs
    that stay on the disk are Streamed in their place.

    `ready` makes of the inputs of a batch what the net gets; None where they are that already.
    """

    inputs: Any
    labels: Any
    ready: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        held = self.inputs
        if hasattr(held, "ahead"):
            chunks, coming = tee(chunks)
            held = held.ahead(coming)
        for chunk in chunks:
            inputs = held[chunk]
            yield (self.ready(inputs) if self.ready is not None else inputs), self.labels[chunk]

    def to(self, device: str) -> TensorSamples:
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))
