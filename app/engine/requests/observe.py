"""Request for an observation: one forward pass of a model from anywhere."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from app.engine.protocol import MAIN, Request
from app.engine.requests.import_model import parse_arguments
from app.observe.observation import Observation
from app.sources.spec import AskedModel, InputSpec, SourceSpec, parse_input, parse_source
from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class Observe(Request[Observation]):
    """Build the model of a source, run it once with example inputs, and return what it called.

    `folder` comes first on Python's path. Without `inputs` they are proposed from the source. With `meta` the model has
    no weights and computes no values. Raises SourceError; send it to a separate engine.
    """

    lane: ClassVar[str] = MAIN
    source: SourceSpec
    arguments: FrozenMap[str, Any] = field(default_factory=FrozenMap)
    inputs: tuple[InputSpec, ...] = ()
    folder: str = ""
    train: bool = False
    meta: bool = False


def request_of(asked: AskedModel) -> Observe:
    """Return the request for a model as it was written; collections are made without weights. Raises SourceError, and
    ImportRequestError for arguments that are no JSON."""
    source = parse_source(asked.source)
    arguments, inputs = FrozenMap(parse_arguments(asked.arguments)), tuple(map(parse_input, asked.inputs))
    folder = str(Path.cwd()) if source.own_code else ""
    return Observe(source, arguments, inputs, folder, asked.train, asked.meta or not source.own_code)
