"""Requests of the page "Layer"."""

from __future__ import annotations

from typing import ClassVar

from app.engine.protocol import Handle, Request
from app.engine.requests.capture import WeightsChoice
from app.training.job import Job
from app.training.monitoring.looks import LayerInside, StepLayer


class ReadActivations(Request[LayerInside], frozen=True):
    """Return activations and filters of a layer for a training sample."""

    lane: ClassVar[str] = "samples"
    job: Job
    weights: WeightsChoice
    layer: str
    sample: int


class LookIntoStep(Request[StepLayer], frozen=True):
    """Return a module's values at a recomputed step, for a sample of its batch, from 0.

    Raises AttributeError for a module that the net has not.
    """

    lane: ClassVar[str] = "past step"
    held: Handle
    layer: str
    sample: int
