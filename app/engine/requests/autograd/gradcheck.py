"""Request: compare gradients with finite differences."""

from __future__ import annotations

from typing import ClassVar

from app.autograd.gradcheck.report import GradcheckReport
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture
from app.util.late_dataclass import dataclass


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
    """The operation of backward node `number` in a graph whose nodes have these names."""

    number: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class GradcheckRequest(Request[GradcheckReport]):
    """Compare backward's gradient with finite differences. Progress is a sentence."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture
    what: WholeNet | LayerCall | NodeOperation
    title: str
