"""Requests to interpret a net on some samples, and what they return: attention, attributions, effects of changes."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.engine.requests.capture import WeightsChoice
from app.engine.requests.observe import ModelCapture
from app.training.job import Job
from app.util.errors import CodedError

SALIENCY, INTEGRATED_GRADIENTS, GRAD_CAM = (
    "saliency",
    "integrated-gradients",
    "grad-cam",
)
METHODS = (SALIENCY, INTEGRATED_GRADIENTS, GRAD_CAM)
COMPLETE = 0.01  # of the difference of the scores, by which the sum of integrated gradients may be off


class InterpretError(CodedError, ValueError):
    """A net that cannot be interpreted as requested; the message says why, and the cure."""

    exit_code = 2


class AttentionReading(Struct, frozen=True, eq=False):
    """One scaled-dot-product attention of a forward pass, for one sample.

    `path` is the innermost module that computed it, `call` counts the attentions of that module from 1, `kind` is the
    function, the kernel or "softmax" that computed the weights. There are `groups` (windows) of `heads` heads over
    `queries` x `keys` weights. `maps` is (groups, heads, rows, columns) float32, None where no map was asked for: means
    of `pooled` x `pooled` blocks, summed along keys, where a map would be too large. `entropy` is the mean entropy of
    the rows in nats by head. `error` is the largest difference between weights times values and the output of the call,
    relative to the largest output; the weights are `checked` if it is rounding. `grid` is how many keys come before
    those of patches, and rows and columns of patches, where a module gave pictures of that size before; else None.
    `remark` says what else is to be known.
    """

    path: str
    call: int
    kind: str
    place: str
    groups: int
    heads: int
    queries: int
    keys: int
    error: float
    checked: bool
    entropy: tuple[float, ...]
    pooled: int = 1
    grid: tuple[int, int, int] | None = None
    maps: Any = None
    remark: str = ""

    @property
    def name(self) -> str:
        """Return the path, with the number of the call after the first."""
        return f"{self.path or 'the model'}{f'#{self.call}' if self.call > 1 else ''}"


class SampleLook(Struct, frozen=True, eq=False):
    """One sample for display: its number, a picture (H, W, 3) of bytes or None, its tokens, label and
    prediction."""

    number: int
    picture: Any = None
    tokens: tuple[str, ...] = ()
    label: str = ""
    prediction: str = ""


class AttentionFound(Struct, frozen=True, eq=False):
    """All attentions of a forward pass on a sample, in the order in which they were computed; `remarks` say what was
    not followed."""

    sample: SampleLook
    attentions: tuple[AttentionReading, ...]
    remarks: tuple[str, ...] = ()


class Attribution(Struct, frozen=True, eq=False):
    """What each value of an input contributes to one number of the output, `score`, which `target` names.

    `values` have the shape of the input without the batch, of (tokens,) for token ids; those of Grad-CAM are (H, W), at
    the size of the input. Of integrated gradients `total` is the sum, `baseline` the score at the baseline and `steps`
    how many were taken, NaN and 0 of other methods, and `against` names the baseline. `layer` is that of Grad-CAM.
    """

    sample: SampleLook
    method: str
    target: str
    score: float
    values: Any
    total: float = math.nan
    baseline: float = math.nan
    steps: int = 0
    against: str = ""
    layer: str = ""
    remark: str = ""

    @property
    def incompleteness(self) -> float:
        """Return |sum - difference of the scores| / |difference|; NaN for a method that promises nothing."""
        return abs(self.total - (self.score - self.baseline)) / max(
            abs(self.score - self.baseline), 1e-12
        )

    @property
    def complete(self) -> bool:
        """Return whether the attributions sum to the difference of the scores to 1 %."""
        return self.incompleteness <= COMPLETE


class Intervention(Struct, frozen=True):
    """An intervention: the output of a part of the net is replaced by zeros, or by its output for sample `source`.

    The part is the output of the module at `path`, one channel of it along `axis` (None: the one its type has), or one
    head of the attention that the module computes. `call` counts calls of the module from 1, and 0 is every call.
    """

    path: str
    call: int = 0
    head: int | None = None
    channel: int | None = None
    axis: int | None = None
    source: int | None = None

    def __str__(self) -> str:
        suffix = "" if self.head is None else f":head={self.head}"
        suffix = suffix if self.channel is None else f":channel={self.channel}"
        return f"{self.path}{f'#{self.call}' if self.call else ''}{suffix}"


class Effect(Struct, frozen=True):
    """The loss on some samples without and with interventions, and by sample.

    `measure` names the number, as "CrossEntropyLoss". `predictions` are those before and after, "" without classes;
    `shift` is the norm of the change of the output relative to the norm of the output.
    """

    measure: str
    before: float
    after: float
    samples: tuple[int, ...]
    each_before: tuple[float, ...]
    each_after: tuple[float, ...]
    predictions: tuple[tuple[str, str], ...]
    shift: float
    remarks: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """Return by how much the loss grew."""
        return self.after - self.before


_PART = re.compile(
    r"(?P<path>[^#:=]*)(?:#(?P<call>[1-9]\d*))?(?::(?P<kind>head|channel)=(?P<number>\d+))?"
)


def parse_part(text: str, source: int | None = None) -> Intervention:
    """Parse the part of a net that is muted or patched. Raises InterpretError.

    >>> parse_part("layers.0.attn#2:head=3")
    Intervention(path='layers.0.attn', call=2, head=3, channel=None, axis=None, source=None)
    >>> str(parse_part("conv1:channel=5", source=7))
    'conv1:channel=5'
    """
    match = _PART.fullmatch(text)
    if not match or not (match["path"] or match["kind"] == "head"):
        raise InterpretError(
            f"{text!r} does not name a part of a net; write PATH, PATH:head=3, PATH:channel=5, PATH#2 for its second "
            f"call, or "
            ":head=3 for attention that the model itself computes"
        )
    number = int(match["number"]) if match["number"] else None
    return Intervention(
        match["path"],
        int(match["call"] or 0),
        number if match["kind"] == "head" else None,
        number if match["kind"] == "channel" else None,
        None,
        source,
    )


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
