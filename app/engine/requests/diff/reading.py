"""Request: read one side of a comparison: a project, a stored run or a file of weights."""

from __future__ import annotations

from typing import ClassVar

from app.engine.protocol import MAIN, Request
from app.engine.requests.diff import DiffSide
from app.project.weights.state_dict_diff import SUFFIXES

WEIGHTS = SUFFIXES


class ReadSide(Request[DiffSide], frozen=True):
    """Read a project, the folder of a run, one of its checkpoints, or a file of weights, without running its net.

    `weights` is the run of a project by number or name, perhaps with a checkpoint or a step after a slash, or those of
    the folder of a run, or a file; of a run the best checkpoint is taken, else the last. A project of an opened model
    is returned as its source, which the caller has trusted before it is run. Raises SourceError.
    """

    lane: ClassVar[str] = MAIN
    path: str
    weights: str = ""
