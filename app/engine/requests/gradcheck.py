"""What is checked with finite differences, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.requests.capture import CaptureRequest


@dataclass(frozen=True)
class WholeNet:
    """The net with its loss."""


@dataclass(frozen=True)
class LayerCall:
    """The `call`-th call of the module at `path`."""

    path: str
    call: int = 1


@dataclass(frozen=True)
class NodeOperation:
    """The operation that made backward node `number` of a graph whose nodes have these names."""

    number: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class GradcheckRequest:
    """Compare backward's gradient with finite differences. Answered by a `GradcheckReport`; progress is a sentence."""

    batch: CaptureRequest
    what: WholeNet | LayerCall | NodeOperation
    title: str
