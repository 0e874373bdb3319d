"""Snapshots of a running net as plain values: a batch, activations of a layer, the profile of a step."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.telemetry.histogram import Histogram


class BatchPeek(Struct, frozen=True):
    """The first samples of a batch: inputs (n, ...), labels (n, ...), the net's current output (n, ...) and the loss of
    each (n,); None if not available, explained by `problem`. `count` is the batch size. `exact` if outputs and losses
    are those that the step computed, of a step that was recomputed."""

    count: int
    inputs: Any
    labels: Any
    outputs: Any
    losses: Any
    classes: tuple[str, ...]
    task: str
    problem: str = ""
    exact: bool = False


class Channels(Struct, frozen=True):
    """Pictures of one layer: (n, height, width) float32, of `count` in total. `what` describes them."""

    pictures: Any
    count: int
    what: str
    labels: tuple[str, ...] = ()


class LayerInside(Struct, frozen=True):
    """`channels` are the activations of a layer, `filters` its weights, each None without a picture. They are of
    `sample` of `count` training samples, with label `label`; `weights` describes the weights used."""

    layer: str
    sample: int
    count: int
    label: str
    picture: Any
    channels: Channels | None
    filters: Channels | None
    weights: str


class StepLayer(Struct, frozen=True):
    """A layer at a recomputed step. `inside` is of a sample of the step's batch; `histograms` are of "weights",
    "gradients" and "activations", those that it has. `note` says what was not kept."""

    step: int
    inside: LayerInside
    histograms: dict[str, Histogram]
    note: str = ""


class OpTime(Struct, frozen=True):
    """One kind of operation: its calls in the step and the microseconds spent in it, not in those that it calls.

    `on_device` is of its kernels, None where the step is the CPU's alone.
    """

    name: str
    calls: int
    cpu: float
    on_device: float | None


class StepProfile(Struct, frozen=True):
    """Forward and backward of one batch; `milliseconds` is wall time, including the cost of profiling.

    `cpu` and `on_device` are the sums in microseconds over all operations; `rows` are the largest of them, `left_out`
    is how many more there were.
    """

    device: str
    batch: int
    milliseconds: float
    cpu: float
    on_device: float | None
    rows: tuple[OpTime, ...]
    left_out: int

    def share(self, row: OpTime) -> float:
        """Return the fraction of device time if there is one, else of CPU time."""
        spent, total = (
            (row.cpu, self.cpu)
            if self.on_device is None
            else (row.on_device or 0.0, self.on_device)
        )
        return spent / total if total else 0.0
