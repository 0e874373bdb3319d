"""What is asked of a layer of a net that no run trains at the moment: its pictures for one sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from app.engine.protocol import Request
from app.engine.requests.capture import WeightsChoice
from app.training.job import Job
from app.training.monitoring.looks import Inside


@dataclass(frozen=True)
class LookInside(Request[Inside]):
    """Activations and filters of a layer for a training sample, with the weights that are chosen."""

    lane: ClassVar[str] = "samples"
    job: Job
    weights: WeightsChoice
    layer: str
    sample: int
