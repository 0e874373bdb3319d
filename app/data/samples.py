"""Batched access to samples by index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import tee
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from torch import Tensor


class Samples(Protocol):
    """Samples of a run on its device. Batches are read on demand, in the order of their indices."""

    def __len__(self) -> int: ...

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels of each chunk of sample indices, which are int64 on the device of the samples.

        Random numbers come from torch's global generator, on demand.
        """
        ...

    def to(self, device: str) -> Samples:
        """Return the same samples for another device."""
        ...


class TensorSamples(Struct, frozen=True):
    """Samples in memory on the device: inputs (N, ...), or Streamed from disk, and labels (N, ...); Fields of several.

    `ready` converts the inputs of a batch for the net; None if no conversion is needed.
    """

    inputs: Any
    labels: Any
    ready: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        stored = self.inputs
        if hasattr(stored, "ahead"):
            chunks, coming = tee(chunks)
            stored = stored.ahead(coming)
        for chunk in chunks:
            inputs = stored[chunk]
            yield (
                (self.ready(inputs) if self.ready is not None else inputs),
                self.labels[chunk],
            )

    def to(self, device: str) -> TensorSamples:
        return replace(
            self, inputs=self.inputs.to(device), labels=self.labels.to(device)
        )
