"""Requests about a model from anywhere: observe one forward pass, capture one, and report on it for a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from app.autograd.capture_options import CaptureOptions
from app.autograd.tape import Tape
from app.engine.protocol import MAIN, Request
from app.engine.requests.capture import CaptureRequest, HeldStep
from app.observe.figures import ModuleFigures
from app.observe.observation import Observation
from app.sources.opened import OpenedModel
from app.sources.spec import (
    COLLECTIONS,
    AskedModel,
    InputSpec,
    ModelRaisedError,
    SourceError,
    SourceSpec,
    parse_arguments,
    parse_example,
    parse_input,
    parse_source,
)
from app.util.frozen import FrozenMap


class Observe(Request[Observation], frozen=True):
    """Build the model of a source, run it once with example inputs, and return the recorded calls.

    `folder` comes first on Python's path. Without `inputs`, and without an `example` for `parse_example`, they
    are proposed from the source. With `meta` the model has no weights and computes no values. Raises SourceError; send
    it to a separate engine.
    """

    lane: ClassVar[str] = MAIN
    source: SourceSpec
    arguments: FrozenMap[str, Any] = FrozenMap()
    inputs: tuple[InputSpec, ...] = ()
    folder: str = ""
    train: bool = False
    meta: bool = False
    example: str = ""

    @property
    def runs_own_code(self) -> bool:
        """Return whether making it, or its inputs, runs code of the user's own."""
        return self.source.own_code or ".py:" in self.example


def request_of(model: AskedModel) -> Observe:
    """Return the request for a model as it was written; collections are made without weights, and a .pt2 is run if it
    is trusted. Raises SourceError."""
    source = parse_source(model.source)
    source = source.as_run if model.trust else source
    arguments, inputs = (
        FrozenMap(parse_arguments(model.arguments)),
        tuple(map(parse_input, model.inputs)),
    )
    folder = (
        (model.folder or str(Path.cwd())) if source.own_code or source.looked_at else ""
    )
    if model.example and inputs:
        raise SourceError(
            "the inputs are described and taken from an example; choose one of both"
        )
    return Observe(
        source,
        arguments,
        inputs,
        folder,
        model.train,
        model.meta or source.kind in COLLECTIONS,
        example_of(model),
    )


def example_of(model: AskedModel) -> str:
    """Return where the inputs of a model come from, with an absolute path; "" if it has no example. Raises
    SourceError."""
    if not model.example:
        return ""
    spec = parse_example(model.example)
    return str(replace(spec, file=str(Path(model.folder or Path.cwd(), spec.file))))


def opened_model(
    request: Observe, observation: Observation, sha256: str
) -> OpenedModel:
    """Return a model that was observed as one to train; `sha256` is the digest of its file before it ran. Raises
    SourceError for one that raised, or that nothing was run of."""
    if observation.interface is None:
        if observation.error:
            raise ModelRaisedError(
                f"{request.source} cannot be trained: {observation.failure}"
            )
        raise SourceError(
            f"{request.source} is drawn as its file describes it and not run, so it cannot be trained"
        )
    return OpenedModel(
        request.source,
        request.arguments,
        request.inputs,
        request.folder,
        sha256,
        observation.interface,
        request.example,
    )


class CapturedModel(Struct, frozen=True):
    """The graph of one call, and figures of every module that was called or has parameters."""

    tape: Tape
    batch: ModelCapture
    figures: tuple[ModuleFigures, ...]


class ModelCapture(Request[CapturedModel], frozen=True):
    """Make the model of a source, with the `weights` of a file or those that `seed` determines, call it with its
    example inputs, and describe the graph below its loss, or below its outputs where it computes none.

    `options` say what differs from that; `data` and `batch` of them mean nothing here. Raises SourceError and
    CaptureError; send it to a dedicated engine, which runs the code of the model.
    """

    lane: ClassVar[str] = "capture"
    model: Observe
    train: bool = False
    options: CaptureOptions = CaptureOptions()
    seed: int = 0
    weights: str = ""

    @property
    def diagnosed(self) -> ModelCapture:
        """The same call as the diagnostics run it."""
        return replace(self, options=self.options.diagnosed)

    def of_samples(self, _batch: int) -> ModelCapture:
        """Return the request unchanged: its inputs have the requested sizes."""
        return self


# What can be captured, played and diagnosed.
AnyCapture = CaptureRequest | ModelCapture | HeldStep


class ModelReported(Struct, frozen=True):
    """`steps` are packed records of the backward pass, `stopped` says why it ended early. `lines` are the report, and
    `found` how many errors and warnings are in it, and `remark` what was guessed of its inputs."""

    tape: Tape | None = None
    steps: bytes | None = None
    stopped: str = ""
    lines: tuple[str, ...] = ()
    found: int = 0
    remark: str = ""


class ModelReport(Request[ModelReported], frozen=True):
    """The output of `tapedeck autograd` for a model: its graph, `play`ed if requested; the findings; and `checks` by
    name, each of a layer, of the whole model for ""."""

    lane: ClassVar[str] = "capture"
    batch: ModelCapture
    graph: bool = True
    play: bool = False
    findings: bool = False
    checks: FrozenMap[str, str] = FrozenMap()
