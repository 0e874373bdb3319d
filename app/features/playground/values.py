"""Requests for the plane of a net with two inputs, and what comes of them."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.engine.requests.capture import WeightsChoice
from app.training.job import Job
from app.training.run_requests import RunRequest

# How outputs are read: scores of classes, one score or probability of two classes, a value.
SCORES, LOGIT, PROBABILITY, VALUE = "scores", "logit", "probability", "value"


class Plane(Struct, frozen=True):
    """The outputs of a net on a grid of its two inputs.

    `outputs` is float32 (size, size, C), row by row from the least second input on; `kind` says how they are read.
    `units` is float32 (size, size, U): the outputs of a layer's units, None without one. `points` is float32 (n, 2)
    and `labels` float32 (n,), the training samples. `low` and `high` bound the grid, and are `shown_low` and
    `shown_high` in the units of the data. `seconds` is what the mapping took.
    """

    kind: str
    outputs: Any
    units: Any
    points: Any
    labels: Any
    low: tuple[float, float]
    high: tuple[float, float]
    shown_low: tuple[float, float]
    shown_high: tuple[float, float]
    classes: tuple[str, ...]
    step: int
    seconds: float


class MapPlane(RunRequest[Plane], frozen=True):
    """Map the plane by the net of the run, at this moment; of `layer` the units too. ValueError without two inputs."""

    size: int
    layer: str = ""


class MapPlaneOfWeights(Request[Plane], frozen=True):
    """Map the plane by the chosen weights. Raises ValueError without two inputs."""

    lane: ClassVar[str] = "plane"
    job: Job
    weights: WeightsChoice
    size: int
    layer: str = ""
