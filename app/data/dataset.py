"""Loaded data of a source: the samples to train on, and those held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from msgspec import Struct
from msgspec.structs import replace

from app.data.samples import Samples
from app.data.spec import ColumnScale, DataInfo
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor


class Dataset(Struct, frozen=True):
    """The training, validation and test samples of a run."""

    train: Samples
    val: Samples
    test: Samples
    info: DataInfo
    rows: Mapping[
        str, Tensor
    ] = {}  # of the data, by part, where all of them were split
    scales: Mapping[str, ColumnScale] = {}  # of standardised inputs, "" for an only one

    def to(self, device: str) -> Dataset:
        """Return the same data on another device; nothing is copied if already there."""
        return replace(
            self,
            train=self.train.to(device),
            val=self.val.to(device),
            test=self.test.to(device),
        )

    def unscaled(self, name: str, values: Tensor) -> Tensor:
        """Return columns (..., C) of an input in the units of the data, before they were standardised."""
        scale = self.scales.get(name)
        if scale is None or tuple(values.shape[-1:]) != scale.mean.shape:
            return values
        return torch.from_numpy(scale.unscaled(values.cpu().numpy()))

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the first `size` training samples and their labels as in a training step.

        Random generators are restored.
        """
        return self.batch_of(torch.arange(min(size, len(self.train))))

    def batch_of(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return training samples by number, and their labels, as in a training step. Random generators are
        restored.
        """
        with borrowed():
            return next(self.train.batches([numbers]))
