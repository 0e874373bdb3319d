"""Requests: capture one batch; describe the step of a script that is paused before its backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from app.autograd.capture_options import PLAIN_OPTIONS, CaptureOptions
from app.autograd.tape import Label, Tape
from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.engine.protocol import Handle, Request
from app.training.job import Job
from app.util.frozen import FrozenMap


class InitialWeights(Struct, frozen=True):
    """The weights that a run of the job would start with."""


class NewestWeights(Struct, frozen=True):
    """Those of the newest stored run in a folder that trained this very net; initial ones if there is none.

    `best` are those with the smallest validation loss in place of its newest; the request fails if it kept none.
    """

    folder: str
    best: bool = False


class WeightsFile(Struct, frozen=True):
    """A checkpoint or state_dict in a file of the program. `words`, its origin, follow "weights" in texts."""

    path: str
    words: str
    is_checkpoint: bool = True


WeightsChoice = InitialWeights | NewestWeights | WeightsFile


class Captured(Struct, frozen=True):
    """`batch` is the request with the weights resolved to a file, so that repeating it uses the same ones.

    `weights` describes them.
    """

    tape: Tape
    batch: CaptureRequest
    weights: str


class CaptureRequest(Request[Captured], frozen=True):
    """Run one batch of a job's data through its net, in train or eval mode, and return the graph of its loss.

    `options` are those of the capture; their `batch` is the number of samples, 0 for the job's batch size. `labels` are
    the names and colours of the canvas nodes in the graph.
    """

    lane: ClassVar[str] = "capture"
    job: Job
    labels: FrozenMap[str, Label] = FrozenMap()
    train: bool = True
    weights: WeightsChoice = InitialWeights()
    options: CaptureOptions = CaptureOptions()

    @property
    def diagnosed(self) -> CaptureRequest:
        """The same batch as the diagnostics run it: every node of its graph has its layer and its line."""
        return replace(self, options=self.options.diagnosed)

    def of_samples(self, batch: int) -> CaptureRequest:
        """Return the request with another batch size."""
        return replace(self, options=replace(self.options, batch=batch))


class CapturedStep(Struct, frozen=True):
    """`notes` describe differences between the playback and the script's own backward."""

    tape: Tape
    notes: tuple[str, ...] = ()


class HeldStep(Request[CapturedStep], frozen=True):
    """Describe the graph of a paused script. `handle` is of the engine in the script's process; `script` is its name,
    `step` the number of the step under way."""

    lane: ClassVar[str] = "capture"
    handle: Handle
    script: str
    step: int

    @property
    def options(self) -> CaptureOptions:
        """All values equal those of the script."""
        return PLAIN_OPTIONS

    @property
    def diagnosed(self) -> None:
        """The diagnostics run a batch again, which only the script can."""
        return None

    def of_samples(self, _batch: int) -> HeldStep:
        """Return the request as it is: the batch is the script's."""
        return self


def node_labels(graph: Graph, catalog: Catalog) -> FrozenMap[str, Label]:
    """Return names and categories of the nodes, for labels of the autograd graph."""
    labels: Mapping[str, Label] = {
        node.id: Label(node.name, catalog.spec_of(graph, node).category)
        for node in graph.nodes.values()
    }
    return FrozenMap(labels)
