"""Requests to interpret a net: attention on a sample, attributions, and the loss with parts ablated or patched."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.engine.requests.autograd.capture import WeightsChoice
from app.engine.requests.observe import ModelCapture
from app.interpret.results import (
    INTEGRATED_GRADIENTS,
    AttentionFound,
    Attribution,
    Effect,
    Intervention,
    SampleLook,
)
from app.training.job import Job


class InterpretedNet(Struct, frozen=True):
    """A net that is ready for requests, under the handle `net`.

    `counts` are the samples of each split, (("training", 1000), ...); of a model from anywhere those of its example
    inputs, under "example". `words` describe its weights, `layers` are its modules, `inputs` the names of its inputs.
    """

    net: Handle
    counts: tuple[tuple[str, int], ...]
    classes: tuple[str, ...]
    words: str
    layers: tuple[str, ...]


class PrepareInterpreted(Request[InterpretedNet], frozen=True):
    """Build the net of a job with some weights and read its data; progress is text. Raises as an evaluation."""

    lane: ClassVar[str] = "interpret"
    job: Job
    weights: WeightsChoice


# The subject: a prepared net, or a model from any source with its example inputs.
Interpreted = Handle | ModelCapture


class Samples(Struct, frozen=True):
    """Samples of a split, by number; of a model from anywhere those of its example inputs, and `part` means nothing.

    With `worst` above 0 they are that many samples of the split with the largest loss.
    """

    numbers: tuple[int, ...] = (0,)
    part: str = "validation"
    worst: int = 0


class ReadAttention(Request[AttentionFound], frozen=True):
    """Return the attentions of a forward pass on one sample, with maps of the modules at `layers`, of all for None."""

    lane: ClassVar[str] = "interpret"
    net: Interpreted
    samples: Samples = Samples()
    layers: tuple[str, ...] | None = None


class ReadAttributions(Request[tuple[Attribution, ...]], frozen=True):
    """Attribute a score of each sample to its input: of the class `target`, or of the predicted one.

    `layer` is that of Grad-CAM, "" for the last that has pictures; `argument` is the number of the input tensor.
    """

    lane: ClassVar[str] = "interpret"
    net: Interpreted
    samples: Samples = Samples()
    method: str = INTEGRATED_GRADIENTS
    target: int | None = None
    layer: str = ""
    argument: int = 0


class MeasureEffect(Request[Effect], frozen=True):
    """Return the loss on samples without and with interventions; those with a source take from that sample."""

    lane: ClassVar[str] = "interpret"
    net: Interpreted
    interventions: tuple[Intervention, ...]
    samples: Samples = Samples()


class FindWorst(Request[tuple[int, ...]], frozen=True):
    """Evaluate a prepared net on a split, and return its samples of the largest loss, largest first."""

    lane: ClassVar[str] = "interpret"
    net: Handle
    part: str
    count: int


class ReadLooks(Request[tuple[SampleLook, ...]], frozen=True):
    """Return samples as displayed: pictures, tokens, labels and predictions."""

    lane: ClassVar[str] = "interpret"
    net: Interpreted
    samples: Samples
