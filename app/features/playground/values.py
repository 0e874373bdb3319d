"""Requests for the plane of a net with two inputs, and for the filters of one that sees pictures."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.engine.requests.capture import WeightsChoice
from app.training.job import Job
from app.training.run_requests import RunRequest
from app.util.frozen import FrozenMap

COARSE = 2  # a map of a unit has every second point of the grid
INSIDE = 20  # points a side of the maps inside the nodes

# How outputs are read: scores of classes, one score or probability of two classes, a value.
SCORES, LOGIT, PROBABILITY, VALUE = "scores", "logit", "probability", "value"


class Plane(Struct, frozen=True):
    """The outputs of a net on a grid of its two inputs.

    `outputs` is float32 (size, size, C), row by row from the least second input on; `kind` says how they are read.
    `units` is float32 (size / COARSE, size / COARSE, U): the outputs of a layer's units, None without one; `inside` has
    those of the first units of every module by its path, on INSIDE x INSIDE points. `points` is float32 (n, 2) and
    `labels` float32 (n,), the training samples. `low` and `high` bound the grid, and are `shown_low` and
    `shown_high` in the units of the data. `seconds` of the processor is what the
    mapping took, `clock` those of its thread.
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
    clock: float
    inside: FrozenMap[str, Any] = FrozenMap()


class PlaneAsked(Struct, frozen=True):
    """Which plane is wanted: `size` points a side, over the points and at least from -`reach` to `reach`; of a `layer`
    the units, and what is `inside` every module."""

    size: int
    layer: str = ""
    inside: bool = False
    reach: float = 0.0


class MapPlane(RunRequest[Plane], frozen=True):
    """Map the plane by the net of the run, at this moment. ValueError without two inputs."""

    asked: PlaneAsked


class MapPlaneOfWeights(Request[Plane], frozen=True):
    """Map the plane by the chosen weights. Raises ValueError without two inputs."""

    lane: ClassVar[str] = "plane"
    job: Job
    weights: WeightsChoice
    asked: PlaneAsked


class Filters(Struct, frozen=True):
    """The filters of the first convolution over pictures: `weights` float32 (F, h, w, C), and what each answers to the
    picture `sample` (H, W, C): `answers` float32 (F, H', W'). `seconds` and `clock` are as those of a plane."""

    layer: str
    weights: Any
    sample: Any
    answers: Any
    step: int
    seconds: float
    clock: float


class ShowFilters(RunRequest[Filters], frozen=True):
    """Return the filters of the run at this moment, and their answers to a picture. ValueError without any."""

    sample: int = 0


class ShowFiltersOfWeights(Request[Filters], frozen=True):
    """Return the filters of the chosen weights. Raises ValueError without any."""

    lane: ClassVar[str] = "plane"
    job: Job
    weights: WeightsChoice
    sample: int = 0
