"""Request: compare gradients with finite differences."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.autograd.gradcheck.report import GradcheckReport
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture


class WholeNet(Struct, frozen=True):
    """The net with its loss."""


class LayerCall(Struct, frozen=True):
    """The `call`-th call of the module at `path`."""

    path: str
    call: int = 1


class NodeOperation(Struct, frozen=True):
    """The operation of backward node `number` in a graph whose nodes have these names."""

    number: int
    names: tuple[str, ...]


class GradcheckRequest(Request[GradcheckReport], frozen=True):
    """Compare backward's gradient with finite differences. Progress is a sentence."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture
    what: WholeNet | LayerCall | NodeOperation
    title: str
